"""Stretches without any op or call, or without any launch, as rules see them: the host's own time."""

from __future__ import annotations

import re
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import grouped
from traceanalyzer.model.containment import innermost, running_at
from traceanalyzer.model.texts import Texts
from traceanalyzer.rule.views.calls import Calls
from traceanalyzer.rule.views.events import Events
from traceanalyzer.rule.views.selection import Key, Mask, Rows
from traceanalyzer.timeline.names import ANNOTATION, COMPILATION, COMPILED_RUN
from traceanalyzer.timeline.quiet_time import HostTime, QuietTime, Stretches

_SAMPLES = 256  # instants: a function with a tenth of the time is met 26 times
_NEVER = np.iinfo(np.int64).max
_NODE = re.compile(r"^autograd::engine::|Backward\d*$|AccumulateGrad$")
_COMPILED = re.compile(f"{COMPILATION.pattern}|{COMPILED_RUN.pattern}")


class QuietCalls(Calls):
    """One row per stretch of `QuietTime`: its rows are the ops or calls after it, its times are its own."""

    __slots__ = ("_at", "_quiet")

    def __init__(self, events: Events, quiet: Stretches, at: Rows) -> None:
        super().__init__(events, quiet.after[at])
        self._quiet, self._at = quiet, at

    @classmethod
    def build(cls, events: Events, quiet: QuietTime) -> Self:  # type: ignore[override]
        return cls(events, quiet, np.arange(len(quiet.start_ns)))

    def __getitem__(self, chosen: Mask | Rows) -> Self:
        return type(self)(self.events, self._quiet, self._at[chosen])

    @property
    def start_ns(self) -> Rows:
        return self._quiet.start_ns[self._at]

    @property
    def end_ns(self) -> Rows:
        return self._quiet.end_ns[self._at]

    @property
    def before(self) -> Calls:
        """The op or call that ended last before each."""
        return Calls(self.events, self._quiet.before[self._at])

    @property
    def after(self) -> Calls:
        """The op or call after each, with its own times."""
        return Calls(self.events, self._rows)

    @property
    def place(self) -> Texts:
        """`op before and op after`, the outermost ops or else the calls."""
        before, after = (
            self.before.outer_op.name.or_else(self.before.name),
            self.outer_op.name.or_else(self.name),
        )
        if not len(self):
            return Texts.none(0)
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
        engine = np.setdiff1d(nodes.thread, users.thread)
        into = np.isin(self.thread, engine) | self.after.inside(nodes)
        leaving = np.isin(self.before.thread, engine) | self.before.inside(nodes)
        return into, np.asarray(leaving & ~into)

    def in_steps(self, *keys: Key) -> Rows:
        """In how many steps there is a row of the same keys, for each row."""
        number, _ = grouped([key.code if isinstance(key, Texts) else key for key in keys])
        _, first = grouped([number, self.step])
        return np.asarray(np.bincount(number[first])[number], np.int64)

    @property
    def line(self) -> Texts:
        """The user's innermost function that is open for most of each stretch; null without stacks.

        What covers more than half of a stretch is open in its middle: from the innermost there, outward.
        """
        start, end, thread, names = self._frames()
        if not len(start):
            return Texts.none(len(self))
        found = running_at(start, end, thread, (self.start_ns + self.end_ns) // 2, self.thread)
        parent = innermost(start, end, thread)
        while True:
            there = np.flatnonzero(found >= 0)
            overlap = np.minimum(end[found], self.end_ns) - np.maximum(start[found], self.start_ns)
            short = there[2 * overlap[there] <= self.dur_ns[there]]
            if len(short) == 0:
                return names[found]
            found[short] = parent[found[short]]

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

    def _frames(self) -> tuple[Rows, Rows, Rows, Texts]:
        """(start, end, thread, name) of the user's frames that may cover a stretch, by thread and nesting.

        The last name is none, for the position -1.
        """
        code = self.events.user_code
        dur = code.end_ns - code.start_ns
        long = np.flatnonzero(2 * dur > self.dur_ns.min(initial=_NEVER))
        order = long[np.lexsort((-dur[long], code.start_ns[long], code.tid[long]))]
        names = Texts(np.append(code.code[order], -1), code.names)
        return code.start_ns[order], code.end_ns[order], code.tid[order], names


class HostCalls(QuietCalls):
    """One row per stretch of `HostTime`, with the ops in it that work on the CPU alone."""

    __slots__ = ()

    @classmethod
    def build(cls, events: Events, quiet: HostTime) -> Self:  # type: ignore[override]
        return cls(events, quiet, np.arange(len(quiet.start_ns)))

    def ops(self) -> tuple[Calls, Rows]:
        """(outermost ops within these stretches, position of the stretch in this selection).

        Compiled code and its lookups are left out: they are no work of the user's.
        """
        every = Calls.build(self.events)
        outermost = every[every.is_op & ~every.parent.op.there & ~every.name.matches(_COMPILED)]
        stretch = np.searchsorted(self.start_ns, outermost.start_ns, side="right") - 1
        inside = (stretch >= 0) & (outermost.end_ns <= self.end_ns[stretch])
        return outermost[inside], stretch[inside]
