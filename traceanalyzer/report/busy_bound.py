"""What limits the step where the replay leaves it open and the recording does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from traceanalyzer.model.report import DeviceTime
from traceanalyzer.model.step_times import StepEstimate
from traceanalyzer.replay.saving import MIN_OPEN_SHARE


def as_recorded(step: StepEstimate | None, devices: Sequence[DeviceTime]) -> StepEstimate | None:
    """The estimate, whose bound is the GPU if all devices compute all the time even under the profiler.

    The profiler only makes launches later, so without it a device that always computes does not wait for them. The
    replay cannot tell, since it follows the busiest stream alone. Communication is no compute: it may be waiting.
    """
    if step is None or not step.open or not devices:
        return step
    computing = min(
        sum(ns for name, ns in one.parts_ns.items() if name.startswith("compute")) / max(one.length_ns, 1)
        for one in devices
    )
    return step if computing <= 1 - MIN_OPEN_SHARE else replace(step, bound="gpu", bounds=("gpu",))
