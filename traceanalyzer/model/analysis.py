"""One trace, the part of it that is analysed, and the indexes made of it, each built once.

An index says what it needs in the signature of its `build`, as rules do:

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting, work: DeviceWork | None) -> Self: ...

`Trace`, `Window` and other indexes are given by their type; `X | None` is None where X is unavailable. It raises
`Unavailable` where the trace lacks what it needs. What needs no `Window`, itself or through others, is shared by all
windows of a trace.
"""

from __future__ import annotations

import typing
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from threading import Lock, RLock, local
from time import perf_counter_ns
from types import NoneType
from typing import Any, ClassVar, Self, TypeVar

from traceanalyzer.model.arrays import frozen
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.interpreter import side_by_side, threads_for
from traceanalyzer.model.trace import Trace


@dataclass(frozen=True, slots=True)
class Window:
    """What the user asked to be analysed: [start_ns, end_ns), times as in the frames; None for all of it."""

    asked_ns: tuple[int, int] | None = None


class GivenByJob:
    """An index that is made of the traces of several ranks: only their job gives it.

    Attributes:
        missing: what one rank's trace lacks, as `Unavailable` has it.
    """

    __slots__ = ()
    missing: ClassVar[str] = "only one rank's trace: pass the traces of all ranks to compare them"

    @classmethod
    def build(cls) -> Self:
        """Raises Unavailable: always."""
        raise Unavailable(cls.missing)


I = TypeVar("I")  # noqa: E741 - the conventional letter for an index


@dataclass(frozen=True, slots=True)
class Need:
    """One parameter of an index or a rule: which type fills it, and whether it may be missing."""

    kind: type
    optional: bool = False


def needs_of(function: Callable[..., Any], skip: frozenset[str] = frozenset({"return"})) -> dict[str, Need]:
    """Parameter -> what fills it, from the annotations.

    Raises TypeError: an annotation is neither a class nor `X | None`.
    """
    scope = getattr(function, "__globals__", {})
    hints = {name: hint for name, hint in function.__annotations__.items() if name not in skip}
    # `get_type_hints` is slower.
    return {name: _need(eval(hint, scope) if isinstance(hint, str) else hint) for name, hint in hints.items()}


def _need(hint: Any) -> Need:
    members = [member for member in typing.get_args(hint) if member is not NoneType]
    kind = members[0] if len(members) == 1 and len(typing.get_args(hint)) == 2 else hint
    if not isinstance(kind, type):
        raise TypeError(f"{hint!r} names no index")
    return Need(kind, kind is not hint)


@cache
def index_needs(kind: type) -> Mapping[str, Need]:
    return needs_of(kind.build)  # type: ignore[attr-defined]


@cache
def all_needs(kind: type) -> frozenset[type]:
    """The index and all that it needs, directly or not."""
    if kind in (Window, Trace):
        return frozenset((kind,))
    return frozenset((kind,)).union(*(all_needs(need.kind) for need in index_needs(kind).values()))


class _Within(local):
    """Of each thread, the ns within what is being timed that belong to something else."""

    ns = 0


class Analysis:
    """A trace, the window to analyse, and the cache of its indexes. Several threads may use it.

    Attributes:
        threads: how many may work at once; by default as many as pay.
        times: index or rule -> ns spent on it alone, without the indexes that it asked for.
    """

    def __init__(self, trace: Trace, window: tuple[int, int] | None = None) -> None:
        trace.lanes.refresh_from_frames()
        self.trace = trace
        self.window = Window(window)
        self._shared: dict[type, Any] = {Trace: trace}
        self._own: dict[type, Any] = {Window: self.window}
        self._given: set[type] = set()
        # One for each index: a build takes others' only.
        self._locks: defaultdict[type, RLock] = defaultdict(RLock)
        self._lock, self._within = Lock(), _Within()
        self.threads = threads_for(len(trace.lanes.cpu) + len(trace.lanes.gpu))
        self.times: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"Analysis({self.trace!r}, window={self.window.asked_ns})"

    def __reduce__(self) -> tuple[Any, ...]:
        known = ("_shared", "_own", "_given", "times")
        return Analysis, (self.trace, self.window.asked_ns), {name: getattr(self, name) for name in known}

    def within(self, window: tuple[int, int] | None) -> Analysis:
        """The same trace with another window; indexes that do not depend on it are shared."""
        other = Analysis(self.trace, window)
        other._shared, other._locks = self._shared, self._locks
        return other

    def with_index(self, index: object) -> Analysis:
        """The same, where this index is known better than the trace tells; what was made of the other stays."""
        other = self.within(self.window.asked_ns)
        other._own = self._own | {type(index): frozen(index)}
        other.times = self.times
        return other

    def provide(self, index: Any) -> None:
        """An index that this trace alone could not build: what is known of it from other traces of its job."""
        self._shared[type(index)] = frozen(index)
        self._given.add(type(index))

    def forget(self, but: Sequence[type]) -> None:
        """Let go all indexes except these and those that were provided; who asks for one again has it built."""
        kept = {Trace, Window, *self._given, *but}
        for known in (self._shared, self._own):
            for kind in known.keys() - kept:
                del known[kind]

    def index(self, kind: type[I]) -> I:
        """The index of that type, built at the first call.

        Raises Unavailable: the trace lacks what the index needs; raised again at every call.
        """
        cache_of_kind = self._own if Window in all_needs(kind) else self._shared  # type: ignore[arg-type]
        if kind not in cache_of_kind:
            self._build(kind, cache_of_kind)
        built = cache_of_kind[kind]
        if isinstance(built, Unavailable):
            raise built
        return built  # type: ignore[no-any-return]

    def _build(self, kind: Any, cache_of_kind: dict[type, Any]) -> None:
        """Make the index, or wait until another thread has."""
        begun = perf_counter_ns()
        with self._lock:
            lock = self._locks[kind]
        with lock:
            self._within.ns += perf_counter_ns() - begun
            if kind in cache_of_kind:
                return
            try:
                with self.timed(kind.__name__):
                    cache_of_kind[kind] = frozen(kind.build(**self.resolve(index_needs(kind))))
            except Unavailable as reason:
                cache_of_kind[kind] = reason

    def build_all(self, kinds: Iterable[type]) -> None:
        """Make these indexes, and what they need, side by side; what is unavailable is left for who asks for it.

        Those that need most others come first: their chain is what the others are built beside.
        """
        if self.threads > 1:
            first = sorted(dict.fromkeys(kinds), key=lambda kind: (-len(all_needs(kind)), kind.__name__))
            side_by_side([partial(self._attempt, kind) for kind in first], self.threads)

    def _attempt(self, kind: type) -> None:
        with suppress(Exception):  # whoever asks for it is told
            self.index(kind)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time that the block takes to `times`, less what is timed within it."""
        begun, before = perf_counter_ns(), self._within.ns
        self._within.ns = 0
        try:
            yield
        finally:
            took = perf_counter_ns() - begun
            with self._lock:
                self.times[name] = self.times.get(name, 0) + took - self._within.ns
            self._within.ns = before + took

    def resolve(self, needs: Mapping[str, Need]) -> dict[str, Any]:
        """A value for every need. Raises Unavailable: one that is not optional cannot be built."""
        index = {True: self.index_or_none, False: self.index}
        return {name: index[need.optional](need.kind) for name, need in needs.items()}

    def index_or_none(self, kind: type[I]) -> I | None:
        """The index of that type; None where it cannot be built."""
        try:
            return self.index(kind)
        except Unavailable:
            return None
