"""Edits that put something else in the place of what they drop: fewer kernels, one launch, a fused loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows, rank_within
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.edits import Ints, Kind, as_ints

_GRAPH_CPU_NS = 8_000.0  # a cudaGraphLaunch; H200 host, driver 580
_GRAPH_NODE_NS = 30.0  # each of its kernels, on the CPU
_GRAPH_GAP_NS = 100.0  # before a short kernel of a graph; pairs/launch_bound, H200
_SHORT_NS = 5_000.0  # before longer ones the gap in a graph is that of a stream, 1 to 2 us; H200
_OTHER_SIZE = 0.25  # so much shorter than its neighbours: on something smaller, such as a row's mean
_LONG_GAP_NS = 100_000.0  # a gap of which no graph takes care: loading, logging
_COMPILED_CPU_NS, _COMPILED_LAUNCH_NS = 50_000.0, 13_000.0  # guards and wrapper, and each kernel; torch 2.11


@dataclass(frozen=True, slots=True, eq=False)
class Replace:
    """CPU spans [starts, ends), with all that they launch, become a few kernels and some CPU time each.

    A boolean mask that becomes one `where`, a loop over parameters that becomes a fused optimizer, many small
    copies that become one.

    Attributes:
        work_ns: durations of the kernels that stay, the same for each span, or float64 of shape (spans, kernels); a
            span that launched fewer keeps what it launched.
        cpu_ns: CPU time of each span without the profiler.
    """

    kind: ClassVar[Kind] = "rewrite"
    starts_ns: Ints
    ends_ns: Ints
    work_ns: Sequence[float] | Floats
    cpu_ns: float

    def apply(self, edited: EditedProgram) -> None:
        starts, each = np.unique(as_ints(self.starts_ns), return_index=True)
        ends = as_ints(self.ends_ns)[each]
        durations = np.asarray(self.work_ns, np.float64)
        durations = durations[each] if durations.ndim == 2 else np.tile(durations, (len(each), 1))
        first, span = edited.span_of_launch(starts, ends)
        inside = np.flatnonzero(edited.alive & (span >= 0))
        rank = rank_within(span[inside])
        stays = inside[rank < durations.shape[1]]
        edited.drop(edited.within(starts, ends), self.cpu_ns, first[first >= 0])
        edited.alive[stays] = True
        edited.dur_ns[stays] = durations[span[stays], rank[rank < durations.shape[1]]]
        edited.replaced[stays] = True
        edited.launch[stays] = first[span[stays]]


@dataclass(frozen=True, slots=True, eq=False)
class Fuse:
    """Runs of kernels become one kernel each: the first stays, the others go with the ops that launch them.

    Attributes:
        group: int64 of the same shape, equal for what becomes one kernel.
        dur_ns: duration of each group's kernel, by group; unless given, the shortest of the group's that are no more
            than a few times shorter than its longest: what a fused kernel takes to read and write its operands once.
    """

    kind: ClassVar[Kind] = "work"
    work: Ints
    group: Ints
    dur_ns: Sequence[float] | Floats | None = None

    def apply(self, edited: EditedProgram) -> None:
        place, group = edited.positions(as_ints(self.work)), as_ints(self.group)
        place, group = place[place >= 0], group[place >= 0]
        if len(place) == 0:
            return
        if self.dur_ns is None:
            longest = np.zeros(int(group.max()) + 1)
            np.maximum.at(longest, group, edited.dur_ns[place])
            whole = edited.dur_ns[place] >= _OTHER_SIZE * longest[group]
            dur = longest
            np.minimum.at(dur, group[whole], edited.dur_ns[place[whole]])
        else:
            dur = np.asarray(self.dur_ns, np.float64)
        stays = rank_within(group) == 0
        edited.dur_ns[place[stays]] = dur[group[stays]]
        edited.replaced[place] = True
        edited.drop_ops(place[~stays])


@dataclass(frozen=True, slots=True, eq=False)
class GraphLaunch:
    """The step becomes one CUDA graph, or each of some CPU spans does: one launch, short kernels back to back.

    Waits, long gaps and the driver's allocations stay.

    Attributes:
        starts_ns, ends_ns: of the spans, disjoint and in order; the step if there are none.
    """

    kind: ClassVar[Kind] = "rewrite"
    starts_ns: Ints = ()
    ends_ns: Ints = ()

    def apply(self, edited: EditedProgram) -> None:
        first, step = _first_segments(edited)
        inside, graph = np.ones(len(step), bool), step[edited.launch]
        if len(self.starts_ns):
            spans = as_ints(self.starts_ns), as_ints(self.ends_ns)
            (first, graph), inside = edited.span_of_launch(*spans), edited.within(*spans)
        alive = np.flatnonzero(edited.alive & (graph >= 0))
        kernels = np.bincount(graph[alive], minlength=len(first))
        edited.kept &= _staying(edited) | ~inside
        recorded = first >= 0
        np.add.at(edited.added_ns, first[recorded], (_GRAPH_CPU_NS + _GRAPH_NODE_NS * kernels)[recorded])
        edited.launch[alive] = first[graph[alive]]
        short = alive[edited.dur_ns[alive] < _SHORT_NS]
        edited.gap_ns[short] = np.minimum(edited.gap_ns[short], _GRAPH_GAP_NS)


@dataclass(frozen=True, slots=True, eq=False)
class Compile:
    """The step is compiled: neighbouring `pointwise` work fuses, and CPU time is the wrapper's. Trust the sign only."""

    kind: ClassVar[Kind] = "rewrite"
    pointwise: Ints

    def apply(self, edited: EditedProgram) -> None:
        place = edited.positions(as_ints(self.pointwise))
        fusible = np.zeros(len(edited.alive), bool)
        fusible[place[place >= 0]] = True
        alive = np.flatnonzero(edited.alive)
        first, step = _first_segments(edited)
        at_step = step[edited.launch[alive]]
        joins = fusible[alive] & np.append(False, fusible[alive][:-1] & (at_step[1:] == at_step[:-1]))
        group = np.cumsum(~joins) - 1
        longest = np.zeros(group[-1] + 1 if len(group) else 0)
        np.maximum.at(longest, group, edited.dur_ns[alive])
        remaining = alive[~joins]
        edited.dur_ns[remaining] = longest
        edited.alive[alive[joins]] = False
        edited.kept &= _staying(edited)
        np.add.at(edited.added_ns, first, _COMPILED_CPU_NS)
        edited.added_ns[edited.launch[remaining]] += _COMPILED_LAUNCH_NS


