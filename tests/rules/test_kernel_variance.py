"""Kernels whose duration varies between steps: which of them, and as what."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.programs import found
from tests.rules.test_hard_cases import kernels
from traceanalyzer.model.finding import Confidence


@pytest.mark.parametrize(("steps", "said"), [(3, ["outliers"]), (2, [])])
def test_three_steps_can_tell_which_one_is_unusual(steps: int, said: list[str]) -> None:
    trace = kernels([[100] * 10] * (steps - 1) + [[100] * 9 + [900]])
    assert [one.cause for one in found(trace, "kernel-variance")] == said


def test_a_kernel_that_drifts_far_is_told_once() -> None:
    """Its last executions take more than 1.25 times the usual, too."""
    (one,) = found(kernels([[us] * 10 for us in (100, 110, 120, 130, 140, 150)]), "kernel-variance")
    assert one.cause == "drift"
    assert "from 100 µs in the first to 150 µs in the last" in one.message


def test_a_kernel_that_gets_quicker_drifts_as_well() -> None:
    (one,) = found(kernels([[us] * 10 for us in (150, 140, 130, 120, 110, 100)]), "kernel-variance")
    assert one.cause == "drift"
    assert "from 150 µs in the first to 100 µs in the last" in one.message


@pytest.mark.parametrize(
    ("steps", "drifts"),
    [
        pytest.param((100, 110, 120, 130, 120, 140, 150), True, id="one of six changes disagrees"),
        pytest.param((100, 130, 120, 130, 120, 140, 150), False, id="two do"),
    ],
)
def test_of_six_changes_one_may_go_the_other_way_in_a_drift(steps: tuple[int, ...], *, drifts: bool) -> None:
    causes = {one.cause for one in found(kernels([[us] * 10 for us in steps]), "kernel-variance")}
    assert ("drift" in causes) is drifts


@pytest.mark.parametrize(("slow", "cause"), [(3, "outliers"), (4, "comes-and-goes")])
def test_up_to_15_percent_of_the_executions_are_outliers(slow: int, cause: str) -> None:
    """Of four steps of five executions each; those that stand out are of the third."""
    rows = [[100] * 5 for _ in range(4)]
    rows[2][:slow] = [200] * slow
    (one,) = found(kernels(rows), "kernel-variance")
    assert (one.cause, one.evidence["slow"], one.evidence["slow_steps"]) == (cause, slow, [2])
    assert one.cost_ns == slow * 100_000


def test_one_step_that_is_quicker_than_usual_is_no_drift() -> None:
    """Of 100 us as usual, 88 us in the first step: what counts is what takes longer, 9 us in the last one."""
    assert found(kernels([[us] * 10 for us in (88, 100, 100, 100, 100, 109)]), "kernel-variance") == []
    (one,) = found(kernels([[us] * 10 for us in (100, 100, 100, 100, 109, 109)]), "kernel-variance")
    assert one.cause == "drift"


@pytest.mark.parametrize(
    ("shapes", "confidence"), [({}, Confidence.LOW), ({"Input Dims": [[5, 5]]}, Confidence.HIGH)]
)
def test_shapes_show_that_a_slow_step_did_the_same_work(
    shapes: dict[str, Any], confidence: Confidence
) -> None:
    trace = kernels([[100] * 4] * 9 + [[200] * 4])
    for event in trace.events:
        if event["name"] == "aten::mm":
            event["args"] |= shapes
    (one,) = found(trace, "kernel-variance")
    assert (one.cause, one.confidence, one.cost_ns) == ("outliers", confidence, 4 * 100_000)
