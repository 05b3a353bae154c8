"""What a rule yields: the occurrences of one pattern, the time that they lost, and what fixing them would do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from traceanalyzer.idle.cause_texts import BETWEEN_OPS
from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct, sums_of
from traceanalyzer.model.finding import Confidence, Severity
from traceanalyzer.model.texts import Texts
from traceanalyzer.rule.recorded_with import unknown_marks
from traceanalyzer.rule.views import Calls, IdleTime, Work
from traceanalyzer.rule.views.selection import positions

if TYPE_CHECKING:
    from traceanalyzer.replay.edits import Edit


@dataclass(frozen=True, slots=True, eq=False)
class LostTime:
    """Time lost on devices: [start_ns, end_ns) each, int64 (stretches,).

    Attributes:
        owner: position in `Hits.occurrences` of the occurrence that lost it.

    Raises:
        ValueError: the lengths differ, a column is no integer, a stretch ends before it starts, or an owner is
            negative, as `index_of_enclosing(...)` gives it where nothing is around a row.
    """

    owner: Rows
    device: Rows
    start_ns: Rows
    end_ns: Rows

    def __post_init__(self) -> None:
        for name in ("owner", "device", "start_ns", "end_ns"):
            dtype = getattr(column := getattr(self, name), "dtype", type(column).__name__)
            if getattr(dtype, "kind", "") not in ("i", "u"):
                raise ValueError(f"{name} of lost stretches has integers, not {dtype}")
        if len({len(column) for column in (self.owner, self.device, self.start_ns, self.end_ns)}) > 1:
            raise ValueError(f"{len(self.owner):,} owners of {len(self.start_ns):,} lost stretches")
        if (backwards := int((self.end_ns < self.start_ns).sum())) > 0:
            raise ValueError(f"{backwards:,} of {len(self.owner):,} lost stretches end before they start")
        if len(self.owner) and self.owner.min() < 0:
            lost = int((self.owner < 0).sum())
            raise ValueError(
                f"{lost:,} of {len(self.owner):,} lost stretches have no owner: leave out owner < 0"
            )

    @classmethod
    def all_of(cls, spent: Work | IdleTime, owner: Rows | None = None) -> Self:
        """All the time of some work or idle time; by default each row is its own occurrence."""
        owner = np.arange(len(spent)) if owner is None else owner
        return cls(owner, spent.device, spent.start_ns, spent.end_ns)

    @classmethod
    def excess(cls, work: Work, excess_ns: Rows, owner: Rows | None = None) -> Self:
        """The last `excess_ns` of each piece of work, at most all of it; by default each is its own occurrence.

        Raises:
            ValueError: some excess is negative: such work lost nothing, and is no occurrence.
        """
        if len(excess_ns) != len(work):
            raise ValueError(f"{len(excess_ns):,} excess_ns for {len(work):,} pieces of work")
        if (negative := int((excess_ns < 0).sum())) > 0:
            raise ValueError(
                f"{negative:,} of {len(excess_ns):,} excesses are negative: leave out what loses nothing, or give it 0"
            )
        start = np.maximum(work.end_ns - excess_ns, work.start_ns)
        return cls(np.arange(len(work)) if owner is None else owner, work.device, start, work.end_ns)

    @classmethod
    def uncovered(cls, work: Work, cover: Work) -> Self:
        """The time of some work during which none of `cover` ran on its device."""
        parts = [cls.none()]
        for device in distinct(work.device).tolist():
            own = np.flatnonzero(work.device == device)
            own = own[np.argsort(work.start_ns[own], kind="stable")]
            over = cover.device == device
            covered = intervals.union(cover.start_ns[over], cover.end_ns[over])
            spent = intervals.union(work.start_ns[own], work.end_ns[own])
            start, end = intervals.difference(spent, covered)
            start, end = intervals.cut(start, end, work.start_ns[own])
            owner = own[np.searchsorted(work.start_ns[own], start, side="right") - 1]
            parts.append(cls(owner, np.full(len(start), device), start, end))
        return cls.joined(parts)

    @classmethod
    def idle_within(cls, idle: IdleTime, starts_ns: Rows, ends_ns: Rows) -> Self:
        """The idle time of every device within [starts_ns[i], ends_ns[i]), disjoint, which is owner i's."""
        order = np.argsort(starts_ns, kind="stable")
        first = np.searchsorted(ends_ns[order], idle.start_ns, side="right")
        last = np.searchsorted(starts_ns[order], idle.end_ns, side="left")
        count = np.maximum(last - first, 0)
        stretch = np.repeat(np.arange(len(idle)), count)
        within = order[np.arange(len(stretch)) - np.repeat(np.cumsum(count) - count, count) + first[stretch]]
        start = np.maximum(idle.start_ns[stretch], starts_ns[within])
        end = np.minimum(idle.end_ns[stretch], ends_ns[within])
        return cls(within, idle.device[stretch], start, end)

    @classmethod
    def idle_from(cls, idle: IdleTime, starts_ns: Rows, ends_ns: Rows) -> Self:
        """As `idle_within`, with what is left of the pause between two ops that a span ends in, up to the next span.

        That is the time in which the op after the pause launches: with work queued, nobody would wait for it.
        """
        order = np.argsort(starts_ns, kind="stable")
        following = np.append(starts_ns[order][1:], np.iinfo(np.int64).max)
        parts = [cls.none()]
        for _, own in idle.by(idle.device):
            begin_ns, finish_ns = own[own.cause.one_of(*BETWEEN_OPS)].piece_bounds_ns()
            until_ns = ends_ns.copy()
            at = np.searchsorted(begin_ns, ends_ns[order], side="left") - 1
            left_ns = np.append(finish_ns, 0)[np.where(at >= 0, at, len(finish_ns))]
            until_ns[order] = np.maximum(ends_ns[order], np.minimum(left_ns, following))
            parts.append(cls.idle_within(own, starts_ns, until_ns))
        return cls.joined(parts)

    @classmethod
    def launched_within(cls, idle: IdleTime, starts_ns: Rows, ends_ns: Rows) -> Self:
        """Idle time that a launch within [starts_ns[i], ends_ns[i]) ended, which is owner i's."""
        order = np.argsort(starts_ns, kind="stable")
        launched = idle.launch.start_ns
        at = np.searchsorted(starts_ns[order], launched, side="right") - 1
        inside = idle.has_next & (at >= 0) & (launched < ends_ns[order][at]) & idle.launch.there
        return cls.all_of(idle[inside], order[at[inside]])

    @classmethod
    def spent_within(cls, work: Work, starts_ns: Rows, ends_ns: Rows) -> Self:
        """All the time of work that a launch within [starts_ns[i], ends_ns[i]), disjoint, began, which is owner i's."""
        order = np.argsort(starts_ns, kind="stable")
        launched = work.launch.start_ns
        at = np.searchsorted(starts_ns[order], launched, side="right") - 1
        inside = (at >= 0) & (launched < ends_ns[order][at]) & work.launch.there
        return cls.all_of(work[inside], order[at[inside]])

    def owned_by(self, owner: Rows) -> Self:
        """The same, where what i lost is that of owner[i]."""
        return type(self)(owner[self.owner], self.device, self.start_ns, self.end_ns)

    @classmethod
    def launched_by(cls, idle: IdleTime, calls: Calls) -> Self:
        """Idle time that a launch in one of the calls ended, which is that one's."""
        owner = idle.launch.index_of_enclosing(calls)
        return cls.all_of(idle[owner >= 0], owner[owner >= 0])

    @classmethod
    def joined(cls, parts: Sequence[LostTime]) -> Self:
        """All of them."""
        columns = (
            [getattr(part, name) for part in parts] for name in ("owner", "device", "start_ns", "end_ns")
        )
        return cls(*(np.concatenate(column) for column in columns))

    @classmethod
    def none(cls) -> Self:
        """Nothing was lost on a device."""
        nothing = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing, nothing)

    def __getitem__(self, chosen: Mask | Rows) -> Self:
        if chosen.dtype == np.bool_ and chosen.all():  # on the only device, and in the only window
            return self
        at = positions(chosen, len(self.owner))
        return type(self)(self.owner[at], self.device[at], self.start_ns[at], self.end_ns[at])

    def sums(self, owners: int) -> Rows:
        """What each of so many owners lost in ns; int64 (owners,)."""
        return sums_of(self.owner, self.end_ns - self.start_ns, owners)

    def spans(self) -> intervals.Set:
        """What is lost on any device, as one set: use it on the stretches of one device."""
        return intervals.union(self.start_ns, self.end_ns)


