"""Calls that ask the driver for memory: which count, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.rules.programs import US, Program, found


def asking(
    calls: Sequence[tuple[str, bool]], steps: int = 6, *, tid: int = 1000, inner: str = "", line: str = ""
) -> Program:
    """Steps that make these calls for 200 us each, in an op or not; most tensors come from the cache.

    Args:
        tid: the thread that calls.
        inner: a call of the driver's within each.
    """
    program = Program()
    for number in range(steps):
        program.step(number)
        for _ in range(4 * len(calls)):
            program.trace.op("aten::empty", program.now, US)
            program.now += 2 * US
        begin = program.now
        for name, in_op in calls:
            if in_op:
                program.trace.op("aten::empty", program.now, 210 * US, tid=tid)
            place = 50_000 + program.now // US
            program.trace.launch(name, program.now + US, 200 * US, place, tid=tid)
            if inner:
                program.trace.launch(inner, program.now + 20 * US, 150 * US, place + 1, tid=tid)
            program.now += 220 * US
        if line:
            program.trace.python(line, begin, program.now - begin, python_id=number + 1)
        program.kernel()
    return program


@pytest.mark.parametrize(("steps", "later"), [(9, True), (10, False)])
def test_in_the_first_ten_steps_the_cache_may_still_grow(steps: int, later: bool) -> None:
    (one,) = found(asking([("cudaMalloc", True)], steps).trace, "allocator-thrash")
    assert one.advice.startswith("First record later steps, schedule(wait=20, warmup=3)") is later
    assert "Pad inputs to a few sizes" in one.advice


@pytest.mark.parametrize(("in_ops", "cause"), [(1, "emptied"), (2, "full"), (0, "emptied")])
def test_memory_is_full_where_most_is_given_back_within_ops(in_ops: int, cause: str) -> None:
    """Of two calls that give back; half is not most."""
    calls = [("cudaMalloc", True), *[("cudaFree", place < in_ops) for place in range(2)]]
    (one,) = found(asking(calls).trace, "allocator-thrash")
    assert (one.cause, one.count) == (cause, 6 * 3)


def test_the_drivers_call_within_the_runtimes_is_not_another() -> None:
    (one,) = found(asking([("cudaMalloc", True)], inner="cuMemCreate").trace, "allocator-thrash")
    assert (one.by, one.count) == ("cudaMalloc", 6)
    assert one.evidence["called_ns"] == 6 * 200 * US


@pytest.mark.parametrize(("tid", "count"), [(1000, 6), (77, 0)])
def test_a_thread_that_launches_nothing_holds_up_nobody(tid: int, count: int) -> None:
    assert (
        sum(one.count for one in found(asking([("cudaMalloc", True)], tid=tid).trace, "allocator-thrash"))
        == count
    )


def test_pinned_memory_and_that_of_the_device_are_two_findings() -> None:
    said = found(asking([("cudaMalloc", True), ("cudaHostAlloc", True)]).trace, "allocator-thrash")
    assert {one.cause: (one.by, one.count) for one in said} == {
        "growing": ("cudaMalloc", 6),
        "pinned": ("cudaHostAlloc", 6),
    }


@pytest.mark.parametrize("line", ["train.py(7): forward", ""])
def test_the_line_that_asks_is_said_where_stacks_are_recorded(line: str) -> None:
    (one,) = found(asking([("cudaMalloc", True)], line=line).trace, "allocator-thrash")
    assert (", at train.py:7" in one.message or ", at train.py(7)" in one.message) is bool(line)
    assert (", at " in one.message) is bool(line)
