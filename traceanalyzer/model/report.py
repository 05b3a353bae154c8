"""The report that renderers receive: one `TraceReport` per trace, the findings, and what became of every rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from textwrap import shorten
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.device_times import IDLE, DeviceBusy, DeviceTime, RegionCost
from traceanalyzer.model.finding import Confidence, Finding, Outcome, Severity
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.step_times import MeasuredStep, Saving, StepEstimate
from traceanalyzer.model.trace import Meta


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first three lines of a report; each may be empty.

    Attributes:
        step: how long a step takes, as recorded and as predicted without the profiler.
        limit: what sets the pace of the step, and what most of its time goes to.
        fix: what to fix first, and what fixing the findings gives.
    """

    step: str = ""
    limit: str = ""
    fix: str = ""

    @property
    def lines(self) -> Mapping[str, str]:
        """Label -> line, of the lines that say something."""
        lines = {"Step": self.step, "Limit": self.limit, "Fix": self.fix}
        return {label: text for label, text in lines.items() if text}

    @property
    def sentence(self) -> str:
        """The lines as one: `Step: 25.0 ms recorded; Limit: the GPU`."""
        return "; ".join(f"{label}: {text}" for label, text in self.lines.items())


@dataclass(frozen=True, slots=True)
class Fault:
    """Findings that one change of the program removes.

    Attributes:
        id: "F1", "F2", ... by rank of the fault in the report; unique in a report.
        saving: of all its fixes together, by one replay; None where no fix of it can be replayed.
        severity: of the joint saving; `info` where every finding is.
        findings: their numbers in the report, from 1, the largest first.
        step_after: when this fault and those above `info` before it are put right; None of a fault of `info`, of what
            cannot be replayed, and in a job.
    """

    id: str
    title: str
    saving: Saving | None
    severity: Severity
    findings: tuple[int, ...]
    step_after: StepEstimate | None = None


def fixed_along(faults: Iterable[Fault]) -> set[int]:
    """Numbers of the findings that go with the first one of their fault."""
    return {number for fault in faults for number in fault.findings[1:]}


@dataclass(frozen=True, slots=True)
class PartChange:
    """What a part of the step takes more in one iteration than in the others.

    Attributes:
        part: class of the accounting, idle time as `idle:<cause>`.
        rank: where it differs most.
        more_ns: in the mean step; negative for less.
    """

    part: str
    rank: int | None
    more_ns: int


@dataclass(frozen=True, slots=True)
class Iteration:
    """One of them.

    Attributes:
        name: number of the iteration as the files' paths tell it, else its place among the recordings.
        ranks: how many of its files could be read.
        steps: recorded steps of a rank, cold ones left out.
        step_ns: the median step of the slowest rank; None without steps.
        more_ns: than the median iteration, of two than the other, where that is beyond the noise; else None.
        parts: what of the step that is, the largest part first; empty where `more_ns` is None.
        program_share: of the names of ops and kernels, those in common with the diagnosed iteration (0 to 1).
    """

    name: str
    diagnosed: bool
    ranks: int
    steps: int
    step_ns: int | None
    more_ns: int | None = None
    parts: tuple[PartChange, ...] = ()
    program_share: float = 1.0
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Iterations:
    """All of them, in order, the median of their steps, and by how much steps must differ to be told apart, or None."""

    each: tuple[Iteration, ...]
    step_ns: int | None
    noise_ns: int | None