ROUNDING = 1e-9  # of a quotient of sums


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name} is a text, not {type(value).__name__}")


def _check_evidence(name: str, value: Any) -> None:
    if isinstance(value, Texts):
        return
    if isinstance(value, Mapping):
        value = tuple(value.values())
    for part in value if isinstance(value, list | tuple) else (value,):
        if isinstance(part, list | tuple | Mapping):
            _check_evidence(name, part)
            continue
        if not isinstance(part, int | float | np.number | np.bool_ | str | None):
            raise ValueError(
                f"evidence {name} has a {type(part).__name__}: give numbers, texts, lists or mappings of these, or "
                "Texts parallel to the occurrences"
            )
        if part is None or isinstance(part, str):
            continue
        if not math.isfinite(part):
            raise ValueError(f"evidence {name} is {part}: give None where it is not known")
        if name.rpartition("_")[2] == "share" and not -ROUNDING <= part <= 1 + ROUNDING:
            raise ValueError(
                f"evidence {name} is {part:.3g}: a share is 0 to 1, {name[:-5]}times may be more"
            )


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
        confidence: how sure the cause is.
        evidence: numbers and texts about all occurrences, by name with the unit: `moved_bytes`, `wait_ns`.
            `Texts` parallel to `occurrences` become a mapping: of what the finding alone owns, how much each text
            has, in ns.
        related: further rows parallel to `occurrences` whose events the finding names.
        info: worth saying, but nobody's loss: the severity stays info.
        max_severity: the most that it can be where its cost has to do: less than high where what it costs is known,
            but not whether this program, or this rank of it, can do anything about it.
        of_job: said whatever it saves this rank: what it is worth shows in the replay of all ranks.
        recurring_share: share of the marked steps that must have an occurrence that no other finding owns: else the
            severity is info, since what comes once may be chance.
        fixed_elsewhere: the fix changes other calls and work only, as where the cause lies before what it costs.
        normal_share: share of the step that healthy programs pay, too: where less is saved, the severity is info.

    Raises:
        ValueError: the message is empty, a text is none, evidence is no number or text, a number of it is none (NaN),
            a share is not 0 to 1, or the advice marks in braces what `rule/recorded_with.py` does not know.
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
    related: Sequence[Calls | Work] = ()
    info: bool = False
    max_severity: Severity = Severity.HIGH
    recurring_share: float = 0.0
    normal_share: float = 0.0
    of_job: bool = False
    fixed_elsewhere: bool = False

    def __post_init__(self) -> None:
        for name in ("message", "advice", "cause", *(["named_by"] if self.named_by is not None else [])):
            _check_text(name, getattr(self, name))
        if not self.message:
            raise ValueError("message is empty: say what the occurrences are")
        for name, value in (*self.evidence.items(), ("normal_share", self.normal_share)):
            _check_evidence(name, value)
        if unknown := unknown_marks(self.advice):
            raise ValueError(
                f"advice marks {', '.join(unknown)}, which rule/recorded_with.py does not know: add it to FEATURES, "
                "or leave the braces out"
            )

    def losses(self) -> LostTime:
        """`lost`, or what stands for it."""
        if self.lost is not None:
            return self.lost
        return LostTime.none() if isinstance(self.occurrences, Calls) else LostTime.all_of(self.occurrences)

    def edits(self) -> tuple[Edit, ...]:
        """`fix` as a sequence."""
        return tuple(self.fix) if isinstance(self.fix, Sequence) else (self.fix,)
