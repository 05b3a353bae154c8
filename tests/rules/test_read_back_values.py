"""What goes with a value that is read back: the ops that make it, and how long each read waits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.rules.programs import PINNED_TO_HOST, US, Program, found
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Finding, Status


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
def test_waits_are_told_by_their_mean_and_the_longest_where_it_stands_out(
    copy_us: tuple[int, ...], said: str
) -> None:
    message = deciding(["aten::any"], copy_us=copy_us).message
    assert said in message
    assert ("each time" in message, "at most" in message) == ("each" in said, "at most" in said)


@pytest.mark.parametrize("later", [0, 1, 2, 5])
def test_a_value_that_is_read_first_of_all_is_said_however_few_ops_there_are(later: int) -> None:
    program = Program()
    program.step(0)
    program.copy(PINNED_TO_HOST, 1, 2 * US, ("aten::is_nonzero", "aten::item"))
    for _ in range(later):
        program.kernel()
    (outcome,) = diagnose(program.trace.load(), select=["implicit-sync"]).outcomes
    assert outcome.status in (Status.FOUND, Status.CLEAR)
