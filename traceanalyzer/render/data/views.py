"""The memory view and the ops as JSON documents have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from traceanalyzer.allocator.memory_view import DeviceMemory, MemoryView
from traceanalyzer.render.data.table import records
from traceanalyzer.roofline.op_rates import OpWork

if TYPE_CHECKING:
    import pandas as pd

_PLAIN = (
    "device allocations frees start_bytes end_bytes peak_bytes peak_ns peak_reserved_bytes"
    " fragmentation_at_peak_bytes fragmentation_most_bytes before_bytes exact"
)


def memory_fields(view: MemoryView, ops: pd.DataFrame) -> Mapping[str, Any]:
    """Fields of the JSON document; the curve is in Parquet only."""
    return {
        "devices": [_device(device) for device in view.devices],
        "ops": records(ops),
        "calls": records(view.calls),
        "out_of_memory": view.out_of_memory,
    }


def _device(device: DeviceMemory) -> Mapping[str, Any]:
    plain = {name: getattr(device, name) for name in _PLAIN.split()}
    return {**plain, "alive_at_peak": records(device.alive), "not_freed": records(device.kept)}


def ops_fields(work: OpWork) -> Mapping[str, Any]:
    """Fields of the JSON document."""
    peaks = {
        str(device): None if known is None else {"name": known.name, "source": known.source}
        for device, known in work.peaks.items()
    }
    return {
        "window_ns": work.window_ns,
        "steps": work.steps,
        "peaks": peaks,
        "ops": records(work.ops),
        "inputs": records(work.shapes),
        "kernels": records(work.kernels),
    }
