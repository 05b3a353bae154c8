"""Traces -> a file of speedscope: GPU work, CPU time and idle time, each as a flame graph of its own."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.causes import CAUSES, Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Rows, grouped, pick, sums_of
from traceanalyzer.model.containment import depths, nearest_marked, nearest_reaching
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.short_names import ENGINE
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, ints, ints_at, matching
from traceanalyzer.render.data.encode import to_json
from traceanalyzer.report.words import in_words
from traceanalyzer.timeline.selection import Events
from traceanalyzer.version import __version__

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_MOST_STACKS = 10_000  # of a graph: speedscope draws that many at once without delay; chosen
_MOST_LEVELS = 64  # what is nested deeper is shown with what is around it
_MODULE = "nn.Module: "
# Steps are what shares are of, and the engine's row around a node of the graph has that node's name.
_WRAPPER = regex(rf"^ProfilerStep#\d+$|^{ENGINE}")
NO_OP, OUTSIDE, OTHER = "launched by no op", "outside ops", "other"


def render_speedscope(traces: Mapping[int | None, Trace]) -> bytes:
    """One document; of several ranks each graph's name tells the rank."""
    numbers: dict[str, int] = {}
    profiles = []
    for rank, trace in traces.items():
        analysis = Analysis(trace)
        with suppress(Unavailable):
            stacks = _Stacks(analysis.index(Events))
            for name, graph in (
                ("all GPU work", _gpu_work),
                ("all CPU time", _cpu_time),
                ("all idle time", _idle_time),
            ):
                with suppress(Unavailable):
                    stack, ns = graph(analysis, stacks)
                    title = f"rank {rank}: {name}" if len(traces) > 1 else name
                    profiles.append({"type": "sampled", "name": title, **stacks.samples(stack, ns, numbers)})
    if not profiles:
        raise Unavailable("no GPU work, ops or calls to draw")
    document = {
        "$schema": _SCHEMA,
        "exporter": f"traceanalyzer {__version__}",
        "name": next(iter(traces.values())).meta.source,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in numbers]},
        "profiles": profiles,
    }
    return to_json(document)


