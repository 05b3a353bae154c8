"""What one rank's sampled steps go to, by names that are the same on all ranks that run one program."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Rows, grouped, median, median_of, numbered, pick, starts_of_runs
from traceanalyzer.model.lanes import Columns
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.short_names import short_kernel
from traceanalyzer.model.step_times import SlowSteps
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, codes_at, texts_of
from traceanalyzer.replay.cpu_timeline import CpuTimeline
from traceanalyzer.replay.program import Program
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.names import COPY_CALL, LAUNCH, SYNCHRONISING
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps

_MOST = 0.5  # of what a slow step takes longer: so much of one row is the reason; chosen
GAP, _LOADS = "before ", "enumerate(DataLoader)"


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """What one rank's sampled steps go to, by name: all that the comparison of ranks needs of it.

    Attributes:
        cpu_ns: name -> CPU time in a step, as recorded.
        calls: name -> how many segments of it are in a step.
        pause, pause_ns: the longest gap of a step: its name in the first one, its length in the median one.
        kernels: hash of name and grid -> how many of them compute in a step; grids tell how much they compute.
    """

    cpu_ns: Mapping[str, float]
    calls: Mapping[str, float]
    pause: str
    pause_ns: float
    compute_ns: float
    kernels: Mapping[int, float]

    @classmethod
    def of(cls, trace: Trace, work: DeviceWork, program: Program) -> Self:
        names, _ = segment_names(trace, program)
        steps = len(program.sample) * program.sample.part
        traced = program.segments.cpu_ns
        sums = np.bincount(names.code, weights=traced, minlength=len(names.names)) / steps
        calls = np.bincount(names.code, minlength=len(names.names)) / steps
        computes = ~program.work.communication
        took = float(program.work.dur_ns[computes].sum()) / steps
        cpu, counts = (dict(zip(names.names.tolist(), one.tolist(), strict=True)) for one in (sums, calls))
        gaps = longest_gaps(program)
        pause, pause_ns = (names[int(gaps[0])] or "", median(traced[gaps])) if len(gaps) else ("", 0.0)
        return cls(cpu, counts, pause, pause_ns, took, _kernels(trace, work, program, steps))


def slow_steps(trace: Trace, nesting: Nesting, work: DeviceWork, steps: Steps, program: Program) -> SlowSteps | None:
    """What the few steps that are not replayed, because they take far longer, take; None where there are none."""
    slow, usual = program.sample.slow, program.sample.steps
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
    timeline = CpuTimeline.of(nesting, program.timeline.threads, steps.cpu_start_ns[slow], steps.cpu_end_ns[slow])
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


def longest_gaps(program: Program) -> Rows:
    """The longest segment of each step that is a gap: wherever the host pauses, it is that one."""
    gaps = np.flatnonzero(program.segments.gap & (program.segments.cpu_ns > 0))
    order = gaps[np.lexsort((-program.segments.cpu_ns[gaps], program.timeline.step[gaps]))]
    return order[starts_of_runs(program.timeline.step[order])]


def segment_names(trace: Trace, program: Program) -> tuple[Texts, Rows]:
    """(what each segment is: the same on all ranks that run one program; the row that it is named by).

    Every one of the names occurs, and they are sorted.
    """
    texts = [*texts_of(trace.lanes.cpu, "name").tolist(), ""]  # the last one's number stands for none
    top, call, row = program.segments.top_op, program.segments.call, program.timeline.row
    named = np.where(top >= 0, top, call)
    there = np.where(named >= 0, np.arange(len(named)), len(named))
    following = np.minimum.accumulate(there[::-1])[::-1]
    after = pick(named, np.where(following < len(named), following, -1))
    own, around, follows = (
        codes_at(trace.lanes.cpu, "name", rows) % len(texts) for rows in (named, np.where(named < 0, row, -1), after)
    )
    loads = np.array([text.startswith(_LOADS) for text in texts])[around]
    number, used = numbered(np.where(named >= 0, own, np.where(loads, around, follows + len(texts))))
    every = [*texts, *(GAP + text for text in texts)]
    sorted_names = [every[one] for one in used.tolist()]
    place = {name: at for at, name in enumerate(sorted(set(sorted_names)))}
    code = np.array([place[one] for one in sorted_names], np.int64)[number]
    return Texts(code, np.array(list(place), object)), np.where(named >= 0, named, after)


def gap_of(name: str) -> str | None:
    """The op that follows, where the name is a gap's."""
    return name.removeprefix(GAP) if name.startswith(GAP) else None


def _kernels(trace: Trace, work: DeviceWork, program: Program, steps: float) -> dict[int, float]:
    row = work.row[program.work.entry[~program.work.communication]]
    names, grids = (texts_of(trace.lanes.gpu, name) for name in ("name", "grid"))
    code, grid = codes_at(trace.lanes.gpu, "name", row), codes_at(trace.lanes.gpu, "grid", row)
    number, first = grouped([code, grid])
    pairs = zip(code[first].tolist(), grid[first].tolist(), np.bincount(number).tolist(), strict=True)
    return {
        zlib.crc32(f"{names[a]} {grids[b]}".encode("utf-8", "replace")): float(times) / steps
        for a, b, times in sorted(pairs)
        if a >= 0 and b >= 0
    }
