"""What a fix does to a program: small values that rules make of rows of `trace.cpu` and entries of `DeviceWork`.

What lies outside the sampled steps is passed over. Each edit is applied to what the edits before it left.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import distinct
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.program import Program

Ints = Sequence[int] | NDArray[np.int64]
Floats = Sequence[float] | NDArray[np.float64]
Kind = Literal["drop", "work", "rewrite", "balance"]


def as_ints(values: Ints) -> NDArray[np.int64]:
    return np.asarray(values, np.int64)


class Edit(Protocol):
    """A change of a program.

    Attributes:
        kind: by which its saving's upper end is found: "drop" where CPU time that was seen goes, "work" where the
            device's work changes, "rewrite" where something that was not seen takes the place, "balance" where it
            moves to other ranks.
    """

    @property
    def kind(self) -> Kind: ...

    def apply(self, edited: EditedProgram) -> None:
        """Write the change into the program."""


@dataclass(frozen=True, slots=True, eq=False)
class Drop:
    """Rows of `trace.cpu` go, with all inside, the waits in them and the work they launch: a needless op or call."""

    kind: ClassVar[Kind] = "drop"
    rows: Ints
    leaving_ns: float = 0.0

    def apply(self, edited: EditedProgram) -> None:
        spans = edited.spans_of(distinct(as_ints(self.rows)))
        edited.drop(edited.within(*spans), self.leaving_ns, edited.first_of(*spans))


@dataclass(frozen=True, slots=True, eq=False)
class DropSpans:
    """CPU time [starts, ends) goes, with what it launches: a round trip; after a `stall` work may have run cold."""

    kind: ClassVar[Kind] = "drop"
    starts_ns: Ints
    ends_ns: Ints
    leaving_ns: float = 0.0
    stall: bool = True

    def apply(self, edited: EditedProgram) -> None:
        starts, each = np.unique(as_ints(self.starts_ns), return_index=True)
        spans = starts, as_ints(self.ends_ns)[each]
        edited.drop(edited.within(*spans), self.leaving_ns, edited.first_of(*spans), stall=self.stall)


@dataclass(frozen=True, slots=True, eq=False)
class FetchInTime:
    """No step waits for its batch any more, as it did without the profiler."""

    kind: ClassVar[Kind] = "drop"

    def apply(self, edited: EditedProgram) -> None:
        edited.late_ns = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class DropWork:
    """Pieces of work go, with the calls that launch them: copies and conversions that an op need not make."""

    kind: ClassVar[Kind] = "work"
    work: Ints

    def apply(self, edited: EditedProgram) -> None:
        place = edited.positions(as_ints(self.work))
        edited.drop_work(place[place >= 0])


@dataclass(frozen=True, slots=True, eq=False)
class Resize:
    """Pieces of work take another time each: a faster kernel."""

    kind: ClassVar[Kind] = "work"
    work: Ints
    dur_ns: Floats

    def apply(self, edited: EditedProgram) -> None:
        place = edited.positions(as_ints(self.work))
        dur_ns = np.broadcast_to(np.asarray(self.dur_ns, np.float64), place.shape)
        edited.dur_ns[place[place >= 0]] = dur_ns[place >= 0]


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Pieces of work take a part of their time: fewer bytes, quicker arithmetic."""

    kind: ClassVar[Kind] = "work"
    work: Ints
    factor: Floats | float

    def apply(self, edited: EditedProgram) -> None:
        place = edited.positions(as_ints(self.work))
        factor = np.broadcast_to(np.asarray(self.factor, np.float64), place.shape)
        edited.dur_ns[place[place >= 0]] *= factor[place >= 0]


@dataclass(frozen=True, slots=True, eq=False)
class SplitAcrossRanks(Scale):
    """Pieces of work take a part of their time, because other ranks do the rest."""

    kind: ClassVar[Kind] = "balance"


@dataclass(frozen=True, slots=True, eq=False)
class MoveToSideStream:
    """Pieces of work run on a stream of their own that nothing waits for: prefetched copies."""

    kind: ClassVar[Kind] = "work"
    work: Ints
    dur_ns: Floats | None = None

    def apply(self, edited: EditedProgram) -> None:
        place = edited.positions(as_ints(self.work))
        if self.dur_ns is not None:
            Resize(self.work, self.dur_ns).apply(edited)
        edited.aside(place[place >= 0])


