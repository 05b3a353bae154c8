"""Which rows of the CPU lane mark the steps, or stand in for them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Ns, distinct, numbered
from traceanalyzer.model.trace import Trace, codes, ints, matching, texts_of
from traceanalyzer.timeline.names import (
    COMMUNICATION_MARK,
    COMPILED_REGION,
    DATA_LOADING,
    OPTIMIZER_MARK,
    SERVING_MARK,
    STEP_MARK,
    is_compilation,
)
from traceanalyzer.timeline.nesting import Nesting

FROM_THE_START = ("window", "Optimizer.step")  # kinds whose first mark begins with the recording
_MIN_COVER = (
    0.5  # of the window: the minimum that a repeated annotation must cover to count as the step; chosen
)
_NUMBER = re.compile(r"\d+")
_MOST_DIGITS = 18  # of a step number that surely fits 64 bits; another counts from 0


@dataclass(frozen=True, slots=True)
class Marks:
    """Steps as they are marked.

    Attributes:
        kind, source: as in `StepMarks`.
        number, start_ns, end_ns: int64 (steps,).
        names: (steps,), the marks of a serving engine; empty for others.
        open_end: whether the last one ends with the recording, for want of a mark.
    """

    kind: str
    source: str
    number: Ns
    start_ns: Ns
    end_ns: Ns
    names: tuple[str, ...] = ()
    open_end: bool = False


def find_marks(trace: Trace, nesting: Nesting, start: int, end: int) -> Marks:
    """The first kind of mark that the trace has; the window [start, end) as one step where it has none."""
    found = _Annotations.of(trace, nesting, np.flatnonzero(nesting.annotation), end)
    begins, ends, names = found.outermost(STEP_MARK)
    if len(begins):
        told = [_NUMBER.findall(name)[-1] for name in names]
        fits = [int(digits) if len(digits) <= _MOST_DIGITS else at for at, digits in enumerate(told)]
        numbers = np.array(fits, np.int64)
        return Marks("ProfilerStep", "steps are ProfilerStep marks", numbers, begins, ends)
    begins, ends, names = found.outermost(SERVING_MARK)
    if len(begins):
        source = f"steps are the server's own marks ({names[0]})"
        return Marks("serving step", source, np.arange(len(begins)), begins, ends, tuple(names))
    return (
        _optimizer(found, start, end)
        or _repeated(found, start, end)
        or _begun_by(found, DATA_LOADING, "a data loader's batch", end)
        or _begun_by(_compiled_regions(trace, nesting, end), COMPILED_REGION, "a compiled region", end)
        or _whole_window(start, end)
    )


def _whole_window(start: int, end: int) -> Marks:
    source = "no step marks: the whole window counts as one step; call prof.step() to get steps"
    return Marks("window", source, np.array([0]), np.array([start]), np.array([end]), open_end=True)


def _optimizer(found: _Annotations, start: int, end: int) -> Marks | None:
    """From one optimizer's step to the next."""
    _, ends, _ = found.outermost(OPTIMIZER_MARK)
    if len(ends) < 2:
        return None
    edges = np.concatenate(([start], ends[:-1]))
    source = "no ProfilerStep marks: a step reaches from one Optimizer.step's end to the next"
    return Marks(
        "Optimizer.step", source, np.arange(len(ends)), edges, np.append(ends[:-1], end), open_end=True
    )


def _repeated(found: _Annotations, start: int, end: int) -> Marks | None:
    """An annotation of the user that repeats, but for numbers in its name, and covers most of the window."""
    begins, ends, code, names = found.outermost_by_name()
    cover = np.bincount(code, weights=ends - begins, minlength=len(names))
    often = np.bincount(code, minlength=len(names)) > 1
    best = min(np.flatnonzero(often), key=lambda c: (-cover[c], names[c]), default=None)
    if best is None or cover[best] < max(_MIN_COVER * (end - start), 1):
        return None
    name, own = names[best], code == best
    source = f"no ProfilerStep marks: steps are the annotation {name!r}"
    return Marks(name, source, np.arange(int(own.sum())), begins[own], ends[own])


