"""What rules say of a trace: findings, their occurrences, and what became of each rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from traceanalyzer.model.step_times import Saving
from traceanalyzer.model.units import format_ns

MAX_OCCURRENCES = 1_000  # of a finding that are listed; all are counted
NOTHING_TO_DO = "Nothing to do"  # how the advice begins of what needs no fix


class Severity(StrEnum):
    """Share of the unprofiled step that fixing it saves: high from 10 %, medium from 3 %, low from 0.5 %, else info.

    The low end of the saving must reach the threshold of the class below. Where the program cannot be replayed, the
    share of the analysed window that it cost.
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
        return next((level for level in Severity if share >= level.least_share), Severity.INFO)

    @property
    def least_share(self) -> float:
        """Share from which on it is this; of `info` nothing is too little."""
        return _LEAST_SHARES[self.rank]

    @property
    def below(self) -> Severity:
        """The next lower one; `info` has none."""
        return list(Severity)[min(self.rank + 1, len(Severity) - 1)]

    def at_most(self, most: Severity) -> Severity:
        return max(self, most, key=lambda level: level.rank)


_LEAST_SHARES = (0.10, 0.03, 0.005, -float("inf"))


class Confidence(StrEnum):
    """How sure the cause is: high, proven by events; medium, consistent with them; low, by exclusion."""

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
        title: one sentence of at most 100 characters that states the problem with its number and the code.
        cause, by: what tells it from other findings of the rule: a kebab-case cause, and the op, line or call.
        start_ns, end_ns, stream, thread, step, event_ids: those of a typical occurrence.
        cost_ns: time of the trace that this finding alone owns; `cost_share` of the analysed window (0 to 1).
        cost_per_step_ns: what its occurrences within marked steps cost, over the steps of the window.
        count: occurrences of the pattern; `steps`: in how many steps they are.
        occurrences: at most `MAX_OCCURRENCES`, the costliest, by start.
        saving: what fixing it takes off the unprofiled step; None where it cannot be replayed.
        ranks: of a job, the ranks that have it; `rank` is the one that the rest of the finding is about.
        cost_by_rank_ns: `cost_per_step_ns` of each of these.
        fault: id of the fault that it is evidence of, in `TraceReport.faults`.
        profiler_command: the command of another profiler that answers what the trace leaves open; may be empty.
        pedantic: printed with --pedantic only, as it is doubtful and no finding of its fault is sure.
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
    occurrences: Sequence[Occurrence]
    event_ids: tuple[int, ...]
    evidence: Mapping[str, Any]
    by: str | None = None
    steps: int = 0
    cost_per_step_ns: int = 0
    saving: Saving | None = None
    fault: str | None = None
    ranks: tuple[int, ...] = ()
    cost_by_rank_ns: tuple[int, ...] = ()
    pedantic: bool = False
    title: str = ""
    profiler_command: str = ""

    @property
    def doubtful(self) -> bool:
        """Whether its cause is a guess, and worth little."""
        return self.confidence is Confidence.LOW and self.severity.rank >= Severity.LOW.rank

    @property
    def settled(self) -> bool:
        """Whether its advice is that there is nothing to do."""
        return self.advice.startswith(NOTHING_TO_DO)

    def is_of(self, rank: int | None) -> bool:
        return rank in self.ranks if self.ranks else rank == self.rank

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
