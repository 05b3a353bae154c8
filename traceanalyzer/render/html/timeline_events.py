"""Which events the timeline has: those of occurrences, those that can be seen from afar, and all of a few steps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Mask, Rows, distinct, pick, places_of, sums_of
from traceanalyzer.model.finding import Finding
from traceanalyzer.model.trace import ints, ints_at
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.selection import Events
from traceanalyzer.timeline.steps import Steps

_THREADS, _STREAMS = 4, 8
_NEAR = 4  # occurrences of a finding whose surroundings are kept whole
# Occurrences of a finding of which events are kept in any case, and of each how many.
_FIRST, _MOST_OWN = 12, 40
_PAD, _LEAST_NS = 0.5, 30_000  # of an occurrence on either side, and at least
_FEW = 160  # events around an occurrence, the longest
_FAR = 1_200  # parts of the window: what is longer than one is seen while all of it is
_FAR_SHARE, _STEP_SHARE = 0.35, 0.8  # of all that may be kept
_STEPS = 3


@dataclass(frozen=True, slots=True)
class Band:
    """A part of the time in which all events are kept that last `least_ns` or more; 0 where all are."""

    start_ns: int
    end_ns: int
    least_ns: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is kept: threads with their rows of `trace.cpu`, streams with their entries of `DeviceWork`, by start."""

    threads: tuple[tuple[int, Rows], ...]
    streams: tuple[tuple[int, int, Rows], ...]
    bands: tuple[Band, ...]
    least_ns: int


@dataclass(frozen=True, slots=True)
class _Kept:
    """Masks of what is kept, (rows of trace.cpu,) and (work,); and what may be: rows on the tracks."""

    cpu: Mask
    gpu: Mask
    on_cpu: Mask
    on_gpu: Mask

    @property
    def count(self) -> int:
        return int(self.cpu.sum() + self.gpu.sum())


