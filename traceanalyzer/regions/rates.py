"""Floating-point operations of each region, and the step's model FLOPs utilisation (MFU)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Floats, distinct
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.texts import Texts
from traceanalyzer.regions.regions import Regions
from traceanalyzer.regions.tree import subtree_totals
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.op_rates import call_flops
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.selection import Events


@dataclass(frozen=True, slots=True)
class RegionRates:
    """Operations of ops whose shapes and cost are known, each time that they run; per step, with all below each node.

    Attributes:
        flops: float64 (nodes,).
        tflops: float64 (nodes,), rate in TFLOP/s while the region's work is on the GPU.
        peak_share: float64 (nodes,), of its GPU time, what these operations take at the peak of their arithmetic.
        mfu: the same as a share of the predicted step, on all devices.
        device: whose peaks; None where they are not known, and shares are 0.
        peaks: peak in TFLOP/s by kind of arithmetic that occurs, that of most operations first.
    """

    flops: Floats
    tflops: Floats
    peak_share: Floats
    mfu: float
    device: str | None
    peaks: Mapping[str, float]

    @property
    def text(self) -> str:
        """`MFU 31.2 % of 989 TFLOP/s bf16 (NVIDIA H200)`."""
        peaks = ", ".join(f"{rate:g} TFLOP/s {kind}" for kind, rate in self.peaks.items())
        return f"MFU {100 * self.mfu:.1f} % of {peaks} ({self.device})" if peaks else "MFU not known: no peaks"

    @classmethod
    def build(
        cls, regions: Regions, events: Events, work: DeviceWork, forecast: Forecast, inputs: WorkInputs, gpus: Gpus
    ) -> Self:
        entries, pieces = forecast.program.work.entry, regions.tree.pieces
        names = Texts.column(events.trace.lanes.gpu, "name", work.row[entries])
        peaks = gpus[int(work.device[entries[0]])].peaks if len(entries) else None
        number, recorded = inputs.number[entries], inputs.recorded
        flops, peak_ns, kinds = call_flops(number, names, inputs.signatures, peaks, recorded)
        # Each call counts once, however many kernels it launches.
        _, first = np.unique(work.op[entries], return_index=True)
        calls = entries[first]
        number = inputs.number[calls]
        if not flops[number].any():
            raise Unavailable("no shapes of ops whose operations are known", "record with record_shapes=True")
        node = pieces.node[pieces.at(work.call_start_ns[calls])]
        of_node = (
            np.bincount(node, each[number], len(regions.tree.parent)).astype(np.float64) for each in (flops, peak_ns)
        )
        done, at_peak = (subtree_totals(regions.tree.parent, each) / regions.steps for each in of_node)
        gpu_ns, devices = np.maximum(regions.totals["gpu_ns"], 1.0), len(distinct(work.device[entries]))
        by_kind: dict[str, float] = {}
        for which in number.tolist():
            by_kind[kinds[which]] = by_kind.get(kinds[which], 0.0) + float(flops[which])
        used = sorted((kind for kind in by_kind if peaks and kind in peaks.tflops), key=lambda k: -by_kind[k])
        rates = {kind: peaks.tflops[kind] for kind in used} if peaks else {}
        mfu = float(at_peak[0]) / max(regions.step_ns * devices, 1.0)
        return cls(done, done / gpu_ns / 1e3, at_peak / gpu_ns, mfu, peaks.name if peaks else None, rates)
