"""Reports built by hand, for tests of what becomes of a report."""

from dataclasses import replace
from typing import Any

from traceanalyzer.model.device_times import DeviceBusy, DeviceTime, IdleCause
from traceanalyzer.model.finding import Confidence, Finding, Occurrence, Outcome, Severity, Status
from traceanalyzer.model.report import AnalysedWindow, Report, StepsSummary, StepTimes, TraceReport, Verdict
from traceanalyzer.model.step_times import Saving, StepEstimate
from traceanalyzer.model.trace import Damage, Device, Meta
from traceanalyzer.report.verdict import verdict_of
from traceanalyzer.rule.severity import ranked

ORIGIN = 4_337_560_819_055_477
MS = 1_000_000


def finding(*starts: int, length: int = 12 * MS, **changes: Any) -> Finding:
    """Occurrences of one length at these times after the origin; changes go to the finding."""
    occurrences = tuple(
        Occurrence(ORIGIN + at, ORIGIN + at + length, length, 0, 7, None, None, (at, at + 1)) for at in starts
    )
    cost = length * len(starts)
    made = Finding(
        rule="scheduler-gap",
        cause="late",
        severity=Severity.of(cost / (100 * MS)),
        confidence=Confidence.HIGH,
        message=f"The GPU waits {len(starts)} times, because aten::mm comes too late.",
        advice="Launch earlier, or capture the step in a CUDA graph.",
        rank=None,
        device=0,
        stream=7,
        thread=None,
        step=None,
        start_ns=occurrences[0].start_ns,
        end_ns=occurrences[0].end_ns,
        cost_ns=cost,
        cost_share=cost / (100 * MS),
        count=len(starts),
        occurrences=occurrences,
        event_ids=occurrences[0].event_ids,
        evidence={"op": "aten::mm", "delay_ns": 12_345, "moved_bytes": 1 << 20, "ratio": 0.25},
        steps=len(starts),
        cost_per_step_ns=cost // 4,
    )
    return replace(made, **changes)


def meta(source: str = "trace.json.gz", **changes: Any) -> Meta:
    """Metadata of a small trace on one GPU."""
    made = Meta(
        source=source,
        events=12_412,
        rows={"cpu": {"cpu_op": 10_000}, "gpu": {"kernel": 2_000}},
        counted={"flow:ac2g": 400, "metadata": 12},
        dialect="torch 2.8 to 2.11",
        origin_ns=ORIGIN,
        devices=(Device(0, "NVIDIA H200", 132, 150_109_880_320, (9, 0)),),
        capabilities={"shapes": True, "stacks": False, "memory": False},
    )
    return replace(made, **changes)


def times(count: int = 4, median: int = 25 * MS) -> StepTimes:
    """Times of some steps."""
    return StepTimes(count, median, median - MS, median + 2 * MS, count * median, 0.37)


def steps(**changes: Any) -> StepsSummary:
    """Four marked steps."""
    made = StepsSummary("ProfilerStep", "steps are ProfilerStep marks", True, 0, 0, times())
    return replace(made, **changes)


def estimate(unprofiled: int = 18 * MS, **changes: Any) -> StepEstimate:
    """A step of 25 ms that takes 18 ms without the profiler."""
    made = StepEstimate(25 * MS, unprofiled, unprofiled - MS, unprofiled + MS, "cpu", "replayed")
    return replace(made, **changes)


def saving(share: float = 0.5, step: int = 18 * MS) -> Saving:
    """A share of the unprofiled step, give or take four points."""
    low, high = share - 0.04, share + 0.04
    return Saving(int(share * step), int(low * step), int(high * step), share, low, high, "replayed")


def trace(rank: int | None = None, **changes: Any) -> TraceReport:
    """What the head of the report says of that trace."""
    made = TraceReport(
        rank=rank,
        meta=meta(),
        window=AnalysedWindow(ORIGIN, ORIGIN + 100 * MS),
        steps=steps(),
        busy=(DeviceBusy(0, 37 * MS, 0.37),),
        accounting=(accounting(),),
        missing=("stacks", "memory"),
        unavailable={},
    )
    return replace(made, **changes)


