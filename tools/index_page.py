"""docs/indexes.md: views and indexes that a rule may ask for, and where to read on. Generated from the code."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import traceanalyzer
from traceanalyzer.idle.causes import CAUSES
from traceanalyzer.model.analysis import index_needs
from traceanalyzer.rule import views
from traceanalyzer.timeline.device_work import KINDS

_ROOMS = ("timeline", "idle", "roofline", "allocator", "torch_table")

_HEAD = """# Indexes

A rule asks for indexes by the types of its parameters; `Analysis(trace).index(Kind)` gives one. Each is built once per
trace. Arrays of an index with the same shape are parallel. Times are int64 ns; -1 stands for no row, the smallest int64
for no number. `Trace` has the frames, `Window` the part of the trace that the user chose.

The docstring of each class describes its columns: follow its link. This page is generated from the code.

## Views

Views are selections of rows: `view[mask]` and `view[positions]` choose, `view.by(key)` groups. Import them from
`traceanalyzer.rule`. A view's texts have `matches(pattern)`, `one_of(names)`, `sums(values)` and `or_else(texts)`.
For neighbouring rows take `view.in_order()` and `starts_of_runs` of `model/arrays.py`, which has other helpers without
loops; leave out calls that only query (`QUERY` of `timeline/names.py`). Idle time after a wait, up to the next launched
work: `LostTime.launched_within(idle, starts_ns, work.launch.next_start_ns(ends_ns) + 1)`.

| view | rows | properties and methods |
|---|---|---|
"""

_INDEXES = """
`Work.kind` is one of {kinds}. `IdleTime.cause` is one of {causes};
[accounting.md](accounting.md) explains them.

## Indexes

| index | what it holds | columns | built from |
|---|---|---|---|
"""


def index_page() -> str:
    """The whole page as Markdown."""
    shown = [_view_row(getattr(views, name)) for name in views.__all__]
    named = {"kinds": ", ".join(f"`{kind}`" for kind in KINDS), "causes": ", ".join(f"`{cause}`" for cause in CAUSES)}
    kinds = sorted(all_indexes(), key=lambda kind: (kind.__module__.split(".")[1], kind.__name__))
    return _HEAD + "".join(shown) + _INDEXES.format(**named) + "".join(map(_index_row, kinds))


def all_indexes() -> list[type]:
    """Every dataclass of the package that has a `build` and declares what it needs."""
    indexes: dict[str, type] = {}
    for module in _modules():
        for name, kind in vars(module).items():
            if not isinstance(kind, type) or kind.__module__ != module.__name__:
                continue
            if hasattr(kind, "__dataclass_fields__") and inspect.ismethod(getattr(kind, "build", None)):
                indexes[name] = kind
    return list(indexes.values())


def columns(kind: type) -> list[str]:
    """Names of the public attributes of an index, in the order of its fields.

    Raises:
        ValueError: one is not described in the docstring.
    """
    names = [field.name for field in fields(kind) if not field.name.startswith("_")]
    described = "".join(inspect.cleandoc(base.__doc__ or "") for base in kind.__mro__[:-1])
    if missing := [name for name in names if name not in described]:
        raise ValueError(f"{kind.__name__}.{missing[0]} is not in the docstring's Attributes")
    return names


def _modules() -> Iterator[Any]:
    for room in _ROOMS:
        package = importlib.import_module(f"{traceanalyzer.__name__}.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(module.name)


def _view_row(kind: type) -> str:
    bases = [base for base in reversed(kind.__mro__) if base.__module__.startswith("traceanalyzer.")]
    members = {name: member for base in bases for name, member in vars(base).items()}
    names = [
        f"`{name}`" if isinstance(member, property) else f"`{name}(...)`"
        for name, member in members.items()
        if not name.startswith("_") and (isinstance(member, property) or inspect.isfunction(member))
    ]
    return f"| {_link(kind)} | {_first_sentence(kind)} | {', '.join(names)} |\n"


def _index_row(kind: type) -> str:
    needs = index_needs(kind).values()
    built_from = ", ".join(f"{need.kind.__name__}{' or none' if need.optional else ''}" for need in needs)
    names = ", ".join(f"`{name}`" for name in columns(kind))
    return f"| {_link(kind)} | {_first_sentence(kind)} | {names} | {built_from} |\n"


def _link(kind: type) -> str:
    return f"[{kind.__name__}](../{kind.__module__.replace('.', '/')}.py)"


def _first_sentence(kind: type) -> str:
    first = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split("\nAttributes:")[0]
    return " ".join(first.split()).split(". ")[0].rstrip(".:").replace("|", "\\|")