@dataclass(frozen=True, slots=True, eq=False)
class ShrinkGaps:
    """CPU spans [starts, ends) without any event shrink to the usual gap between ops: Python's work, a pause."""

    kind: ClassVar[Kind] = "drop"
    starts_ns: Ints
    ends_ns: Ints

    def apply(self, edited: EditedProgram) -> None:
        edited.shrink(edited.within(as_ints(self.starts_ns), as_ints(self.ends_ns)))


@dataclass(frozen=True, slots=True, eq=False)
class Insert:
    """CPU time without the profiler at the start of each of some rows of `trace.cpu`, however often named: a cost."""

    kind: ClassVar[Kind] = "rewrite"
    rows: Ints
    cpu_ns: float

    def apply(self, edited: EditedProgram) -> None:
        first = edited.first_of(*edited.spans_of(distinct(as_ints(self.rows))))
        np.add.at(edited.added_ns, first, self.cpu_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """At the start of each of some rows of `trace.cpu` the CPU waits for all that was launched, and then works."""

    kind: ClassVar[Kind] = "rewrite"
    rows: Ints
    cpu_ns: float = 0.0

    def apply(self, edited: EditedProgram) -> None:
        first = edited.first_of(*edited.spans_of(as_ints(self.rows)))
        edited.added_waits = distinct(np.append(edited.added_waits, first))
        np.add.at(edited.added_ns, np.minimum(first + 1, len(edited.added_ns) - 1), self.cpu_ns)


@dataclass(frozen=True, slots=True, eq=False)
class ReadLater:
    """Calls, rows of `trace.cpu`, no longer wait, and all else stays: what they read is read a step later."""

    kind: ClassVar[Kind] = "drop"
    rows: Ints

    def apply(self, edited: EditedProgram) -> None:
        edited.waits &= ~edited.of_rows(as_ints(self.rows))[edited.program.waits.last]


@dataclass(frozen=True, slots=True)
class CapOps:
    """No op's own stretch of CPU time takes longer: a mode of the whole program slows all of them."""

    kind: ClassVar[Kind] = "rewrite"
    most_ns: float

    def apply(self, edited: EditedProgram) -> None:
        segments = edited.program.segments
        computing = ~segments.gap & (segments.call < 0)
        edited.cpu_ns[computing] = np.minimum(edited.cpu_ns[computing], self.most_ns)


# One value per thing that is edited.
_JOINED = frozenset({"rows", "work", "pointwise", "starts_ns", "ends_ns", "group"})
# Dimensions of a value that holds for all; an array with one more has a value for each.
_SHARED_DIMENSIONS = {"dur_ns": 0, "work_ns": 1, "factor": 0}


def merge_edits(edits: Iterable[Edit]) -> list[Edit]:
    """The same edits, those of one kind and the same scalars as one, in the order in which they first come."""
    groups: dict[tuple[Any, ...], list[Edit]] = {}
    for edit in edits:
        groups.setdefault(_key(edit), []).append(edit)
    return [members[0] if len(members) == 1 else _joined(members) for members in groups.values()]


def apply_edits(program: Program, edits: Iterable[Edit]) -> EditedProgram:
    """The program with the edits made."""
    edited = EditedProgram(program)
    for edit in merge_edits(edits):
        edit.apply(edited)
    return edited


def _key(edit: Edit) -> tuple[Any, ...]:
    """What two edits must have in common; of arrays with a value for each the shape of a value."""
    parts: list[Any] = [type(edit)]
    for attribute in fields(edit):  # type: ignore[arg-type]
        value = getattr(edit, attribute.name)
        if _has_each(attribute.name, value):
            parts.append(("each", *np.shape(value)[1:]))
        else:
            parts.append(tuple(value) if np.ndim(value) else value)
    return tuple(parts)


def _has_each(name: str, value: Any) -> bool:
    return name in _JOINED or np.ndim(value) > _SHARED_DIMENSIONS.get(name, np.inf)


def _joined(members: Sequence[Edit]) -> Edit:
    columns: dict[str, Any] = {}
    for attribute in fields(members[0]):  # type: ignore[arg-type]
        values = [getattr(edit, attribute.name) for edit in members]
        if attribute.name == "group":
            groups = [np.asarray(group, np.int64) for group in values]
            sizes = [int(group.max(initial=-1)) + 1 for group in groups]  # groups of different edits stay different
            values = [group + first for group, first in zip(groups, accumulate([0, *sizes]), strict=False)]
        each = _has_each(attribute.name, values[0])
        columns[attribute.name] = np.concatenate([np.asarray(v) for v in values]) if each else values[0]
    return type(members[0])(**columns)
