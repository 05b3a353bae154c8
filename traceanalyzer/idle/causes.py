"""Every stretch in which a device did nothing, each nanosecond with one cause and the events that decided it."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from traceanalyzer.idle import cause_conditions
from traceanalyzer.idle.gaps import Cutter, Evidence, Gaps, longest_row
from traceanalyzer.idle.stalled_calls import StalledCalls
from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Rows, pick, sums_of
from traceanalyzer.model.finding import Confidence
from traceanalyzer.model.trace import Trace
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import StepMarks
from traceanalyzer.timeline.synchronisation import SyncCalls


class CauseText(NamedTuple):
    """How people call a cause: see `causes.toml`."""

    name: str
    idle: str
    happened: str
    advice: str


class Cause(NamedTuple):
    """A cause of idle time.

    Attributes:
        cause: kebab-case; several rows of the tables may name the same.
        group: whose time it is, in a few words.
        test: gives the proofs for it, or a `Verdict`, for which gaps it holds: then for all that remains of them.
    """

    cause: str
    group: str
    test: Callable[[Evidence], Any]
    sure: Confidence
    holds: str
    why: str


def _row(sure: str, test: str = "", activity: str = "", **texts: str) -> Cause:
    active = partial(cause_conditions.while_active, activity=activity)
    return Cause(test=getattr(cause_conditions, test) if test else active, sure=Confidence(sure), **texts)


_CAUSES = tomllib.loads(Path(__file__).with_name("causes.toml").read_text(encoding="utf-8"))
PROVEN = tuple(_row(**row) for row in _CAUSES["proven"])
JUDGED = tuple(_row(**row) for row in _CAUSES["judged"])
TABLE = (*PROVEN, *JUDGED)
CAUSES: tuple[str, ...] = tuple(dict.fromkeys(row.cause for row in TABLE))
GROUPS: dict[str, str] = {row.cause: row.group for row in TABLE}
RECORDING = "the recording"

TEXTS = {cause: CauseText(**texts) for cause, texts in _CAUSES["texts"].items()}
ELSE = TEXTS.pop("else")

# Causes that say of themselves why: whether they come back, or in which step they are, adds nothing.
SAYS_WHY = ("not-recorded", "graph-capture", "profiler-overhead", "in-graph", "unlinked", "tail", "waiting", "unknown")
# Causes of a gap that goes by between two ops for the most part, without and with stacks.
BETWEEN_OPS = ("host-code", "python")
# Causes that no change of the program's code takes away.
NOT_THE_CODE = (
    *("not-recorded", "graph-capture", "profiler-overhead", "launch-latency"),
    *("in-graph", "unlinked", "tail", "start"),
)

_Found = tuple[Rows, Rows, Rows, Rows, Rows]  # gap, start, end, cause, deciding row of each piece

_BETWEEN_OPS = tuple(CAUSES.index(cause) for cause in ("engine", "python", "host-code"))
_LOADING = CAUSES.index("module-loading")


@dataclass(frozen=True, slots=True)
class Idle:
    """Why nothing ran, in pieces of one cause each; the pieces of a gap tile it.

    Arrays of shape (pieces,), ordered by device and start.

    Attributes:
        gap: int64, number of the gap, counted from 0 by device and start.
        device, start_ns, end_ns: int64; of the whole trace, also where the user analyses a part.
        cause: int64, position in `CAUSES`.
        work: int64, entry of `DeviceWork` that ends the gap, -1 at the tail.
        before: int64, entry of `DeviceWork` that ran last before the gap, -1 at the head.
        row: int64, row of `trace.cpu` that decided: the synchronising call, the loader, the stalled call, an op
            before the launch that took most of the gap, else the launch; -1 for none.
        op: int64, row of `trace.cpu` of the op to name: around `row`, else the one that launched, else the
            launch; -1 for none, as where the time went by between ops.
    """

    gap: Rows
    device: Rows
    start_ns: Rows
    end_ns: Rows
    cause: Rows
    work: Rows
    before: Rows
    row: Rows
    op: Rows

    def __len__(self) -> int:
        return len(self.gap)

    @property
    def dur_ns(self) -> Rows:
        return self.end_ns - self.start_ns

    @property
    def gap_dur_ns(self) -> Rows:
        gaps = int(self.gap.max(initial=-1)) + 1
        return sums_of(self.gap, self.dur_ns, gaps)[self.gap]

    @classmethod
    def build(
        cls,
        trace: Trace,
        work: DeviceWork,
        marks: StepMarks,
        nesting: Nesting,
        activity: Activity,
        syncs: SyncCalls,
        stalled_calls: StalledCalls,
    ) -> Self:
        gaps = Gaps.of(work, marks.whole_ns)
        every = np.arange(len(gaps)), gaps.start_ns, gaps.end_ns
        evidence = Evidence(trace, gaps, work, marks, nesting, activity, syncs, stalled_calls, every)
        cutter = Cutter(gaps)
        found: list[_Found] = []
        for proven in PROVEN:
            for proof in proven.test(evidence):
                gap, start, end = cutter.take(proof)
                if len(gap):
                    if proof.times is None:
                        row = longest_row(nesting, proof.rows, start, end)
                    else:
                        row = pick(proof.rows, intervals.longest_overlap(proof.times, start, end)[0])
                    found.append((gap, start, end, np.full(len(gap), CAUSES.index(proven.cause)), row))
        found.append(_judged(replace(evidence, remainder=cutter.remainder())))
        gap, start, end, cause, row = (np.concatenate(columns) for columns in zip(*found, strict=True))
        order = np.lexsort((start, gap))
        gap, start, end, cause, row = gap[order], start[order], end[order], cause[order], row[order]
        op = _op_of(evidence, gap, cause, row)
        return cls(gap, gaps.device[gap], start, end, cause, gaps.next_work[gap], gaps.previous_work[gap], row, op)


def _judged(evidence: Evidence) -> _Found:
    """What remains of each gap, with the first cause of the table that holds."""
    gap, start, end = evidence.remainder
    count = len(evidence.gaps)
    (cause, row), free = np.full((2, count), -1), np.ones(count, bool)
    for judged in JUDGED:
        if not free.any():
            break
        holds, deciding = judged.test(evidence)
        taken = free & holds
        cause[taken] = CAUSES.index(judged.cause)
        row[taken] = deciding[taken]
        free &= ~holds
    return gap, start, end, cause[gap], row[gap]


def _op_of(evidence: Evidence, gap: Rows, cause: Rows, row: Rows) -> Rows:
    """The op around the deciding row, else the one that launched the next work, else its launch; -1 between ops."""
    nesting, gaps = evidence.nesting, evidence.gaps
    around = pick(nesting.op, row)
    launched = pick(evidence.work.op, gaps.next_work[gap])
    launched = np.where(launched >= 0, launched, gaps.call[gap])
    nameless = (cause == _LOADING) & (pick(nesting.thread, row) < 0) & (launched >= 0)
    nameless |= (cause == CAUSES.index("first-use")) & (row < 0)
    decided = (row != gaps.call[gap]) & ~nameless
    op = np.where(decided, np.where(around >= 0, around, row), launched)
    return np.where(np.isin(cause, _BETWEEN_OPS), -1, op)
