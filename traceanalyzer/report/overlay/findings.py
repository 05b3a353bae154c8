"""Findings as tracks: one per severity, a slice for every occurrence that the finding lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceanalyzer.model.finding import Finding, Occurrence, Severity
from traceanalyzer.model.overlay import Arg, Args, Slices
from traceanalyzer.model.report import Report
from traceanalyzer.model.units import format_ns, format_share

_ABOUT = "Occurrences of traceanalyzer's findings; select one to read its cost and the remedy."
_SAID = {"by", "count", "total_ns", "share"}  # under names of their own
_PLACES = ("step", "device", "stream", "thread")


@dataclass(frozen=True, slots=True)
class Numbered:
    """A finding with its number in the report, from 1."""

    number: int
    finding: Finding

    @property
    def title(self) -> str:
        """`1 implicit-sync: read-back, aten::item`."""
        named = ", ".join(part for part in (self.finding.cause, self.finding.by) if part)
        return f"{self.number} {self.finding.rule}" + (f": {named}" if named else "")

    @property
    def label(self) -> str:
        """The same with what fixing it saves: what its slices are called."""
        saving = self.finding.saving
        return self.title + (
            f", saves {format_ns(saving.step_ns)} a step" if saving and saving.step_ns > 0 else ""
        )


def numbered(report: Report) -> list[Numbered]:
    """The findings as the report ranks them."""
    return [Numbered(number, finding) for number, finding in enumerate(report.findings, 1)]


def track_name(severity: Severity) -> str:
    """What the track of that severity is called."""
    return f"Findings: {severity}"


def finding_tracks(findings: Sequence[Numbered]) -> Iterator[Slices]:
    """One track per severity that occurs, the highest first."""
    for severity in Severity:
        chosen = [one for one in findings if one.finding.severity is severity]
        if chosen:
            yield _track(track_name(severity), chosen)


def _track(name: str, findings: Sequence[Numbered]) -> Slices:
    found = [
        (occurrence.start_ns, max(occurrence.start_ns, occurrence.end_ns), kind, occurrence)
        for kind, one in enumerate(findings)
        for occurrence in one.finding.occurrences
    ]
    found.sort(key=lambda entry: entry[:3])
    start, end, kind = (np.array([entry[column] for entry in found], np.int64) for column in range(3))
    return Slices(
        name=name,
        start_ns=start,
        end_ns=end,
        kind=kind,
        names=[one.label for one in findings],
        args=[_args(one) for one in findings],
        own=[_own(entry[3]) for entry in found],
        about=_ABOUT,
    )


def _args(one: Numbered) -> Args:
    """What all occurrences of a finding say."""
    finding, saving = one.finding, one.finding.saving
    said: dict[str, Arg] = {
        "finding": one.number,
        "rule": finding.rule,
        "severity": str(finding.severity),
        "confidence": str(finding.confidence),
        "message": finding.message,
        "remedy": finding.advice,
        "cost": f"{format_ns(finding.cost_ns)} in total ({format_share(finding.cost_share)} of the window)",
        "count": finding.count,
    }
    said |= {name: value for name, value in (("cause", finding.cause), ("by", finding.by)) if value}
    if saving is not None:
        shares = f"{format_share(saving.low_share)} to {format_share(saving.high_share)}"
        said["saving"] = f"{format_ns(saving.step_ns)} a step, {shares} of it"
        said["saving_step_ns"] = saving.step_ns
    return said | _evidence(finding.evidence)


def _evidence(evidence: Mapping[str, Any]) -> dict[str, Arg]:
    return {f"evidence_{name}": _plain(value) for name, value in evidence.items() if name not in _SAID}


def _plain(value: Any) -> Arg:
    """Numbers and texts as they are; of amounts by name one line that viewers show as it is."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {amount}" for name, amount in value.items())
    return value if isinstance(value, str | int | float) else str(value)


def _own(occurrence: Occurrence) -> Args:
    """What one occurrence says."""
    places = {name: getattr(occurrence, name) for name in _PLACES}
    known = {name: value for name, value in places.items() if value is not None}
    return {"cost_ns": occurrence.cost_ns, **known, "event_ids": occurrence.event_ids}