def accounting(**changes: Any) -> DeviceTime:
    """Where the hundred milliseconds went."""
    parts = {"compute": 35 * MS, "copy_h2d": 2 * MS, "memset": 0}
    idle = {"idle:data-loading": 50 * MS, "idle:dispatching": 12 * MS, "idle:unknown": MS}
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    causes = (
        IdleCause("idle:data-loading", loader, 50 * MS),
        IdleCause("idle:dispatching", "aten::mm", 9 * MS),
        IdleCause("idle:dispatching", None, 3 * MS),
        IdleCause("idle:unknown", None, MS),
    )
    return replace(DeviceTime(0, ORIGIN, ORIGIN + 100 * MS, parts | idle, causes), **changes)


def findings(rank: int | None = None) -> list[Finding]:
    """One of every severity."""
    late = finding(*(step * 25 * MS for step in range(4)), step=0)
    copy = finding(30 * MS, length=4 * MS, rule="hidden-dtod-copy", cause="bias", step=1)
    sync = finding(60 * MS, length=MS, rule="long-device-sync", cause="explicit", step=2)
    quiet = finding(80 * MS, length=20 * MS, rule="lane-offset", cause="queueing", steps=0)
    found = (
        late,
        replace(copy, confidence=Confidence.MEDIUM),
        replace(sync, confidence=Confidence.LOW, stream=None, thread=1774),
        replace(quiet, severity=Severity.INFO, message="The CPU runs 12.3 µs ahead."),
    )
    return [replace(one, rank=rank) for one in found]


def report(of: TraceReport | None = None, **changes: Any) -> Report:
    """One trace, four findings, every kind of outcome, some damage."""
    outcomes = (
        *(Outcome(rule, Status.FOUND) for rule in ("hidden-dtod-copy", "scheduler-gap")),
        Outcome("lane-offset", Status.FOUND, group="recording"),
        Outcome("activity-buffer-request", Status.CLEAR, group="recording"),
        Outcome("kernel-variance", Status.NOT_APPLICABLE, "no ProfilerStep marks: call prof.step()"),
        Outcome("broken-rule", Status.FAILED, "ZeroDivisionError: division by zero"),
    )
    damage = (Damage("truncated", "the file ends within an event; 1 event lost", 1_048_576, 1),)
    damaged = meta(damage=damage, unknown_categories={"mystery": 3}, anomalies={"unreadable Addr": 2})
    made = Report(
        traces=(of or trace(meta=damaged),),
        findings=ranked(findings()),
        outcomes=outcomes,
        limits={"scheduler-gap.min_gap_ns": 10_000, "kernel-variance.min_share": 0.05},
    )
    return replace(made, **changes)


def replayed() -> Report:
    """The same with what the fixes would save."""
    first, second, third, last = ranked(findings())
    judged = (
        replace(first, saving=saving(), by="aten::mm"),
        replace(second, saving=saving(0.001)),
        replace(third, saving=saving(-0.05), steps=0, cost_per_step_ns=0),
        last,
    )
    cold, steady = times(1, 60 * MS), times(3)
    head = trace(step=estimate(), together=estimate(9 * MS), steps=steps(cold=cold, steady=steady, empty=1))
    said = verdict_of(head, judged)
    return report(replace(head, verdict=said.sentence, summary=said), findings=judged)


def two_ranks() -> Report:
    """Two traces of one job; a rule applies to one of them only."""
    found = [finding for rank in (0, 1) for finding in findings(rank)]
    outcomes = (
        Outcome("scheduler-gap", Status.FOUND, None, 0),
        Outcome("scheduler-gap", Status.NOT_APPLICABLE, "no kernels", 1),
    )
    traces = tuple(
        trace(
            rank,
            meta=meta(f"rank{rank}.json", rank=rank),
            verdict="Step: 25.0 ms recorded",
            summary=Verdict("25.0 ms recorded"),
        )
        for rank in (0, 1)
    )
    return report(traces=traces, findings=ranked(found), outcomes=outcomes)


def empty() -> Report:
    """A trace without a GPU lane, and nothing found."""
    why = "no kernels, copies or memsets in the trace"
    head = trace(
        meta=meta(devices=(), capabilities={}),
        steps=None,
        busy=(),
        accounting=(),
        missing=(),
        unavailable={"busy": why, "steps": why},
    )
    return report(head, findings=(), outcomes=(Outcome("scheduler-gap", Status.CLEAR),))
