"""Which line of the user's own code was running, and which functions are the program's own, and which a package's."""

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, pick
from traceanalyzer.model.containment import first_reaching, nearest_reaching
from traceanalyzer.model.lanes import Codes
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, codes, ints, ints_at, matching, narrow_codes, texts_of
from traceanalyzer.timeline.nesting import Nesting

_FRAME = regex(r"^(?P<path>[^<(][^(]*\.py)\((?P<line>\d+)\): (?P<function>.+)$")
_TORCH = regex(r"(^|/)torch/")
PART_OF_FUNCTION = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
"""Frames whose time is that of the function that they stand in."""


def is_user_code(name: str) -> bool:
    """Whether a python frame `path.py(12): function` is neither torch's nor the standard library's."""
    frame = _FRAME.match(name)
    if frame is None or frame["function"] in ("<module>", *PART_OF_FUNCTION) or _TORCH.search(frame["path"]):
        return False
    path = frame["path"]
    if "site-packages/" in path or "dist-packages/" in path:
        return True
    first = path.lstrip("/").split("/")[0].removesuffix(".py")
    return first not in sys.stdlib_module_names and not re.search(r"/lib/python3\.\d+/", path)


@dataclass(frozen=True, slots=True, eq=False)
class UserCode:
    """The innermost frame of the user's own code around rows of `trace.cpu`.

    Attributes:
        start_ns, end_ns, tid, code: int64 (frames,), the user's rows of `trace.python` and their names, by thread,
            start, and the outer before the inner.
        caller: int64 (frames,), the user's frame around each, -1 for none.
        names: the distinct names of `trace.python`, object.
        trace: whose rows these are.
        row_start_ns: int64 (rows of trace.cpu,), when each row began.
        stack: (rows of trace.cpu,), position in `stack_names` of the row's recorded call stack, -1 for none.
        stack_names: the user's frame in each distinct recorded stack, object.
    """

    start_ns: Rows
    end_ns: Rows
    tid: Rows
    code: Rows
    caller: Rows
    names: np.ndarray[tuple[int], np.dtype[np.object_]]
    trace: Trace
    row_start_ns: Rows
    stack: Codes
    stack_names: np.ndarray[tuple[int], np.dtype[np.object_]]

    @property
    def recorded(self) -> bool:
        """Whether the trace says anything of python at all."""
        return len(self.start_ns) > 0 or bool((self.stack >= 0).any())

    def around(self, rows: Rows) -> Texts:
        """`path.py(12): function` around each row of `trace.cpu`; no text where none is known or the row is -1."""
        stacks = Texts(pick(self.stack, rows).astype(np.int64), self.stack_names)
        tid = ints_at(self.trace.lanes.cpu, "tid", rows)
        return self.at(pick(self.row_start_ns, rows), tid).or_else(stacks)

    def at(self, instants_ns: Rows, tid: Rows) -> Texts:
        """The frame that is open at each instant on each thread."""
        return Texts(pick(self.code, self.open_at(instants_ns, tid)), self.names)

    def open_at(self, instants_ns: Rows, tid: Rows) -> Rows:
        """The innermost frame that is open at each instant on each thread, both ends inside; -1 for none."""
        innermost = np.full(len(instants_ns), -1, np.int64)
        for thread in distinct(tid).tolist():
            on_thread = np.flatnonzero(tid == thread)
            first, last = np.searchsorted(self.tid, [thread, thread + 1])
            position = np.searchsorted(self.start_ns[first:last], instants_ns[on_thread], side="right") - 1
            innermost[on_thread] = np.where(position >= 0, first + position, -1)
        return first_reaching(innermost, self.caller, self.end_ns, instants_ns)

    def outward(self, frame: Rows) -> Iterator[tuple[Rows, Rows]]:
        """(position, frame) of all frames, then of those around them, and so on; -1 stands for none."""
        place = np.arange(len(frame))
        while len(frame):
            place, frame = place[frame >= 0], frame[frame >= 0]
            yield place, frame
            frame = self.caller[frame]

    def around_spans(self, starts_ns: Rows, ends_ns: Rows, tid: Rows) -> Texts:
        """The innermost frame that is open during all of each span on its thread."""
        frame = first_reaching(self.open_at(starts_ns, tid), self.caller, self.end_ns, ends_ns)
        return Texts(pick(self.code, frame), self.names)

    def around_most(self, rows: Rows, weights: Rows, share: float) -> str:
        """The function with this share of the weights of rows of `trace.cpu` that takes least time; empty for none."""
        frame = self.open_at(self.row_start_ns[rows], ints_at(self.trace.lanes.cpu, "tid", rows))
        inside, size = np.zeros(len(self.start_ns)), len(self.names)
        for place, frames in self.outward(frame):
            np.add.at(inside, frames, weights[place])
        around = inside > 0
        of_function = np.bincount(self.code[around], inside[around], size)
        time = np.bincount(self.code[around], (self.end_ns - self.start_ns)[around], size)
        enough = np.flatnonzero(of_function >= max(share * weights.sum(), 1))
        return str(self.names[enough[np.argmin(time[enough])]]) if len(enough) else ""

    def whole(self, starts_ns: Rows, tid: Rows, chosen: Mask) -> tuple[Rows, Rows]:
        """(starts, ends) of the outermost calls of functions in which, of what starts there, all is chosen."""
        holds, others = np.zeros((2, len(self.start_ns)), bool)
        for place, frames in self.outward(self.open_at(starts_ns, tid)):
            holds[frames[chosen[place]]] = others[frames[~chosen[place]]] = True
        whole = holds & ~others
        outermost = whole & ~pick(whole, self.caller, False)
        return self.start_ns[outermost], self.end_ns[outermost]

    def called_from(self, name: str) -> list[str]:
        """Functions that the frames of this name call, the one with most time first."""
        calls = np.isin(pick(self.code, self.caller), np.flatnonzero(self.names == name))
        return [*Texts(self.code[calls], self.names).sums((self.end_ns - self.start_ns)[calls])]

    def caller_of(self, name: str) -> str:
        """The function that most frames of this name are called by, empty if there is none."""
        callers = self.caller[np.isin(self.code, np.flatnonzero(self.names == name))]
        return next(iter(Texts(pick(self.code, callers), self.names).sums(np.ones(len(callers), np.int64))), "")

    def stack_at(self, instant_ns: int, tid: int) -> list[str]:
        """The frames that are open at an instant on a thread, the innermost first."""
        (frame,), stack = self.open_at(np.array([instant_ns]), np.array([tid])).tolist(), []
        while frame >= 0:
            stack.append(str(self.names[self.code[frame]]))
            frame = int(self.caller[frame])
        return stack

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting) -> Self:
        # Recorded stacks list frames newest first.
        texts = map(str, texts_of(trace.lanes.cpu, "call_stack"))
        stacks = (re.split(r"\s*[;\n]\s*", text.strip()) for text in texts)
        frames = [next(filter(is_user_code, stack), None) for stack in stacks]
        names = np.array([*dict.fromkeys(frame for frame in frames if frame)], object)
        place = {name: position for position, name in enumerate(names)}
        table = np.array([place.get(frame or "", -1) for frame in frames] + [-1])
        stack = table.astype(np.min_scalar_type(-len(names) - 1))[narrow_codes(trace.lanes.cpu, "call_stack")]
        python = trace.lanes.python
        rows = np.flatnonzero(matching(python, "name", is_user_code))
        start, dur, tid = (ints(python, column)[rows] for column in ("start_ns", "dur_ns", "tid"))
        order = np.lexsort((-dur, start, tid))
        start, end, tid = start[order], (start + dur)[order], tid[order]
        code, names_of_rows = codes(python, "name")[rows[order]], texts_of(python, "name")
        caller = nearest_reaching(end, end, tid)
        return cls(start, end, tid, code, caller, names_of_rows, trace, nesting.start_ns, stack, names)


