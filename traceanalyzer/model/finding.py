"""What the analysis says: findings, what fixing them saves, and the report that renderers receive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from traceanalyzer.model.trace import Meta


MAX_OCCURRENCES = 1_000  # of a finding that are listed; all are counted


class Severity(StrEnum):
    """Share of the unprofiled step that fixing it saves: high from 10 %, medium from 3 %, low from 0.5 %, else info.

    Where the program cannot be replayed, the share of the analysed window that it cost.
    """

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for high to 3 for info."""
        return list(Severity).index(self)

    @staticmethod
    def of(share: float) -> Severity:
        """Severity of what is this share (0 to 1) of the step or of the window."""
        for severity, least in ((Severity.HIGH, 0.10), (Severity.MEDIUM, 0.03), (Severity.LOW, 0.005)):
            if share >= least:
                return severity
        return Severity.INFO


class Confidence(StrEnum):
    """How sure the cause is: high, the events say so; medium, they fit it; low, nothing else fits."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Status(StrEnum):
    """What became of a rule on a trace."""

    FOUND = "found"
    CLEAR = "clear"
    NOT_APPLICABLE = "not applicable"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Span:
    """Places something happened: [start_ns, end_ns) and, where known, device, stream, thread and step."""

    start_ns: int
    end_ns: int
    device: int | None = None
    stream: int | None = None
    thread: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Saving:
    """What fixing something takes off the unprofiled step: ns and shares (0 to 1) of it, with the interval."""

    step_ns: int
    low_ns: int
    high_ns: int
    share: float
    low_share: float
    high_share: float
    basis: str


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One hit within a finding; times in ns as in the trace."""

    start_ns: int
    end_ns: int
    cost_ns: int
    device: int | None
    stream: int | None
    thread: int | None
    step: int | None
    event_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """All hits of one rule, cause and `by` in one trace, on one device.

    Attributes:
        cause, by: what tells it from other findings of the rule: a kebab-case cause, and the op, line or call.
        start_ns, end_ns, stream, thread, step, event_ids: those of a typical occurrence.
        cost_ns: time of the trace that this finding alone owns; `cost_share` of the analysed window (0 to 1).
        cost_per_step_ns: `cost_ns` over the steps of the window.
        count: occurrences of the pattern; `steps`: in how many steps they are.
        occurrences: at most `MAX_OCCURRENCES`, the costliest, by start.
        saving: what fixing it takes off the unprofiled step; None where it cannot be replayed.
    """

    rule: str
    cause: str
    severity: Severity
    confidence: Confidence
    message: str
    advice: str
    rank: int | None
    device: int | None
    stream: int | None
    thread: int | None
    step: int | None
    start_ns: int
    end_ns: int
    cost_ns: int
    cost_share: float
    count: int
    occurrences: tuple[Occurrence, ...]
    event_ids: tuple[int, ...]
    evidence: Mapping[str, Any]
    by: str | None = None
    steps: int = 0
    cost_per_step_ns: int = 0
    saving: Saving | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one rule: `why` says why it does not apply or how it failed."""

    rule: str
    status: Status
    why: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """All that a renderer receives.

    Attributes:
        metas: metadata of each analysed trace, by rank order.
        accounting: one mapping per device: rank, device, start_ns, end_ns, parts_ns.
        summary: one mapping per trace: window, steps, step times, busy share; see `diagnose.summarise`.
        findings: ranked, costliest first.
        outcomes: one per rule and trace.
        limits: `rule.limit` -> value in force.
    """

    metas: tuple[Meta, ...]
    accounting: tuple[Mapping[str, Any], ...]
    summary: tuple[Mapping[str, Any], ...]
    findings: tuple[Finding, ...]
    outcomes: tuple[Outcome, ...]
    limits: Mapping[str, int | float | str]

    def to_frame(self) -> pd.DataFrame:
        """One row per finding, columns as the fields of `Finding`; times int64 ns, lists as objects."""
        from dataclasses import fields

        import pandas as pd

        names = [f.name for f in fields(Finding)]
        frame = pd.DataFrame([[getattr(f, name) for name in names] for f in self.findings], columns=names)
        for name in ("rank", "device", "stream", "thread", "step"):
            frame[name] = frame[name].astype("Int64")
        for name in ("severity", "confidence"):
            frame[name] = frame[name].astype("str")
        return frame
