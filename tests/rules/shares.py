"""What no report may say, whatever the trace: more than all of what a number is a part of."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from traceanalyzer import Finding, Report
from traceanalyzer.model.report import TraceReport

IDLE_ONLY = frozenset(("scheduler-gap", "launch-bound", "host-gap", "host-hotspot", "long-device-sync"))
"""Rules that claim idle time and nothing else."""


def excesses(report: Report) -> list[str]:
    """What exceeds what it is a share of, in words; empty where all is well."""
    (head,) = report.traces
    parts = (*(_of_finding(found, head) for found in report.findings), _of_devices(report, head))
    return [*chain.from_iterable(parts), *_of_faults(report, head)]


def _of_finding(found: Finding, head: TraceReport) -> Iterator[str]:
    name = f"{found.rule} {found.cause} {found.by}"
    if not 0 <= found.cost_share <= 1:
        yield f"{name}: costs {found.cost_share} of the window"
    for key, value in found.evidence.items():
        if key.endswith("share") and isinstance(value, int | float) and not 0 <= value <= 1:
            yield f"{name}: {key} is {value}"
        if key.endswith("_ns") and isinstance(value, int) and value > head.window.length_ns:
            yield f"{name}: {key} of {value} ns is longer than the window"
    if found.saving is not None and head.step is not None:
        if found.saving.step_ns > head.step.unprofiled_ns:
            yield f"{name}: saves {found.saving.step_ns} ns of a step of {head.step.unprofiled_ns}"
        if not found.saving.low_share <= found.saving.share <= found.saving.high_share <= 1:
            yield f"{name}: its saving lies outside of its interval"


def _of_devices(report: Report, head: TraceReport) -> Iterator[str]:
    claimed: Counter[int | None] = Counter()
    idle: Counter[int | None] = Counter()
    for found in report.findings:
        claimed[found.device] += found.cost_ns
        idle[found.device] += found.cost_ns * (found.rule in IDLE_ONLY)
    for device in head.accounting:
        if claimed[device.device] > device.length_ns:
            yield f"device {device.device}: findings claim more than the window"
        if idle[device.device] > sum(device.idle_ns.values()):
            yield f"device {device.device}: findings claim more idle time than there is"


def _of_faults(report: Report, head: TraceReport) -> Iterator[str]:
    for fault in head.faults:
        own = (report.findings[number - 1].saving for number in fault.findings)
        best = max((saving.share for saving in own if saving is not None), default=None)
        if best is not None and (fault.saving is None or fault.saving.share < best):
            yield f"{fault.id} saves less than one of its findings, {best}"
    if head.step is not None and head.step.unprofiled_ns > head.step.traced_ns:
        yield "a step takes longer without the profiler"
