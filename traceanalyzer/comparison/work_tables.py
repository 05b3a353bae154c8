"""The tables of a snapshot: work, calls, totals, idle time and host ops, each per step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.comparison.canonical_names import canonical_kernel, plain_name, region_name
from traceanalyzer.comparison.snapshot import SAMPLES, TABLES
from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.causes import CAUSES, Idle
from traceanalyzer.model import intervals
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Rows, distinct, grouped, pick
from traceanalyzer.model.containment import nearest_marked, running_at
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.shapes import product_of
from traceanalyzer.model.trace import Trace, codes_at, ints, matching, texts_of
from traceanalyzer.replay.program import Program
from traceanalyzer.tensors.ops.table import flops_of
from traceanalyzer.tensors.signatures import signatures_of
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.names import ALLOCATOR, COMPILED_REGION, LAUNCH, STREAM_ORDERED, is_compilation
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls


def exposed_ns(work: DeviceWork) -> Rows:
    """Time in which each piece of work is the one that counts; int64 (work,).

    Compute goes before communication, that before copies and memsets, as in the accounting; of two of one kind the
    one that started first. On a device they sum to the time in which anything runs.
    """
    exposed = np.zeros(len(work.row), np.int64)
    for device in distinct(work.device).tolist():
        before: intervals.Set = (np.empty(0, np.int64), np.empty(0, np.int64))
        for kind in range(len(KINDS)):
            selected = np.flatnonzero((work.device == device) & (work.kind == kind))
            start, end = uncovered(work.start_ns[selected], work.end_ns[selected])
            exposed[selected] = (end - start) - intervals.covered(before, start, end)
            starts, ends = np.append(before[0], start), np.append(before[1], end)
            before = intervals.union(starts, ends)
    return exposed


def uncovered(start: Rows, end: Rows) -> tuple[Rows, Rows]:
    """Each interval without what those that started before it cover; they come by start."""
    reached = np.maximum.accumulate(end)
    begin = np.maximum(start, np.append(start[:1], reached[:-1]))
    return begin, np.maximum(end, begin)


_STEP = "ProfilerStep#"
_MODULE = "nn.Module: "


def regions_of(trace: Trace, nesting: Nesting, rows: Rows) -> tuple[Rows, NDArray[np.object_]]:
    """(number of the region of each row of `trace.cpu` in `rows`, the distinct regions); "" where there is none."""
    marks = nesting.annotation & ~matching(trace.cpu, "name", lambda name: name.startswith(_STEP))
    marked = nearest_marked(nesting.parent, marks, pick(nesting.parent, rows))
    annotation = codes_at(trace.cpu, "name", marked)
    modules, module = _modules(trace, nesting, rows)
    pair, first = grouped([annotation, module])
    names = texts_of(trace.cpu, "name")
    around = [region_name(str(names[code])) if code >= 0 else "" for code in annotation[first].tolist()]
    inside = [plain_name(str(modules[code])) if code >= 0 else "" for code in module[first].tolist()]
    places = zip(around, inside, strict=True)
    values, number = _numbered([" > ".join(filter(None, parts)) for parts in places])
    return number[pair], values


def _numbered(texts: Sequence[str]) -> tuple[NDArray[np.object_], Rows]:
    """(the distinct texts, sorted; position of each text among them)."""
    values, number = np.unique(np.array([*texts, ""], object), return_inverse=True)
    return values, number[:-1].astype(np.int64)


def _modules(trace: Trace, nesting: Nesting, rows: Rows) -> tuple[NDArray[np.object_], Rows]:
    """(names, of each row the code of the innermost module that is open when it begins, -1 for none)."""
    none = np.full(len(rows), -1, np.int64)
    if not trace.meta.rows.get("python"):
        return np.empty(0, object), none
    python = trace.python
    found = np.flatnonzero(matching(python, "name", lambda name: name.startswith(_MODULE)))
    there = np.flatnonzero(rows >= 0)
    start, dur, tid = (ints(python, column)[found] for column in ("start_ns", "dur_ns", "tid"))
    asked = nesting.start_ns[rows[there]], ints(trace.cpu, "tid")[rows[there]]
    none[there] = codes_at(python, "name", pick(found, running_at(start, start + dur, tid, *asked)))
    return texts_of(python, "name"), none


_NO_CAUSE = ("profiler-overhead",)  # the user's run has none of it
_KIND_COUNTERS = {"communication": "collectives", "memset": "memsets", "compute": "kernels"}


@dataclass(frozen=True, slots=True)
class Chosen:
    """The steps that a snapshot is made of.

    Attributes:
        place: int64 (steps + 1,), of each step of the trace its number among the chosen, -1 for others; the last
            entry stands for no step.
        count: how many.
        device: on which most work runs.
    """

    place: Rows
    count: int
    device: int


def tables_of(analysis: Analysis, chosen: Chosen) -> dict[str, pd.DataFrame]:
    trace, nesting, steps = analysis.trace, analysis.index(Nesting), analysis.index(Steps)
    work = analysis.index(DeviceWork)
    step_of_work = chosen.place[steps.of_work]
    cpu_step = chosen.place[steps.at_cpu(nesting.start_ns)]
    cpu_step[nesting.start_ns >= steps.cpu_end_ns[-1]] = -1
    cpu_step[nesting.thread < 0] = -1
    work_table = _work_table(trace, nesting, work, step_of_work, chosen)
    calls = _counted_calls(trace, nesting, analysis.index(SyncCalls), cpu_step)
    calls_table = _calls_table(trace, nesting, calls, cpu_step, chosen)
    totals = _totals(trace, work, step_of_work, calls, cpu_step, chosen)
    idle = _idle_table(analysis, nesting, chosen)
    return {"work": work_table, "calls": calls_table, "totals": totals, "idle": idle}


def _work_table(trace: Trace, nesting: Nesting, work: DeviceWork, step: Rows, chosen: Chosen) -> pd.DataFrame:
    selected = np.flatnonzero(step >= 0)
    around = np.where(work.op >= 0, work.op, work.call)[selected]
    op, row = work.op[selected], work.row[selected]
    texts = {
        "annotation": regions_of(trace, nesting, around),
        "outer": _named(trace.cpu, "name", nesting.top_op(op), plain_name),
        "op": _named(trace.cpu, "name", op, plain_name),
        "dims": _named(trace.cpu, "input_dims", op, str),
        "types": _named(trace.cpu, "input_type", op, str),
        "kernel": _named(trace.gpu, "name", row, canonical_kernel),
        "kind": (work.kind[selected], np.array(KINDS, object)),
    }
    blocks = _named(trace.gpu, "grid", row, str)
    number, first = grouped([*(code for code, _ in texts.values()), blocks[0]])
    table = pd.DataFrame({name: values[code[first]] for name, (code, values) in texts.items()})
    table["name"] = texts_of(trace.gpu, "name")[codes_at(trace.gpu, "name", row[first])]
    sizes = np.array([product_of(text) for text in blocks[1]], np.int64)
    table["blocks"] = sizes[blocks[0][first]]
    dur = work.end_ns[selected] - work.start_ns[selected]
    alone = np.where(work.device == chosen.device, exposed_ns(work), 0)[selected]
    moved = np.maximum(ints(trace.gpu, "bytes")[row], 0)
    for name, values in (("ns", dur), ("exposed_ns", alone), ("bytes", moved)):
        table[name] = np.bincount(number, weights=values, minlength=len(first)) / chosen.count
    put_counts(table, number, step[selected], chosen.count)
    table["samples"] = spread_samples(number, dur, len(first))
    return _shaped(table, "work")


def _named(
    frame: pd.DataFrame, column: str, rows: Rows, plain: Callable[[str], str]
) -> tuple[Rows, NDArray[np.object_]]:
    """(number of each row's text, the distinct texts), "" where the row or its text is missing."""
    texts, code = texts_of(frame, column), codes_at(frame, column, rows)
    used = distinct(code)
    values, number = _numbered([plain(str(texts[one])) if one >= 0 else "" for one in used.tolist()])
    table = np.zeros(len(texts) + 1, np.int64)
    table[used] = number
    return table[code], values


def put_counts(table: pd.DataFrame, number: Rows, step: Rows, steps: int) -> None:
    """Columns count, least and most: rows of each number in a step."""
    size = len(table)
    pair, first = grouped([number, step])
    inside = np.bincount(pair, minlength=len(first)).astype(np.int64)
    owner = number[first]
    least, most = np.full(size, np.iinfo(np.int64).max), np.zeros(size, np.int64)
    np.minimum.at(least, owner, inside)
    np.maximum.at(most, owner, inside)
    seen = np.bincount(owner, minlength=size)
    table["count"] = np.bincount(number, minlength=size) / steps
    table["least"], table["most"] = np.where(seen < steps, 0, least), most


def spread_samples(number: Rows, dur: Rows, size: int) -> list[list[int]]:
    """Up to `SAMPLES` durations of each number, spread evenly over the recording."""
    order = np.argsort(number, kind="stable")
    owner = number[order]
    count = np.bincount(number, minlength=size)
    rank = np.arange(len(order)) - (np.cumsum(count) - count)[owner]
    wanted = np.minimum(count, SAMPLES)[owner]
    slot = rank * wanted // count[owner]
    selected = np.diff(slot + owner * SAMPLES, prepend=-1) != 0
    bounds = np.cumsum(np.bincount(owner[selected], minlength=size))
    return [part.tolist() for part in np.split(dur[order][selected], bounds)[:size]]


Calls = Mapping[str, Rows]


def _counted_calls(trace: Trace, nesting: Nesting, syncs: SyncCalls, step: Rows) -> Calls:
    """Counter -> rows of `trace.cpu` within the steps that it counts."""
    is_call = matching(trace.cpu, "category", CALL_CATEGORIES.__contains__)
    inside = step >= 0
    # Runtime calls, not the driver's in them.
    outer = is_call & inside & ~np.append(is_call, False)[nesting.parent]
    launches = outer & matching(trace.cpu, "name", LAUNCH.search)
    allocating = matching(trace.cpu, "name", ALLOCATOR.search)
    allocating &= ~matching(trace.cpu, "name", STREAM_ORDERED.search)
    waits = syncs.row[~syncs.profiler & ~syncs.copy]
    return {
        "launches": np.flatnonzero(launches),
        "synchronisations": waits[inside[waits]],
        "driver allocations": np.flatnonzero(outer & allocating),
        "compiled regions": np.flatnonzero(inside & matching(trace.cpu, "name", COMPILED_REGION.search)),
        "compilations": np.flatnonzero(inside & matching(trace.cpu, "name", is_compilation)),
        "ops": np.flatnonzero(inside & matching(trace.cpu, "category", "cpu_op".__eq__)),
    }


def _calls_table(trace: Trace, nesting: Nesting, calls: Calls, step: Rows, chosen: Chosen) -> pd.DataFrame:
    """One row per counter, op and call; of plain ops only the outermost."""
    parts = []
    for counter, rows in calls.items():
        if counter == "ops":
            rows = rows[nesting.top_op(rows) == rows]
        outer, op = nesting.top_op(rows), pick(nesting.op, rows)
        texts = [_named(trace.cpu, "name", of, plain_name) for of in (outer, op, rows)]
        number, first = grouped([code for code, _ in texts])
        columns = zip(("outer", "op", "name"), texts, strict=True)
        part = pd.DataFrame({name: values[code[first]] for name, (code, values) in columns})
        part["counter"] = counter
        put_counts(part, number, step[rows], chosen.count)
        parts.append(part)
    return _shaped(pd.concat(parts, ignore_index=True), "calls")


def _totals(trace: Trace, work: DeviceWork, step: Rows, calls: Calls, cpu_step: Rows, chosen: Chosen) -> pd.DataFrame:
    """One row per counter: mean, least and most of the steps."""
    counted: list[tuple[str, Rows, Any]] = [(name, cpu_step[rows], None) for name, rows in calls.items()]
    moved = np.maximum(ints(trace.gpu, "bytes")[work.row], 0)
    for kind, name in enumerate(KINDS):
        own = (step >= 0) & (work.kind == kind)
        counted.append((_KIND_COUNTERS.get(name, f"{name} copies"), step[own], None))
        if name.startswith("copy"):
            counted.append((f"{name} bytes", step[own], moved[own]))
    op, at = np.unique(work.op[(step >= 0) & (work.op >= 0)], return_index=True)
    number, signatures = signatures_of(trace, op)
    flops = np.array([flops_of(signature) for signature in signatures], np.float64)[number]
    counted.append(("FLOPs", step[(step >= 0) & (work.op >= 0)][at], flops))
    rows = []
    for name, at, weights in counted:
        sums = np.bincount(at, weights=weights, minlength=chosen.count)
        named = name.replace("copy_", "").replace("_", " ")
        rows.append((named, float(sums.mean()), float(sums.min()), float(sums.max())))
    return _shaped(pd.DataFrame(rows, columns=list(TABLES["totals"])), "totals")


def _idle_table(analysis: Analysis, nesting: Nesting, chosen: Chosen) -> pd.DataFrame:
    trace, accounting, idle = analysis.trace, analysis.index(Accounting), analysis.index(Idle)
    within = (accounting.device == chosen.device) & (chosen.place[accounting.step] >= 0)
    selected = np.flatnonzero(within & (accounting.piece >= 0))
    piece = accounting.piece[selected]
    rows = idle.op[piece], nesting.top_op(idle.op[piece])
    op, outer = (_named(trace.cpu, "name", of, plain_name) for of in rows)
    number, first = grouped([idle.cause[piece], op[0], outer[0]])
    table = pd.DataFrame({"op": op[1][op[0][first]], "outer": outer[1][outer[0][first]]})
    table["cause"] = [CAUSES[one] for one in idle.cause[piece[first]].tolist()]
    table["ns"] = np.bincount(number, accounting.dur_ns[selected], len(first)) / chosen.count
    return _shaped(table[~table["cause"].isin(_NO_CAUSE)], "idle")


def host_table(trace: Trace, program: Program) -> pd.DataFrame:
    """The host's ops and calls, without the profiler: how often a step, and how long each part of one takes."""
    segments, steps = program.segments, len(program.sample) * program.sample.part
    slowed = segments.slowed
    left = slowed.unprofiled(segments.cpu_ns, slowed.added(segments.cpu_ns), slowed.typical)
    selected = np.flatnonzero(~segments.gap & (program.timeline.row >= 0))
    name = _named(trace.cpu, "name", program.timeline.row[selected], plain_name)
    part = segments.kind[selected] % _PARTS
    number, first = grouped([name[0], part])
    table = pd.DataFrame({"name": name[1][name[0][first]], "part": part[first]})
    count = np.bincount(number, minlength=len(first))
    table["count"] = count / steps
    table["mean_ns"] = np.bincount(number, left[selected], len(first)) / np.maximum(count, 1)
    return _shaped(table, "host")


_PARTS = 16  # as `Segments.kind` counts the parts of a row


def _shaped(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The columns that the table declares, sorted by its texts."""
    columns: Mapping[str, str] = TABLES[name]
    texts: Sequence[str] = [column for column, kind in columns.items() if kind in ("str", "int64")]
    made = table[list(columns)].astype({column: kind for column, kind in columns.items() if kind != "object"})
    return made.sort_values(list(texts), ignore_index=True, kind="stable")
