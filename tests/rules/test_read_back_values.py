"""What goes with a value that is read back: the ops that make it, and how long each read waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.rules.programs import PINNED_TO_HOST, STEP, US, Program, found
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Finding, Status
from traceanalyzer.rule import Calls, Work
from traceanalyzer.rule.registry import find_rule
from traceanalyzer.rules.gpu_idle.implicit_sync import is_last_launch, last_makers


def deciding(
    makers: Sequence[str], *, copy_us: Sequence[int] = (2,) * 5, op: str = "aten::is_nonzero"
) -> Finding:
    """Steps of kernels, ops of 40 us that may make the value, and its read, of which each takes so many us."""
    program = Program()
    for number, us in enumerate(copy_us):
        program.step(number)
        for _ in range(3):
            program.kernel()
        for maker in makers:
            program.kernel(maker, 40 * US)
        program.copy(PINNED_TO_HOST, 1, us * US, (op, "aten::item", "aten::_local_scalar_dense"))
        for _ in range(3):
            program.kernel()
    (one,) = found(program.trace, "implicit-sync")
    return one


@pytest.mark.parametrize(
    ("makers", "gone"),
    [
        (["aten::gt", "aten::any"], 2),
        (["aten::mm", "aten::any"], 1),
        (["aten::any", "aten::mm"], 0),  # what is read may be a sum of both
        (["aten::abs", "aten::gt", "aten::any"], 3),
        (["aten::mm", "aten::abs"], 0),  # no truth value
        (["aten::isnan", "aten::isinf", "aten::logical_or", "aten::any"], 4),
        (["aten::eq", "aten::isnan", "aten::isinf", "aten::logical_or", "aten::any"], 4),
    ],
)
def test_ops_that_only_make_the_truth_value_go_with_it(makers: list[str], gone: int) -> None:
    """An op takes 11 us of CPU time without the profiler."""
    one, least = deciding(makers), deciding(["aten::mm"] * len(makers))
    assert (one.cause, one.by) == ("branch", "aten::is_nonzero")
    assert one.saving is not None
    assert least.saving is not None
    assert (one.saving.step_ns - least.saving.step_ns) / 11_000 == pytest.approx(gone, abs=0.3)


@pytest.mark.parametrize(
    ("copy_us", "said"),
    [
        ((2,) * 5, " each time"),
        ((2, 2, 2, 2, 600), " on average, at most "),
    ],
)
def test_waits_report_mean_and_outstanding_longest(copy_us: tuple[int, ...], said: str) -> None:
    message = deciding(["aten::any"], copy_us=copy_us).message
    assert said in message
    assert ("each time" in message, "at most" in message) == ("each" in said, "at most" in said)


@pytest.mark.parametrize("later", [0, 1, 2, 5])
def test_value_read_first_is_reported_with_few_ops(later: int) -> None:
    program = Program()
    program.step(0)
    program.copy(PINNED_TO_HOST, 1, 2 * US, ("aten::is_nonzero", "aten::item"))
    for _ in range(later):
        program.kernel()
    (outcome,) = diagnose(program.trace.load(), select=["implicit-sync"]).outcomes
    assert outcome.status in (Status.FOUND, Status.CLEAR)


FRAME = "torch/distributions/normal.py(74): sample"


@pytest.mark.parametrize(
    ("frames", "asks", "switch"),
    [
        ([FRAME, "train.py(3): step"], False, "Turn the checks of torch.distributions off"),
        (["train.py(3): step"], True, ""),
        ([], True, "If torch.distributions checks its arguments there"),
        ([], False, ""),
    ],
)
def test_the_switch_for_checks_is_told_where_some_may_be(frames: list[str], asks: bool, switch: str) -> None:
    """Stacks show whether torch.distributions runs; without them a question whether all are true may be a check."""
    program = Program()
    for number in range(4):
        program.step(number)
        for place, frame in enumerate(frames):
            program.trace.python(
                frame, program.now + place * 6 * US, 5 * US, python_id=10 * number + place + 1
            )
        program.kernel("aten::all" if asks else "aten::any", 2 * US)
        program.kernel()
        program.copy(PINNED_TO_HOST, 1, 2 * US, ("aten::is_nonzero", "aten::item"))
        program.kernel()
    (one,) = found(program.trace, "implicit-sync")
    assert one.cause == "branch"
    assert one.advice.startswith("Decide on the device")
    assert ("torch.distributions" in one.advice) is bool(switch)
    assert switch in one.advice


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
    assert one.evidence["longest_ns"] == 5_005 * US
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
    fixes: Any = hits.fix
    assert fixes[0].work_ns.tolist() == [[800, 80_000]] * 4
