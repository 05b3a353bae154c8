"""The rows of a trace as torch's profiler table sees them: which events, on which thread, under which id.

- Everything with a duration is an event, on the CPU or on a device.
- Ops are known by their External id, runtime calls by their correlation. Runtime calls and GPU work are
  *linked* to the op of their External id; annotations on the GPU are linked to nothing.
- Calls that belong to no op, and the profiler's own overhead rows, count for the thread that stopped the
  profiler, wherever they ran.
- Annotations on the GPU are exported with a margin around them, which has changed twice.
- An overhead row has no id of its own: it takes that of the event on top of its thread's stack when it starts.
  If that is an op, the op's kernels count once more, for the overhead row.
- A call that is linked to an op runs on the thread of the last event that has the op's id. Ids of ops and
  correlations of calls are numbers of two kinds; where they collide, torch takes one for the other.
- A few of the profiler's own events are not counted at all.

These are facts of torch 2.11 and 2.13, checked against their tables.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Mask, Rows, among, distinct, pick
from traceanalyzer.model.containment import still_open
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import NULL_INT, Trace, codes, ints, matching

_ASYNC_NAME = regex(r"(nccl|gloo|mpi|ucc|xccl|hccl):")
_OPS = ("cpu_op", "user_annotation", "hpu_op", "glow_runtime")
# (shift of start, growth of duration) of exported GPU annotations: none (the exporter in Python), since
# June 2024, since April 2024, before.
_MARGINS_NS = ((0, 0), (1, 2), (1_000, 1_500), (1_000, 1_000))
CPU, GPU, PYTHON, MEMORY = range(4)
_NOT_COUNTED = regex(
    r"(\[memory\]|\[OutOfMemory\]|profiler::_record_function_(enter|enter_new|exit)|aten::(is_leaf|output_nr|_version))$"
)


@dataclass(frozen=True, slots=True)
class FunctionEvents:
    """Events in torch's order: by start, longest first. Arrays are of shape (events,).

    Attributes:
        names: distinct names as the table prints them.
        name: int64, position in `names`.
        frame, row: int64, where the event comes from: frame number (CPU, GPU, PYTHON, MEMORY) and row in it.
        thread: int64, a number per thread; meaningless on devices.
        own_id, linked_id: int64, NULL_INT where there is none.
        origin_ns: what torch subtracts from times before it turns them into microseconds.
    """

    names: NDArray[np.object_]
    name: Rows
    frame: Rows
    row: Rows
    start_ns: Rows
    end_ns: Rows
    thread: Rows
    own_id: Rows
    linked_id: Rows
    on_device: Mask
    annotation: Mask
    asynchronous: Mask
    origin_ns: int

    @property
    def dur_ns(self) -> Rows:
        """Durations, int64 of shape (events,)."""
        return self.end_ns - self.start_ns

    def __len__(self) -> int:
        return len(self.name)

    def taken(self, rows: Rows | Mask) -> FunctionEvents:
        names = [field.name for field in fields(self) if field.name not in ("names", "origin_ns")]
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


def all_events(trace: Trace, *, python: bool) -> FunctionEvents:
    """Every event with the ids and threads that the file gives, before torch's corrections."""
    main = stopping_thread(trace)
    parts = [_cpu(trace, main), _gpu(trace, main)]
    if python:
        start, end = _times(trace.python)
        parts.append(_part(trace.python, PYTHON, start, end, thread=threads_of(trace.python)))
    origin = trace.meta.window_ns[0] if trace.meta.window_ns else trace.meta.origin_ns
    return _joined(parts, origin)


def rewritten(name: str) -> str:
    """The table puts all steps in one row."""
    return "ProfilerStep*" if name.startswith("ProfilerStep#") else name


_Part = dict[str, Any]


def _part(frame: pd.DataFrame, number: int, start: Rows, end: Rows, **columns: Any) -> _Part:
    rows = len(frame)
    given = {
        "categories": [rewritten(str(name)) for name in frame["name"].cat.categories],
        "name": codes(frame, "name"),
        "frame": np.broadcast_to(np.int64(number), rows),
        "row": np.arange(rows, dtype=np.int64),
        "start_ns": start,
        "end_ns": end,
        "event_id": ints(frame, "event_id"),
    }
    absent, nobody = np.broadcast_to(NULL_INT, rows), np.broadcast_to(np.False_, rows)
    defaults = dict.fromkeys(("thread", "own_id", "linked_id"), absent)
    defaults |= dict.fromkeys(("on_device", "annotation", "asynchronous"), nobody)
    return defaults | given | columns


def _times(frame: pd.DataFrame) -> tuple[Rows, Rows]:
    """Starts and ends."""
    start = ints(frame, "start_ns")
    return start, start + ints(frame, "dur_ns")


def _cpu(trace: Trace, main: int) -> _Part:
    frame = trace.cpu
    external = _positive(ints(frame, "external_id"))
    is_op = matching(frame, "category", _OPS.__contains__)
    is_overhead = matching(frame, "category", "overhead".__eq__)
    linked = np.where(is_op | is_overhead, NULL_INT, external)
    annotation = matching(frame, "category", "user_annotation".__eq__)
    return _part(
        frame,
        CPU,
        *_times(frame),
        thread=np.where(~is_op & (linked == NULL_INT), main, threads_of(frame)),
        own_id=np.where(is_op, external, np.where(is_overhead, NULL_INT, ints(frame, "correlation"))),
        linked_id=linked,
        annotation=annotation,
        asynchronous=annotation & matching(frame, "name", _ASYNC_NAME.match),
    )


