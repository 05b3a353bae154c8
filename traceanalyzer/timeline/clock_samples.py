"""Samples of the SM clock, power and temperature that newer profilers write beside the events."""

from __future__ import annotations

import re
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.lanes import Columns
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.trace import NULL_INT, Trace, floats, ints, matching

Values = Floats

_NAMES = {
    "clock": re.compile(r"^(SM|GFX|graphics|shader) clock", re.IGNORECASE),
    "power": re.compile(r"^power", re.IGNORECASE),
    "temperature": re.compile(r"^(GPU )?temperature", re.IGNORECASE),
}


@dataclass(frozen=True, slots=True)
class ClockSamples:
    """What was sampled, by "clock", "power" and "temperature".

    Attributes:
        device, at_ns: sampled -> int64 (samples,), ordered by device and time; device 0 where none is named.
        value: sampled -> float64 (samples,), MHz, W and degrees Celsius.
    """

    device: dict[str, Rows]
    at_ns: dict[str, Rows]
    value: dict[str, Values]

    @classmethod
    def build(cls, trace: Trace) -> Self:
        lane = trace.lanes.counters if trace.meta.rows.get("counters") else None
        samples = None if lane is None else cls._of(lane)
        if samples is None or not len(samples.value["clock"]):
            raise Unavailable("no clock counters: profilers from torch 2.14 on record them")
        return samples

    @classmethod
    def _of(cls, samples: Columns) -> Self:
        device = ints(samples, "device")
        device = np.where(device == NULL_INT, 0, device)
        at_ns, value = ints(samples, "start_ns"), floats(samples, "value")
        samples_by_kind = cls({}, {}, {})
        for kind, pattern in _NAMES.items():
            rows = np.flatnonzero(matching(samples, "name", pattern.search))
            rows = rows[np.isfinite(value[rows])]
            rows = rows[np.lexsort((at_ns[rows], device[rows]))]
            samples_by_kind.device[kind], samples_by_kind.at_ns[kind], samples_by_kind.value[kind] = (
                device[rows],
                at_ns[rows],
                value[rows],
            )
        return samples_by_kind

    def at(self, kind: str, device: int, instants: Rows) -> Values:
        """The last sample before each instant, or the first; NaN where there is none. Shape of `instants`."""
        of_device = self.device[kind] == device
        at_ns, value = self.at_ns[kind][of_device], self.value[kind][of_device]
        if len(at_ns) == 0:
            return np.full(len(instants), np.nan)
        return np.asarray(value[np.maximum(np.searchsorted(at_ns, instants, side="right") - 1, 0)])
