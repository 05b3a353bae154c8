"""Time that was lost on devices, and by which occurrence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import numpy as np

from traceanalyzer.idle.causes import BETWEEN_OPS
from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct, pick, ranges, sums_of
from traceanalyzer.model.containment import innermost
from traceanalyzer.rule.views import Calls, IdleTime, Work
from traceanalyzer.timeline.selection import positions

_COLUMNS = ("owner", "device", "start_ns", "end_ns")


@dataclass(frozen=True, slots=True, eq=False)
class LostTime:
    """Time lost on devices: [start_ns, end_ns) each, int64 (stretches,).

    Attributes:
        owner: position in `Hits.occurrences` of the occurrence that lost it.
        spans: how many spans, or rows that are their own occurrences, were given, parallel to `Hits.occurrences`; None
            where owners were.

    Raises ValueError: the lengths differ, a stretch ends before it starts, or an owner is negative, as
    `index_of_enclosing(...)` gives it where nothing is around a row.
    """

    owner: Rows
    device: Rows
    start_ns: Rows
    end_ns: Rows
    spans: int | None = None

    def __post_init__(self) -> None:
        for name in _COLUMNS:
            getattr(self, name).flags.writeable = False  # a rule may go on writing to it
        if len({len(column) for column in (self.owner, self.device, self.start_ns, self.end_ns)}) > 1:
            raise ValueError(f"{len(self.owner):,} owners of {len(self.start_ns):,} lost stretches")
        if (backwards := int((self.end_ns < self.start_ns).sum())) > 0:
            what = f"{backwards:,} of {len(self.owner):,} lost stretches end before they start"
            raise ValueError(f"{what}: end_ns are times, no durations")
        if len(self.owner) and self.owner.min() < 0:
            lost = int((self.owner < 0).sum())
            remedy = "leave out owner < 0" if lost < len(self.owner) else "are these owners of another view?"
            raise ValueError(f"{lost:,} of {len(self.owner):,} lost stretches have no owner: {remedy}")

    @classmethod
    def all_of(cls, spent: Work | IdleTime, owner: Rows | None = None) -> Self:
        """All the time of some work or idle time; by default each row is its own occurrence."""
        owner, rows = (np.arange(len(spent)), len(spent)) if owner is None else (owner, None)
        return cls(owner, spent.device, spent.start_ns, spent.end_ns, rows)

    @classmethod
    def excess(cls, work: Work, excess_ns: Rows, owner: Rows | None = None) -> Self:
        """The last `excess_ns` of each piece of work; by default each is its own occurrence.

        Raises ValueError: some excess is negative (what lost nothing is no occurrence), or longer than the work.
        """
        if len(excess_ns) != len(work):
            raise ValueError(f"{len(excess_ns):,} excess_ns for {len(work):,} pieces of work")
        if (negative := int((excess_ns < 0).sum())) > 0:
            raise ValueError(
                f"{negative:,} of {len(excess_ns):,} excesses are negative: leave out what loses nothing, or give it 0"
            )
        start = work.end_ns - excess_ns
        if (longer := int((start < work.start_ns).sum())) > 0:
            raise ValueError(f"{longer:,} of {len(work):,} excesses are longer than their work: times are ns")
        owner, rows = (np.arange(len(work)), len(work)) if owner is None else (owner, None)
        return cls(owner, work.device, start, work.end_ns, rows)

    @classmethod
    def uncovered(cls, work: Work, cover: Work) -> Self:
        """The time of some work during which none of `cover` ran on its device."""
        if shared := int(np.isin(work.entries, cover.entries).sum()):
            raise ValueError(
                f"{shared:,} of {len(work):,} pieces of work are in cover, too, and would cover themselves"
            )
        parts = [cls.none()]
        for device in distinct(work.device).tolist():
            on_device = np.flatnonzero(work.device == device)
            on_device = on_device[np.argsort(work.start_ns[on_device], kind="stable")]
            over = cover.device == device
            covered = intervals.union(cover.start_ns[over], cover.end_ns[over])
            spent = intervals.union(work.start_ns[on_device], work.end_ns[on_device])
            start, end = intervals.difference(spent, covered)
            start, end = intervals.cut(start, end, work.start_ns[on_device])
            owner = on_device[np.searchsorted(work.start_ns[on_device], start, side="right") - 1]
            parts.append(cls(owner, np.full(len(start), device), start, end))
        return cls.joined(parts)

    @classmethod
    def idle_within(cls, idle: IdleTime, starts_ns: Rows, ends_ns: Rows) -> Self:
        """The idle time of every device within [starts_ns[i], ends_ns[i]), which is owner i's.

        Of spans that share time, as those of nested calls or of two threads, the first and longest has it.
        """
        _check_spans(starts_ns, ends_ns)
        order = np.lexsort((-ends_ns, starts_ns))
        reached_ns = np.maximum.accumulate(ends_ns[order])
        begin_ns = np.maximum(starts_ns[order], np.append(starts_ns[order][:1], reached_ns[:-1]))
        first = np.searchsorted(reached_ns, idle.start_ns, side="right")
        last = np.searchsorted(begin_ns, idle.end_ns, side="left")
        stretch, span = ranges(first, np.maximum(last - first, 0))
        start = np.maximum(idle.start_ns[stretch], begin_ns[span])
        end = np.minimum(idle.end_ns[stretch], reached_ns[span])
        some = end > start
        return cls(order[span][some], idle.device[stretch][some], start[some], end[some], len(starts_ns))

    @classmethod
    def idle_from(cls, idle: IdleTime, starts_ns: Rows, ends_ns: Rows) -> Self:
        """As `idle_within`, with what is left of the pause between two ops that a span ends in, up to the next span.

        That is the time in which the op after the pause launches: with work queued, nobody would wait for it.
        """
        _check_spans(starts_ns, ends_ns)
        order = np.argsort(starts_ns, kind="stable")
        following = np.append(starts_ns[order][1:], np.iinfo(np.int64).max)
        parts = [cls.none()]
        for _, on_device in idle.by(idle.device):
            begin_ns, finish_ns = on_device[on_device.cause.one_of(*BETWEEN_OPS)].piece_bounds_ns()
            until_ns = ends_ns.copy()
            piece = np.searchsorted(begin_ns, ends_ns[order], side="left") - 1
            left_ns = np.append(finish_ns, 0)[np.where(piece >= 0, piece, len(finish_ns))]
            until_ns[order] = np.maximum(ends_ns[order], np.minimum(left_ns, following))
            parts.append(cls.idle_within(on_device, starts_ns, until_ns))
        return replace(cls.joined(parts), spans=len(starts_ns))

    @classmethod
    def launched_within(cls, idle: IdleTime, starts_ns: Rows, ends_ns: Rows) -> Self:
        """Idle time that a launch within [starts_ns[i], ends_ns[i]) ended, which is owner i's.

        What was before its span is not, unless a span launched the work before it, too.
        """
        _check_spans(starts_ns, ends_ns)
        owner = span_of(idle.launch, starts_ns, ends_ns)
        inside = idle.has_next & (owner >= 0)
        ended, owner = idle[inside], owner[inside]
        first = span_of(ended.launch_before, starts_ns, ends_ns) < 0
        start = np.where(first, np.maximum(ended.start_ns, starts_ns[owner]), ended.start_ns)
        return cls(owner, ended.device, np.minimum(start, ended.end_ns), ended.end_ns, len(starts_ns))

    @classmethod
    def spent_within(cls, work: Work, starts_ns: Rows, ends_ns: Rows) -> Self:
        """All the time of work that a launch within [starts_ns[i], ends_ns[i]), disjoint, began, which is owner i's."""
        _check_spans(starts_ns, ends_ns)
        owner = span_of(work.launch, starts_ns, ends_ns)
        return replace(cls.all_of(work[owner >= 0], owner[owner >= 0]), spans=len(starts_ns))

    def owned_by(self, owner: Rows) -> Self:
        """The same, where what i lost is that of owner[i]."""
        if (most := int(self.owner.max(initial=-1))) >= len(owner):
            raise ValueError(f"lost has an owner of {most:,}, and owner has {len(owner):,} rows")
        return type(self)(owner[self.owner], self.device, self.start_ns, self.end_ns)

    @classmethod
    def launched_by(cls, idle: IdleTime, calls: Calls) -> Self:
        """Idle time that a launch in one of the calls ended, which is that one's."""
        owner = idle.launch.index_of_enclosing(calls)
        return cls.all_of(idle[owner >= 0], owner[owner >= 0])

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """All of them; nothing of none."""
        nothing = np.empty(0, np.int64)
        columns = [np.concatenate([nothing, *(getattr(part, name) for part in parts)]) for name in _COLUMNS]
        owner, device, start, end = columns
        # Where they differ, what is of fewer is surely not parallel to the occurrences.
        spans = min((part.spans for part in parts if part.spans is not None), default=None)
        return cls(owner, device, start, end, spans)

    @classmethod
    @cache
    def none(cls) -> Self:
        """Nothing was lost on a device: always the same object, which tells it from time that turned out to be none."""
        nothing = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing, nothing)

    def __getitem__(self, chosen: Mask | Rows) -> Self:
        mask = getattr(chosen, "dtype", None) == np.bool_ and len(chosen) == len(self.owner)
        if mask and chosen.all():  # on the only device, and in the only window
            return self
        place = positions(chosen, len(self.owner))
        return type(self)(self.owner[place], self.device[place], self.start_ns[place], self.end_ns[place], self.spans)

    def sums(self, owners: int) -> Rows:
        """What each of so many owners lost in ns, int64 (owners,): what it lost twice counts once on each device."""
        if (most := int(self.owner.max(initial=-1))) >= owners:
            what = f"sums({owners:,}) of owners up to {most:,}"
            raise ValueError(f"{what}: n is the length of the view that lost the time; are these its spans?")
        order = np.lexsort((self.start_ns, self.device, self.owner))
        owner, device, start = self.owner[order], self.device[order], self.start_ns[order]
        end = self.end_ns[np.lexsort((self.end_ns, self.device, self.owner))]
        same = (owner[1:] == owner[:-1]) & (device[1:] == device[:-1])
        # Where something new begins in the union of what each owner lost on each device.
        first = np.append(True, ~same | (start[1:] > end[:-1]))[: len(owner)]
        last = np.append(first[1:], True)[: len(owner)]
        return sums_of(owner[first], end[last] - start[first], owners)

    def merged(self) -> intervals.Set:
        """What is lost on any device, as one set: use it on the stretches of one device."""
        return intervals.union(self.start_ns, self.end_ns)