def _gpu(trace: Trace, main: int) -> _Part:
    frame = trace.gpu
    annotation = matching(frame, "category", "gpu_user_annotation".__eq__)
    start, end = _times(frame)
    shift, growth = annotation_margin_ns(start, end, annotation)
    external = _positive(ints(frame, "external_id"))
    # Names as the file spells them, which is how torch lists them.
    readable, mangled = (frame[column].cat.categories for column in ("name", "mangled_name"))
    code = codes(frame, "mangled_name")
    return _part(
        frame,
        GPU,
        start + shift * annotation,
        end + (shift - growth) * annotation,
        categories=[rewritten(str(name)) for name in (*readable, *mangled)],
        name=np.where(code >= 0, code + len(readable), codes(frame, "name")),
        thread=np.broadcast_to(np.int64(main), len(frame)),
        own_id=np.where(annotation, external, ints(frame, "correlation")),
        linked_id=np.where(annotation, NULL_INT, external),
        on_device=np.broadcast_to(np.True_, len(frame)),
        annotation=annotation,
    )


def _positive(ids: Rows) -> Rows:
    return np.where(ids > 0, ids, NULL_INT)


def threads_of(frame: pd.DataFrame) -> Rows:
    """One number per (pid, tid), the same in all frames."""
    return ints(frame, "pid") * 10_000_019 + ints(frame, "tid")


def stopping_thread(trace: Trace) -> int:
    """The thread that stopped the profiler: the one that marks the steps, else the process's first."""
    frame = trace.cpu
    if len(frame) == 0:
        return NULL_INT
    thread, pid, tid = threads_of(frame), ints(frame, "pid"), ints(frame, "tid")
    is_mark = matching(frame, "name", lambda name: name.startswith("ProfilerStep#"))
    is_mark &= matching(frame, "category", "user_annotation".__eq__)
    for chosen in (is_mark, (pid == tid) & (pid >= 0), matching(frame, "category", _OPS.__contains__)):
        if chosen.any():
            return int(thread[np.flatnonzero(chosen)[-1]])
    return int(thread[0])


def annotation_margin_ns(start: Rows, end: Rows, annotation: Mask) -> tuple[int, int]:
    """(shift, growth) with which most GPU annotations begin and end where some GPU work does; int64, bool (rows,)."""
    starts, ends = np.sort(start[~annotation]), np.sort(end[~annotation])
    best, most = (0, 0), 0
    for shift, growth in _MARGINS_NS:
        fits = among(start[annotation] + shift, starts)
        fits &= among(end[annotation] + shift - growth, ends)
        if int(fits.sum()) > most:
            best, most = (shift, growth), int(fits.sum())
    return best


def _joined(parts: list[_Part], origin_ns: int) -> FunctionEvents:
    names: dict[str, int] = {}
    for part in parts:
        table = [names.setdefault(name, len(names)) for name in part.pop("categories")]
        part["name"] = np.array([*table, -1], np.int64)[part["name"]]
    start, end, event_id = (_column(parts, key) for key in ("start_ns", "end_ns", "event_id"))
    order = np.lexsort((event_id, start - end, start))
    columns = {key: _column(parts, key)[order] for key in parts[0] if key != "event_id"}
    shown = np.array([*names, None], dtype=object)[:-1]
    return FunctionEvents(names=shown, origin_ns=origin_ns, **columns)


def _column(parts: list[_Part], key: str) -> NDArray[Any]:
    return np.concatenate([part[key] for part in parts])


def function_events(trace: Trace, *, python_functions: bool = False) -> FunctionEvents:
    """Every event that torch counts, before memory is looked at; python rows are counted by torch 2.12 and 2.13."""
    events = _with_overhead_ids(trace, all_events(trace, python=python_functions))
    dropped = np.array([_NOT_COUNTED.match(name) is not None for name in events.names] + [False])
    counted = ~dropped[events.name]
    return _with_threads_of_ops(events if counted.all() else events.taken(counted))


def _with_overhead_ids(trace: Trace, events: FunctionEvents) -> FunctionEvents:
    """Overhead rows take the id of what is on top of the stack, through other overhead rows too."""
    overhead, on_cpu = np.zeros(len(events), bool), events.frame == CPU
    overhead[on_cpu] = matching(trace.cpu, "category", "overhead".__eq__)[events.row[on_cpu]]
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
    # Ops, python frames, and of the other rows those that hang below nothing and last.
    correlated = distinct(events.own_id[(events.frame == CPU) & (events.linked_id != NULL_INT)])
    stacked = (events.frame != GPU) | events.annotation | ~among(events.own_id, correlated)
    stacked &= (events.linked_id == NULL_INT) & (events.end_ns > events.start_ns)
    entry = np.flatnonzero(stacked & (events.thread == thread))
    start, end = events.start_ns[entry], events.end_ns[entry]
    event_id = np.empty(len(entry), np.int64)
    for number, name in ((CPU, "cpu"), (GPU, "gpu"), (PYTHON, "python")):
        here = events.frame[entry] == number
        if here.any():
            event_id[here] = ints(getattr(trace, name), "event_id")[events.row[entry[here]]]
    if trace.meta.rows.get("python") and not (events.frame == PYTHON).any():
        frames = trace.python[(threads_of(trace.python) == thread) & (trace.python["dur_ns"] > 0).to_numpy()]
        begun, ended = _times(frames)
        entry = np.append(entry, np.full(len(frames), -1))
        start, end = np.append(start, begun), np.append(end, ended)
        event_id = np.append(event_id, ints(frames, "event_id"))
    order = np.lexsort((event_id, start - end, start))
    return entry[order], start[order], end[order]


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


def frontend(events: FunctionEvents) -> Mask:
    """Events to which work can be linked: on the CPU, not asynchronous, linked to nothing themselves."""
    free: Mask = (events.linked_id == NULL_INT) & (events.own_id != NULL_INT)
    return free & ~events.on_device & ~events.asynchronous
