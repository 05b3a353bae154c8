"""Decisions of the report."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.report import report_samples as samples
from traceanalyzer.model.finding import Severity
from traceanalyzer.render.html.timeline_events import representative_steps
from traceanalyzer.render.perfetto.overlay import MOST_SAMPLES, drawn_curve
from traceanalyzer.report.finding_order import by_fault
from traceanalyzer.report.job_summary import job_pace
from traceanalyzer.rule.faults import FaultOf


def test_the_rank_that_waits_least_sets_the_pace() -> None:
    waits = {0: 5, 1: 1, 2: None, 3: 9}
    ranks: Any = [SimpleNamespace(rank=rank, predicted_waiting_ns=ns) for rank, ns in waits.items()]
    step: Any = SimpleNamespace(bound="cpu")
    assert job_pace(ranks, step).startswith("rank 1 is the slowest")


def test_the_mean_of_a_curve_that_does_not_change_is_its_value() -> None:
    at = np.arange(2 * MOST_SAMPLES) * 10
    steps: Any = SimpleNamespace(window_start_ns=0, window_end_ns=int(at[-1]))
    _, mean, note = drawn_curve(at, np.ones(len(at)), steps)
    assert note
    assert mean.tolist() == [1.0] * len(mean)


def test_step_beyond_the_requested_is_not_shown() -> None:
    steps: Any = SimpleNamespace(
        number=np.arange(10, 15),
        steady=np.ones(5, bool),
        in_use=(1, 4),
        bounds_ns={0: None},
        durations_ns=lambda device: np.array([9, 2, 3, 4, 9]),
    )
    findings: Any = [SimpleNamespace(step=14), SimpleNamespace(step=14), SimpleNamespace(step=11)]
    assert list(representative_steps(steps, findings)) == [2, 1, 3]
    assert list(representative_steps(steps, findings[:2])) == [2, 3]


@pytest.mark.parametrize(
    ("behind", "order"),
    [((), ["large", "fusing", "small"]), ((0,), ["large", "fusing", "small"]), ((0, 2), ["large", "small", "fusing"])],
)
def test_fusing_a_chain_follows_findings_on_its_cause(behind: tuple[int, ...], order: list[str]) -> None:
    """By itself it would stand between the two others, by what it saves."""
    savings = [samples.saving(share) for share in (0.4, 0.3, 0.2)]
    findings = [
        samples.finding(0, by=name, severity=Severity.HIGH, saving=saving)
        for name, saving in zip(("large", "fusing", "small"), savings, strict=True)
    ]
    faults = FaultOf((0, 1, 2), tuple(savings), (Severity.HIGH,) * 3, {1: frozenset(behind)})
    told, (of_trace,) = by_fault(findings, [faults])
    assert [one.by for one in told] == order
    assert [one.saving for one in of_trace] == [one.saving for one in told]
