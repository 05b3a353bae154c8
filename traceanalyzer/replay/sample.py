"""Which steps stand for the program: neither the cold first nor a hiccup, and not more than can be replayed quickly."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.analysis import GivenByJob
from traceanalyzer.model.arrays import Floats, Mask, Rows, grouped, median, median_of, no_rows
from traceanalyzer.model.lanes import Columns
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.short_names import short_kernel
from traceanalyzer.model.step_times import SLOW_TIMES, SlowSteps
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, codes_at
from traceanalyzer.replay.cpu_timeline import CpuTimeline
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.names import COPY_CALL, LAUNCH, SYNCHRONISING
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps

# Times the quickest step's time from row to row: the host did something else; steps differ by.
_DISTURBED = 2.0
#                   1.9 at most in quiet recordings, by 2 to 4 where others used the host (H100 and H200)
_SAME_ROWS = 0.02  # by which steps that do the same differ; H100 and H200 traces
_PACED_ROWS = 100  # of a step: fewer tell little; steps of 61 rows differ by 1.6, H200
_STALLS = 0.1  # share of a step's rows that may be followed by a stall of any length; chosen
_MOST = 0.5  # of what a slow step takes longer: so much of one row is the reason; chosen
MUCH = 0.25  # of the time, from which on it is said that it is left out; chosen
_MAX_ROWS = 30_000  # of the CPU lane, so that a replay takes milliseconds
_MAX_ROWS_OF_ONE = 100_000  # of a single step: a part of it knows nothing of what the rest of it does; chosen


@dataclass(frozen=True, slots=True)
class JointSteps(GivenByJob):
    """Steps that are replayed on every rank of a job; only the job gives it, by the `number` that all ranks count."""

    number: Rows


@dataclass(frozen=True, slots=True)
class JobStep(GivenByJob):
    """The predicted step of the job that a rank is one of, without the profiler; only the job gives it."""

    unprofiled_ns: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Steps of the program that are replayed.

    Attributes:
        steps: int64, positions in `Steps`, ascending, at least one.
        begin_ns, end_ns: int64, where they lie on the CPU.
        part: share of its step that each of them is; below 1 where a single step is too long to be replayed whole.
        of_steps: how many steps the trace has from the first that launched work to the last.
        disturbed: whether others were left out because the host was busy with something else in them.
        slow: int64, positions in `Steps` of a few that take far longer than the others, and are left out.
        left_out: share of the time of all steps but the first that is in no step like those of the sample (0 to 1).
    """

    steps: Rows
    begin_ns: Rows
    end_ns: Rows
    part: float
    of_steps: int
    disturbed: bool = False
    left_out: float = 0.0
    slow: Rows = field(default_factory=no_rows)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def text(self) -> str:
        if self.part < 1:
            return f"{100 * self.part:.0f} % of a step"
        where = " (in others something else kept the host busy)" * self.disturbed
        left = (
            f"; of the time after the first step, {100 * self.left_out:.0f} % is in steps that are not replayed"
            if self.left_out >= MUCH
            else ""
        )
        return f"{len(self)} of {self.of_steps} step{'s' * (self.of_steps != 1)}{where}{left}"

    @classmethod
    def of(
        cls, steps: Steps, nesting: Nesting, loading: intervals.Set = intervals.EMPTY, joint: JointSteps | None = None
    ) -> Self:
        """A run of warm and typical steps from the middle of the trace; of a job those that stand for all ranks.

        Where nothing marks the end of the last step, a part of it may be missing: it stands for none. How often the
        program has a row while it waits for its data, `loading`, tells nothing.
        """
        begin, end = steps.cpu_start_ns, steps.cpu_end_ns
        if joint is not None and (same := np.isin(steps.number, joint.number)).any():
            return cls(np.flatnonzero(same), begin[same], end[same], 1.0, steps.working)
        unusual = steps.capturing | steps.damaged
        usual, slow = _usual([end - begin, *map(steps.durations_ns, steps.bounds_ns)], unusual, warm=steps.warm)
        if steps.open_end and len(usual) > 1 and usual[-1] == len(begin) - 1:
            usual = usual[:-1]
        usable = undisturbed_steps(usual, *_paces(nesting, loading, begin, end))
        left = left_out_share(end - begin, usable, unusual)
        edges = begin[usable], end[usable]
        first, last = np.sum([np.searchsorted(starts, edges) for starts in nesting.thread_start_ns], axis=0)
        rows = last - first
        chosen = middle_steps(usable, rows)
        begin, end = begin[chosen], end[chosen]
        if len(chosen) == 1 and (count := int(rows[usable == chosen[0]][0])) > _MAX_ROWS_OF_ONE:
            whole = int(end[0] - begin[0])
            begin, end = _cut(nesting, int(begin[0]), int(end[0]), count)
            return cls(chosen, begin, end, int(end[0] - begin[0]) / whole, steps.working)
        disturbed = usable is not usual
        return cls(chosen, begin, end, 1.0, steps.working, disturbed=disturbed, left_out=left, slow=slow)


