"""Where a thread stood still in one op or call, which ops work on the CPU alone, what happens once and what recurs."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import (
    Mask,
    Rows,
    among,
    distinct,
    grouped,
    median_of,
    medians,
    numbered,
    pick,
    places_of,
    quantile_within,
    starts_of_runs,
    sums_of,
)
from traceanalyzer.model.containment import nearest_marked
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.trace import Trace, codes, codes_at, matching, texts_of
from traceanalyzer.tensors.ops.table import is_view
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.device_work import NO_WORK, DeviceWork
from traceanalyzer.timeline.names import ALLOCATING_OP, COMPILED_RUN, GRAPH_LAUNCH, QUERY, is_compilation
from traceanalyzer.timeline.nesting import Nesting, edges_around
from traceanalyzer.timeline.steps import StepMarks, Steps
from traceanalyzer.timeline.synchronisation import SyncCalls

# Launch calls take 4 to 10 us and ops tens of us (V100 to H200); what a library prepares at first use takes 0.1 ms
# (a workspace) to 30 s (a context). Ten times the median is far above the jitter of either.
LONG_NS = 100_000
MANY_TIMES = 10
WORK_NS = 20_000  # an op on views takes 2 to 10 us under the profiler (H200); one that usually takes more computes
ALONE_NS = 1_000_000  # where nothing of that name is there to compare with
_MOST = 0.5  # of an op's time, the rest may be views; of the later parts of what recurs; chosen


@dataclass(frozen=True, slots=True)
class StalledCalls:
    """Ops and calls that stand still unusually long, and ops that work on the CPU.

    Arrays of shape (stretches,), ordered by thread and start: on a thread that launches work nothing starts or ends
    for 0.1 ms or more inside an op or call that does not wait for the device, and that is unusual: ten times longer
    than ops or calls of its name usually take, or 1 ms where there is no other.

    Attributes:
        thread: int64, thread as in `Nesting`.
        start_ns, end_ns: int64.
        row: int64, row of `trace.cpu` of the innermost op or call around it.
        first: bool, the first of its name, or the next launch in it runs its kernel for the first time.
        host_work: int64 of shape (ops,), rows of outermost ops of 0.1 ms or more that make no call: they work on the
            CPU. Ops that only allocate, compile or run compiled code are left out, and those that are mostly views.
        thread: thread as in `Nesting`.
        start_ns, end_ns: between which nothing starts or ends.
        row: row of `trace.cpu` of the innermost op or call around it.
        first: the first of its name, or the next launch in it runs its kernel for the first time.
        host_work: (ops,), rows of outermost ops of 0.1 ms or more that make no call: they work on the CPU. Ops that
            only allocate, compile or run compiled code are left out, and those that are mostly views.
    """

    thread: Rows
    start_ns: Rows
    end_ns: Rows
    row: Rows
    first: Mask
    host_work: Rows

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting, activity: Activity, syncs: SyncCalls, work: DeviceWork) -> Self:
        alone = ~_makes_calls(trace, nesting)
        usable = matching(trace.lanes.cpu, "category", ("cpu_op", *CALL_CATEGORIES).__contains__) & ~nesting.annotation
        usable &= ~matching(trace.lanes.cpu, "name", GRAPH_LAUNCH.search)
        # A node of backward whose hook runs code of its own is no op that stands still.
        hook = matching(trace.lanes.cpu, "category", "cpu_op".__eq__) & (nesting.op != np.arange(len(usable)))
        usable[hook] = False
        usable[syncs.row] = False
        usable[activity.rows["allocator"]] = False
        parts = [_of_thread(nesting, thread) for thread in np.flatnonzero(activity.launching).tolist()]
        stretches = np.concatenate((np.empty((4, 0), np.int64), *parts), axis=1)
        stretches = stretches[:, usable[stretches[3]] & (stretches[3] >= 0)]
        _, start, end, row = stretches
        unusual = _unusual(trace, nesting, alone, row, end - start - _awaited_ns(nesting, row, start, end, work))
        thread, start, end, row = stretches[:, unusual]
        first = _first_of_name(trace, nesting, row) | _first_of_kernel(trace, nesting, work, row, end)
        return cls(thread, start, end, row, first, _host_work(trace, nesting, activity, alone))


def _of_thread(nesting: Nesting, thread: int) -> Rows:
    """Thread, start, end and innermost row of every long stretch without an edge; int64 (4, stretches)."""
    starts, ends = nesting.edges(thread)
    # Far from the next of their own kind: few are left to be looked up among the others. Nothing follows the last end.
    far = (edges[:-1][np.diff(edges) >= LONG_NS] for edges in (starts, ends))
    start = distinct(np.concatenate((*far, starts[-1:])))
    _, end = edges_around(starts, ends, start, "right")
    long = (end - start >= LONG_NS) & (end < np.iinfo(np.int64).max)
    start, end = start[long], end[long]
    return np.stack((np.full(len(start), thread), start, end, nesting.around(thread, start, end)))


def _makes_calls(trace: Trace, nesting: Nesting) -> Mask:
    """Whether a row, or one inside it, is a call that does more than ask; bool of shape (rows,)."""
    call = matching(trace.lanes.cpu, "category", CALL_CATEGORIES.__contains__)
    inside = call & ~matching(trace.lanes.cpu, "name", QUERY.search)
    reached = np.flatnonzero(inside)
    while len(reached):
        above = pick(nesting.parent, reached)
        above = above[above >= 0]
        above = above[~inside[above]]
        inside[above] = True
        reached = above[starts_of_runs(above)]  # what is around several rows is around neighbours
    return inside


def _unusual(trace: Trace, nesting: Nesting, alone: Mask, rows: Rows, still: Rows) -> Mask:
    """Whether each row stood still many times longer than its like do: of its name, with calls inside or without."""
    least = _usual(nesting.self_ns, codes(trace.lanes.cpu, "name") * 2 + alone, rows)
    allocates = matching(trace.lanes.cpu, "name", ALLOCATING_OP.search)
    computes = matching(trace.lanes.cpu, "category", "cpu_op".__eq__) & alone & ~allocates
    limit = np.where(least >= 0, np.maximum(LONG_NS, MANY_TIMES * least), ALONE_NS)
    # An op that makes no call and usually takes its time, or is the only one, works: how long depends on its data.
    works = computes[rows] & ((least < 0) | (least >= WORK_NS))
    return np.asarray(~works & (still >= limit))


def _first_of_name(trace: Trace, nesting: Nesting, rows: Rows) -> Mask:
    names = codes(trace.lanes.cpu, "name")
    first = np.full(len(texts_of(trace.lanes.cpu, "name")) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, names, nesting.start_ns)
    return np.asarray(nesting.start_ns[rows] <= first[names[rows]])


def _by_launch(work: DeviceWork) -> Rows:
    """Entries of the work with a launch in the trace, in its order."""
    linked = np.flatnonzero(work.call >= 0)
    return linked[np.argsort(work.call_start_ns[linked], kind="stable")]


def _first_of_kernel(trace: Trace, nesting: Nesting, work: DeviceWork, rows: Rows, ends: Rows) -> Mask:
    """Whether the launch in which each stretch lies, or the next one in its op, is the first of its kernel."""
    order = _by_launch(work)
    if len(order) == 0:
        return np.zeros(len(rows), bool)
    _, first = grouped([codes_at(trace.lanes.gpu, "name", work.row[order])])
    fresh = np.zeros(len(order), bool)
    fresh[first] = True
    launched = work.call_start_ns[order]
    # A call that stands still may be the launch itself: look from its start.
    call = matching(trace.lanes.cpu, "category", CALL_CATEGORIES.__contains__)[rows]
    following = np.searchsorted(launched, np.where(call, nesting.start_ns[rows], ends), side="left")
    entry = np.minimum(following, len(order) - 1)
    within = np.where(nesting.op[rows] >= 0, nesting.end_ns[nesting.op[rows]], nesting.end_ns[rows])
    return np.asarray((following < len(order)) & (launched[entry] <= within) & fresh[entry])


def _host_work(trace: Trace, nesting: Nesting, activity: Activity, alone: Mask) -> Rows:
    """Rows of outermost long ops without a call, on threads that launch."""

    def other(name: str) -> bool:
        return bool(ALLOCATING_OP.search(name) or COMPILED_RUN.search(name)) or is_compilation(name)

    rows: Rows = np.flatnonzero(alone & (nesting.end_ns - nesting.start_ns >= LONG_NS))  # few
    rows = rows[(nesting.op[rows] == rows) & activity.launching[nesting.thread[rows]]]
    outer = pick(nesting.op, nesting.parent[rows])
    rows = rows[~((outer >= 0) & alone[outer]) & ~matching(trace.lanes.cpu, "name", other)[rows]]
    views = np.flatnonzero(matching(trace.lanes.cpu, "name", is_view)) if len(rows) else rows
    place = places_of(rows, len(alone))
    owner = place[nearest_marked(nesting.parent, place[:-1] >= 0, views)]
    viewing_ns = sums_of(owner[owner >= 0], nesting.self_ns[views[owner >= 0]], len(rows))
    return rows[viewing_ns < _MOST * (nesting.end_ns - nesting.start_ns)[rows]]


KINDS = ("capturing graphs", "compiling", "tuning", "loading kernels", "allocating", "first use of a library")

_PREPARES_NS = 100_000_000  # allocating takes 0.05 to 12 ms, preparing a device in it 0.26 to 6 s; public A100 trace
_SLICES = 8  # of a window without steps, in place of them
_FEWEST_STEPS = 3  # fewer cannot tell what recurs from what happens once
_OFTEN = 8  # rows in a slice of such a window: a storm has hundreds a step, the first use of a library a dozen


@dataclass(frozen=True, slots=True)
class FirstUse:
    """Rows that stall the CPU once; what does the same in half of the later steps is the program's and left out.

    Attributes:
        row, kind: int64 (rows,), rows of `trace.cpu`, and which of `KINDS` each is; rows may lie in one another.
    """

    row: Rows
    kind: Rows

    @classmethod
    def build(
        cls, trace: Trace, nesting: Nesting, activity: Activity, steps: Steps, syncs: SyncCalls, work: DeviceWork | None
    ) -> Self:
        calls = activity.rows["allocator"]
        pins = matching(trace.lanes.cpu, "name", lambda name: "Host" in name)[calls]  # how long depends on how much
        prepares = ~pins & (nesting.end_ns[calls] - nesting.start_ns[calls] >= _PREPARES_NS)
        # Ops in which a library times its kernels wait for events, which no op does otherwise.
        events = matching(trace.lanes.cpu, "name", lambda name: "EventSynchronize" in name)
        tuning = nesting.top_op(syncs.row[events[syncs.row]])
        result = [
            activity.rows["capture"],
            activity.rows["compilation"],
            distinct(tuning[tuning >= 0]),
            activity.rows["module_loading"],
            calls[~prepares],
            distinct(np.append(calls[prepares], _long(trace, nesting, activity, syncs, steps, work))),
        ]
        once = [rows if _is_once(nesting, rows, steps) else rows[:0] for rows in result]
        kind = np.repeat(np.arange(len(KINDS)), [len(rows) for rows in once])
        return cls(np.concatenate(once), kind)


def _is_once(nesting: Nesting, rows: Rows, steps: Steps) -> bool:
    """Less than half of the steps after the head have such rows; of few steps, of equal parts of the window."""
    edges, least = steps.cpu_start_ns, 1
    if len(steps) < _FEWEST_STEPS:
        bounds = np.linspace(steps.window_start_ns, steps.window_end_ns, _SLICES + 1)
        edges, least = bounds.astype(np.int64)[:-1], _OFTEN
    head = max(1, len(edges) // 3)
    real = rows[nesting.end_ns[rows] - nesting.start_ns[rows] >= LONG_NS // 10]
    step = np.searchsorted(edges, nesting.start_ns[real], side="right") - 1
    count = np.bincount(np.maximum(step, 0), minlength=len(edges))[head:]
    return bool(2 * (count >= least).sum() < len(count))


def _long(
    trace: Trace, nesting: Nesting, activity: Activity, syncs: SyncCalls, steps: Steps, work: DeviceWork | None
) -> Rows:
    """Ops and calls, first of their name or in the first third of steps, that take many times what it usually does."""
    rows = np.flatnonzero(nesting.self_ns >= LONG_NS)  # few
    call = matching(trace.lanes.cpu, "category", CALL_CATEGORIES.__contains__)
    usable = (call[rows] | (nesting.op[rows] == rows)) & activity.launching[nesting.thread[rows]]
    usable &= ~matching(trace.lanes.cpu, "name", GRAPH_LAUNCH.search)[rows]
    usable &= ~among(rows, distinct(syncs.row)) & ~among(rows, distinct(activity.rows["allocator"]))
    rows = rows[usable & (nesting.self_ns[rows] >= (nesting.end_ns - nesting.start_ns)[rows] // 2)]
    stalled = intervals.covered(activity.sets["profiler"], nesting.start_ns[rows], nesting.end_ns[rows])
    awaited = _awaited_ns(nesting, rows, nesting.start_ns[rows], nesting.end_ns[rows], work)
    own = nesting.self_ns[rows] - stalled - awaited
    usual = _usual(nesting.self_ns, codes(trace.lanes.cpu, "name"), rows)
    least = np.where(usual >= 0, np.maximum(MANY_TIMES * usual, LONG_NS), ALONE_NS)
    # An op that computes on the CPU alone may be meant to take that long: only a call starts something.
    calls_inside = np.zeros(len(call) + 1, bool)
    calls_inside[nesting.parent[np.flatnonzero(call)]] = True
    starts = call[rows] | calls_inside[rows]
    enough = len(steps) >= _FEWEST_STEPS
    later_ns = steps.cpu_start_ns[max(1, len(steps) // 3)] if enough else np.iinfo(np.int64).max
    early = _first_of_name(trace, nesting, rows) | (nesting.start_ns[rows] < later_ns)
    return np.asarray(rows[starts & (own >= least) & early])


def _awaited_ns(nesting: Nesting, rows: Rows, starts: Rows, ends: Rows, work: DeviceWork | None) -> Rows:
    """Time of [start, end) in which the device runs what the row around it launched, where that is most of it."""
    result, work = np.zeros(len(rows), np.int64), NO_WORK if work is None else work
    for place, (row, start, end) in enumerate(zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True)):
        launched = (work.call_start_ns >= nesting.start_ns[row]) & (work.call_start_ns < end)
        launched &= (work.start_ns < end) & (work.end_ns > start)
        launched[launched] = nesting.thread[work.call[launched]] == nesting.thread[row]
        running = intervals.union(work.start_ns[launched], work.end_ns[launched])
        result[place] = intervals.length(intervals.clip(running, start, end))
    return np.where(result > _MOST * (ends - starts), result, 0)


def _usual(self_ns: Rows, names: Rows, rows: Rows) -> Rows:
    """Per row the median self time of its name, -1 where it is the only one."""
    alike = np.flatnonzero(np.isin(names, names[rows]))
    number, _ = numbered(names[alike])
    usual = np.where(np.bincount(number)[number] > 1, quantile_within(number, self_ns[alike], 0.5), -1)
    return usual[np.searchsorted(alike, rows)]


_QUARTERS = 4  # of a recording without steps
_NEARLY_ALL = 0.9  # of the kernels have run once: what is new after that is a rare branch
_MIN_WARM = 0.2  # share of the launches that must follow, else the recording is all start


def standing_out(key: Rows, step: Rows, ns: Rows, steps: int, spike: float) -> tuple[Mask, Mask]:
    """Which parts, by key and step (-1 before the first), lie where their key takes over `spike` times its median.

    (those whose steps of that kind are all in the first third, those whose step is the only one)
    """
    inside = step >= 0
    keys = int(key.max(initial=-1)) + 1
    sums = np.bincount(key[inside] * steps + step[inside], ns[inside], keys * steps).reshape(keys, steps)
    high = sums > spike * medians(sums)[:, None]
    last = np.where(high, np.arange(steps), -1).max(axis=1, initial=-1)
    high = np.append(high, np.zeros((len(high), 1), bool), axis=1)  # for parts before the first step
    stands = high[key, step]
    return (stands & (last < max(1, steps // 3))[key], stands & (high.sum(axis=1) == 1)[key])


def recurring_calls(trace: Trace, nesting: Nesting, marks: StepMarks, work: DeviceWork, rows: Rows) -> Mask:
    """Which of these calls belong to what recurs, bool of the shape of `rows`.

    They recur where most of the later parts of the recording have one: its steps less the leading third, or quarters
    of the launches that follow when nearly all kernels have run once. Calls in the leading part that take many times
    their usual stay apart even then: that is the start of a library.
    """
    later = _later_parts(trace, marks, work)
    part = np.searchsorted(later, nesting.start_ns[rows], side="right") - 1
    if len(later) == 0 or len(distinct(part[part >= 0])) < _MOST * len(later):
        return np.zeros(len(rows), bool)
    took = nesting.end_ns[rows] - nesting.start_ns[rows]
    name, _ = grouped([codes_at(trace.lanes.cpu, "name", rows)])
    usual = median_of(name, took)[name]
    return np.asarray((part >= 0) | (took < MANY_TIMES * usual))


def _later_parts(trace: Trace, marks: StepMarks, work: DeviceWork) -> Rows:
    """Where steps after the leading third begin, or quarters of the launches after nearly all kernels ran once."""
    steps = len(marks.number)
    if steps >= _FEWEST_STEPS:
        return marks.cpu_start_ns[max(1, steps // 3) :]
    linked = _by_launch(work)
    if len(linked) == 0:
        return np.empty(0, np.int64)
    _, first = grouped([codes_at(trace.lanes.gpu, "name", work.row[linked])])
    warm = linked[int(np.quantile(first, _NEARLY_ALL, method="lower")) + 1 :]
    if len(warm) < max(_QUARTERS, _MIN_WARM * len(linked)):
        return np.empty(0, np.int64)
    return distinct(work.call_start_ns[warm[np.arange(_QUARTERS) * len(warm) // _QUARTERS]])
