"""A program while edits are applied to it: a copy of what an edit may change."""

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct, no_rows, pick, starts_of_runs
from traceanalyzer.replay.program import Program

_STALL_NS = 50_000  # a stall so long leaves caches and clocks cold; chosen on traces from an H200
_MAX_COLD_NS = 5_000_000  # then caches and clocks are as they were; pairs/dataloader
_COLD_FACTOR = 1.7  # cold over warm, where nothing of its kind ran warm; pairs/malloc_thrash
_WORKED_FACTOR = 1.2  # the same where the CPU did something else meanwhile; 0.8 to 1.5 in 12 pairs, H200 host
_LONG_GAP_NS = 300_000.0  # more than the Python around an op; around .item() up to 200 us, H200 host
# Of counting a node of autograd's graph before the first one runs; 0.5 us, graphs of 130 to 2,000.
_VISITED_NS = 500.0
_FREED_NS = 1_000.0  # of freeing it after the last one; 0.6 to 1.2 us in the same, torch 2.11
_COLD_TIMES = 3  # the stall, what comes after it is still cold; seen around cudaMalloc, H200 host


class EditedProgram:
    """Copies of a program's arrays, for edits to write into; the names are the program's.

    Attributes:
        cpu_ns: float64 (segments,), as traced.
        kept: bool (segments,), False for what an edit dropped.
        added_ns: float64 (segments,), what an edit puts in at the segment's end, without the profiler.
        dur_ns, gap_ns: float64 (work,).
        alive: bool (work,), False for work that an edit dropped.
        replaced: bool (work,), whether an edit puts another kernel in its place.
        stream: int64 (work,); an edit may add streams.
        launch: int64 (work,), segment in which the launch begins.
        waits: bool (waits,), False for those that an edit dropped.
        added_waits: int64, segments after which an edit lets the CPU wait for all that was launched.
        late_ns: that each step waits at its begin for its batch.
        quickened_ns: what CPU work takes less because it no longer runs cold after a dropped stall, as traced.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        device, segments = program.work, program.segments
        self.cpu_ns, self.added_ns = segments.cpu_ns.copy(), np.zeros(len(segments.cpu_ns))
        self.kept = np.ones(len(segments.cpu_ns), bool)
        self.dur_ns, self.gap_ns = device.dur_ns.copy(), device.gap_ns.copy()
        self.alive, self.replaced = np.ones(len(device.entry), bool), np.zeros(len(device.entry), bool)
        self.stream, self.launch = device.stream.copy(), program.launch.copy()
        self.streams = device.streams
        self.waits = np.ones(len(program.waits.row), bool)
        self.added_waits = no_rows()
        self.late_ns, self.quickened_ns = program.late_ns, 0.0

    @property
    def unsteady_ns(self) -> float:
        """Standard error of the CPU time that goes from a step: few steps tell little of what few of them do."""
        traced, steps = self.program.segments.cpu_ns, len(self.program.sample)
        gone = traced - np.where(self.kept, np.minimum(self.cpu_ns, traced), 0.0)
        by_step = np.bincount(self.program.timeline.step, gone, steps)
        return float(by_step.std(ddof=1) / np.sqrt(steps)) if steps > 1 else 0.0

    def within(self, starts: Rows, ends: Rows) -> Mask:
        """Segments that lie in one of the intervals; bool of shape (segments,)."""
        begins, finishes = self.program.timeline.start_ns, self.program.timeline.end_ns
        first = np.searchsorted(begins, starts)
        last = np.maximum(np.searchsorted(finishes, ends, side="right"), first)
        change = np.zeros(len(begins) + 1, np.int64)
        np.add.at(change, first, 1)
        np.add.at(change, last, -1)
        return np.asarray(np.cumsum(change[:-1]) > 0)

    def spans_of(self, rows: Rows) -> tuple[Rows, Rows]:
        """Starts and ends of rows of `trace.cpu`."""
        return self.program.row_start_ns[rows], self.program.row_end_ns[rows]

    def of_rows(self, rows: Rows) -> Mask:
        """Segments within rows of `trace.cpu`."""
        return self.within(*self.spans_of(rows))

    def first_of(self, starts: Rows, ends: Rows) -> Rows:
        """First segment of each interval, of those intervals that have one."""
        first = np.searchsorted(self.program.timeline.start_ns, starts)
        last = np.searchsorted(self.program.timeline.end_ns, ends, side="right")
        return first[last > first]

    def span_of_launch(self, starts: Rows, ends: Rows) -> tuple[Rows, Rows]:
        """First segment of each of disjoint, sorted intervals, and the interval that launches each work; or -1."""
        first = np.searchsorted(self.program.timeline.start_ns, starts)
        last = np.searchsorted(self.program.timeline.end_ns, ends, side="right")
        around = np.searchsorted(first, self.launch, side="right") - 1
        inside = (around >= 0) & (self.launch < pick(last, around))
        return np.where(last > first, first, -1), np.where(inside, around, -1)

    def positions(self, entries: Rows) -> Rows:
        """Positions in the program of entries of `DeviceWork`, -1 for those outside the sample."""
        known, order = self.program.work.by_entry
        at = np.minimum(np.searchsorted(known, entries), len(known) - 1)
        return np.where(known[at] == entries, order[at], -1)

    def drop(
        self, segments: Mask, leaving_ns: float = 0.0, at: Rows | None = None, *, work: bool = True, stall: bool = True
    ) -> None:
        """Drop segments with the waits in them and, if `work`, what they launch; the Python around shrinks with them.

        Args:
            leaving_ns: CPU time without the profiler that stays at each of the segments `at`.
            stall: what comes after them may have run cold.
        """
        if not segments.any():
            return
        if stall:
            self._rewarm(segments)
        self._fewer_nodes(segments & self.kept)
        self.kept &= ~segments
        if at is not None:
            np.add.at(self.added_ns, at, leaving_ns)
        self.waits &= ~segments[self.program.waits.last]
        if work:
            self.alive &= ~segments[self.launch]
        self._collapse(segments)

    def shrink(self, segments: Mask) -> None:
        """Let each of these gaps take no longer than the usual one.

        What follows is a little quicker: the CPU was at work in the gap, and kept its clock, but not its caches.
        """
        mine = segments & self.program.segments.gap & self.kept
        self._rewarm(mine & (self.cpu_ns > self.program.segments.usual_gap_ns), _WORKED_FACTOR)
        self.cpu_ns[mine] = np.minimum(self.cpu_ns[mine], self.program.segments.usual_gap_ns)

    def drop_ops(self, positions: Rows) -> None:
        """Drop work with the outermost ops that launch it, where those launch nothing else that stays."""
        top = self.program.segments.top_op[self.launch]
        gone = np.zeros(len(self.alive), bool)
        gone[positions] = True
        stays = np.isin(top, top[self.alive & ~gone])
        self.drop(self.of_rows(distinct(top[gone & ~stays & (top >= 0)])))
        self.drop_work(np.flatnonzero(gone & self.alive))

    def _collapse(self, dropped: Mask) -> None:
        """Gaps around a dropped stretch shrink together to the usual one; long ones, which are Python's work, stay."""
        # Self time of an op between two dropped stretches right inside it: Python that called both.
        after, before = np.append(dropped[1:], False), np.append(False, dropped[:-1])
        between = before & after & ~dropped & (self.program.segments.call < 0)
        free = (self.program.segments.gap | between) & self.kept & (self.cpu_ns <= _LONG_GAP_NS)
        loose = free | ~self.kept
        run = np.cumsum(np.concatenate(([True], loose[1:] != loose[:-1]))) - 1
        touched = np.zeros(run[-1] + 1, bool)
        touched[run[dropped]] = True
        mine = free & touched[run]
        total = np.bincount(run, weights=np.where(mine, self.cpu_ns, 0.0))
        scale = np.minimum(1.0, self.program.segments.usual_gap_ns / np.maximum(total, 1e-9))
        self.cpu_ns[mine] *= scale[run[mine]]

    def _fewer_nodes(self, dropped: Mask) -> None:
        """Autograd counts all nodes before the first runs, and frees them after the last: gaps that shrink with them.

        Each is cut by the share of the step's nodes that go at most: the rest of it is waking threads and Python.
        """
        node, step = self.program.segments.node, self.program.timeline.step
        if not (dropped & node).any():
            return
        top = self.program.segments.top_op
        begins = node & (top != np.concatenate(([-1], top[:-1])))
        steps = len(self.program.sample)
        count, gone = (np.bincount(step[begins & chosen], minlength=steps) for chosen in (node, dropped))
        own = np.flatnonzero(node)
        first = own[np.searchsorted(step[own], np.arange(steps))[count > 0]]
        last = own[np.searchsorted(step[own], np.arange(steps), side="right")[count > 0] - 1]
        end = np.searchsorted(step, np.arange(steps), side="right")[count > 0] - 1
        fewer = gone[count > 0].astype(np.float64)
        share = fewer / count[count > 0]
        self._shorten(first - 1, _VISITED_NS * fewer, share)
        freed_ns = _FREED_NS * fewer
        freed_ns -= self._shorten(np.minimum(last + 1, end), freed_ns, share)
        self._shorten(np.where(end > last + 1, end, -1), freed_ns, share)

    def _shorten(self, at: Rows, by_ns: Floats, share: Floats) -> Floats:
        """Shorten gaps beyond the usual one by so much, and by a share of them at most; how much that was."""
        gap = (at >= 0) & self.program.segments.gap[at]
        beyond = np.maximum(self.cpu_ns[at] - self.program.segments.usual_gap_ns, 0.0)
        cut = np.where(gap, np.minimum(by_ns, share * beyond), 0.0)
        self.cpu_ns[at[gap]] -= cut[gap]
        return np.asarray(cut)

    def _rewarm(self, dropped: Mask, most: float = np.inf) -> None:
        """What ran cold after a dropped stall takes what the quicker quarter of its kind takes, or a share 1 / `most`.

        That is worth no more than the stall took: no saving is larger than what the occurrences took.
        """
        timeline, segments = self.program.timeline, self.program.segments
        edge = np.diff(dropped.astype(np.int8), prepend=0, append=0)
        first, last = np.flatnonzero(edge > 0), np.flatnonzero(edge < 0) - 1
        stall = timeline.end_ns[last] - timeline.start_ns[first]
        long = stall >= _STALL_NS
        if not long.any():
            return
        begins, lengths = timeline.end_ns[last[long]], np.minimum(_COLD_TIMES * stall[long], _MAX_COLD_NS)
        cold = self.within(begins, begins + lengths) & ~dropped
        warm = quartiles(self.program, ~cold & ~dropped)
        if not segments.gap[dropped].all():
            warm = np.where(np.isnan(warm), self.cpu_ns / _COLD_FACTOR, warm)
        cold &= ~segments.gap | (self.cpu_ns <= _LONG_GAP_NS)
        at = np.flatnonzero(cold)
        quicker = self.cpu_ns[at] - np.fmin(self.cpu_ns[at], np.maximum(warm[at], self.cpu_ns[at] / most))
        took = stall[long].astype(np.float64)
        after = np.searchsorted(begins, timeline.start_ns[at], side="right") - 1
        whole = np.bincount(after, weights=quicker, minlength=len(took))
        quicker *= np.minimum(1.0, took / np.maximum(whole, 1e-9))[after]
        self.cpu_ns[at] -= quicker
        self.quickened_ns += float(quicker.sum())

    def aside(self, positions: Rows) -> None:
        """Put work on a stream of its own that nothing waits for."""
        moved = np.zeros(len(self.alive), bool)
        moved[positions] = True
        self.stream[moved] = self.streams
        self.streams += 1
        self.waits &= ~np.append(moved, False)[self.program.waits.copy]

    def drop_work(self, positions: Rows) -> None:
        """Drop work and the calls that launch it, where they launch nothing else that stays."""
        gone = np.zeros(len(self.alive), bool)
        gone[positions] = True
        stays = np.zeros(len(self.kept), bool)
        stays[self.launch[self.alive & ~gone]] = True
        self.alive &= ~gone
        calls = distinct(self.launch[gone])
        dropped = np.zeros(len(self.kept), bool)
        dropped[calls[~stays[calls]]] = True
        self.drop(dropped, work=False)


def quartiles(program: Program, among: Mask) -> Floats:
    """Lower quartile of the durations of each segment's kind; float64 of shape (segments,), NaN where there is none."""
    order, kind = program.by_kind
    mine = order[among[order]]
    first = np.flatnonzero(starts_of_runs(kind[mine]))
    count = np.diff(first, append=len(mine))
    found = np.full(len(kind), np.nan)  # by kind, of which there are no more than segments
    found[kind[mine[first]]] = program.segments.cpu_ns[mine[first + (count - 1) // 4]]
    return np.asarray(found[kind])
