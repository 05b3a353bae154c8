"""The rows of `key_averages()`, from the trace alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows, grouped, sums_of
from traceanalyzer.model.lazy import pd
from traceanalyzer.model.trace import Trace
from traceanalyzer.torch_table.event_links import function_events
from traceanalyzer.torch_table.event_totals import EventTotals, event_totals
from traceanalyzer.torch_table.flops import event_flops
from traceanalyzer.torch_table.function_events import Flags
from traceanalyzer.torch_table.group_keys import shape_keys, stack_keys

TIMES = ("self_cpu_ns", "cpu_ns", "self_device_ns", "device_ns")
SIZES = ("cpu_bytes", "self_cpu_bytes", "device_bytes", "self_device_bytes")


@dataclass(frozen=True, slots=True)
class KeyAverages:
    """The table's rows and what stands around them.

    Attributes:
        rows: one per (name, CPU or device, annotation or not), in torch's order of first sight; columns name,
            device_type ("CPU" or the device's), is_user_annotation, is_async, calls, the times in int64 ns,
            the sizes in int64 bytes, flops where recorded with_flops, and input_shapes and stack where grouped
            by them.
        totals: per event, as the rows were summed.
        group: int64 of shape (counted events,), row of each counted event.
        device: what torch calls the device: CUDA, XPU, ...; None for a recording of the CPU alone.
        has_memory: recorded with profile_memory.
    """

    rows: pd.DataFrame
    totals: EventTotals
    group: Rows
    device: str | None
    has_memory: bool

    @classmethod
    def build(cls, trace: Trace) -> KeyAverages:
        """Grouped by name, without python functions."""
        return key_averages(trace)

    @property
    def self_cpu_total_ns(self) -> int:
        """Sum of all rows' own time on the CPU."""
        return int(self.rows["self_cpu_ns"].sum())

    @property
    def has_device_time(self) -> bool:
        """Whether any row has time of its own on the device."""
        return bool((self.rows["self_device_ns"] > 0).any())

    @property
    def self_device_total_ns(self) -> int:
        """Sum of all device rows that are no annotations."""
        work = (self.rows["device_type"] != "CPU") & ~self.rows["is_user_annotation"]
        return int(self.rows.loc[work, "self_device_ns"].sum())


def key_averages(
    trace: Trace,
    *,
    by_input_shape: bool = False,
    by_stack: int = 0,
    python_functions: bool = False,
) -> KeyAverages:
    """Sum the events by name, and by what else is asked for.

    Args:
        by_input_shape: also by the shapes of the inputs.
        by_stack: also by that many innermost python frames.
        python_functions: python_function rows are events, too.
    """
    totals = event_totals(trace, function_events(trace, python_functions=python_functions))
    events = totals.events
    keys = [events.name * 4 + events.on_device * 2 + events.annotation]
    shown: dict[str, tuple[Rows, Sequence[object]]] = {}
    if by_input_shape:
        shown["input_shapes"] = shape_keys(trace, events)
    if by_stack:
        shown["stack"] = stack_keys(trace, events, totals.parent, by_stack)
    group, first = _groups([*keys, *(codes for codes, _ in shown.values())], totals.counted)
    device = device_name(trace)
    rows = _rows(totals, group, first, device or "CUDA")
    flops = event_flops(trace, events)
    if flops is not None:
        rows["flops"] = sums_of(group, flops[totals.counted], len(rows))
    for column, (codes, texts) in shown.items():
        rows[column] = np.array([*texts, None], dtype=object)[:-1][codes[first]]
    return KeyAverages(rows, totals, group, device, trace.meta.capabilities.get("memory", False))


def device_name(trace: Trace) -> str | None:
    """As the table's header writes it; ROCm calls itself CUDA."""
    recorded = {**trace.meta.rows.get("cpu", {}), **trace.meta.rows.get("gpu", {})}
    for prefix, name in (("xpu", "XPU"), ("mtia", "MTIA"), ("hpu", "HPU"), ("privateuse1", "PRIVATEUSE1")):
        if any(category.startswith(prefix) for category in recorded):
            return name
    return "CUDA" if set(recorded) - {"cpu_op", "user_annotation", "overhead"} else None


def _groups(keys: Sequence[Rows], counted: Flags) -> tuple[Rows, Rows]:
    """Number of each counted event's group, in order of first sight, and each group's first event."""
    at = np.flatnonzero(counted)
    group, first = grouped([key[at] for key in keys])
    return group, at[first]


def _rows(totals: EventTotals, group: Rows, first: Rows, device: str) -> pd.DataFrame:
    events = totals.events
    columns: dict[str, object] = {
        "name": events.names[events.name[first]],
        "device_type": np.where(events.on_device[first], device, "CPU").astype(object),
        "is_user_annotation": events.annotation[first],
        "is_async": events.asynchronous[first],
        "calls": np.bincount(group, minlength=len(first)),
    }
    for name in (*TIMES, *SIZES):
        columns[name] = sums_of(group, getattr(totals, name)[totals.counted], len(first))
    return pd.DataFrame(columns)