# torch cuts sys.path off a name, so a package's begins with its folder; generated code is in /tmp/package.module_x.py.
_PACKAGE = regex(r"(?:^|/(?:site|dist)-packages/)([^/(]+)/|^/(?:.*/)?([a-z_]\w*)\.\w[^/]*\.py$")


def in_its_own(frames: Sequence[str]) -> bool:
    """Whether the innermost frame is in the package that the outermost is in, or in none."""
    return package_of(frames[0]) in (None, package_of(frames[-1]))


def own_frames(frames: Sequence[str]) -> Iterator[str]:
    """Frames of the program, without generated files: of no package or the outermost frame's, found as that one was."""
    begin = frames[-1]
    for frame in frames:
        if package_of(frame) in (None, package_of(begin)) and frame.startswith("/") == begin.startswith("/"):
            yield frame


@cache
def known_packages() -> frozenset[str]:
    """Names of packages that users install."""
    text = Path(__file__).with_name("packages.toml").read_text(encoding="utf-8")
    return frozenset(tomllib.loads(text)["known"])


def package_of(frame: str) -> str | None:
    """The package of `path.py(12): function`; None of the program's own files.

    A folder below sys.path is a package if it is a known one, or if the path shows where packages are installed.
    """
    path = frame.partition("(")[0]
    found = _PACKAGE.search(path)
    name = None if found is None else found[1] or found[2]
    return name if name in known_packages() or "-packages/" in path else None
