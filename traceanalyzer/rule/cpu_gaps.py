"""Stretches without any op or call, or without any launch, as rules see them: the host's own time."""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct, grouped, pick, sums_of
from traceanalyzer.model.containment import innermost, running_at
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, ints, ints_at, matching
from traceanalyzer.rule.idioms import idiom_of
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.calls_and_work import Calls
from traceanalyzer.timeline.names import ANNOTATION, COMPILATION, COMPILED_RUN, QUERY
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.selection import Chosen, Events, Key, cached_readonly, positions, repeats
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.user_code import PART_OF_FUNCTION, is_user_code

OPTIMIZER = regex(r"^Optimizer\.(step|zero_grad)#")  # its time is torch's, not the user's

_MIN_NS = 20_000  # python between two ops takes up to 15 us under the profiler with stacks (H200, torch 2.11)


@dataclass(frozen=True, slots=True)
class Stretches:
    """Disjoint stretches of the CPU's time, by start; arrays of shape (stretches,).

    Attributes:
        before, after: int64, row of `trace.cpu` of the op or call that ended last before it, and of the next one.
    """

    start_ns: Rows
    end_ns: Rows
    before: Rows
    after: Rows

    @classmethod
    def between(cls, rows: Rows, trace: Trace, nesting: Nesting, activity: Activity, steps: Steps) -> Self:
        """The stretches of 20 us or more in the steps in which none of some rows is open.

        Loading of data, compilation, capture of graphs, collectives on the CPU, an optimizer's own and what
        prof.step() takes are left out.
        """
        rows = rows[np.argsort(nesting.start_ns[rows], kind="stable")]
        if len(rows) < 2:
            none = np.empty(0, np.int64)
            return cls(none, none, none, none)
        ends = nesting.end_ns[rows]
        reached = np.maximum.accumulate(ends)
        latest = np.maximum.accumulate(np.where(ends == reached, np.arange(len(rows)), 0))
        edges = reached[:-1], nesting.start_ns[rows][1:]
        named = ("data_loading", "compilation", "capture", "profiler", "host_collective")
        optimizing = matching(trace.lanes.cpu, "name", OPTIMIZER.match) & (nesting.thread >= 0)
        own = intervals.union(nesting.start_ns[optimizing], nesting.end_ns[optimizing])
        known = [*(activity.sets[kind] for kind in named), own]
        others = intervals.union(*(np.concatenate(bounds) for bounds in zip(*known, strict=True)))
        low = max(int(steps.cpu_start_ns[0]), steps.window_start_ns)
        high = min(int(steps.cpu_end_ns[-1]), steps.window_end_ns)
        start, end = intervals.difference(intervals.clip(intervals.union(*edges), low, high), others)
        long = end - start >= _MIN_NS
        start, end = start[long], end[long]
        gap = np.searchsorted(edges[0], start, side="right") - 1
        return cls(start, end, rows[latest[gap]], rows[gap + 1])


class CpuGaps(Stretches):
    """Stretches in which no thread that launches work has an op or a call open.

    While the autograd engine runs, its thread has ops open and the thread that called it has none: so a stretch
    counts only where none of them has. Annotations are no ops: what lies in one, but in no op, is such a stretch.
    """

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting, activity: Activity, steps: Steps) -> Self:
        return cls.between(activity.rows["dispatching"], trace, nesting, activity, steps)


class HostTime(Stretches):
    """Stretches without any op that makes a call: ops that work on the CPU alone, and what is between ops."""

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting, activity: Activity, steps: Steps) -> Self:
        calls = matching(trace.lanes.cpu, "category", CALL_CATEGORIES.__contains__)
        calls &= ~matching(trace.lanes.cpu, "name", QUERY.search)
        outer = nesting.top_op(np.flatnonzero(calls))
        makes = calls.copy()
        makes[outer[outer >= 0]] = True
        rows = activity.rows["dispatching"]
        return cls.between(rows[makes[rows]], trace, nesting, activity, steps)