def _staying(edited: EditedProgram) -> Mask:
    """Segments that are no launching, or launch collectives: waits, long gaps, calls for the driver's memory."""
    segments, work = edited.program.segments, edited.program.work
    stays = segments.driver | segments.gap & (edited.cpu_ns > _LONG_GAP_NS)
    talking = segments.top_op[edited.launch[edited.alive & work.communication]]
    stays |= np.isin(segments.top_op, talking[talking >= 0])
    stays[edited.program.waits.segment[edited.waits]] = True
    return stays


def _first_segments(edited: EditedProgram) -> tuple[Rows, Rows]:
    """First segment of each sampled step, and the step of each segment."""
    step = edited.program.timeline.step
    return np.searchsorted(step, np.arange(int(step[-1]) + 1)), step


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Of repeats, CPU spans [starts, ends), the first of each group does for all: the others go, with all inside.

    The first is that of the sampled part of the step.

    Attributes:
        group: int64 (spans,), equal for the repeats of one loop in one step.
        times: CPU time of the first repeat once it does for all, in times of what it took; at most their number.
    """

    kind: ClassVar[Kind] = "rewrite"
    starts_ns: Ints
    ends_ns: Ints
    group: Ints
    times: float = 1.0

    def apply(self, edited: EditedProgram) -> None:
        starts, ends, group = as_ints(self.starts_ns), as_ints(self.ends_ns), as_ints(self.group)
        sampled = edited.span_of_launch(starts, ends)[0] >= 0
        starts, ends, group = starts[sampled], ends[sampled], group[sampled]
        first = rank_within(group) == 0
        _, place, count = np.unique(group, return_inverse=True, return_counts=True)
        times = np.minimum(self.times, count[place])
        # A busy CPU leaves nothing cold.
        edited.drop(edited.within(starts[~first], ends[~first]), stall=False)
        for factor in np.unique(times[first]).tolist():
            chosen = first & (times == factor)
            edited.cpu_ns[edited.within(starts[chosen], ends[chosen])] *= factor
