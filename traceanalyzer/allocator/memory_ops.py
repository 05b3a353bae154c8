"""Ops of the profiler's table that allocate or free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from traceanalyzer.model.trace import Trace
from traceanalyzer.torch_table.key_averages import key_averages

if TYPE_CHECKING:
    import pandas as pd

_SIZES = ["self_device_bytes", "device_bytes", "self_cpu_bytes", "cpu_bytes"]


def ops_by_memory(trace: Trace) -> pd.DataFrame:
    """Largest own amount first: columns name, calls (int64), and the sizes of `KeyAverages.rows` in bytes (int64)."""
    rows = key_averages(trace).rows
    touched = rows[(rows[_SIZES] != 0).any(axis="columns")]
    order = np.lexsort((-touched["self_cpu_bytes"].abs(), -touched["self_device_bytes"].abs()))
    return touched.iloc[order][["name", "calls", *_SIZES]].reset_index(drop=True)