@dataclass(frozen=True, slots=True)
class Clock:
    """How one rank's clock reads against the reference's.

    Attributes:
        reference: the rank whose clock is taken for right.
        offset_ns: what it reads more at `at_ns`; of that rank's times, with the base time of its file.
        drift_ppm: by how many microseconds it gains in a second; 0 where the recording is too short to tell.
        uncertainty_ns: of the offset anywhere in the recording: what ends differ by is no more.
        at_ns: where the offset is taken, on the reference's clock.
        broken: collectives that would have ended before another rank had come; none where the pairing is right.
    """

    reference: int
    offset_ns: int = 0
    drift_ppm: float = 0.0
    uncertainty_ns: int = 0
    at_ns: int = 0
    pairs: int = 0
    broken: int = 0

    def ahead_ns(self, instants: NDArray[np.int64]) -> NDArray[np.int64]:
        """What it reads more than the reference at each instant of its own time, int64."""
        elapsed = instants - self.offset_ns - self.at_ns
        return np.asarray(self.offset_ns + np.rint(elapsed * (self.drift_ppm * 1e-6)), np.int64)

    def ahead_within_ns(self, start_ns: int, end_ns: int) -> int:
        """What it reads more in the middle of a stretch of its own time: at its ends half of the drift is left."""
        return int(self.ahead_ns(np.array([(start_ns + end_ns) // 2]))[0])


@dataclass(frozen=True, slots=True)
class RankReport:
    """One rank of a job.

    Attributes:
        base_ns: base time of its file; its times plus this are those that `clock` is about.
        clock: None where it has no collective in common with another rank.
        step: numbers of its steps, as marked.
        start_ns, dur_ns: where these begin on its first device, and how long they take there, as recorded.
        waits_ns: what it waits for other ranks in each of them, in collectives.
        holds_up_ns: what the others wait for it in each of them, on average.
        waiting_ns, holding_up_ns: the same in the mean step.
        last_share: of the time that ranks wait, what they wait for this one (0 to 1).
        alone_ns: predicted step if the others came in time; None where it could not be replayed, or where much of
            the waiting is for what was sent before, which the replay keeps.
        predicted_waiting_ns: what it waits in a step of the replayed job; None where that could not be replayed.
    """

    rank: int
    base_ns: int
    clock: Clock | None
    step: tuple[int, ...] = ()
    start_ns: tuple[int, ...] = ()
    dur_ns: tuple[int, ...] = ()
    waits_ns: tuple[int, ...] = ()
    holds_up_ns: tuple[int, ...] = ()
    waiting_ns: int = 0
    holding_up_ns: int = 0
    last_share: float = 0.0
    alone_ns: int | None = None
    predicted_waiting_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Slowdown:
    """How much slower a job is than one of even ranks, as recorded: S = T / T_ideal.

    Attributes:
        s: T / T_ideal; 1.0 where all ranks are even.
        by_rank, by_stage: the same where only this rank, or the ranks of this stage, take what they took.
    """

    s: float
    by_rank: Mapping[int, float]
    by_stage: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class JobReport:
    """All ranks together.

    Attributes:
        world_size: as the traces declare it; None where they do not.
        missing: ranks of the job whose traces were not given.
        step: the job's step; None where it could not be replayed, with the reason in `unavailable`.
        together: the step when all findings above `info` are fixed.
        culprits: ranks that the others wait for, the one that costs most first.
        summary: how long a step takes, who sets its pace and whom the others wait for, and what the fixes give.
        slowdown: against even ranks, as recorded.
        as_peers: what-if: ranks -> the job's step if these ranks were as their peers.
        unavailable: part of this -> why it is not there.
    """

    ranks: tuple[RankReport, ...]
    world_size: int | None = None
    missing: tuple[int, ...] = ()
    step: StepEstimate | None = None
    together: StepEstimate | None = None
    culprits: tuple[int, ...] = ()
    verdict: str = ""
    summary: Verdict = field(default_factory=Verdict)
    slowdown: Slowdown | None = None
    as_peers: Mapping[str, StepEstimate] | None = None
    unavailable: Mapping[str, str] | None = None


_DTYPES = {"int": "int64", "float": "float64", "str": "str", "bool": "bool"}  # of fields of `Finding`
# Column of `Report.to_frame` -> field of `Saving`.
_SAVED = {"saving_ns": "step_ns"}
_SAVED |= {f"saving_{part}": part for part in ("low_ns", "high_ns", "share", "low_share", "high_share")}


@dataclass(frozen=True, slots=True)
class AnalysedWindow:
    """[start_ns, end_ns) on the trace's clock; `asked` where the user chose it."""

    start_ns: int
    end_ns: int
    asked: bool = False

    @property
    def length_ns(self) -> int:
        return max(0, self.end_ns - self.start_ns)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times of some steps: how many, their median, least and greatest, and how busy the device was in them (0 to 1).

    `busy_share` is None where the times are the CPU's.
    """

    count: int
    median_ns: int
    min_ns: int
    max_ns: int
    total_ns: int
    busy_share: float | None = None


@dataclass(frozen=True, slots=True)
class StepsSummary:
    """Steps of the window.

    Attributes:
        kind, source: name of the mark, and which definition was used.
        device: on which the times are taken; None for the CPU.
        empty: leading or trailing steps in which nothing was launched; they are in none of the times.
        every: all other steps; where the user's window cuts each of them, the parts in it, and `source` says so.
        cold, steady: leading steps that took much longer than those after them, and these; both None where no
            step stands out so.
        cut: steps of which the user's window holds but a part; they are in none of the times.
    """

    kind: str
    source: str
    marked: bool
    device: int | None
    empty: int
    every: StepTimes
    cold: StepTimes | None = None
    steady: StepTimes | None = None
    cut: int = 0
    left_out_ns: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class TraceReport:
    """What the head of the report says of one trace.

    Attributes:
        rank: as the report calls it; None for a trace alone that declares none.
        steps: None where there are none, with the reason in `unavailable`.
        busy, accounting: one entry per device.
        step: one step without the profiler; None where it could not be replayed.
        together: the step when all faults above `info` are put right; a graph or compiler comes after the others.
        faults: what one change of the program removes, in the order of what it saves.
        measured: the step as the recorder timed it without the profiler; None where no recorder did.
        waiting_ns: waiting for other ranks in a recorded step; None where their traces do not show it.
        summary: how long a step takes, what limits it, and what the fixes give: a line each.
        parts: region of the code -> share of the predicted step (0 to 1), the largest first; empty without regions.
        parts_of: whose time the shares are of: "GPU" or "CPU".
        cpu_use: without GPU work, share of the steps' CPU time in ops, in files, waiting for other threads or processes
            (`waits`) and outside of all of these; no files and waits without recorded Python calls.
        op_threads: how many threads run ops; 0 where there is GPU work.
        regions: the largest regions of the code as a tree, the parent before its children; empty without regions.
        unavailable: part of this head -> why it is not there.
    """

    rank: int | None
    meta: Meta
    window: AnalysedWindow
    steps: StepsSummary | None = None
    busy: tuple[DeviceBusy, ...] = ()
    accounting: tuple[DeviceTime, ...] = ()
    step: StepEstimate | None = None
    together: StepEstimate | None = None
    faults: tuple[Fault, ...] = ()
    measured: MeasuredStep | None = None
    waiting_ns: int | None = None
    verdict: str = ""
    summary: Verdict = field(default_factory=Verdict)
    parts: Mapping[str, float] = field(default_factory=dict)
    parts_of: str = ""
    cpu_use: Mapping[str, float] = field(default_factory=dict)
    op_threads: int = 0
    regions: tuple[RegionCost, ...] = ()
    missing: tuple[str, ...] = ()
    unavailable: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        verdict = shorten(self.verdict, 160, placeholder=" ...")
        return f"TraceReport(rank={self.rank}, {self.meta.source!r}, verdict={verdict!r})"


@dataclass(frozen=True, slots=True)
class Report:
    """All that a renderer receives.

    Attributes:
        traces: one per analysed trace, by rank.
        limits: `rule.limit` -> value in force.
        job: what is known of all ranks together; None of one trace, and of traces that have nothing in common.
        iterations: of several iterations of the job, of which one is diagnosed; None where there is but one.
        failures: checks that findings failed, as text; these were left out or demoted.
    """

    traces: tuple[TraceReport, ...]
    findings: tuple[Finding, ...]
    outcomes: tuple[Outcome, ...]
    limits: Mapping[str, int | float]
    job: JobReport | None = None
    iterations: Iterations | None = None
    failures: tuple[str, ...] = ()
    drawn: ClassVar[Callable[[Report], str] | None] = None
    """How a notebook shows it: set by the package, since the model knows no renderer."""
    briefed: ClassVar[Callable[[Report, Path | None], str] | None] = None

    def __repr__(self) -> str:
        counts = [f"{sum(f.severity is level for f in self.findings)} {level}" for level in Severity]
        return f"Report({len(self.traces)} traces, findings: {', '.join(counts)})"

    def _repr_html_(self) -> str | None:
        """What a notebook shows: the verdict, where the time went, the largest findings, as a small SVG."""
        return None if Report.drawn is None else Report.drawn(self)

    def brief(self, script: str | Path | None = None) -> str:
        """What a repair of the program needs: Markdown of at most 150 lines, which quotes the main file `script`.

        Raises BadOption: the script cannot be read.
        """
        assert Report.briefed is not None, "the package sets it"
        return Report.briefed(self, None if script is None else Path(script))

    @property
    def idle(self) -> pd.DataFrame:
        """Idle time: columns rank (Int64), device, cause, op, ns (int64) and share (of the window, float64)."""
        prefix = f"{IDLE}:"
        rows = [
            (trace.rank, time.device, part.cause.removeprefix(prefix), part.op, part.ns, part.ns / time.length_ns)
            for trace in self.traces
            for time in trace.accounting
            for part in time.idle_causes
        ]
        frame = pd.DataFrame(rows, columns=["rank", "device", "cause", "op", "ns", "share"])
        return frame.astype({"rank": "Int64", "device": "int64", "ns": "int64", "share": "float64"})

    def to_frame(self) -> pd.DataFrame:
        """One row per finding, columns as the fields of `Finding`; times int64 ns, lists as objects.

        Severity and confidence are ordered categories, the least first. The numbers of `saving` are columns of their
        own, too: `saving_ns` and `saving_low_ns`, `saving_high_ns` (Int64), `saving_share` and so on (float64), null
        where the fix cannot be replayed.
        `start_s` and `end_s` are seconds since `Meta.origin_ns`, as the text says them.
        """
        names = [field.name for field in fields(Finding)]
        frame = pd.DataFrame([[getattr(f, name) for name in names] for f in self.findings], columns=names)
        plain = {field.name: _DTYPES[str(field.type)] for field in fields(Finding) if field.type in _DTYPES}
        frame = frame.astype(plain)  # also where there is no finding to tell them
        for name in ("rank", "device", "stream", "thread", "step"):
            frame[name] = frame[name].astype("Int64")
        for name, kind in (("severity", Severity), ("confidence", Confidence)):
            levels = [str(level) for level in reversed(list(kind))]
            frame[name] = pd.Categorical(frame[name].astype("str"), levels, ordered=True)
        for name, part in _SAVED.items():
            values = [None if f.saving is None else getattr(f.saving, part) for f in self.findings]
            frame[name] = pd.Series(values, dtype="Float64" if name.endswith("share") else "Int64")
            frame[name] = frame[name].astype("float64") if name.endswith("share") else frame[name]
        origins = {trace.rank: trace.meta.origin_ns for trace in self.traces}
        origin = [origins[finding.rank] for finding in self.findings]
        for side in ("start", "end"):
            frame[f"{side}_s"] = (frame[f"{side}_ns"] - pd.Series(origin, dtype="int64")) / 1e9
        return frame
