"""Times in float64 microseconds with the very rounding errors of torch's arithmetic.

The exact times are integers. Where torch's table rounds a number that ends in a half, or sorts two rows of equal
time, its own rounding errors decide, so a text that shall equal torch's needs them. Each step here is one of
torch's, in its order: microseconds since the start of the recording, their differences, sums over kernels and
over children, sums over rows. Python's `sum` has compensated its rounding errors since 3.12; an extended
float does the same here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows
from traceanalyzer.model.containment import depths
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.torch_table.event_links import frontend
from traceanalyzer.torch_table.event_totals import EventTotals
from traceanalyzer.torch_table.function_events import FunctionEvents
from traceanalyzer.torch_table.key_averages import KeyAverages

Us = Floats


def torch_times(averages: KeyAverages) -> pd.DataFrame:
    """Columns self_cpu_us, cpu_us, self_device_us and device_us, parallel to `averages.rows`."""
    totals = averages.totals
    events = totals.events
    dur = _durations_us(events)
    work, below = _device_us(totals, dur)
    on_cpu = ~events.on_device
    own = on_cpu & ~events.asynchronous
    cpu = np.where(on_cpu, dur, 0.0)
    columns = {
        "self_cpu_us": np.where(own, cpu - _sums(totals.parent, cpu), 0.0),
        "cpu_us": cpu,
        "self_device_us": np.where(on_cpu, work - below, work),
        "device_us": work,
    }
    rows = len(averages.rows)
    kept = {name: column[totals.counted] for name, column in columns.items()}
    return pd.DataFrame(
        {name: np.bincount(averages.group, weights=column, minlength=rows) for name, column in kept.items()}
    )


def _durations_us(events: FunctionEvents) -> Us:
    start, end = ((times - events.origin_ns) / 1000 for times in (events.start_ns, events.end_ns))
    return np.asarray(end - start, dtype=np.float64)


def _device_us(totals: EventTotals, dur: Us) -> tuple[Us, Us]:
    """Time on the device of each event with what it contains, and of its children alone."""
    events = totals.events
    kernels = np.where(events.on_device, dur, _kernels_us(totals, dur))
    total, below = kernels.copy(), np.zeros(len(events))
    depth = depths(totals.parent)
    for level in range(int(depth.max(initial=0)), 0, -1):
        rows = np.flatnonzero((depth == level) & totals.counted)
        above = totals.parent[rows]
        touched = np.unique(above)
        sums = _sums(np.searchsorted(touched, above), total[rows], len(touched))
        below[touched] = sums
        total[touched] = kernels[touched] + sums
    total[events.asynchronous] = 0.0
    return total, below


def _kernels_us(totals: EventTotals, dur: Us) -> Us:
    """Python's sum of the durations of the work linked to each event, lifted as the exact ones are."""
    events = totals.events
    work = np.flatnonzero(events.on_device & (events.linked_id != NULL_INT))
    found = np.zeros(len(events))
    if len(work) == 0:
        return found
    ids, position = np.unique(events.linked_id[work], return_inverse=True)
    sums = _sums(position.reshape(-1).astype(np.int64), dur[work], len(ids))
    owners = np.flatnonzero(frontend(events))
    at = np.minimum(np.searchsorted(ids, events.own_id[owners]), len(ids) - 1)
    found[owners] = np.where(ids[at] == events.own_id[owners], sums[at], 0.0)
    return np.where(totals.counted, found[totals.bottom], 0.0)


def _sums(into: Rows, values: Us, size: int | None = None) -> Us:
    """Sums as Python's `sum` makes them; positions of -1 are left out."""
    there = into >= 0
    sums: Any = np.zeros(len(into) if size is None else size, np.longdouble)
    np.add.at(sums, into[there], values[there].astype(np.longdouble))
    return np.asarray(sums, dtype=np.float64)