class _Stacks:
    """Stacks of names by number, each known by (the stack around it, -1 for none, and its innermost name).

    `of_row` is the stack of each row of `trace.cpu` that is an op or annotation, with the modules around it; -1 of
    others, of those that only wrap others, and as the last.
    """

    def __init__(self, events: Events) -> None:
        self._numbers: dict[tuple[int, str], int] = {}
        nesting, lanes = events.nesting, events.trace.lanes
        shown = (nesting.op == np.arange(len(nesting.parent))) | nesting.annotation
        shown &= ~matching(lanes.cpu, "name", lambda name: bool(_WRAPPER.match(name))) & (nesting.thread >= 0)
        rows = np.flatnonzero(shown)
        depth = depths(nesting.parent.astype(np.int64))[rows]
        tid, names = ints_at(lanes.cpu, "tid", rows), Texts.column(lanes.cpu, "name", rows)
        spans: list[tuple[Any, ...]]
        spans = [(nesting.start_ns[rows], nesting.end_ns[rows], tid, depth, rows, names.values())]
        if events.trace.meta.rows.get("python"):
            python = lanes.python
            found = np.flatnonzero(matching(python, "name", lambda name: name.startswith(_MODULE)))
            begun, took, tid = (ints(python, column)[found] for column in ("start_ns", "dur_ns", "tid"))
            none, names = np.full(len(found), -1), Texts.column(python, "name", found)
            spans.append((begun, begun + took, tid, none, none, names.values()))
        start, end, tid, depth, row, name = (np.concatenate(column) for column in zip(*spans, strict=True))
        order = np.lexsort((depth, start - end, start, tid))
        parent = nearest_reaching(end[order], end[order], tid[order])
        number = np.full(len(order), -1, np.int64)
        columns = parent.tolist(), depths(parent).tolist(), name[order].tolist()
        for at, (above, level, text) in enumerate(zip(*columns, strict=True)):
            around = int(number[above]) if above >= 0 else -1
            number[at] = around if level >= _MOST_LEVELS else self._number(around, text)
        self.of_row = np.full(len(nesting.parent) + 1, -1, np.int64)
        self.of_row[row[order]] = number
        self.of_row[-1] = -1  # where the numbers of modules went

    def _number(self, around: int, name: object) -> int:
        return self._numbers.setdefault((around, str(name)), len(self._numbers))

    def within(self, stack: Rows, names: Texts, otherwise: str) -> Rows:
        """The stacks with these names innermost; below `otherwise` where there is no stack."""
        stack = self.or_else(stack, otherwise)
        number, first = grouped([stack, names.code])
        pairs = zip(stack[first].tolist(), names[first].values(), strict=True)
        return np.array([self._number(*pair) for pair in pairs], np.int64)[number]

    def or_else(self, stack: Rows, name: str) -> Rows:
        """The stacks; one of this name alone where there is none."""
        return np.where(stack >= 0, stack, self._number(-1, name))

    def samples(self, stack: Rows, ns: Rows, numbers: dict[str, int]) -> dict[str, Any]:
        """Each stack that takes time: the largest in order, the rest as one; `numbers` are places of frames."""
        known, sums = list(self._numbers), sums_of(stack, ns, len(self._numbers))
        largest = np.argsort(-sums, kind="stable")[:_MOST_STACKS]
        found = []
        for leaf in largest[sums[largest] > 0].tolist():
            names, at = [], leaf
            while at >= 0:
                at, name = known[at]
                names.append(numbers.setdefault(name, len(numbers)))
            found.append((names[::-1], int(sums[leaf])))
        found.sort()
        if rest := int(sums.sum()) - sum(ns for _, ns in found):
            found.append(([numbers.setdefault(OTHER, len(numbers))], rest))
        drawn, weights = [names for names, _ in found], [ns for _, ns in found]
        times = {"unit": "nanoseconds", "startValue": 0, "endValue": sum(weights)}
        return {**times, "samples": drawn, "weights": weights}


def _gpu_work(analysis: Analysis, stacks: _Stacks) -> tuple[Rows, Rows]:
    """(stack, ns) of each kernel, copy and memset, below the op that launched it."""
    work = analysis.index(Events).work
    if work is None:
        raise Unavailable("no kernels, copies or memsets in the trace")
    kernels = Texts.column(analysis.trace.lanes.gpu, "name", work.row)
    return stacks.within(stacks.of_row[work.op], kernels, NO_OP), work.end_ns - work.start_ns


def _cpu_time(analysis: Analysis, stacks: _Stacks) -> tuple[Rows, Rows]:
    """(stack, own ns) of each row of all threads; calls are leaves."""
    events = analysis.index(Events)
    rows, cpu = events.calls, events.trace.lanes.cpu
    if len(rows) == 0:
        raise Unavailable("no ops or calls in the trace")
    nearest = nearest_marked(events.nesting.parent, stacks.of_row[:-1] >= 0, rows)
    stack = stacks.or_else(pick(stacks.of_row, nearest), OUTSIDE)
    calls = np.flatnonzero(Texts.column(cpu, "category", rows).one_of(*CALL_CATEGORIES))
    stack[calls] = stacks.within(stack[calls], Texts.column(cpu, "name", rows[calls]), OUTSIDE)
    return stack, events.nesting.self_ns[rows]


def _idle_time(analysis: Analysis, stacks: _Stacks) -> tuple[Rows, Rows]:
    """(stack, ns) of each idle stretch of a device: its cause, below the op that it is charged to."""
    accounting, idle = analysis.index(Accounting), analysis.index(Idle)
    segments = np.flatnonzero(accounting.piece >= 0)
    if len(segments) == 0:
        raise Unavailable("no device is ever idle")
    piece = accounting.piece[segments]
    causes = Texts(idle.cause[piece], np.array([in_words(cause) for cause in CAUSES], object))
    return stacks.within(stacks.of_row[idle.op[piece]], causes, OUTSIDE), accounting.dur_ns[segments]
