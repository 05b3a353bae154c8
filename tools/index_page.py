"""docs/indexes.md: every index that a rule may ask for, with its columns and what it is built from.

All of it comes from the code: needs from the signature of `build`, dtypes from the annotations, the rest from the
docstring of the class.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import textwrap
import typing
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

import traceanalyzer
from tools.view_page import views_part
from traceanalyzer.model.analysis import Window, depends_on_window, index_needs
from traceanalyzer.model.trace import Trace

_ROOMS = ("timeline", "idle", "roofline", "allocator", "torch_table")
_ENTRY = re.compile(r"^(\w+(?:, \w+)*): (.*)$")
_SHAPE = re.compile(r"\((\w+(?: \+ \d+)?),\)")
_UNITS = {"ns": "ns", "bytes": "bytes", "gbps": "GB/s", "tflops": "TFLOP/s", "share": "0 to 1"}


@dataclass(frozen=True, slots=True)
class Column:
    """One attribute of an index, as texts; empty where there is nothing to say."""

    name: str
    dtype: str
    shape: str
    unit: str
    meaning: str


def index_page() -> str:
    """The whole page as Markdown."""
    kinds = sorted(all_indexes(), key=lambda kind: (_room(kind), kind.__name__))
    parts = [
        _HEAD,
        views_part(),
        "\n## Indexes by room\n",
        "| index | room | in one line | needs |",
        "|---|---|---|---|",
    ]
    parts += [
        f"| [{k.__name__}](#{k.__name__.lower()}) | {_room(k)} | {_title(k)} | {_needs(k)} |" for k in kinds
    ]
    return "\n".join([*parts, *(_section(kind) for kind in kinds)]) + "\n"


def all_indexes() -> list[type]:
    """Every class of the package that has a `build` and declares what it needs."""
    found: dict[str, type] = {}
    for module in _modules():
        for name, kind in vars(module).items():
            if not isinstance(kind, type) or kind.__module__ != module.__name__:
                continue
            if hasattr(kind, "__dataclass_fields__") and inspect.ismethod(getattr(kind, "build", None)):
                found[name] = kind
    return list(found.values())


def columns(kind: type) -> list[Column]:
    """The attributes of an index in the order of its fields.

    Raises:
        ValueError: a field is not described in the docstring.
    """
    told, shape = _described(kind)
    hints = typing.get_type_hints(kind)
    made = []
    for field in fields(kind):
        if field.name.startswith("_"):
            continue
        if hints[field.name] in (Trace, Window) or hasattr(hints[field.name], "build"):
            told.setdefault(field.name, "the index")
        if field.name not in told:
            raise ValueError(f"{kind.__name__}.{field.name} is not in the docstring's Attributes")
        made.append(_column(field.name, hints[field.name], told[field.name], shape))
    return made


def _modules() -> Iterator[Any]:
    for room in _ROOMS:
        package = importlib.import_module(f"{traceanalyzer.__name__}.{room}")
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


def _room(kind: type) -> str:
    return kind.__module__.split(".")[1]


def _title(kind: type) -> str:
    first = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split("\nAttributes:")[0]
    return " ".join(first.split()).split(". ")[0].rstrip(".:")


def _needs(kind: type) -> str:
    needs = index_needs(kind).values()
    return ", ".join(f"{need.kind.__name__}{' or none' if need.optional else ''}" for need in needs)


def _section(kind: type) -> str:
    uses = "the part of the trace that was asked for" if depends_on_window(kind) else "the whole trace"
    rows = [_row(f"`{c.name}`", c.dtype, c.shape, c.unit, c.meaning) for c in columns(kind)]
    text = textwrap.fill(_prose(kind), 120)
    head = f"\n## {kind.__name__}\n\n`from {kind.__module__} import {kind.__name__}`; of {uses}; needs {_needs(kind)}."
    return "\n".join(
        [head, "", text, "", "| column | dtype | shape | unit | meaning |", "|---|---|---|---|---|", *rows]
    )


def _row(*cells: str) -> str:
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


def _prose(kind: type) -> str:
    before, _, _ = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:")
    return " ".join(before.split())


def _described(kind: type) -> tuple[dict[str, str], str]:
    """(attribute -> what its docstring says, shape of arrays where the docstring says one for all)."""
    before = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[0]
    shape = _SHAPE.search(before)
    listed = [inspect.cleandoc(base.__doc__ or "") for base in reversed(kind.__mro__[:-1])]
    told: dict[str, str] = {}
    for text in listed:
        told |= _entries(text.partition("Attributes:\n")[2])
    return told, f"({shape[1]},)" if shape else ""


def _entries(listed: str) -> dict[str, str]:
    """What a docstring's list of attributes says of each; several may share an entry."""
    told: dict[str, str] = {}
    current: list[str] = []
    for line in textwrap.dedent(listed).splitlines():
        entry = _ENTRY.match(line)
        if entry:
            current = entry[1].split(", ")
            told |= dict.fromkeys(current, entry[2])
        elif line.startswith(" "):
            told |= {name: f"{told[name]} {line.strip()}" for name in current}
        else:
            current = []
    return told


def _column(name: str, hint: Any, told: str, shape: str) -> Column:
    dtype = _dtype(hint)
    own = _SHAPE.search(told)
    of_array = dtype.startswith(("int", "float", "bool", "uint")) and _of_array(hint) is not None
    meaning = re.sub(r"^(?:u?int64|float64|bool)(?: of shape)?(?: \([^)]*\))?[,;]? ?", "", told)
    unit = next((unit for end, unit in _UNITS.items() if name.endswith(f"_{end}") or name == end), "")
    return Column(
        name=name,
        dtype=dtype,
        shape=(f"({own[1]},)" if own else shape) if of_array or own else "",
        unit=unit,
        meaning="" if meaning in ("", ".") else meaning.replace("|", "\\|"),
    )


def _dtype(hint: Any) -> str:
    """`int64` for an array, else the type as it is written."""
    if (array := _of_array(hint)) is not None:
        return array
    if isinstance(hint, type) and not typing.get_args(hint):
        return hint.__name__
    text = str(hint)
    for part, of in _arrays_in(hint):
        text = text.replace(str(part), f"{of} array")
    text = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)
    return text.replace("|", "\\|")


def _of_array(hint: Any) -> str | None:
    """Name of the array's dtype, None where it is no array.

    `NDArray[...]` is what it stands for, and from numpy 2.5 and Python 3.12 on an alias of its own.
    """
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if origin is np.ndarray:
        members = typing.get_args(members[1])
    elif origin is not NDArray:
        return None
    return getattr(members[0], "__name__", "object").rstrip("_") if members else "object"


def _arrays_in(hint: Any) -> Iterator[tuple[Any, str]]:
    """The arrays among what a type is made of, and their dtypes."""
    for part in typing.get_args(hint):
        if (of := _of_array(part)) is not None:
            yield part, of
        else:
            yield from _arrays_in(part)


_HEAD = f"""# Indexes

What a rule may ask for: each is built once per trace, from the trace and from other indexes, when somebody needs it.
A rule names them as parameters by type; `Analysis(trace).index(Kind)` gives one. All arrays of an index are parallel
where they have the same shape. Times are int64 ns as in the frames; -1 stands for no row, and the smallest int64 for
no number. `{Window.__name__}` is the part of the trace that was asked for, `{Trace.__name__}` the frames.

This page is generated from the code.
"""
