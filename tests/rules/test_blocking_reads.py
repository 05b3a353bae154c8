"""Ops that wait for the GPU: values, masks and checks."""

from typing import Any

import numpy as np
import pytest

from tests.rules.programs import PINNED_TO_HOST, STEP, TO_DEVICE, US, Program, deciding, found
from tests.support.trace_builder import TID
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Status
from traceanalyzer.replay.edits import Drop
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.rule import Calls, Work
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.registry import find_rule
from traceanalyzer.rules.gpu_idle.implicit_sync import is_last_launch, last_makers

ITEM = ("aten::item", "aten::_local_scalar_dense")


def hits_of(program: Program) -> Hits:
    (hits,) = find_rule("implicit-sync").hits(Analysis(program.trace.load()))
    return hits


@pytest.mark.parametrize("times", [1, 2])
def test_waits_report_total_idle_and_each_wait(times: int) -> None:
    program = Program()
    program.step(0)
    for _ in range(times):
        program.kernel()
        program.copy(PINNED_TO_HOST, 4, 2 * US, ITEM)
        program.kernel()
    program.now += 300 * US
    program.kernel()
    read = hits_of(program)
    assert "idle until the next launch, for {idle_a_step}" in read.message
    assert read.evidence is not None
    assert read.evidence["each_ns"] * times == pytest.approx(read.evidence["waited_ns"], abs=1)


@pytest.mark.parametrize(
    ("before", "gone"),
    [
        (["aten::mul", "aten::gt", "aten::any"], 2),  # the comparison, and what joins its results
        (["aten::abs", "aten::gt", "aten::any"], 3),
        (["aten::abs", "aten::mul", "aten::any"], 1),  # what is before another op is for something else
        (["aten::any", "aten::abs"], 0),  # a value, no decision
        (["aten::mm", "aten::any"], 1),
        (["aten::any", "aten::mm"], 0),  # what is read may be a sum of both
        (["aten::eq", "aten::isnan", "aten::isinf", "aten::logical_or", "aten::any"], 4),
        (["aten::eq"] * 6, 4),
        (["aten::sum"], 0),
    ],
)
def test_ops_of_a_truth_value_go_with_its_read(before: list[str], gone: int) -> None:
    (drop,) = (edit for edit in hits_of(deciding(before)).edits() if isinstance(edit, Drop))
    assert len(np.asarray(drop.rows)) == 4 * (1 + gone)


def test_what_another_thread_compares_is_no_part_of_the_question() -> None:
    """Its op is the last before the question, and the first of the thread that asks comes after it."""
    program = Program()
    for number in range(4):
        program.step(number)
        program.trace.op("aten::gt", program.now, 5 * US, tid=TID - 1)
        program.now += 10 * US
        program.copy(PINNED_TO_HOST, 1, 2 * US, ("aten::is_nonzero", "aten::item"))
        program.kernel()
    (drop,) = (edit for edit in hits_of(program).edits() if isinstance(edit, Drop))
    assert len(np.asarray(drop.rows)) == 4


def test_where_takes_twice_the_mask_kernel() -> None:
    """A kernel of 30 us makes the mask; another device has work of 500 us that was launched in between."""
    program = Program()
    for number in range(4):
        program.step(number)
        program.kernel("aten::mm", 100 * US)
        program.trace.launch("cudaLaunchKernel", program.now, 2 * US, 50_000 + number)
        program.trace.kernel(program.now + 400 * US, 500 * US, 50_000 + number, device=1)
        program.now += 5 * US
        program.kernel("aten::gt", 30 * US)
        program.copy(PINNED_TO_HOST, 8, 2 * US, ("aten::index", "aten::nonzero"))
        program.kernel()
    (replaced,) = (edit for edit in hits_of(program).edits() if isinstance(edit, Replace))
    kernels: Any = replaced.work_ns
    assert np.asarray(kernels).tolist() == [[800.0, 60 * US]] * 4
    assert replaced.cpu_ns == 20_000


