"""When each device was busy with kernels, copies or memsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import distinct
from traceanalyzer.timeline.device_work import DeviceWork


@dataclass(frozen=True, slots=True)
class Busy:
    """When anything ran on each device, whatever the stream: idle time is the device's, not the sum of its streams.

    Attributes:
        devices: device -> interval set in ns, a pair of int64 arrays of shape (intervals,), see `model.intervals`.
    """

    devices: Mapping[int, intervals.Set]

    def gaps(self, device: int, start_ns: int, end_ns: int) -> intervals.Set:
        """When nothing ran on the device within [start_ns, end_ns)."""
        return intervals.complement(self.devices[device], start_ns, end_ns)

    @classmethod
    def build(cls, work: DeviceWork) -> Self:
        devices = {}
        for device in distinct(work.device).tolist():
            own = work.device == device
            devices[device] = intervals.union(work.start_ns[own], work.end_ns[own])
        return cls(devices)