def _usual(times: Sequence[Rows], capturing: Mask, *, warm: bool) -> tuple[Rows, Rows]:
    """Positions of steps that are neither empty, nor a cold first one, nor hiccups, and capture no graph; of hiccups.

    `times` are those on the CPU, and on each device; a `warm` first step is as warm as the others if it is as quick.
    """
    dur, *_ = times
    usable = np.flatnonzero((dur > 0) & ~capturing)
    if len(usable) == 0:
        return np.zeros(1, np.int64), no_rows()
    if len(usable) > 1 and usable[0] == 0 and not (warm and dur[0] <= SLOW_TIMES * _median(dur[usable])):
        usable = usable[1:]
    compared = times if len(usable) > 2 else times[:1]  # of two the device's times are hardly known
    slow = np.any([one[usable] > SLOW_TIMES * _median(one[usable]) for one in compared], axis=0)
    return (usable, no_rows()) if _regular(usable, slow) else (usable[~slow], usable[slow])


def _regular(steps: Rows, slow: Mask) -> bool:
    """Whether every n-th step is slow, as where the program logs or saves then, and no other."""
    if slow.sum() < 2:
        return False
    first, second = steps[slow][:2].tolist()
    every = second - first
    return every > 1 and np.array_equal(slow, steps % every == first % every)


