"""When each device, and each of its streams, was busy with kernels, copies or memsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import distinct
from traceanalyzer.timeline.device_work import DeviceWork


@dataclass(frozen=True, slots=True)
class Busy:
    """Interval sets (see `intervals`) in ns.

    Attributes:
        devices: device -> when anything ran on it.
        streams: (device, stream) -> when anything ran on that stream. Never sum idle time over streams:
            it counts the same instant once per stream.
    """

    devices: Mapping[int, intervals.Set]
    streams: Mapping[tuple[int, int], intervals.Set]

    def gaps(self, device: int, start_ns: int, end_ns: int) -> intervals.Set:
        """When nothing ran on the device within [start_ns, end_ns)."""
        return intervals.complement(self.devices[device], start_ns, end_ns)

    def concurrency(self, device: int) -> float:
        """Mean number of streams at work while the device is busy; 1.0 where nothing overlaps."""
        busy = intervals.length(self.devices[device])
        over = sum(intervals.length(found) for (of, _), found in self.streams.items() if of == device)
        return over / busy if busy else 0.0

    @classmethod
    def build(cls, work: DeviceWork) -> Self:
        devices, streams = {}, {}
        for device in distinct(work.device).tolist():
            mine = work.device == device
            devices[device] = intervals.union(work.start_ns[mine], work.end_ns[mine])
            for stream in distinct(work.stream[mine]).tolist():
                on = mine & (work.stream == stream)
                streams[device, stream] = intervals.union(work.start_ns[on], work.end_ns[on])
        return cls(devices, streams)
