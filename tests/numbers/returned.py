"""What functions return while something is done, as one digest each: numbers that no document shows are among them.

Of each function the distinct values of its first calls count, in whatever order; of one that returns nothing, what its
arguments are then. Sentences count by their numbers, floats to nine digits, and what is no value by its type.
"""

from __future__ import annotations

import hashlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from importlib import import_module
from inspect import CO_VARARGS, CO_VARKEYWORDS
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pandas as pd

import traceanalyzer

_ROOT = Path(traceanalyzer.__file__).parent
_WITHIN = (
    *("replay", "idle", "timeline", "job", "report", "roofline", "read", "comparison", "allocator"),
    *("torch_table", "render.data", "render.perfetto", "render.text", "model"),
)
_LEFT_OUT = (
    *("model.analysis", "model.threads", "model.garbage", "model.lazy", "report.workers", "report.rank_pool"),
    *("read.cache", "read.remote", "read.parallel", "render.perfetto.archive", "report.of_job._worth"),
)  # go by the clock, the machine, what is kept or the order of a set
_PACKAGES = tuple(f"{one}." for one in _WITHIN)
_CALLS = 12  # of one function in one piece of work
_DEEP = 4
_LONGEST = 150  # of a list or an array: of longer ones every so manieth value
_CHANGING = ("EditedProgram", "ndarray")
_TEXT = 400  # of a text
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?")
_PATH = re.compile(r"\S*/\S*\.json\S*")


class Returned:
    """Function -> hashes of what it returned, over all that was done."""

    def __init__(self) -> None:
        self._names: dict[CodeType, str | None] = {}
        self._values: dict[str, set[str]] = {}
        self._calls: dict[str, int] = {}
        _forget()

    @contextmanager
    def of(self, _: str) -> Iterator[None]:
        """What is done within counts."""
        self._calls = {}
        self._kept: dict[int, tuple[Any, str]] = {}
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def digests(self) -> dict[str, str]:
        """Function -> eight hex digits, and how many distinct values."""
        return {
            name: f"{hashlib.sha256(repr(sorted(values)).encode()).hexdigest()[:8]} {len(values)}"
            for name, values in sorted(self._values.items())
        }

    def _called(self, frame: FrameType, _: str, __: Any) -> Callable[[FrameType, str, Any], Any] | None:
        """Looks at the first calls of what counts, and at their ends only."""
        code = frame.f_code
        if code not in self._names:
            self._names[code] = _name(code)
        name = self._names[code]
        if name is None or self._calls.get(name, 0) >= _CALLS:
            return None
        self._calls[name] = self._calls.get(name, 0) + 1
        frame.f_trace_lines = False
        return self._seen

    def _seen(self, frame: FrameType, event: str, value: Any) -> None:
        if event != "return":
            return
        code = frame.f_code
        sys.settrace(None)  # what is called to look at the value is none of the work
        try:
            said = self._said(
                [frame.f_locals.get(one) for one in _arguments(code)] if value is None else value
            )
            self._values.setdefault(self._names[code] or "", set()).add(
                hashlib.blake2b(said.encode(errors="backslashreplace"), digest_size=8).hexdigest()
            )
        finally:
            sys.settrace(self._called)

    def _said(self, value: Any) -> str:
        """As `_said`; what does not change, or seldom, is looked at once."""
        if isinstance(value, list):
            return " ".join(map(self._said, value[:_LONGEST]))
        if not is_dataclass(value) and not isinstance(value, pd.DataFrame | pd.Series | np.ndarray | tuple):
            return _said(value, _DEEP)
        if id(value) not in self._kept or type(value).__name__ in _CHANGING:
            self._kept[id(value)] = value, _said(value, _DEEP)  # kept, so that no other has its id
        return self._kept[id(value)][1]


def _name(code: CodeType) -> str | None:
    """Module and name of a function that counts."""
    path = Path(code.co_filename)
    if "<" in code.co_name or not path.is_relative_to(_ROOT):
        return None
    module = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
    name = f"{module}.{code.co_qualname}".replace(".<locals>", "")
    return name if module.startswith(_PACKAGES) and not {module, name}.intersection(_LEFT_OUT) else None


def _arguments(code: CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return code.co_varnames[:count]


def _said(value: Any, deep: int) -> str:
    """The same in each run and on each machine."""
    if isinstance(value, str):
        value = value[:_TEXT]
        words = value.split()
        return (
            repr(value)
            if len(words) == 1 and "/" not in value
            else repr(_NUMBER.findall(_PATH.sub("", value)))
        )
    if isinstance(value, bool | np.bool_ | int | np.integer) or value is None:
        return str(value)
    if isinstance(value, float | np.floating):
        return "0" if abs(value) < 1e-9 else f"{value:.9g}"
    if deep == 0:
        return type(value).__name__
    if isinstance(value, np.ndarray):
        return f"{value.shape}{_array(value, deep)}"
    if isinstance(value, pd.DataFrame):
        return _said({str(name): value[name] for name in value.columns}, deep)
    if isinstance(value, pd.Series | pd.Index | pd.Categorical):
        return _said(value.tolist(), deep)
    if isinstance(value, list | tuple):
        return (
            f"[{len(value)} {' '.join(_said(one, deep - 1) for one in value[:: 1 + len(value) // _LONGEST])}]"
        )
    if isinstance(value, set | frozenset):
        return f"{{{' '.join(sorted(_said(one, deep - 1) for one in value))}}}"
    if isinstance(value, Mapping):
        return (
            f"{{{' '.join(sorted(f'{_said(key, 1)}={_said(one, deep - 1)}' for key, one in value.items()))}}}"
        )
    if is_dataclass(value) and not isinstance(value, type):
        return (
            f"{type(value).__name__}{_said([getattr(value, one.name, None) for one in fields(value)], deep)}"
        )
    return type(value).__name__


def _array(value: np.ndarray, deep: int) -> str:
    """Of numbers the bytes, floats with 30 bits, which are nine digits."""
    if value.dtype.kind in "biu":
        return hashlib.blake2b(value.astype("<i8").tobytes(), digest_size=8).hexdigest()
    if value.dtype.kind == "f":
        part, power = np.frexp(np.where(np.abs(value) < 1e-9, 0.0, value.astype(np.float64)))
        kept = np.ldexp(np.round(part * 2.0**30), power - 30) + 0.0  # no negative nought
        return hashlib.blake2b(kept.astype("<f8").tobytes(), digest_size=8).hexdigest()
    return _said(value.ravel().tolist(), deep) if value.dtype.names is None else "records"


def _forget() -> None:
    """What functions of plain values have kept from earlier calls."""
    for info in pkgutil.walk_packages(traceanalyzer.__path__, "traceanalyzer.", lambda _: None):
        if f"{info.name.partition('.')[2]}.".startswith(_PACKAGES):
            for one in vars(import_module(info.name)).values():
                clear: Callable[[], None] | None = getattr(one, "cache_clear", None)
                if clear is not None and not isinstance(one, type):
                    clear()
