"""What else the profiler's table groups by: shapes of inputs, and innermost python frames."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import orjson

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.model.containment import inherited, nearest_reaching, running_at
from traceanalyzer.model.trace import NULL_INT, Trace, codes, ints, matching
from traceanalyzer.torch_table.function_events import CPU, PYTHON, FunctionEvents, threads_of

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
    return str([[] if _of_lists(shape) else shape for shape in shapes])


def _of_lists(shape: object) -> bool:
    return not isinstance(shape, list) or any(isinstance(size, list) for size in shape)


def stack_keys(
    trace: Trace, events: FunctionEvents, parent: Rows, frames: int
) -> tuple[Rows, Sequence[object]]:
    """Code of each event's innermost python frames, and those frames as lists of text, innermost first.

    What runs in backward has the stack of the forward op with the same sequence number.
    """
    if not trace.meta.rows.get("python"):
        return np.zeros(len(events), np.int64), [[]]
    order, caller = _callers(trace)
    names = [str(name) for name in trace.python["name"].cat.categories]
    code = codes(trace.python, "name")[order]
    at = _frames_around(trace, events, order)
    own = events.frame == PYTHON
    at[own] = caller[at[own]]
    picked = _picked(at, caller, code, np.array([*map(_kept, names), False]), frames)
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


def _kept(name: str) -> bool:
    return not any(file in name and function in name for file, function in _LEFT_OUT)


def _callers(trace: Trace) -> tuple[Rows, Rows]:
    """Rows of `trace.python` by thread and start, and each one's caller as a position among them."""
    frame = trace.python
    start, thread = ints(frame, "start_ns"), threads_of(frame)
    end = start + ints(frame, "dur_ns")
    order = np.lexsort((-end, start, thread))
    return order, nearest_reaching(end[order], end[order], thread[order])


def _frames_around(trace: Trace, events: FunctionEvents, order: Rows) -> Rows:
    """Position in `order` of the innermost frame that runs when each CPU event starts, -1 for none."""
    frame = trace.python
    start, thread = ints(frame, "start_ns")[order], threads_of(frame)[order]
    end = start + ints(frame, "dur_ns")[order]
    asked = np.flatnonzero(~events.on_device)
    result = np.full(len(events), -1, np.int64)
    result[asked] = running_at(start, end, thread, events.start_ns[asked], events.thread[asked])
    return result


def _with_forward_stacks(trace: Trace, events: FunctionEvents, parent: Rows, picked: Rows) -> Rows:
    """Stacks of backward replaced by those of forward, none where the forward op is not in the trace."""
    on_cpu = events.frame == CPU
    rows = np.where(on_cpu, events.row, 0)
    sequence = np.where(on_cpu, ints(trace.cpu, "sequence")[rows], NULL_INT)
    fwd_thread = np.where(on_cpu, ints(trace.cpu, "fwd_thread")[rows], NULL_INT)
    numbered = (fwd_thread > 0) & (sequence >= 0)
    backward = numbered & ~matching(trace.cpu, "name", lambda name: name.startswith(_ENGINE))[rows]
    backward |= matching(trace.cpu, "name", lambda name: name.startswith(_LEAVES))[rows]
    backward &= on_cpu
    owner = inherited(parent, backward)
    inside, forward = np.flatnonzero(owner >= 0), np.flatnonzero((owner < 0) & (sequence >= 0))
    changed = picked.copy()
    changed[inside] = -1
    number, first = np.unique(sequence[forward], return_index=True)
    wanted = sequence[owner[inside]]
    known = np.isin(wanted, number)
    changed[inside[known]] = picked[forward[first[np.searchsorted(number, wanted[known])]]]
    return changed