def chosen(analysis: Analysis, findings: Sequence[Finding], spans: Sequence[tuple[int, int]], most: int) -> Chosen:
    """About `most` events of the trace, among them those around these spans, (start, end)."""
    events, steps = analysis.index(Events), analysis.index(Steps)
    threads, streams = _threads(events, findings), _streams(events.device_work)
    nesting, work = events.nesting, events.device_work
    low, high = steps.window_start_ns, steps.window_end_ns
    on_cpu = np.isin(nesting.thread, threads) & (nesting.end_ns >= low) & (nesting.start_ns < high)
    on_stream = {pair: (work.device == pair[0]) & (work.stream == pair[1]) for pair in streams}
    on_gpu = np.any([*on_stream.values(), np.zeros(len(work.row), np.bool_)], axis=0)
    on_gpu &= (work.end_ns >= low) & (work.start_ns < high)
    kept = _Kept(np.zeros_like(on_cpu), np.zeros_like(on_gpu), on_cpu, on_gpu)
    length = max(steps.window_end_ns - steps.window_start_ns, 1)
    for start, end in spans:
        _keep_around(events, kept, start - _LEAST_NS, end + _LEAST_NS)
    _keep_occurrences(events, findings, kept, most // 2)
    least = _keep_long(events, kept, length // _FAR, int(_FAR_SHARE * most))
    bands = _keep_steps(events, steps, findings, kept, most)
    # The launches of kept work, so that arrows have both ends, with the op around each.
    calls = work.call[kept.gpu & (work.call >= 0)]
    ops = pick(nesting.op, calls)
    own = np.concatenate((calls, ops[ops >= 0]))
    kept.cpu[own[kept.on_cpu[own]]] = True
    rows = {int(thread): nesting.thread_rows[thread].astype(np.int64) for thread in threads}
    shown = tuple((thread, own[kept.cpu[own]]) for thread, own in rows.items())
    entries = ((*pair, np.flatnonzero(kept.gpu & own)) for pair, own in on_stream.items())
    return Chosen(shown, tuple(entries), bands, least)


def _threads(events: Events, findings: Sequence[Finding]) -> list[int]:
    """Threads that launch most work, those of findings, and without work those with most rows; in their order."""
    nesting = events.nesting
    count = len(nesting.thread_rows)
    rows = np.array([len(of) for of in nesting.thread_rows], np.int64)
    call = events.device_work.call
    on = nesting.thread[call[call >= 0]]
    launched = np.bincount(on[on >= 0], minlength=count)
    wanted = {finding.thread for finding in findings}
    first = np.array([of[0] if len(of) else -1 for of in nesting.thread_rows], np.int64)
    tid = ints_at(events.trace.lanes.cpu, "tid", first)
    named = np.isin(tid, [one for one in wanted if one is not None])
    order = np.lexsort((tid, -rows, ~named, -launched))[:_THREADS]
    useful = [int(i) for i in order if launched[i] or named[i] or not launched.any()]
    begun = {i: int(nesting.thread_start_ns[i][:1].min(initial=1 << 62)) for i in useful}
    return sorted(useful, key=lambda i: (begun[i], int(tid[i])))


def _streams(work: DeviceWork) -> list[tuple[int, int]]:
    pair = work.device * (1 << 40) + work.stream
    known, number = np.unique(pair, return_inverse=True)
    busy = sums_of(number, work.end_ns - work.start_ns, len(known))
    largest = known[np.lexsort((known, -busy))[:_STREAMS]]
    return [(int(one >> 40), int(one & ((1 << 40) - 1))) for one in np.sort(largest)]


def _keep_occurrences(events: Events, findings: Sequence[Finding], kept: _Kept, most: int) -> None:
    """The first occurrences of each finding, and the typical one, with what is around the first of them."""
    for finding in findings:
        spans = [(finding.start_ns, finding.end_ns, finding.event_ids)]
        spans += [(one.start_ns, one.end_ns, one.event_ids) for one in finding.occurrences[:_NEAR]]
        for start, end, ids in spans:
            _keep_own(events, kept, ids[:_FEW])
            if kept.count < most:
                pad = max(int(_PAD * (end - start)), _LEAST_NS)
                _keep_around(events, kept, start - pad, end + pad)
    for finding in findings:
        for one in finding.occurrences[_NEAR:_FIRST]:
            _keep_own(events, kept, one.event_ids[:_MOST_OWN])
    later = [(k, one.event_ids[:_FEW]) for finding in findings for k, one in enumerate(finding.occurrences)]
    later = sorted((turn for turn in later if turn[0] >= _FIRST), key=lambda turn: turn[0])
    others = [event for _, own in later for event in own][: max(most - kept.count, 0)]
    _keep_own(events, kept, others)


def _keep_own(events: Events, kept: _Kept, ids: Sequence[int]) -> None:
    wanted = np.array(ids, np.int64)
    rows = rows_of(ints(events.trace.lanes.cpu, "event_id"), wanted)
    kept.cpu[rows[kept.on_cpu[rows]]] = True
    entries = entries_of(events, wanted)
    kept.gpu[entries[kept.on_gpu[entries]]] = True


def _keep_around(events: Events, kept: _Kept, low: int, high: int) -> None:
    """The longest events that overlap [low, high)."""
    cpu, gpu = _overlapping(events, kept, low, high)
    nesting, work = events.nesting, events.device_work
    kept.cpu[_longest(cpu, nesting.end_ns - nesting.start_ns, _FEW)] = True
    kept.gpu[_longest(gpu, work.end_ns - work.start_ns, _FEW)] = True


def _overlapping(events: Events, kept: _Kept, low: int, high: int) -> tuple[Rows, Rows]:
    """Rows and entries on the tracks that begin in [low, high), and rows that are open at its begin."""
    threads = range(len(events.nesting.thread_rows))
    cpu = np.concatenate([np.empty(0, np.int64), *(rows_within(events, one, low, high) for one in threads)])
    work = events.device_work
    first, last = np.searchsorted(work.start_ns, [low, high])
    entries = np.arange(max(int(first) - _FEW, 0), int(last))
    return cpu[kept.on_cpu[cpu]], entries[kept.on_gpu[entries] & (work.end_ns[entries] > low)]


def _longest(rows: Rows, durations: Rows, most: int) -> Rows:
    if len(rows) <= most:
        return rows
    return rows[np.lexsort((rows, -durations[rows]))[:most]]


def _keep_long(events: Events, kept: _Kept, least: int, most: int) -> int:
    """What lasts long enough to be seen from afar, at most `most`; the shortest that is kept."""
    nesting, work = events.nesting, events.device_work
    on_cpu = np.where(kept.on_cpu, nesting.end_ns - nesting.start_ns, -1)
    on_gpu = np.where(kept.on_gpu, work.end_ns - work.start_ns, -1)
    both = np.concatenate((on_cpu, on_gpu))
    least = max(least, _bound(both[both >= max(least, 1)], most))
    kept.cpu[on_cpu >= max(least, 1)] = True
    kept.gpu[on_gpu >= max(least, 1)] = True
    return least


def _bound(durations: Rows, most: int) -> int:
    """The duration that at most `most` of these exceed; 0 where there are no more of them."""
    if len(durations) <= most:
        return 0
    first_left = len(durations) - max(most, 0) - 1
    return int(np.partition(durations, first_left)[first_left]) + 1


def _keep_steps(events: Events, steps: Steps, findings: Sequence[Finding], kept: _Kept, most: int) -> tuple[Band, ...]:
    """All events of a few steps; of the first of them, where it has too many, the longest."""
    bands: list[Band] = []
    for position in representative_steps(steps, findings):
        cpu, gpu, low, high = _of_step(events, steps, kept, position)
        room = most - kept.count
        fresh = int((~kept.cpu[cpu]).sum() + (~kept.gpu[gpu]).sum())
        if fresh > room and bands:
            continue
        long_cpu = events.nesting.end_ns[cpu] - events.nesting.start_ns[cpu]
        long_gpu = events.device_work.end_ns[gpu] - events.device_work.start_ns[gpu]
        both, share = np.concatenate((long_cpu, long_gpu)), int(_STEP_SHARE * max(room, 0))
        least = _bound(both, share) if fresh > room else 0
        kept.cpu[cpu[long_cpu >= least]] = True
        kept.gpu[gpu[long_gpu >= least]] = True
        bands.append(Band(low, high, least))
    return tuple(sorted(bands, key=lambda band: band.start_ns))


def representative_steps(steps: Steps, findings: Sequence[Finding]) -> Iterator[int]:
    """Positions of the step of median length, of the one where most findings are, and of the longest."""
    durations = steps.durations_ns(min(steps.bounds_ns, default=None))
    first, last = steps.in_use
    inside = np.arange(first, last)
    if not len(inside):
        return
    steady = inside[steps.steady[first:last]]
    order = steady if len(steady) else inside
    by_length = order[np.argsort(durations[order], kind="stable")]
    numbers = [finding.step for finding in findings if finding.step is not None]
    positions = np.searchsorted(steps.number, numbers) if numbers else np.empty(0, np.int64)
    positions = positions[(positions >= first) & (positions < last)]
    found = [int(by_length[len(by_length) // 2])]
    if len(positions):
        found.append(int(np.bincount(positions).argmax()))
    found.append(int(inside[np.argmax(durations[inside])]))
    yield from list(dict.fromkeys(found))[:_STEPS]


def _of_step(events: Events, steps: Steps, kept: _Kept, position: int) -> tuple[Rows, Rows, int, int]:
    """Rows that begin in the step, work that it launched, and from when to when both last."""
    low, high = int(steps.cpu_start_ns[position]), int(steps.cpu_end_ns[position])
    cpu, running = _overlapping(events, kept, low, high)
    own = kept.on_gpu & (steps.of_work == position)
    gpu = distinct(np.append(np.flatnonzero(own), running))
    return cpu, gpu, low, int(events.device_work.end_ns[own].max(initial=high))


def rows_of(known: Rows, ids: Rows) -> Rows:
    """Rows of a frame that have these event ids; frames are in order of event_id."""
    at = np.searchsorted(known, ids)
    at = at[at < len(known)]
    return distinct(at[np.isin(known[at], ids)])


def entries_of(events: Events, ids: Rows) -> Rows:
    rows = rows_of(ints(events.trace.lanes.gpu, "event_id"), ids)
    work, gpu = events.device_work.row, events.trace.lanes.gpu
    place = events.once("page: entry of row", lambda: places_of(work, len(gpu)))
    found: Rows = place[rows]
    return found[found >= 0]


def rows_within(events: Events, thread: int, low: int, high: int) -> Rows:
    """Rows of one thread that overlap [low, high), by start: what is open at its begin, and what begins in it."""
    nesting = events.nesting
    rows, starts = nesting.thread_rows[thread], nesting.thread_start_ns[thread]
    first, last = np.searchsorted(starts, [low, high])
    opened, row = [], int(rows[first - 1]) if first else -1
    while row >= 0:
        if nesting.end_ns[row] > low:
            opened.append(row)
        row = int(nesting.parent[row])
    return np.concatenate((np.array(opened[::-1], np.int64), rows[first:last]))