_SAMPLES = 256  # instants: a function with a tenth of the time is met 26 times
_NEVER = np.iinfo(np.int64).max
_NODE = regex(r"^autograd::engine::|Backward\d*$|AccumulateGrad$")
_COMPILED = regex(f"{COMPILATION.pattern}|{COMPILED_RUN.pattern}")
_FUNCTION = regex(r"\.py\(\d+\): ")  # in Python, not built in
# `<built-in method tolist of Tensor object at 0x7f01>`, `<built-in method tensor of type object at 0x7f01>`
_BUILT_IN = regex(r"^<built-in (?:method|function) (\w+)(?: of (?:type|module|([\w.]+)) object.*)?(?:>|$).*")
_OF_NUMPY = regex(r"^<built-in method \w+ of numpy\.")
_ANY_CALL = regex(f"{_FUNCTION.pattern}|{_BUILT_IN.pattern}")
_TORCHS = r"^(.*/)?torch/(?!nn/modules/module\.py|utils/_contextlib\.py|_dynamo/)"  # not the user's callers
_TORCH = regex(r"^(.*/)?torch/")
_COMPARABLE = 0.1  # of the longest stretch before a function: shorter ones are what comes between ops; chosen


class CallsAfterCpuGaps(Calls):
    """One row per stretch of `CpuGaps`: its rows are the ops or calls after it, its times are its own."""

    __slots__ = ("_at", "_quiet")

    def __init__(self, events: Events, quiet: Stretches, at: Rows) -> None:
        super().__init__(events, quiet.after[at])
        self._quiet, self._at = quiet, at

    @classmethod
    def build(cls, events: Events, quiet: CpuGaps) -> Self:  # type: ignore[override]
        return cls(events, quiet, np.arange(len(quiet.start_ns)))

    def __getitem__(self, chosen: Chosen) -> Self:
        return type(self)(self.events, self._quiet, self._at[positions(chosen, len(self))])

    def repeated(self) -> int:
        return repeats(self._at)

    @cached_readonly
    def start_ns(self) -> Rows:
        return self._quiet.start_ns[self._at]

    @cached_readonly
    def end_ns(self) -> Rows:
        return self._quiet.end_ns[self._at]

    @cached_readonly
    def before(self) -> Calls:
        """The op or call that ended last before each."""
        return Calls(self.events, self._quiet.before[self._at])

    @cached_readonly
    def after(self) -> Calls:
        """The op or call after each, with its own times."""
        return Calls(self.events, self._rows)

    @cached_readonly
    def place(self) -> Texts:
        """`op before and op after`, the outermost ops or else the calls."""
        before = self.before.outer_op.name.or_else(self.before.name)
        after = self.outer_op.name.or_else(self.name)
        number, first = grouped([before.code, after.code])
        names = [f"{before[row]} and {after[row]}" for row in first.tolist()]
        return Texts(number, np.array(names, object))

    @property
    def by_autograd(self) -> tuple[Mask, Mask]:
        """(which are in the autograd engine, or on the way into it; which come right after it)."""
        every = Calls.build(self.events)
        nodes = every[every.name.matches(_NODE)]
        marks = every[every.is_annotation & every.name.matches(ANNOTATION)]
        users = marks if len(marks) else every[every.is_annotation]
        thread = self.events.nesting.thread
        engine = np.zeros(int(thread.max(initial=-1)) + 2, bool)
        engine[thread[nodes.rows]] = True
        engine[thread[users.rows]] = False
        into = engine[pick(thread, self.rows)] | self.after.inside(nodes)
        leaving = engine[pick(thread, self.before.rows)] | self.before.inside(nodes)
        return into, np.asarray(leaving & ~into)

    def is_users(self, min_torch_ns: int) -> Mask:
        """Not torch's own: in the autograd engine, on the way there, or, where it is shorter, right after it."""
        into, leaving = self.by_autograd
        return ~into & (~leaving | (self.dur_ns >= min_torch_ns))

    def main_places(self, minor: float) -> Self:
        """Without the places that take less than that share of the time."""
        place = self.place.code
        return self[np.bincount(place, weights=self.dur_ns)[place] >= minor * self.total_ns]

    def in_steps(self, *keys: Key) -> Rows:
        """In how many steps there is a row of the same keys, for each row."""
        number, _ = grouped([key.code if isinstance(key, Texts) else key for key in keys])
        _, first = grouped([number, self.step])
        return np.asarray(np.bincount(number[first])[number], np.int64)

    @cached_readonly
    def line(self) -> Texts:
        """The user's innermost function that is open for most of each stretch; null without stacks.

        What covers more than half of a stretch is open in its middle: from the innermost there, outward.
        """
        code = self.events.user_code
        dur = code.end_ns - code.start_ns
        long = np.flatnonzero(2 * dur > self.dur_ns.min(initial=_NEVER))
        names = Texts(code.code[long], code.names)
        return self._covering(code.start_ns[long], dur[long], code.tid[long], names)

    @cached_readonly
    def torchs(self) -> Texts:
        """torch's own innermost function that is open for most of each stretch; null without one within the user's."""
        covering = self._innermost(_FUNCTION)
        return Texts(np.where(covering.matches(_TORCHS), covering.code, -1), covering.names)

    @cached_readonly
    def built_in(self) -> Texts:
        """The innermost call in most of each stretch, if it is built-in or has a remedy: `tensor()`; else null."""
        covering = self._innermost(_ANY_CALL)
        names = [_call_words(str(name)) for name in covering.names]
        return Texts(np.where(covering.meets(_is_called), covering.code, -1), np.array(names, object))

    def calls_of(self, built_in: str) -> intervals.Set:
        """When calls of that `built_in` run within these stretches."""
        python = self.events.trace.lanes.python
        rows = np.flatnonzero(matching(python, "name", lambda name: _call_words(name) == built_in))
        start, tid = ints_at(python, "start_ns", rows), ints_at(python, "tid", rows)
        end, here = start + ints(python, "dur_ns")[rows], np.isin(tid, distinct(self.thread))
        calls, pauses = intervals.union(start[here], end[here]), intervals.union(self.start_ns, self.end_ns)
        return intervals.difference(calls, intervals.difference(calls, pauses))

    def _innermost(self, pattern: re.Pattern[str]) -> Texts:
        """Of Python's calls with such names, the innermost that covers more than half of each stretch."""
        python = self.events.trace.lanes.python
        dur, named = ints(python, "dur_ns"), matching(python, "name", pattern.search)
        rows = np.flatnonzero(named & (2 * dur > self.dur_ns.min(initial=_NEVER)))
        start, tid = ints_at(python, "start_ns", rows), ints_at(python, "tid", rows)
        return self._covering(start, dur[rows], tid, Texts.column(python, "name", rows))

    def main_one(self, names: Texts, most: float) -> str | None:
        """The name of stretches that together take at least that share of the time, where there is one."""
        name, spent_ns = next(iter(names.sums(self.dur_ns).items()), (None, 0))
        return name if spent_ns >= most * self.total_ns else None

    def _covering(self, start: Rows, dur: Rows, thread: Rows, names: Texts) -> Texts:
        """Of frames, the innermost that covers more than half of each stretch."""
        if not len(start):
            return Texts.none(len(self))
        order = np.lexsort((-dur, start, thread))
        start, end, thread, names = start[order], (start + dur)[order], thread[order], names[order]
        running = running_at(start, end, thread, (self.start_ns + self.end_ns) // 2, self.thread)
        parent = innermost(start, end, thread)
        while True:
            there = np.flatnonzero(running >= 0)
            overlap = np.minimum(end[running], self.end_ns) - np.maximum(start[running], self.start_ns)
            short = there[2 * overlap[there] <= self.dur_ns[there]]
            if len(short) == 0:
                return Texts(pick(names.code, running), names.names)
            running[short] = parent[running[short]]

    def functions(self) -> dict[str, int]:
        """The user's innermost functions in these stretches and the ns that they take in all, most first.

        Read at instants that lie evenly in the time of all stretches; empty without stacks.
        """
        code, reached = self.events.user_code, np.cumsum(self.dur_ns)
        if not len(code.start_ns) or not len(self):
            return {}
        share = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
        within = (share * reached[-1]).astype(np.int64)
        row = np.searchsorted(reached, within, side="right")
        instants = self.end_ns[row] - (reached[row] - within)
        names = code.at(instants, self.thread[row])
        return names.sums(np.full(_SAMPLES, reached[-1] // _SAMPLES))

    def own_code(self, function: str) -> tuple[int, int, int, int]:
        """What a user's function does in these stretches.

        Returns:
            ns in its own code and in short calls of it, all of its ns, also elsewhere, ns in its longer calls of NumPy,
            and how many calls are within it.
        """
        python = self.events.trace.lanes.python
        pauses, spans = intervals.union(self.start_ns, self.end_ns), self._spans_of(function)
        start, dur = ints(python, "start_ns"), ints(python, "dur_ns")
        inside = intervals.covered(spans, start, start + dur) >= np.maximum(dur, 1)
        inside &= np.isin(ints(python, "tid"), distinct(self.thread))
        inside &= ~matching(python, "name", lambda name: name == function or name.endswith(PART_OF_FUNCTION))
        began = inside & (intervals.covered(pauses, start, start + 1) > 0)
        inside &= intervals.covered(pauses, start, start + dur) > 0
        arrays = inside & matching(python, "name", _OF_NUMPY.search)

        def within_ns(chosen: Mask) -> int:
            called = intervals.union(start[chosen], (start + dur)[chosen])
            return int(intervals.covered(called, self.start_ns, self.end_ns).sum())

        own_ns = self.within_ns(function) - within_ns(inside & (dur >= _MIN_NS))
        arrays_ns = within_ns(arrays & (dur >= _MIN_NS))
        return own_ns, intervals.length(spans), arrays_ns, int(began.sum())

    def calls_ns(self, function: str, whole: float) -> Rows:
        """How long calls of a user's function take, if they and these stretches share `whole` of each; else empty."""
        code, steps = self.events.user_code, self.events.steps
        spans = intervals.union(self.start_ns, self.end_ns)
        rows = np.flatnonzero(np.isin(code.code, np.flatnonzero(code.names == function)))
        in_steps = (code.start_ns < steps.cpu_end_ns[-1]) & (code.end_ns > steps.cpu_start_ns[0])
        rows = rows[in_steps[rows]]
        number = len(rows)
        rows = rows[intervals.covered(spans, code.start_ns[rows], code.end_ns[rows]) > 0]
        start, end = code.start_ns[rows], code.end_ns[rows]
        shared = intervals.covered(intervals.union(start, end), self.start_ns, self.end_ns)
        within = intervals.covered(spans, start, end)
        fits = (within >= whole * (end - start)).all() and (shared >= whole * self.dur_ns).all()
        fits &= len(rows) == len(self) >= whole * number
        return end - start if fits else np.empty(0, np.int64)

    def within_ns(self, function: str) -> int:
        """How much of these stretches lies in calls of a user's function."""
        return int(intervals.covered(self._spans_of(function), self.start_ns, self.end_ns).sum())

    def _spans_of(self, function: str) -> intervals.Set:
        code = self.events.user_code
        rows = np.isin(code.code, np.flatnonzero(code.names == function))
        return intervals.union(code.start_ns[rows], code.end_ns[rows])

    def user_calls(self) -> int:
        """How many calls of the user's functions were recorded within these stretches; 0 without stacks."""
        code, calls = self.events.user_code, 0
        for thread in distinct(self.thread).tolist():
            first, last = np.searchsorted(code.tid, [thread, thread + 1])
            on_thread, starts = self[self.thread == thread], code.start_ns[first:last]
            begun, ended = (np.searchsorted(starts, at) for at in (on_thread.start_ns, on_thread.end_ns))
            calls += int((ended - begun).sum())
        return calls

    def before_first_calls(self, least: int) -> Mask:
        """Which stretches come before the first call of a function that comes again without: what prepares it.

        A function that is scripted or compiled is an op of its own name, in no library; it is made ready before its
        first call, and no row says so.

        Args:
            least: how often an op must come, so that the others tell.
        """
        every = Calls.build(self.events)
        code = every.name.code
        named = self.name.code
        size = int(max(code.max(initial=-1), named.max(initial=-1))) + 1
        first = np.full(size, _NEVER)
        np.minimum.at(first, code[code >= 0], every.start_ns[code >= 0])
        occurrences = np.bincount(code[code >= 0], minlength=size)
        longest = np.zeros(size, np.int64)
        np.maximum.at(longest, named[named >= 0], self.dur_ns[named >= 0])
        comparable = (named >= 0) & (self.dur_ns > _COMPARABLE * longest[named])
        stretches = np.bincount(named[comparable], minlength=size)
        after = every.events.nesting.start_ns[self.rows]
        functions = self.after.is_op & ~self.name.matches("::")
        once = (after == first[named]) & (occurrences[named] >= least) & (stretches[named] == 1)
        return np.asarray((named >= 0) & functions & once)


class HostCalls(CallsAfterCpuGaps):
    """One row per stretch of `HostTime`, with the ops in it that work on the CPU alone."""

    __slots__ = ()

    @classmethod
    def build(cls, events: Events, quiet: HostTime) -> Self:  # type: ignore[override]
        return cls(events, quiet, np.arange(len(quiet.start_ns)))

    def ops(self) -> tuple[Calls, Rows]:
        """(outermost ops within these stretches, position of the stretch in this selection).

        Compiled code and its lookups are left out: they are no work of the user's.
        """
        every, computing = Calls.build(self.events), "computing"
        outermost = self.events.once(computing, lambda: every[every.is_top_op & ~every.name.matches(_COMPILED)])
        stretch = np.searchsorted(self.start_ns, outermost.start_ns, side="right") - 1
        inside = (stretch >= 0) & (outermost.end_ns <= np.append(self.end_ns, 0)[stretch])
        return outermost[inside], stretch[inside]

    def subject(self, most: float, alone: float) -> Texts:
        """The op that takes most of each stretch, else the user's function, as where it has several such ops.

        Where no function is known, ops that take most of it together are named by the longest.

        Args:
            most: share of a stretch, by which an op is what it is about.
            alone: share of the ops of a function, by which one op is what it does.
        """
        ops, stretch = self.ops()
        line = self.line
        pair, first = grouped([stretch, ops.name.code])
        spent = sums_of(pair, ops.dur_ns, len(first))
        order = np.argsort(spent, kind="stable")
        main = np.full(len(self), -1, np.int64)
        main[stretch[first[order]]] = order  # what is assigned last, the longest, stays
        together = sums_of(stretch, ops.dur_ns, len(self))
        spent_ns = np.where(line.there, np.append(spent, 0)[main], together)
        one = (main >= 0) & (spent_ns >= most * self.dur_ns)
        one &= ~_has_several(line.code, ops, stretch, alone)
        code = np.append(ops.name.code[first], -1)[np.where(one, main, -1)]
        return Texts(code, ops.name.names).or_else(line)


def _call_words(name: str) -> str:
    """`Tensor.tolist()`, `tensor()`."""
    return _BUILT_IN.sub(r"\2.\1()", name).removeprefix(".")


def _is_called(name: str) -> bool:
    """Whether a recorded call is of a built-in function, or of one of the standard library with a remedy."""
    other = _TORCH.match(name) or name.endswith(">") or is_user_code(name)
    return bool(_BUILT_IN.match(name)) or (not other and idiom_of("calls", [name]) is not None)


def _has_several(function: Rows, ops: Calls, stretch: Rows, alone: float) -> Mask:
    """Which stretches are of a function in which no op alone takes most of what its ops take."""
    of_op = function[stretch]
    pair, first = grouped([of_op, ops.name.code])
    longest, total = (np.zeros(int(function.max(initial=-1)) + 2, np.int64) for _ in range(2))
    np.maximum.at(longest, of_op[first], sums_of(pair, ops.dur_ns, len(first)))
    np.add.at(total, of_op, ops.dur_ns)
    return np.asarray((function >= 0) & (longest < alone * total)[function])
