"""Calls that ask the driver for memory: which count, and what is said of them."""

from collections.abc import Sequence

import pytest

from tests.rules.programs import US, Program, found
from traceanalyzer import Finding, diagnose
from traceanalyzer.model.finding import Status


def asking(
    calls: Sequence[tuple[str, bool]],
    steps: int = 6,
    *,
    asks: Sequence[int] = range(99),
    tid: int = 1000,
    inner: str = "",
    inner_at: int = 20 * US,
    line: str = "",
) -> list[Finding]:
    """Of steps that make these calls for 200 us each, in an op or not; most tensors come from the cache.

    Args:
        asks: steps that make the calls.
        tid: the thread that calls.
        inner: a call of the driver's within each, from `inner_at` on.
    """
    program = Program()
    for number in range(steps):
        program.step(number)
        for _ in range(4 * len(calls)):
            program.trace.op("aten::empty", program.now, US)
            program.now += 2 * US
        begin = program.now
        for name, in_op in calls if number in asks else ():
            if in_op:
                program.trace.op("aten::empty", program.now, 210 * US, tid=tid)
            place = 50_000 + program.now // US
            program.trace.launch(name, program.now + US, 200 * US, place, tid=tid)
            if inner:
                program.trace.launch(inner, program.now + US + inner_at, 150 * US, place + 1, tid=tid)
            program.now += 220 * US
        if line:
            program.trace.python(line, begin, program.now - begin, python_id=number + 1)
        program.kernel()
    return found(program.trace, "allocator-thrash")


@pytest.mark.parametrize(
    ("calls", "in_op", "cause"),
    [
        (("cudaMalloc",), True, "growing"),
        (("cudaMalloc", "cudaFree"), True, "full"),
        (("hipFree", "hipMalloc"), False, "emptied"),
        (("cudaHostAlloc",), True, "pinned"),
        (("cuMemCreate", "cuMemMap"), True, "growing"),
    ],
)
def test_cause_of_recurring_allocation(calls: tuple[str, ...], in_op: bool, cause: str) -> None:
    (thrash,) = asking([(name, in_op) for name in calls])
    assert (thrash.cause, thrash.count) == (cause, 6 * len(calls))
    assert thrash.cost_ns > 4 * len(calls) * 150 * US


@pytest.mark.parametrize(
    ("calls", "asks", "count"),
    [
        (["cudaMalloc"], range(1, 5), 4),
        (["cudaMalloc"], range(1, 4), 0),  # half of the steps
        (["cudaMalloc"] * 4, range(1, 4), 0),
        (["cudaMalloc", "cudaFree"], range(1), 0),  # first use
        (["cudaMallocAsync"], range(6), 0),
    ],
)
def test_calls_recur_that_more_than_half_of_six_steps_have(calls: list[str], asks: Sequence[int], count: int) -> None:
    assert sum(one.count for one in asking([(name, True) for name in calls], asks=asks)) == count


def test_a_single_step_cannot_tell() -> None:
    program = Program()
    program.step(0)
    program.trace.launch("cudaMalloc", program.now, 900 * US, 77)
    program.now += 900 * US
    program.kernel()
    (outcome,) = diagnose(program.trace.load(), select=["allocator-thrash"]).outcomes
    assert outcome.status is Status.NOT_APPLICABLE


@pytest.mark.parametrize(("steps", "later"), [(9, True), (10, False)])
def test_in_the_first_ten_steps_the_cache_may_still_grow(steps: int, later: bool) -> None:
    (one,) = asking([("cudaMalloc", True)], steps)
    assert one.advice.startswith("First record later steps, schedule(wait=20, warmup=3)") is later
    assert "Pad inputs to a few sizes" in one.advice


@pytest.mark.parametrize(("in_ops", "cause"), [(1, "emptied"), (2, "full"), (0, "emptied")])
def test_memory_is_full_where_most_is_given_back_within_ops(in_ops: int, cause: str) -> None:
    """Of two calls that give back; half is not most."""
    calls = [("cudaMalloc", True), *[("cudaFree", place < in_ops) for place in range(2)]]
    (one,) = asking(calls)
    assert (one.cause, one.count) == (cause, 6 * 3)


