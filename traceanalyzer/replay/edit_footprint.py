"""What edits take from a program, segment by segment and kernel by kernel: two fixes are compared by it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct
from traceanalyzer.model.containment import inherited
from traceanalyzer.model.trace import Trace, ints
from traceanalyzer.replay.edits import Edit, apply_edits
from traceanalyzer.replay.program import Program
from traceanalyzer.timeline.nesting import Nesting

_SHRUNK_NS = 20_000.0  # taken from a gap by an edit that names it; less is the Python around what was dropped
_INSIDE = 0.5  # share of what a fix takes, from which on another fix does for it; chosen
# Share of a kernel's time, from which on a fix leaves as little of it as one that drops it; chosen.
_EMPTIED = 0.9
_DATA_NS = 100_000.0  # of a copy on average, from which on it brings data, and no values: 1 MB in pageable memory; H200
# From which on the rest belongs to it: 0.85 to 0.99 in five programs, 0.55 where it did not; H200.
WHOLLY = 0.75


@dataclass(frozen=True, slots=True, eq=False)
class Autograd:
    """Which op's backward each segment is of, or which op of forward.

    Attributes:
        number: int64 (segments,), autograd's of the op around, shared by forward and backward; below 0 for none.
        backward: bool (segments,), whether it runs in backward.
        launch: int64 (work,), segment in which each piece of work is launched.
    """

    number: Rows
    backward: Mask
    launch: Rows

    @classmethod
    def of(cls, trace: Trace, nesting: Nesting, program: Program) -> Self:
        number, thread = (ints(trace.lanes.cpu, column) for column in ("sequence", "fwd_thread"))
        row = inherited(nesting.parent, number >= 0)[program.timeline.row]
        numbered_row = np.where(program.timeline.row >= 0, row, -1)
        return cls(np.append(number, -1)[numbered_row], np.append(thread > 0, False)[numbered_row], program.launch)


@dataclass(frozen=True, slots=True, eq=False)
class Footprint:
    """What edits take away.

    Attributes:
        cpu_ns: float64 (segments,), CPU time of what they drop or shrink, as traced.
        work_ns: float64 (work,), device time that they take.
        dropped: bool (segments,), segments that go.
        dead: bool (work,), work that goes.
        replaced: bool (work,), work that goes or becomes other kernels.
        emptied: bool (work,), work that goes or is left with a tenth of its time.
        woken: bool (segments,), segments after which the CPU no longer waits for the device.
        moved_ns: float64 (work,), duration of the work that goes to another stream, as traced.
        leaves: whether something takes CPU time in the place of what goes: others do it, such as a loader's workers.
        late_ns: of a step, the wait for its batch that ends.
    """

    cpu_ns: Floats
    work_ns: Floats
    dropped: Mask
    dead: Mask
    replaced: Mask
    emptied: Mask
    woken: Mask
    moved_ns: Floats
    leaves: bool
    late_ns: float = 0.0

    @classmethod
    def of(cls, program: Program, edits: Sequence[Edit]) -> Self:
        edited, segments, device = apply_edits(program, edits), program.segments, program.work
        shrunk = np.where(segments.gap, segments.cpu_ns - edited.cpu_ns, 0.0)
        dropped = ~edited.kept
        cpu = np.where(dropped, segments.cpu_ns, np.where(shrunk > _SHRUNK_NS, shrunk, 0.0))
        work = np.where(edited.alive, np.maximum(device.dur_ns - edited.dur_ns, 0.0), device.dur_ns)
        woken = np.zeros(len(dropped), bool)
        later = edited.kept[program.waits.last] & (program.waits.copy < 0)  # what follows it stays
        woken[program.waits.last[~edited.waits & ~later]] = True
        emptied = ~edited.alive | (work >= _EMPTIED * np.maximum(device.dur_ns, 1))
        replaced = ~edited.alive | edited.replaced
        moved = np.where(edited.stream != device.stream, device.dur_ns, 0.0)
        leaves, late_ns = bool(edited.added_ns.any()), program.late_ns - edited.late_ns
        return cls(cpu, work, dropped, ~edited.alive, replaced, emptied, woken, moved, leaves, late_ns)

    def holds(self, other: Self, share: float = _INSIDE) -> bool:
        """Whether so much of what the other drops, or shrinks of gaps, goes by this, too; not of what it quickens."""
        both = ~(self.dropped | other.dropped)  # of these `cpu_ns` is what gaps shrink by
        inside = other.cpu_ns[self.dropped].sum() + np.minimum(self.cpu_ns, other.cpu_ns)[both].sum()
        inside += other.work_ns[self.emptied & other.dead].sum()
        return bool(inside >= share * max(other.cpu_ns.sum() + other.work_ns.sum(), 1.0))

    def replaces(self, other: Self) -> bool:
        """Whether so much of what the other takes is of kernels in whose place this puts others, however fast."""
        taken_ns = max(other.cpu_ns.sum() + other.work_ns.sum(), 1.0)
        return bool(other.work_ns[self.replaced].sum() >= _INSIDE * taken_ns)

    def takes_whole_loops(self, loops: Self, launch: NDArray[np.int64]) -> bool:
        """Whether the work that goes in loops, which the other launches at once, is all work of some of them.

        Then fewer loops are left for the other. `launch` is the segment in which each piece of work is launched.
        """
        inside = loops.dropped[launch]
        run = np.cumsum(np.diff(loops.dropped, prepend=False) & loops.dropped)[launch[inside]]
        gone, whole = np.bincount(run, self.dead[inside]), np.bincount(run)
        full = gone >= _EMPTIED * np.maximum(whole, 1)
        return not full.all() and bool(gone[full].sum() >= _EMPTIED * gone.sum() > 0)

    def leads_to(self, other: Self, launch: NDArray[np.int64]) -> bool:
        """Whether most of the other's CPU time lies between a wait that this takes away and the next launch.

        A result is copied to the host, the host works on it, and only then goes on to launch. Where few of the waits
        are followed by such work, it is chance: a loop that reads values back also does other things. But ops on the
        host work on data that were copied, even if they follow only the last of several copies.
        """
        whole = float(other.cpu_ns.sum())
        if not self.woken.any() or whole <= 0:
            return False
        stays = np.zeros(len(self.dropped), bool)
        stays[launch[~self.dead & ~other.dead]] = True
        number = np.cumsum(stays)  # of launches so far
        place = np.arange(len(stays))
        first = np.full(int(number[-1]) + 1, len(stays))
        np.minimum.at(first, number[self.woken], place[self.woken])
        after = place > first[number]
        waits, worked = distinct(number[self.woken]), distinct(number[after & (other.cpu_ns > 0)])
        recurs = len(worked) >= _INSIDE * len(waits)
        ops = float(other.cpu_ns[other.dropped].sum()) >= _INSIDE * whole
        copied_ns = np.maximum(self.moved_ns, np.where(self.dead, self.work_ns, 0.0))
        data = ops and float(copied_ns.sum()) >= _DATA_NS * np.count_nonzero(copied_ns) > 0
        return bool((recurs or data) and other.cpu_ns[after].sum() >= _INSIDE * whole)

    def prepares(self, other: Self, launch: NDArray[np.int64]) -> bool:
        """Whether most of this one's CPU time lies right before launches of most of what the other moves aside.

        The host makes the data, and then copies them: made on the device, neither takes time.
        """
        moved, whole = other.moved_ns > 0, float(self.cpu_ns.sum())
        if self.leaves or not moved.any() or whole <= 0:
            return False
        launches = np.zeros(len(self.dropped), bool)
        launches[launch] = True
        number = np.cumsum(launches) - launches  # of launches before
        before = np.bincount(number, weights=self.cpu_ns)
        upto = number[launch]
        fed_ns = other.moved_ns[before[upto] > 0].sum()
        enough = before[distinct(upto[moved])].sum() >= _INSIDE * whole
        return bool(enough and fed_ns >= _INSIDE * other.moved_ns.sum())

    def is_backward_of(self, other: Self, autograd: Autograd) -> bool:
        """Whether most of what this takes is the backward of ops of which the other takes something."""
        own_ns, other_ns = (
            taken.cpu_ns + np.bincount(autograd.launch, taken.work_ns, len(taken.cpu_ns)) for taken in (self, other)
        )
        numbered = autograd.number >= 0
        backward = autograd.backward & numbered
        whole = own_ns[backward].sum()
        if whole <= own_ns[numbered & ~backward].sum():
            return False
        forward = distinct(autograd.number[(other_ns > 0) & numbered & ~backward])
        return bool(own_ns[backward & np.isin(autograd.number, forward)].sum() >= _INSIDE * whole)
