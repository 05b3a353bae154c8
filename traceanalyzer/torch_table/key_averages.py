"""The rows of `key_averages()`, from the trace alone: grouping keys, sums and FLOPs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import orjson

from traceanalyzer.model.arrays import Mask, Rows, grouped, sums_of
from traceanalyzer.model.containment import inherited, nearest_reaching, running_at
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.trace import NULL_INT, Trace, codes, ints, matching
from traceanalyzer.tensors.ops.costs import conv_flops
from traceanalyzer.tensors.ops.table import flops_of
from traceanalyzer.tensors.signatures import Signature, signatures_of
from traceanalyzer.torch_table.event_totals import EventTotals, event_totals
from traceanalyzer.torch_table.function_events import CPU, PYTHON, FunctionEvents, function_events, threads_of


def event_flops(trace: Trace, events: FunctionEvents) -> Rows | None:
    """FLOPs of each event, int64 of shape (events,); None for a recording without with_flops."""
    if not trace.meta.capabilities.get("flops", False):
        return None
    number, signatures = signatures_of(trace, np.arange(len(trace.cpu)))
    counts = [torch_flops(signature) for signature in signatures]
    flops = np.zeros(len(events), np.int64)
    on_cpu = events.frame == CPU
    flops[on_cpu] = np.array(counts, np.int64)[number[events.row[on_cpu]]]
    return flops


def torch_flops(signature: Signature) -> int:
    """What the table's FLOPs column counts for one call: seven ops, 0 for all others and where inputs are missing."""
    name = signature.name.removeprefix("aten::")
    try:
        if name in ("mm", "bmm", "addmm", "baddbmm"):
            return flops_of(signature)
        if name == "conv2d":
            image, weight = signature.shape(0), signature.shape(1)
            padding, stride, dilation = (signature.scalar(i) for i in (4, 3, 5))
            return conv_flops(image, weight, padding, stride, dilation)[0]
        return math.prod(signature.shape(0)) if name in ("mul", "add") else 0
    except (LookupError, TypeError, ValueError):
        return 0


# torch leaves these frames out of stacks.
_LEFT_OUT = (
    ("autograd/__init__", "_make_grads"),
    ("autograd/__init__", "backward"),
    ("torch/tensor", "backward"),
    ("_internal/common_utils", "prof_callable"),
    ("_internal/common_utils", "prof_func_call"),
    ("_internal/common_utils", "prof_meth_call"),
)

# The engine's own rows around each backward op are no backward ops and keep the stack that they run in.
_ENGINE = "autograd::engine::evaluate_function"
# Backward ops without a forward op.
_LEAVES = "torch::autograd::"


def shape_keys(trace: Trace, events: FunctionEvents) -> tuple[Rows, Sequence[object]]:
    """Code of each event's shapes, int64 of shape (events,), and the texts that the codes stand for."""
    texts: dict[str, int] = {"[]": 0}
    column = trace.cpu["input_dims"]
    table = [texts.setdefault(shapes_text(str(dims)), len(texts)) for dims in column.cat.categories]
    shapes = np.zeros(len(events), np.int64)
    on_cpu = events.frame == CPU
    shapes[on_cpu] = np.array([*table, 0], np.int64)[codes(trace.cpu, "input_dims")[events.row[on_cpu]]]
    return shapes, list(texts)


def shapes_text(dims: str) -> str:
    """Shapes as the table prints them: a list of tensors counts as an input without a shape."""
    try:
        shapes = orjson.loads(dims)
    except orjson.JSONDecodeError:
        return "[]"
    if not isinstance(shapes, list):
        return "[]"
    listed = [shape if isinstance(shape, list) else [] for shape in shapes]
    return str([[] if any(isinstance(size, list) for size in shape) else shape for shape in listed])


def stack_keys(trace: Trace, events: FunctionEvents, parent: Rows, frames: int) -> tuple[Rows, Sequence[object]]:
    """Code of each event's innermost python frames, and those frames as lists of text, innermost first.

    What runs in backward has the stack of the forward op with the same sequence number.
    """
    if not trace.meta.rows.get("python"):
        return np.zeros(len(events), np.int64), [[]]
    frame = trace.python
    names = [str(name) for name in frame["name"].cat.categories]
    start, thread = ints(frame, "start_ns"), threads_of(frame)
    end = start + ints(frame, "dur_ns")
    order = np.lexsort((-end, start, thread))
    start, end, thread, code = start[order], end[order], thread[order], codes(frame, "name")[order]
    caller = nearest_reaching(end, end, thread)
    # The innermost frame that runs when each CPU event starts.
    at, asked = np.full(len(events), -1, np.int64), np.flatnonzero(~events.on_device)
    at[asked] = running_at(start, end, thread, events.start_ns[asked], events.thread[asked])
    selected = events.frame == PYTHON
    at[selected] = caller[at[selected]]
    shown = [not any(file in name and function in name for file, function in _LEFT_OUT) for name in names]
    picked = _picked(at, caller, code, np.array([*shown, False]), frames)
    picked = _with_forward_stacks(trace, events, parent, picked)
    distinct, group = np.unique(picked, axis=0, return_inverse=True)
    return group.reshape(-1), [[names[code] for code in stack if code >= 0] for stack in distinct]


