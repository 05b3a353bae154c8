"""What a rule yields: the occurrences of one pattern, the time that they lost, and what fixing them would do."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Floats
from traceanalyzer.model.finding import Confidence, Severity
from traceanalyzer.replay.edits import DropWork, Edit, Resize
from traceanalyzer.rule.lost_time import LostTime as LostTime
from traceanalyzer.rule.views import Calls, IdleTime, Work

MEASURED_SHARE = "measured_share"
"""Evidence of a finding that the recorder measured without the profiler; before what is predicted."""


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """The occurrences of a rule's pattern that have one cause, and are one finding per device.

    Attributes:
        occurrences: one per row: calls or ops, pieces of work, or idle time.
        message: template about all of them; CONTRIBUTING.md lists its fields.
        advice: one remedy, in the imperative.
        named_by: the op, line or call that the finding is named by, where a rule has a finding for each.
        cause: kebab-case, where the rule tells several causes apart.
        lost: the time lost; by default all the time of work and idle time, and none of calls.
        fix: edits of the replayed program; none where nobody can fix it or nobody knows what that would do.
        evidence: numbers and texts about all occurrences, by name with the unit: `moved_bytes`, `wait_ns`.
            `Texts` parallel to `occurrences` become a mapping: of what the finding alone owns, how much each text
            has, in ns.
        of_window: names in `evidence` of totals of idle or lost time, which are of the analysed window: those of calls
            and work are of all of the trace.
        related: further rows parallel to `occurrences` whose events the finding names.
        info: worth saying, but nobody's loss: the severity stays info.
        max_severity: the most that it can be where its cost has to do: less than high where what it costs is known,
            but not whether this program, or this rank of it, can do anything about it.
        fault_key: findings of two rules with the same key are one fault of the program, whatever their fixes take.
        of_format: its fix is another format of numbers, from which other kernels for the same work would gain as well.
        of_job: said whatever it saves this rank: what it is worth shows in the replay of all ranks.
        recurring_share: share of the marked steps that must have an occurrence that no other finding owns: else the
            severity is info, since what comes once may be chance.
        repeated_rows: several occurrences may be of one row, as stretches of time that one call names.
        normal_share: share of the step that healthy programs pay, too: where less is saved, the severity is info.
    """

    occurrences: Calls | Work | IdleTime
    message: str
    advice: str
    named_by: str | None = None
    cause: str = ""
    lost: LostTime | None = None
    fix: Edit | Sequence[Edit] = ()
    confidence: Confidence = Confidence.HIGH
    evidence: Mapping[str, Any] = field(default_factory=dict)
    of_window: Collection[str] = ()
    related: Sequence[Calls | Work] = ()
    info: bool = False
    max_severity: Severity = Severity.HIGH
    recurring_share: float = 0.0
    normal_share: float = 0.0
    fault_key: str = ""
    of_format: bool = False
    of_job: bool = False
    repeated_rows: bool = False

    def __post_init__(self) -> None:
        # The rule may go on filling its own mapping.
        object.__setattr__(self, "evidence", dict(self.evidence))

    @property
    def measured_share(self) -> float | None:
        """Share of the step (0 to 1) that the recorder measured; it decides the severity. None: nothing measured."""
        return self.evidence.get(MEASURED_SHARE)

    def losses(self) -> LostTime:
        """`lost`, or what stands for it."""
        if self.lost is not None:
            return self.lost
        return LostTime.none() if isinstance(self.occurrences, Calls) else LostTime.all_of(self.occurrences)

    def edits(self) -> tuple[Edit, ...]:
        """`fix` as a sequence."""
        return tuple(self.fix) if isinstance(self.fix, Sequence) else (self.fix,)


Numbers = NDArray[np.int64] | Floats


def reduce_to(work: Work, needed_ns: Numbers) -> dict[str, Any]:
    """Arguments of `Hits`: each piece of work with what it takes above `needed_ns`; with 0 it goes, with its launch.

    Raises ValueError: some of it needs less than no time, no number of ns, or more than it takes.
    """
    needed_ns = needed_ns.astype(np.float64)
    if wrong := int((~(needed_ns >= 0)).sum()):
        raise ValueError(f"{wrong:,} of {len(work):,} needed_ns are negative or no number: 0 takes the work away")
    if slower := int((needed_ns > work.dur_ns).sum()):
        raise ValueError(f"{slower:,} of {len(work):,} needed_ns are more than the work takes: leave it out")
    gone = needed_ns <= 0
    resized = Resize(work.entries[~gone], needed_ns[~gone])
    return {
        "occurrences": work,
        "lost": LostTime.excess(work, np.asarray(work.dur_ns - needed_ns, np.int64)),
        "fix": (DropWork(work.entries[gone]), resized) if gone.any() else (resized,),
    }


def clamp_to_floor(needed_ns: Numbers, work: Work, floor_ns: int) -> Floats:
    """At least the floor, below which no kernel gets quicker; what is shorter already stays."""
    least = np.minimum(work.dur_ns, floor_ns).astype(np.float64)
    return np.maximum(needed_ns, least)
