"""What each event of the profiler's table costs: time on the CPU and on devices, memory, own and in all."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Mask, Rows, Value, numbered, pick, sums_of
from traceanalyzer.model.containment import child_sums, innermost, subtree_sums
from traceanalyzer.model.trace import NULL_INT, Trace, ints
from traceanalyzer.timeline.device_work import find
from traceanalyzer.torch_table.function_events import MEMORY, FunctionEvents, frontend, threads_of

Sums = Callable[[Rows, NDArray[Value], int], NDArray[Value]]
# c10::DeviceType as [memory] events write it: CPU, MKLDNN, IDEEP; CUDA, HIP, XPU, PrivateUse1.
_CPU_TYPES, _DEVICE_TYPES = (0, 2, 5), (1, 6, 12, 20)


@dataclass(frozen=True, slots=True)
class EventTotals:
    """All arrays are int64 of shape (events,), in the order of `events`.

    Attributes:
        parent: the event around this one, -1 for none.
        counted: bool; events that only repeat their parent are not, and their parent has their kernels.
        bottom: the event whose kernels count for this one: the last of a chain of repeats, else itself.
        cpu_ns, self_cpu_ns: 0 for device rows; self is 0 for asynchronous ones.
        device_ns, self_device_ns: of CPU rows the work that they started.
        cpu_bytes, self_cpu_bytes, device_bytes, self_device_bytes: allocated less freed.
    """

    events: FunctionEvents
    parent: Rows
    counted: Mask
    bottom: Rows
    cpu_ns: Rows
    self_cpu_ns: Rows
    device_ns: Rows
    self_device_ns: Rows
    cpu_bytes: Rows
    self_cpu_bytes: Rows
    device_bytes: Rows
    self_device_bytes: Rows


def event_totals(trace: Trace, events: FunctionEvents) -> EventTotals:
    """Totals per event, with rows for the memory events that no event contains."""
    events, cpu_bytes, device_bytes = _with_memory(trace, events)
    # Asynchronous rows and device rows are no part of the nesting.
    nested = np.flatnonzero(~events.on_device & ~events.asynchronous)
    nested = nested[np.argsort(events.thread[nested], kind="stable")]
    parent = np.full(len(events), -1, np.int64)
    around = innermost(events.start_ns[nested], events.end_ns[nested], events.thread[nested])
    parent[nested] = pick(nested, around)
    repeats, top = _repeats(events.name, parent)
    # The first of a chain gets the last one's kernels instead of its own.
    repeated, bottom = np.zeros(len(parent), bool), np.arange(len(parent))
    repeated[parent[repeats]] = True
    last = np.flatnonzero(repeats & ~repeated)
    bottom[top[last]] = last
    kernel_ns = np.where(repeats, 0, linked_sums(events, events.dur_ns, sums_of)[bottom])
    parent = np.where(parent >= 0, top[parent], -1)
    inside = np.where(repeats, -1, parent)
    on_cpu = ~events.on_device
    cpu_ns = np.where(on_cpu, events.dur_ns, 0)
    work_ns = np.where(on_cpu, kernel_ns, events.dur_ns)
    own = on_cpu & ~events.asynchronous
    return EventTotals(
        events=events,
        parent=inside,
        counted=~repeats,
        bottom=bottom,
        cpu_ns=cpu_ns,
        self_cpu_ns=_self(own, inside, cpu_ns),
        device_ns=np.where(events.asynchronous, 0, subtree_sums(inside, work_ns)),
        self_device_ns=np.where(events.asynchronous, 0, work_ns),
        cpu_bytes=cpu_bytes,
        self_cpu_bytes=_self(own, inside, cpu_bytes),
        device_bytes=device_bytes,
        self_device_bytes=_self(own, inside, device_bytes),
    )


def _self(own: Mask, parent: Rows, values: Rows) -> Rows:
    """Values less those of the children, 0 for rows that have nothing of their own."""
    if not values.any():
        return values
    return np.where(own, values - child_sums(parent, values), 0)


def _repeats(name: Rows, parent: Rows) -> tuple[Mask, Rows]:
    """Only children that bear their parent's name, and for each event the first of such a chain."""
    children = np.bincount(parent[parent >= 0], minlength=len(name))
    repeats = (parent >= 0) & (name == name[parent]) & (children[parent] == 1)
    top = np.where(repeats, parent, np.arange(len(name)))
    while not np.array_equal(higher := top[top], top):
        top = higher
    return repeats, top