def split_waiting(work: Work, lost: LostTime, transfer_ns: Rows) -> tuple[LostTime, LostTime]:
    """(waiting, transfer) of the time lost in collectives, which wait first and move data for `transfer_ns` at last."""
    moves_ns = (work.end_ns - transfer_ns)[lost.owner]
    waiting = replace(lost, end_ns=np.clip(moves_ns, lost.start_ns, lost.end_ns))
    moving = replace(lost, start_ns=np.clip(moves_ns, lost.start_ns, lost.end_ns))
    return waiting[waiting.end_ns > waiting.start_ns], moving[moving.end_ns > moving.start_ns]


def _check_spans(starts_ns: Rows, ends_ns: Rows) -> None:
    """Raises ValueError for spans that are not parallel, or end before they start."""
    if len(starts_ns) != len(ends_ns):
        raise ValueError(f"{len(starts_ns):,} starts_ns and {len(ends_ns):,} ends_ns: each span has both")
    if backwards := int((ends_ns < starts_ns).sum()):
        raise ValueError(f"{backwards:,} of {len(starts_ns):,} spans end before they start: ends_ns are times")


def span_of(calls: Calls, starts_ns: Rows, ends_ns: Rows) -> Rows:
    """The latest-begun span in which each call begins; -1 where there is none, or no call."""
    order = np.argsort(starts_ns, kind="stable")
    ends_ns = ends_ns[order]
    # Of each span the nearest before it that ends later, which is open where this one is over.
    outer = innermost(starts_ns[order], ends_ns, np.zeros(len(order), np.int64))
    span = np.searchsorted(starts_ns[order], calls.start_ns, side="right") - 1
    span[~calls.there] = -1
    while (over := np.flatnonzero((span >= 0) & (calls.start_ns >= pick(ends_ns, span)))).size:
        span[over] = outer[span[over]]
    return pick(order, span)
