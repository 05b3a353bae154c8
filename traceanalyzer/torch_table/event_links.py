"""The events that torch's table counts, with the ids and threads that torch infers for them.

- An overhead row has no id of its own: it takes that of the event on top of its thread's stack when it starts.
  If that is an op, the op's kernels count once more, for the overhead row.
- A call that is linked to an op runs on the thread of the last event that has the op's id. Ids of ops and
  correlations of calls are numbers of two kinds; where they collide, torch takes one for the other.
- A few of the profiler's own events are not counted at all.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceanalyzer.model.arrays import Rows, among, distinct, pick
from traceanalyzer.model.containment import still_open, thread_order
from traceanalyzer.model.trace import NULL_INT, Trace, ints, matching
from traceanalyzer.torch_table.function_events import (
    CPU,
    GPU,
    PYTHON,
    Flags,
    FunctionEvents,
    all_events,
    threads_of,
)

NOT_COUNTED = frozenset(
    {
        "[memory]",
        "[OutOfMemory]",
        "profiler::_record_function_enter",
        "profiler::_record_function_enter_new",
        "profiler::_record_function_exit",
        "aten::is_leaf",
        "aten::output_nr",
        "aten::_version",
    }
)


def function_events(trace: Trace, *, python_functions: bool = False) -> FunctionEvents:
    """Every event that torch counts, before memory is looked at.

    Args:
        python_functions: also the python_function rows, as torch 2.12 and 2.13 do.
    """
    events = _with_overhead_ids(trace, all_events(trace, python=python_functions))
    dropped = np.array([name in NOT_COUNTED for name in [*events.names, None]], dtype=bool)
    counted = ~dropped[events.name]
    return _with_threads_of_ops(events if counted.all() else events.taken(counted))


def _is_overhead(trace: Trace, events: FunctionEvents) -> Flags:
    overhead = matching(trace.cpu, "category", "overhead".__eq__)
    result = np.zeros(len(events), bool)
    on_cpu = events.frame == CPU
    result[on_cpu] = overhead[events.row[on_cpu]]
    return result


def _with_overhead_ids(trace: Trace, events: FunctionEvents) -> FunctionEvents:
    """Overhead rows take the id of what is on top of the stack, through other overhead rows too."""
    overhead = _is_overhead(trace, events)
    if not overhead.any():
        return events
    thread = int(events.thread[overhead][0])
    entry, start, end = _stack(trace, events, thread)
    is_overhead = (entry >= 0) & overhead[entry]
    asked = np.flatnonzero(is_overhead)
    below = np.full(len(entry), -1, np.int64)
    below[asked] = still_open(start, end, np.zeros(len(entry), np.int64), asked)
    owner = below[asked]
    while (going := (owner >= 0) & is_overhead[owner]).any():
        owner = np.where(going, below[owner], owner)
    own_id = events.own_id.copy()
    own_id[overhead] = NULL_INT
    own_id[entry[asked]] = pick(events.own_id, pick(entry, owner), NULL_INT)
    return replace(events, own_id=own_id)


def _stack(trace: Trace, events: FunctionEvents, thread: int) -> tuple[Rows, Rows, Rows]:
    """What is on one thread's stack, outer before inner: (event, -1 for python frames that are none; start; end)."""
    entry = np.flatnonzero(_on_stack(events) & (events.thread == thread))
    start, end = events.start_ns[entry], events.end_ns[entry]
    event_id = np.empty(len(entry), np.int64)
    for number, name in ((CPU, "cpu"), (GPU, "gpu"), (PYTHON, "python")):
        here = events.frame[entry] == number
        if here.any():
            event_id[here] = ints(getattr(trace, name), "event_id")[events.row[entry[here]]]
    if trace.meta.rows.get("python") and not (events.frame == PYTHON).any():
        frames = trace.python[(threads_of(trace.python) == thread) & (trace.python["dur_ns"] > 0).to_numpy()]
        begun = ints(frames, "start_ns")
        entry = np.concatenate((entry, np.full(len(frames), -1)))
        start, end = np.concatenate((start, begun)), np.concatenate((end, begun + ints(frames, "dur_ns")))
        event_id = np.concatenate((event_id, ints(frames, "event_id")))
    order = thread_order(np.zeros(len(entry), np.int64), start, end - start, event_id.take)
    return entry[order], start[order], end[order]


def _on_stack(events: FunctionEvents) -> Flags:
    """Ops, python frames, and of the other rows those that hang below nothing and last."""
    correlated = distinct(events.own_id[(events.frame == CPU) & (events.linked_id != NULL_INT)])
    launched = (events.frame == GPU) & ~events.annotation & among(events.own_id, correlated)
    stacked: Flags = (events.linked_id == NULL_INT) & ~launched & (events.end_ns > events.start_ns)
    return stacked


def _with_threads_of_ops(events: FunctionEvents) -> FunctionEvents:
    """A linked call runs on the thread of the last event that has the id which it is linked to."""
    rows = np.flatnonzero((events.linked_id != NULL_INT) & ~events.on_device)
    owners = np.flatnonzero(frontend(events))
    owners = owners[np.argsort(events.own_id[owners], kind="stable")]
    if len(rows) == 0 or len(owners) == 0:
        return events
    ids = events.own_id[owners]
    last = np.searchsorted(ids, events.linked_id[rows], side="right") - 1
    known = (last >= 0) & (ids[np.maximum(last, 0)] == events.linked_id[rows])
    thread = events.thread.copy()
    thread[rows[known]] = events.thread[owners[last[known]]]
    return replace(events, thread=thread)


def frontend(events: FunctionEvents) -> Flags:
    """Events to which work can be linked: on the CPU, not asynchronous, linked to nothing themselves."""
    free: Flags = (events.linked_id == NULL_INT) & (events.own_id != NULL_INT)
    return free & ~events.on_device & ~events.asynchronous
