"""Tests of the causes of idle time, as `causes.toml` tells them: proofs with a time span, then tests of a whole gap."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.idle.gaps import MOST, Evidence, Proof
from traceanalyzer.idle.stalled_calls import recurring_calls
from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct, pick
from traceanalyzer.model.trace import NULL_INT, matching
from traceanalyzer.timeline.device_work import KINDS, unrecorded_graphs
from traceanalyzer.timeline.names import EVENT_SYNC, LAUNCH, STREAM_WAIT, TUNING_OP


def before_recording(evidence: Evidence) -> Iterator[Proof]:
    gaps, known = evidence.gaps, evidence.marks.known_ns
    for device, begin in known.items():
        head = (gaps.device == device) & (gaps.previous_work < 0)
        if begin > evidence.marks.whole_ns[0] and head.any():
            span = np.array([evidence.marks.whole_ns[0]]), np.array([begin])
            yield Proof(span, np.empty(0, np.int64), head, whole=True)


def graph_capture(evidence: Evidence) -> Iterator[Proof]:
    """While a graph is captured; the first row in each stretch decides it."""
    spans, rows = evidence.activity.sets["capture"], evidence.activity.rows["capture"]
    rows = rows[np.argsort(evidence.nesting.start_ns[rows], kind="stable")]
    first = rows[np.searchsorted(evidence.nesting.start_ns[rows], spans[0])]
    yield Proof(spans, first, ~evidence.in_graph, whole=True, times=spans)


def while_active(evidence: Evidence, activity: str) -> Iterator[Proof]:
    yield Proof(evidence.activity.sets[activity], evidence.activity.rows[activity], ~evidence.in_graph)


def first_use(evidence: Evidence) -> Iterator[Proof]:
    yield from while_active(evidence, "library_start")
    yield _calls(evidence, _allocator(evidence, recurring=False))
    yield from _stalled_calls(evidence, first=True)


def allocator(evidence: Evidence) -> Iterator[Proof]:
    yield _calls(evidence, _allocator(evidence, recurring=True))


def long_call(evidence: Evidence) -> Iterator[Proof]:
    yield from _stalled_calls(evidence, first=False)


def host_work(evidence: Evidence) -> Iterator[Proof]:
    rows = evidence.stalled_calls.host_work
    for thread in distinct(pick(evidence.nesting.thread, rows)).tolist():
        yield _calls(evidence, rows[evidence.nesting.thread[rows] == thread], thread)


def head_wait(evidence: Evidence) -> Iterator[Proof]:
    syncs = evidence.syncs
    usable = ~syncs.profiler & evidence.activity.launching[syncs.thread]
    proof = _calls(evidence, syncs.row[usable])
    yield Proof(proof.spans, proof.rows, evidence.gaps.previous_work < 0)


def not_recorded(evidence: Evidence) -> Iterator[Proof]:
    gaps, cpu = evidence.gaps, evidence.trace.lanes.cpu
    graphs = unrecorded_graphs(evidence.trace, evidence.nesting, evidence.work)
    launched = evidence.nesting.start_ns[graphs]
    by_launch = np.argsort(gaps.launched_ns, kind="stable")
    place = np.searchsorted(gaps.launched_ns[by_launch], launched, side="right")
    graphs, launched, place = (each[place < len(gaps)] for each in (graphs, launched, place))
    next_gap = by_launch[place]
    begins, ends = np.maximum(launched, gaps.start_ns[next_gap]), gaps.end_ns[next_gap]
    spans = intervals.union(begins[begins < ends], ends[begins < ends])
    yield Proof(spans, graphs, ~evidence.in_graph, whole=True)
    launch = matching(cpu, "name", LAUNCH.search) & (evidence.nesting.thread >= 0)
    launch[evidence.work.call[evidence.work.call >= 0]] = False
    rows = np.flatnonzero(launch)
    start, end = evidence.nesting.start_ns[rows], evidence.nesting.end_ns[rows]
    rows = rows[intervals.covered(evidence.activity.sets["capture"], start, end) == 0]
    cut = any(one.kind == "truncated" for one in evidence.trace.meta.damage)
    starts = np.sort(evidence.nesting.start_ns[rows])
    for gap in np.flatnonzero(gaps.next_work < 0).tolist():
        position = int(np.searchsorted(starts, gaps.start_ns[gap]))
        begin = gaps.start_ns[gap : gap + 1] if cut else starts[position : position + 1]
        if (begin < gaps.end_ns[gap]).any():
            yield Proof((begin, gaps.end_ns[gap : gap + 1]), rows, np.arange(len(gaps)) == gap, whole=True)


def _calls(evidence: Evidence, rows: Rows, thread: int | None = None) -> Proof:
    """Rows as they stand; those of one thread explain only what that thread launched."""
    spans = intervals.union(evidence.nesting.start_ns[rows], evidence.nesting.end_ns[rows])
    gaps = ~evidence.in_graph
    return Proof(spans, rows, gaps if thread is None else gaps & (evidence.thread == thread))


def _allocator(evidence: Evidence, *, recurring: bool) -> Rows:
    rows = evidence.activity.rows["allocator"]
    recurs = recurring_calls(evidence.trace, evidence.nesting, evidence.marks, evidence.work, rows)
    return np.asarray(rows[recurs == recurring])


def _stalled_calls(evidence: Evidence, *, first: bool) -> Iterator[Proof]:
    still = evidence.stalled_calls
    chosen = still.first == first
    for thread in distinct(still.thread[chosen]).tolist():
        own = chosen & (still.thread == thread)
        times = still.start_ns[own], still.end_ns[own]
        gaps = ~evidence.in_graph & (evidence.thread == thread)
        yield Proof(intervals.union(*times), still.row[own], gaps, times=times)


Verdict = tuple[Mask, Rows]  # per gap: does it hold; the row of `trace.cpu` that decides, -1 for none


def tail(evidence: Evidence) -> Verdict:
    return evidence.gaps.next_work < 0, np.full(len(evidence.gaps), -1)


def in_graph(evidence: Evidence) -> Verdict:
    return evidence.in_graph, evidence.gaps.call


def unlinked(evidence: Evidence) -> Verdict:
    return evidence.gaps.call < 0, np.full(len(evidence.gaps), -1)


def refill(evidence: Evidence) -> Verdict:
    _, row = evidence.waits
    return row >= 0, row


def usual_latency(evidence: Evidence) -> Verdict:
    return evidence.gaps.in_time & (evidence.remainder_ns <= evidence.usual_delay_ns), evidence.gaps.call


def autotuning(evidence: Evidence) -> Verdict:
    direct, _ = evidence.waits
    event, tunes = (matching(evidence.trace.lanes.cpu, "name", names.search) for names in (EVENT_SYNC, TUNING_OP))
    around = pick(evidence.nesting.op, direct)
    return (direct >= 0) & event[direct] & (around >= 0) & tunes[around], direct


def blocking_upload(evidence: Evidence) -> Verdict:
    direct, _ = evidence.waits
    work = evidence.work
    up, down = (work.kind == KINDS.index(f"copy_{way}") for way in ("h2d", "d2h"))
    own = np.isin(direct, work.call[up])
    uploads = work.op[up][~np.isin(work.op[up], work.op[down])]
    event = matching(evidence.trace.lanes.cpu, "name", EVENT_SYNC.search)
    around = pick(evidence.nesting.op, direct)
    return (direct >= 0) & ~event[direct] & (own | ((around >= 0) & np.isin(around, uploads))), direct


def drained(evidence: Evidence) -> Verdict:
    direct, _ = evidence.waits
    return direct >= 0, direct


def long_launch(evidence: Evidence) -> Verdict:
    return evidence.gaps.in_time & (evidence.held_ns <= evidence.usual_delay_ns), evidence.gaps.call


def waiting(evidence: Evidence) -> Verdict:
    before = evidence.gaps.previous_work
    waits = matching(evidence.trace.lanes.cpu, "name", STREAM_WAIT.search)
    issued = np.sort(evidence.nesting.start_ns[waits])
    since = np.where(before >= 0, evidence.work.call_start_ns[before], NULL_INT)
    between = np.searchsorted(issued, evidence.gaps.launched_ns) > np.searchsorted(issued, since)
    stuck = ~evidence.late & ~evidence.gaps.in_time
    stuck |= evidence.gaps.in_time & (evidence.held_ns > MOST * evidence.remainder_ns)
    holds = stuck & ((before < 0) | between & (since != NULL_INT))
    return np.asarray(holds), evidence.gaps.call


def unknown(evidence: Evidence) -> Verdict:
    return ~evidence.late, evidence.gaps.call


def engine(evidence: Evidence) -> Verdict:
    """The launching thread is the autograd engine's, which runs no python of the user."""
    thread, cpu = evidence.nesting.thread, evidence.trace.lanes.cpu
    runs = matching(cpu, "name", lambda name: name.startswith("autograd::engine::"))
    user = matching(cpu, "category", "user_annotation".__eq__)
    engines = np.zeros(int(thread.max(initial=-1)) + 2, bool)
    engines[thread[runs & (thread >= 0)]] = True
    engines[thread[user & (thread >= 0)]] = False
    return (1 - evidence.in_ops >= MOST) & engines[evidence.thread], evidence.gaps.call


