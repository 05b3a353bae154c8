"""Reports built by hand, for tests of what becomes of a report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from traceanalyzer.model.finding import (
    Confidence,
    Finding,
    Hit,
    Outcome,
    Report,
    Span,
    Status,
)
from traceanalyzer.model.trace import Damage, Device, Meta
from traceanalyzer.rule.grouping import Scope, findings_of, ranked

ORIGIN = 4_337_560_819_055_477
MS = 1_000_000


def hit(start: int, length: int, cost: int | None = None, **changes: Any) -> Hit:
    """A hit at `start` ns after the origin; changes go to the Hit or to its Span."""
    places = {name: changes.pop(name) for name in ("device", "stream", "thread", "step") if name in changes}
    begin = ORIGIN + start
    made = Hit(
        span=Span(begin, begin + length, **({"device": 0, "stream": 7} | places)),
        events=(start, start + 1),
        cost_ns=length if cost is None else cost,
        cause="late-launch",
        message="The device ran dry {times} {in_steps}, {total} in all, because {op} was launched late.",
        advice="Launch earlier, or capture the step in a CUDA graph.",
        confidence=Confidence.HIGH,
        evidence={"op": "aten::mm", "delay_ns": 12_345, "moved_bytes": 1 << 20, "ratio": 0.25},
    )
    return replace(made, **changes)


def scope(rank: int | None = None, length: int = 100 * MS, steps: int = 4) -> Scope:
    """A window from the origin on, as findings are measured against."""
    return Scope(rank, ORIGIN, ORIGIN + length, steps)


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


def summary(rank: int | None = None, **changes: Any) -> dict[str, Any]:
    """What `summarise` says of that trace."""
    window = {"start_ns": ORIGIN, "end_ns": ORIGIN + 100 * MS, "length_ns": 100 * MS}
    steps = {
        "kind": "ProfilerStep",
        "source": "steps are ProfilerStep marks",
        "marked": True,
        "count": 4,
        "device": 0,
    }
    times = {"median_ns": 25 * MS, "min_ns": 24 * MS, "max_ns": 27 * MS}
    made = {
        "rank": rank,
        "source": "trace.json.gz",
        "events": 12_412,
        "window": window,
        "asked": False,
        "steps": steps | times,
        "busy": [{"device": 0, "busy_ns": 37 * MS, "share": 0.37}],
        "profiler": {"share": 0.3, "low_share": 0.12, "high_share": 0.6, "basis": "as measured"},
        "missing": ["stacks", "memory"],
        "unavailable": {},
    }
    return made | changes


def accounting(rank: int | None = None) -> dict[str, Any]:
    """Places the hundred milliseconds went."""
    parts = {"compute": 35 * MS, "copy_h2d": 2 * MS, "memset": 0}
    idle = {
        "idle:late_launch:data_loading": 50 * MS,
        "idle:late_launch:dispatching": 12 * MS,
        "idle:unknown": MS,
    }
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    causes = [
        {"cause": "idle:late_launch:data_loading", "op": loader, "ns": 50 * MS},
        {"cause": "idle:late_launch:dispatching", "op": "aten::mm", "ns": 9 * MS},
        {"cause": "idle:late_launch:dispatching", "op": None, "ns": 3 * MS},
        {"cause": "idle:unknown", "op": None, "ns": MS},
    ]
    window = {"start_ns": ORIGIN, "end_ns": ORIGIN + 100 * MS}
    return {"rank": rank, "device": 0, **window, "parts_ns": parts | idle, "idle_causes": causes}


def findings(rank: int | None = None) -> list[Finding]:
    """One of every severity."""
    late = [hit(step * 25 * MS, 12 * MS, step=step) for step in range(4)]
    copy = [hit(30 * MS, 4 * MS, cause="bias", confidence=Confidence.MEDIUM, step=1)]
    sync = [hit(60 * MS, MS, cause="explicit", confidence=Confidence.LOW, step=2, stream=None, thread=1774)]
    quiet = [hit(80 * MS, 20 * MS, cause="queueing", info=True, message="The CPU runs {delay} ahead.")]
    by_rule = {
        "scheduler-gap": late,
        "hidden-dtod-copy": copy,
        "long-device-sync": sync,
        "lane-offset": quiet,
    }
    return [found for rule, hits in by_rule.items() for found in findings_of(rule, hits, scope(rank))]


def report(**changes: Any) -> Report:
    """One trace, four findings, every kind of outcome, some damage."""
    outcomes = (
        *(Outcome(rule, Status.FOUND) for rule in ("hidden-dtod-copy", "lane-offset")),
        Outcome("activity-buffer-request", Status.CLEAR),
        Outcome("kernel-variance", Status.NOT_APPLICABLE, "no ProfilerStep marks: call prof.step()"),
        Outcome("broken-rule", Status.FAILED, "ZeroDivisionError: division by zero"),
    )
    damage = (Damage("truncated", "the file ends within an event; 1 event lost", 1_048_576, 1),)
    made = Report(
        metas=(meta(damage=damage, unknown_categories={"mystery": 3}, anomalies={"unreadable Addr": 2}),),
        accounting=(accounting(),),
        summary=(summary(),),
        findings=ranked(findings()),
        outcomes=outcomes,
        limits={"scheduler-gap.min_gap_ns": 10_000, "kernel-variance.min_share": 0.05},
    )
    return replace(made, **changes)


def two_ranks() -> Report:
    """Two traces of one job; a rule applies to one of them only."""
    found = [finding for rank in (0, 1) for finding in findings(rank)]
    outcomes = (
        Outcome("scheduler-gap", Status.FOUND, None, 0),
        Outcome("scheduler-gap", Status.NOT_APPLICABLE, "no kernels", 1),
    )
    return report(
        metas=(meta("rank0.json", rank=0), meta("rank1.json", rank=1)),
        accounting=(accounting(0), accounting(1)),
        summary=(summary(0), summary(1)),
        findings=ranked(found),
        outcomes=outcomes,
    )


def empty() -> Report:
    """A trace without a GPU lane, and nothing found."""
    why = "no kernels, copies or memsets in the trace"
    return report(
        metas=(meta(devices=(), capabilities={}),),
        accounting=(),
        summary=(
            summary(busy=[], missing=[], steps=None, profiler=None, unavailable={"busy": why, "steps": why}),
        ),
        findings=(),
        outcomes=(Outcome("scheduler-gap", Status.CLEAR),),
    )