def linked_sums(events: FunctionEvents, took: NDArray[Value], sums_of: Sums[Value]) -> NDArray[Value]:
    """Sum (by `sums_of`) of what the device work linked to each event's id took; 0 where nothing can be linked."""
    work = np.flatnonzero(events.on_device & (events.linked_id != NULL_INT))
    position, ids = numbered(events.linked_id[work])
    result, owners = np.zeros(len(events), took.dtype), np.flatnonzero(frontend(events))
    result[owners] = pick(sums_of(position, took[work], len(ids)), find(ids, events.own_id[owners]), 0)
    return result


def _with_memory(trace: Trace, events: FunctionEvents) -> tuple[FunctionEvents, Rows, Rows]:
    """Bytes of all memory events within each event's span, ends included, whatever their thread."""
    nothing = np.zeros(len(events), np.int64)
    if not trace.meta.rows.get("memory"):
        return events, nothing, nothing
    frame = trace.memory
    is_memory = (frame["name"] == "[memory]").to_numpy()
    at = ints(frame, "start_ns")
    size, kind = ints(frame, "bytes"), ints(frame, "device_type")
    on_cpu = np.where(np.isin(kind, _CPU_TYPES), size, 0)
    on_device = np.where(np.isin(kind, _DEVICE_TYPES), size, 0)
    rows = np.flatnonzero(is_memory)[np.argsort(at[is_memory], kind="stable")]
    low = np.searchsorted(at[rows], events.start_ns, side="left")
    high = np.searchsorted(at[rows], events.end_ns, side="right")
    before = [np.append(0, np.cumsum(column[rows])) for column in (on_cpu, on_device)]
    result = [np.where(events.on_device, 0, sums[high] - sums[low]) for sums in before]
    edges = [np.bincount(edge[~events.on_device], minlength=len(rows) + 1) for edge in (low, high)]
    alone = np.cumsum(edges[0] - edges[1])[: len(rows)] == 0
    # Memory events that nothing contains, and out-of-memory ones, are events without a duration.
    extra = np.append(rows[alone], np.flatnonzero(~is_memory))
    extended = _extended(trace, events, extra)
    order = np.lexsort((-extended.end_ns, extended.start_ns))
    cpu, device = np.append(result[0], on_cpu[extra]), np.append(result[1], on_device[extra])
    return extended.taken(order), cpu[order], device[order]


def _extended(trace: Trace, events: FunctionEvents, rows: Rows) -> FunctionEvents:
    frame = trace.memory.iloc[rows]
    texts = frame["name"].astype(str).to_numpy()
    kinds, code = np.unique(texts, return_inverse=True)
    at, nothing = ints(frame, "start_ns"), np.full(len(rows), NULL_INT, np.int64)
    no = np.zeros(len(rows), bool)
    columns: dict[str, Any] = {
        "name": code.reshape(-1) + len(events.names),
        "frame": np.full(len(rows), MEMORY, np.int64),
        "row": rows,
        "start_ns": at,
        "end_ns": at,
        "thread": threads_of(frame),
        **dict.fromkeys(("own_id", "linked_id"), nothing),
        **dict.fromkeys(("on_device", "annotation", "asynchronous"), no),
    }
    joined: dict[str, Any] = {key: np.append(getattr(events, key), own) for key, own in columns.items()}
    names = np.concatenate((events.names, kinds.astype(object)))
    return replace(events, names=names, **joined)