def python(evidence: Evidence) -> Verdict:
    return (1 - evidence.in_ops >= MOST) & bool(evidence.trace.meta.rows.get("python")), evidence.gaps.call


def host_code(evidence: Evidence) -> Verdict:
    return 1 - evidence.in_ops >= MOST, evidence.gaps.call


def dispatching(evidence: Evidence) -> Verdict:
    """What is left; the deciding row is the innermost op that took most of the gap and ended before the launch, else
    the launch: then the op that launched took the time."""
    nesting, gaps = evidence.nesting, evidence.gaps
    result = np.full(len(gaps), -1)
    middle = (gaps.start_ns + gaps.end_ns) // 2
    # A row that covers half of a gap lies around its middle.
    for thread in distinct(evidence.thread).tolist():
        selected = evidence.thread == thread
        result[selected] = nesting.around(thread, middle[selected], middle[selected])
    result[~evidence.late] = -1
    going = np.flatnonzero(result >= 0)
    while len(going):
        row = result[going]
        end, start = np.minimum(nesting.end_ns[row], gaps.end_ns[going]), gaps.start_ns[going]
        overlap = end - np.maximum(nesting.start_ns[row], start)
        short = (nesting.op[row] != row) | (overlap < MOST * gaps.dur_ns[going])
        going = going[short]
        result[going] = nesting.parent[row[short]]
        going = going[result[going] >= 0]
    ended = (result >= 0) & (nesting.end_ns[result] <= gaps.launched_ns)
    return np.ones(len(gaps), bool), np.where(ended, result, gaps.call)
