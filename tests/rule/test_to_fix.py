"""Which edits a reader is told to make: those of faults that stand above info by a finding of their own."""

from __future__ import annotations

from dataclasses import replace

from tests.report import report_samples as samples
from traceanalyzer.model.finding import Severity
from traceanalyzer.replay.edits import Drop, Edit
from traceanalyzer.rule.faults import FaultOf
from traceanalyzer.rule.judging import Judgement

HIGH, MEDIUM, INFO = Severity.HIGH, Severity.MEDIUM, Severity.INFO


def test_info_findings_add_nothing_to_the_fix() -> None:
    """The first fault has a finding for information as well; the second one has only such, the third one is info."""
    severities = (HIGH, INFO, INFO, INFO, HIGH)
    found = [replace(samples.findings()[0], severity=severity) for severity in severities]
    edits: list[Edit] = [Drop(rows) for rows in ((0,), (1,), (2,), (3,), (4,))]  # type: ignore[arg-type]
    faults = FaultOf((0, 0, 1, 1, 2), (None,) * 3, (HIGH, MEDIUM, INFO))
    judged = Judgement(tuple(found), tuple((edit,) for edit in edits), faults, ())
    assert judged.to_fix == (edits[0], edits[1])