def _median(dur: Rows) -> int:
    """Of two the quicker: the other may be a hiccup."""
    return int(np.sort(dur)[(len(dur) - 1) // 2])


def left_out_share(dur: Rows, usable: Rows, capturing: Mask) -> float:
    """Share of the later steps' time that is in none of the usable ones."""
    later = ~capturing
    later[:1] = False
    whole = int(dur[later].sum())
    kept = int(dur[usable[usable > 0]].sum())
    return max(1 - kept / whole, 0.0) if whole > 0 else 0.0


def _paces(nesting: Nesting, loading: intervals.Set, begin: Rows, end: Rows) -> tuple[Floats, Rows]:
    """Of each step the usual time from row to row on the busiest thread, and how many rows it has there.

    Rows within a wait for data do not count: how many there are, and how long they take, is the data's.
    """
    busiest = max(nesting.thread_start_ns, key=len)
    if len(loading[0]):
        busiest = busiest[intervals.covered(loading, busiest, busiest + 1) == 0]
    first, last = np.searchsorted(busiest, begin), np.searchsorted(busiest, end)
    paces = [mean_pace(np.diff(busiest[low:high])) for low, high in zip(first, last, strict=True)]
    return np.array(paces), np.asarray(last - first, np.int64)


def mean_pace(apart: Rows) -> float:
    """Mean without the longest tenth, which are stalls and long ops; 0 of few."""
    usual = np.sort(apart)[: int(len(apart) * (1 - _STALLS))]
    return float(usual.mean()) if len(apart) >= _PACED_ROWS else 0.0


def undisturbed_steps(usable: Rows, pace: Floats, rows: Rows) -> Rows:
    """Without steps that do what the others do, each row of it more slowly: the host was busy with something else."""
    alike = np.ptp(rows[usable]) <= _SAME_ROWS * rows[usable].max() and pace[usable].min() > 0
    quick = pace <= _DISTURBED * pace[usable].min()
    if not alike or quick[usable].all():
        return usable
    same = abs(rows - rows[usable].max()) <= _SAME_ROWS * rows  # the first, too, if it is as quick
    same &= pace > 0
    return np.flatnonzero(same & (pace <= _DISTURBED * pace[same].min()))


def middle_steps(usable: Rows, rows: Rows) -> Rows:
    """As many as fit, from the middle of the trace on, where all is warm, or from before where fewer follow."""
    before = np.concatenate(([0], np.cumsum(rows)))
    first = len(usable) // 2
    last = max(int(np.searchsorted(before, before[first] + _MAX_ROWS, side="right")) - 1, first + 1)
    if last == len(usable):
        first = min(first, int(np.searchsorted(before, before[-1] - _MAX_ROWS)))
    return usable[first:last]


def _cut(nesting: Nesting, begin: int, end: int, rows: int) -> tuple[Rows, Rows]:
    """The middle part of a step that holds so many rows."""
    busiest = max(nesting.thread_start_ns, key=len)
    low, high = np.searchsorted(busiest, (begin, end))
    half = int((high - low) * _MAX_ROWS_OF_ONE / rows / 2)
    middle = (int(low) + int(high)) // 2
    edges = busiest[[max(middle - half, low), min(middle + half, high - 1)]]
    return edges[:1], np.maximum(edges[1:], edges[:1] + 1)


def slow_steps(
    trace: Trace, nesting: Nesting, work: DeviceWork, steps: Steps, sample: Sample, threads: Rows
) -> SlowSteps | None:
    """What the few steps that are not replayed, because they take far longer, take; None where there are none."""
    slow, usual = sample.slow, sample.steps
    if len(slow) == 0:
        return None
    on_cpu = steps.cpu_end_ns - steps.cpu_start_ns
    on_each = [on_cpu, *map(steps.durations_ns, steps.bounds_ns)]
    more_ns = np.max([took[slow] - median(took[usual]) for took in on_each], axis=0)
    share = float(on_cpu[slow].sum() / max(on_cpu.sum(), 1))
    whole = SlowSteps(len(slow), len(steps), round(float(more_ns.mean())), share)
    kind, _ = grouped([codes_at(trace.lanes.gpu, column, work.row) for column in ("name", "grid")])
    took_ns = work.end_ns - work.start_ns
    usual_ns = median_of(kind, took_ns.astype(np.float64))[kind]  # of the name and grid
    of_slow = np.flatnonzero(np.isin(steps.of_work, slow))
    if len(of_slow):
        entry = of_slow[np.argmax((took_ns - usual_ns)[of_slow])]
        if took_ns[entry] - usual_ns[entry] >= _MOST * more_ns.min():
            kernel = short_kernel(_text(trace.lanes.gpu, "name", work.row[entry]))
            longest, usual_of = int(took_ns[entry]), round(usual_ns[entry])
            return replace(whole, name=kernel, longest_ns=longest, usual_ns=usual_of)
    launched = (steps.of_work >= 0) & (work.kind != KINDS.index("communication"))
    asked_ns = np.bincount(steps.of_work[launched], usual_ns[launched], len(steps))
    if (asked_ns[slow] - median(asked_ns[usual]) >= _MOST * more_ns).all():
        amounts = round(float(asked_ns[slow].mean())), round(median(asked_ns[usual]))
        return replace(whole, longest_ns=amounts[0], usual_ns=amounts[1])
    timeline = CpuTimeline.of(nesting, threads, steps.cpu_start_ns[slow], steps.cpu_end_ns[slow])
    spent_ns = timeline.end_ns - timeline.start_ns
    at = int(np.argmax(spent_ns))
    row, longest = int(timeline.row[at]), int(spent_ns[at])
    if row < 0 or longest < _MOST * more_ns[timeline.step[at]]:
        return whole
    name, category = (_text(trace.lanes.cpu, column, row) for column in ("name", "category"))
    expected = any(one.search(name) for one in (LAUNCH, COPY_CALL, SYNCHRONISING))
    return replace(whole, name=name, longest_ns=longest, blocked=category in CALL_CATEGORIES and not expected)


def _text(frame: Columns, column: str, row: int) -> str:
    return str(Texts.column(frame, column, np.array([row]))[0])