def _begun_by(found: _Annotations, wanted: re.Pattern[str], what: str, end: int) -> Marks | None:
    """From each row that has the name of the first one wanted to the next."""
    begins, _, names = found.outermost(wanted)
    begins = begins[[name == names[0] for name in names]] if names else begins
    if len(begins) < 2:
        return None
    source = f"no ProfilerStep marks: a step reaches from {what} ({names[0]}) to the next"
    return Marks(names[0], source, np.arange(len(begins)), begins, np.append(begins[1:], end), open_end=True)


def _compiled_regions(trace: Trace, nesting: Nesting, end: int) -> _Annotations:
    """Runs of compiled code, which are ops."""
    regions = matching(trace.lanes.cpu, "name", COMPILED_REGION.match)
    return _Annotations.of(trace, nesting, np.flatnonzero(regions & (nesting.thread >= 0)), end)


@dataclass(frozen=True, slots=True)
class _Annotations:
    """The user annotations of the CPU lane, ordered by start, longest first; ends cut at the recording's."""

    start_ns: Ns
    end_ns: Ns
    code: Ns
    names: tuple[str, ...]  # by code

    @classmethod
    def of(cls, trace: Trace, nesting: Nesting, rows: Ns, latest: int) -> Self:
        starts = ints(trace.lanes.cpu, "start_ns")[rows]
        ends = np.minimum(starts + ints(trace.lanes.cpu, "dur_ns")[rows], np.maximum(latest, starts))
        order = np.lexsort((-ends, starts))
        code, used = numbered(codes(trace.lanes.cpu, "name")[rows])
        names = texts_of(trace.lanes.cpu, "name")[used]
        return cls(starts[order], ends[order], code[order], tuple(names))

    def outermost(self, wanted: re.Pattern[str]) -> tuple[Ns, Ns, list[str]]:
        """Starts, ends and names of those wanted that lie in no other of them."""
        table = np.array([bool(wanted.search(name)) for name in self.names] + [False], bool)
        rows = np.flatnonzero(table[self.code])
        rows = rows[_outermost(np.zeros(len(rows), np.int64), self.start_ns[rows], self.end_ns[rows])]
        return self.start_ns[rows], self.end_ns[rows], [self.names[c] for c in self.code[rows].tolist()]

    def outermost_by_name(self) -> tuple[Ns, Ns, Ns, tuple[str, ...]]:
        """Starts, ends, codes and names by code of those that lie in no other of the same name, numbers in it aside.

        What cannot be a step is left out: compiling, waiting for data, communication. Ordered by name and start.
        """
        plain = [_NUMBER.sub("#", name) for name in self.names]
        names = tuple(dict.fromkeys(plain))
        place = {name: i for i, name in enumerate(names)}
        no_step = [_is_no_step(name) for name in self.names]
        code = np.array([place[name] for name in plain] + [-1], np.int64)[self.code]
        rows = np.argsort(code, kind="stable")
        rows = rows[~np.array([*no_step, True], bool)[self.code[rows]]]
        rows = rows[_outermost(code[rows], self.start_ns[rows], self.end_ns[rows])]
        alike = Counter(plain)
        whole = dict(zip(plain, self.names, strict=True))
        shown = tuple(whole[name] if alike[name] == 1 else name for name in names)
        return self.start_ns[rows], self.end_ns[rows], code[rows], shown


def _outermost(group: Ns, start: Ns, end: Ns) -> Mask:
    """Which begin when all before them in their group have ended; ordered by group and start."""
    if len(group) == 0:
        return np.zeros(0, bool)
    # By rank, each group after the one before, so that one running maximum does for all.
    instants = distinct(np.concatenate((start, end)))
    begins, ends = (np.searchsorted(instants, at) + group * len(instants) for at in (start, end))
    free = begins[1:] >= np.maximum.accumulate(ends)[:-1]
    return np.concatenate(([True], free | (group[1:] != group[:-1])))


def _is_no_step(name: str) -> bool:
    return bool(is_compilation(name) or DATA_LOADING.search(name) or COMMUNICATION_MARK.match(name))
