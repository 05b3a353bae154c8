"""What rules say: hits, and the findings made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from traceanalyzer.model.saving import Saving
from traceanalyzer.model.units import format_ns


class Severity(StrEnum):
    """Measured share of the analysed window: high from 10 %, medium from 3 %, low from 0.5 %, else info."""

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
        """Severity of a cost that is this share (0 to 1) of the analysed window."""
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
class Hit:
    """One occurrence of a rule's pattern.

    Attributes:
        cost_ns: time lost on the device or on the step, within the span; 0 where nothing was lost.
        cost_spans: when the lost time is not the span itself, the [start_ns, end_ns) that make up the cost;
            totals over hits are unions of these.
        cause: kebab-case; hits of one rule and cause become one finding.
        message: template with named fields, filled from `evidence` of the finding.
        advice: what to do, in the imperative.
        evidence: named numbers and texts behind the message.
        info: the pattern is worth saying but is nobody's loss: severity stays info whatever its share.
    """

    span: Span
    events: tuple[int, ...]
    cost_ns: int
    cause: str
    message: str
    advice: str
    confidence: Confidence
    evidence: Mapping[str, Any] = field(default_factory=dict)
    cost_spans: tuple[tuple[int, int], ...] | None = None
    info: bool = False


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
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """All occurrences of one rule and cause in one trace, on one device.

    `start_ns`, `end_ns`, `stream`, `thread`, `step` and `event_ids` are those of the costliest occurrence.
    `cost_ns` is the union of all occurrences' cost, `cost_share` its share of the analysed window (0 to 1).
    `by` is the op or line that did it, `steps` the number of steps with an occurrence, `cost_per_step_ns` the cost
    over all steps of the window; `saving` is null where no replay says what a fix would save.
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

    def __repr__(self) -> str:
        return f"Finding({self.rule}: {self.cause}, {self.severity}, cost {format_ns(self.cost_ns)})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one rule of a group: `why` says why it does not apply or how it failed."""

    rule: str
    status: Status
    why: str | None = None
    rank: int | None = None
    group: str = ""