@pytest.mark.parametrize(
    ("calls", "cause"),
    [
        pytest.param(("cudaMalloc", "cudaMalloc", "cudaFree", "cudaFree"), "workspace", id="a library's own"),
        pytest.param(("cudaMalloc", "cudaFree", "cudaFree", "cudaMalloc"), "full", id="the cache's, asked again"),
    ],
)
def test_what_an_op_frees_last_is_its_workspace(calls: Sequence[str], cause: str) -> None:
    program = Program()
    for number in range(6):
        program.step(number)
        program.trace.op("aten::linalg_lu_factor_ex", program.now, 250 * len(calls) * US)
        for name in calls:
            program.trace.launch(name, program.now + US, 200 * US, 50_000 + program.now // US)
            program.now += 220 * US
        program.now += 200 * US
        program.kernel()
    (finding,) = found(program.trace, "allocator-thrash")
    assert (finding.cause, finding.count) == (cause, 6 * len(calls))


@pytest.mark.parametrize("inner_at", [0, 20 * US])
def test_the_drivers_call_within_the_runtimes_is_not_another(inner_at: int) -> None:
    (one,) = asking([("cudaMalloc", True)], inner="cuMemCreate", inner_at=inner_at)
    assert (one.by, one.count, one.evidence["called_ns"]) == ("cudaMalloc", 6, 6 * 200 * US)


def test_a_thread_that_launches_nothing_holds_up_nobody() -> None:
    assert asking([("cudaMalloc", True)], tid=77) == []


def test_pinned_memory_and_that_of_the_device_are_two_findings() -> None:
    said = asking([("cudaMalloc", True), ("cudaHostAlloc", True)])
    causes = {one.cause: (one.by, one.count) for one in said}
    assert causes == {"growing": ("cudaMalloc", 6), "pinned": ("cudaHostAlloc", 6)}


@pytest.mark.parametrize("line", ["train.py(7): forward", ""])
def test_the_line_that_asks_is_said_where_stacks_are_recorded(line: str) -> None:
    (one,) = asking([("cudaMalloc", True)], line=line)
    assert (", at train.py:7" in one.message or ", at train.py(7)" in one.message) is bool(line)
    assert (", at " in one.message) is bool(line)


@pytest.mark.parametrize("outside", [False, True])
def test_allocator_is_off_if_every_tensor_asks(outside: bool) -> None:
    """In four of six steps; in the others tensors come from the cache, with a call between ops or none."""
    program = Program()
    for number in range(6):
        program.step(number)
        asks = number < 4
        for at in range(1 if asks else 20):
            program.trace.op("aten::empty", program.now, 160 * US if asks else US)
            if asks or (outside and at == 0):
                begin = program.now + (US if asks else 2 * US)
                program.trace.launch("cudaMalloc", begin, 150 * US, 50_000 + 100 * number)
                program.now += 160 * US
            program.now += 5 * US
        if asks:
            program.trace.op("aten::add", program.now, 110 * US)
            program.trace.launch("cudaFree", program.now + US, 100 * US, 60_000 + number)
            program.now += 112 * US
        program.kernel()
    (one,) = found(program.trace, "allocator-thrash")
    assert (one.cause, one.count) == ("off", 4 * 2 + 2 * outside)
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING" in one.advice


def test_warm_up_steps_that_ask_far_more_often_are_left_out() -> None:
    program = Program()
    for number in range(9):
        program.step(number)
        for place in range(12 if number < 2 else 1):
            program.trace.op("aten::empty", program.now, 60 * US)
            program.trace.launch("cudaMalloc", program.now + US, 50 * US, 50_000 + 100 * number + place)
            program.now += 62 * US
        program.kernel()
    (one,) = found(program.trace, "allocator-thrash")
    assert (one.count, one.steps) == (7, 7)