def _picked(at: Rows, caller: Rows, code: Rows, shown: Mask, frames: int) -> Rows:
    """Name codes of the first `frames` frames from `at` outward, -1 where there are none: (events, frames)."""
    picked = np.full((len(at), frames), -1, np.int64)
    at, filled = at.copy(), np.zeros(len(at), np.int64)
    while len(rows := np.flatnonzero((at >= 0) & (filled < frames))):
        kept = rows[shown[code[at[rows]]]]
        picked[kept, filled[kept]] = code[at[kept]]
        filled[kept] += 1
        at[rows] = caller[at[rows]]
    return picked


def _with_forward_stacks(trace: Trace, events: FunctionEvents, parent: Rows, picked: Rows) -> Rows:
    """Stacks of backward replaced by those of forward, none where the forward op is not in the trace."""
    on_cpu = events.frame == CPU
    rows = np.where(on_cpu, events.row, 0)
    sequence = np.where(on_cpu, ints(trace.cpu, "sequence")[rows], NULL_INT)
    fwd_thread = np.where(on_cpu, ints(trace.cpu, "fwd_thread")[rows], NULL_INT)
    numbered = (fwd_thread > 0) & (sequence >= 0)
    begins = (re.compile(start).match for start in (_ENGINE, _LEAVES))
    engine, leaf = (matching(trace.cpu, "name", wanted)[rows] for wanted in begins)
    backward = on_cpu & ((numbered & ~engine) | leaf)
    owner = inherited(parent, backward)
    inside, forward = np.flatnonzero(owner >= 0), np.flatnonzero((owner < 0) & (sequence >= 0))
    changed = picked.copy()
    changed[inside] = -1
    number, first = np.unique(sequence[forward], return_index=True)
    wanted = sequence[owner[inside]]
    known = np.isin(wanted, number)
    changed[inside[known]] = picked[forward[first[np.searchsorted(number, wanted[known])]]]
    return changed


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
        return int(self.rows["self_cpu_ns"].sum())

    @property
    def has_device_time(self) -> bool:
        """Whether any row has time of its own on the device."""
        return bool((self.rows["self_device_ns"] > 0).any())

    @property
    def self_device_total_ns(self) -> int:
        work = (self.rows["device_type"] != "CPU") & ~self.rows["is_user_annotation"]
        return int(self.rows.loc[work, "self_device_ns"].sum())


def key_averages(
    trace: Trace, *, by_input_shape: bool = False, by_stack: int = 0, python_functions: bool = False
) -> KeyAverages:
    """Sum the events by name, and if asked for by shapes of inputs and so many innermost python frames."""
    totals = event_totals(trace, function_events(trace, python_functions=python_functions))
    events = totals.events
    keys = [events.name * 4 + events.on_device * 2 + events.annotation]
    shown: dict[str, tuple[Rows, Sequence[object]]] = {}
    if by_input_shape:
        shown["input_shapes"] = shape_keys(trace, events)
    if by_stack:
        shown["stack"] = stack_keys(trace, events, totals.parent, by_stack)
    at = np.flatnonzero(totals.counted)
    group, first_of_group = grouped([key[at] for key in [*keys, *(codes for codes, _ in shown.values())]])
    first = at[first_of_group]
    device = device_name(trace)
    rows = _rows(totals, group, first, device or "CUDA")
    flops = event_flops(trace, events)
    if flops is not None:
        rows["flops"] = sums_of(group, flops[totals.counted], len(rows))
    for column, (key_codes, texts) in shown.items():
        rows[column] = np.array([*texts, None], dtype=object)[:-1][key_codes[first]]
    return KeyAverages(rows, totals, group, device, trace.meta.capabilities.get("memory", False))


def device_name(trace: Trace) -> str | None:
    """As the table's header writes it; ROCm calls itself CUDA."""
    recorded = {**trace.meta.rows.get("cpu", {}), **trace.meta.rows.get("gpu", {})}
    for prefix, name in (("xpu", "XPU"), ("mtia", "MTIA"), ("hpu", "HPU"), ("privateuse1", "PRIVATEUSE1")):
        if any(category.startswith(prefix) for category in recorded):
            return name
    return "CUDA" if set(recorded) - {"cpu_op", "user_annotation", "overhead"} else None


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