@pytest.mark.parametrize(
    ("ops", "name", "only_waits"),
    [
        (ITEM, PINNED_TO_HOST, False),
        (("aten::unique_consecutive",), PINNED_TO_HOST, True),
        (("aten::to", "aten::copy_"), TO_DEVICE, True),
    ],
)
def test_op_with_other_work_stays_without_waiting(ops: tuple[str, ...], name: str, only_waits: bool) -> None:
    program = Program()
    for number in range(4):
        program.step(number)
        program.kernel()
        program.copy(name, 4, 2 * US, ops)
        program.kernel()
    trace = program.trace.load()
    (hits,) = find_rule("implicit-sync").hits(Analysis(trace))
    (drop,) = (edit for edit in hits.edits() if isinstance(edit, Drop))
    names = set(trace.cpu["name"].iloc[np.asarray(drop.rows)])
    calls = {"cudaStreamSynchronize"} | ({"cudaMemcpyAsync"} if name == PINNED_TO_HOST else set())
    assert names == (calls if only_waits else {ops[0]})


@pytest.mark.parametrize("later", [0, 1, 2, 5])
def test_value_read_first_is_reported_with_few_ops(later: int) -> None:
    program = Program()
    program.step(0)
    program.copy(PINNED_TO_HOST, 1, 2 * US, ("aten::is_nonzero", "aten::item"))
    for _ in range(later):
        program.kernel()
    (outcome,) = diagnose(program.trace.load(), select=["implicit-sync"]).outcomes
    assert outcome.status in (Status.FOUND, Status.CLEAR)


def test_last_op_does_not_make_the_first_ops_value() -> None:
    program = Program()
    program.step(0)
    program.copy(PINNED_TO_HOST, 1, 2 * US, ("aten::is_nonzero", "aten::item"))
    for op in ("aten::mm", "aten::mm", "aten::mm", "aten::any"):
        program.kernel(op)
    calls = Analysis(program.trace.load()).index(Calls)
    read = calls[calls.name.one_of("aten::is_nonzero")]
    assert last_makers(read, calls[calls.is_top_op]).tolist() == []


def test_what_is_read_before_the_steps_is_no_result_of_one() -> None:
    program = Program()
    for number in range(4):
        if number:
            program.step(number)
        program.kernel()
        program.kernel()
        program.copy(PINNED_TO_HOST, 4, 2 * US, ("aten::to", "aten::copy_"))
    analysis = Analysis(program.trace.load())
    calls, work = analysis.index(Calls), analysis.index(Work)
    last = is_last_launch(calls[calls.name.one_of("aten::to")], work)
    assert last.tolist() == [False, True, True, True]


def test_wait_beyond_recorded_work_is_cut() -> None:
    """Four reads that wait for 10 us; the last, of 5,008 us, returns 3 us after the device has done all."""
    program = Program()
    for number in range(5):
        program.step(number)
        program.kernel()
        program.now = number * STEP + 1_890 * US
        program.copy(PINNED_TO_HOST, 4, (5_000 if number == 4 else 2) * US, ("aten::item",))
    one = next(one for one in found(program.trace, "implicit-sync") if one.cause == "read-back")
    assert one.evidence["waited_ns"] == (5_005 + 4 * 10) * US


def test_mask_kernel_is_the_last_launched() -> None:
    """Another stream's kernel of 300 us is launched before that of the mask, of 40 us, and starts later."""
    program = Program()
    for number in range(4):
        program.step(number)
        program.device = program.now + 200 * US
        program.kernel("aten::mm", 300 * US, stream=20)
        program.device = program.now
        program.kernel("aten::gt", 40 * US)
        program.copy(PINNED_TO_HOST, 8, 2 * US, ("aten::index", "aten::nonzero"))
        program.kernel()
    (hits,) = find_rule("implicit-sync").hits(Analysis(program.trace.load()))
    assert hits.cause == "boolean-mask"
    fix: Any = hits.fix
    assert fix.work_ns.tolist() == [[800, 80_000]] * 4
