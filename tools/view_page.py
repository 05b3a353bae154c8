"""The part of docs/indexes.md on what rules see: properties and methods of each view, with type and first line."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from traceanalyzer.rule import views

_HEAD = """## What rules see

Selections of rows that know their op, line, step and device. `Rows` is int64 of shape (rows,), `Mask` bool of that
shape, `Texts` the same as text with nulls. `view[mask]` and `view[positions]` choose rows."""


def views_part() -> str:
    """Markdown: a table per view."""
    kinds = [getattr(views, name) for name in views.__all__]
    return "\n\n".join([_HEAD, *map(_section, kinds)])


def _section(kind: type) -> str:
    title = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    rows = [_row(*member) for member in members_of(kind)]
    return "\n".join([f"### {kind.__name__}", "", title, "", "| | type | meaning |", "|---|---|---|", *rows])


def members_of(kind: type) -> Iterator[tuple[str, str, str]]:
    """(name or call, type, meaning) of public properties and methods, those of its bases first."""
    own = [base for base in reversed(kind.__mro__) if base.__module__.startswith("traceanalyzer.")]
    for name, member in {name: member for base in own for name, member in vars(base).items()}.items():
        if name.startswith("_"):
            continue
        if isinstance(member, property) and member.fget is not None:
            yield name, _returned(member.fget), _first_line(member)
        elif inspect.isfunction(member):
            parameters = list(inspect.signature(member).parameters.values())[1:]
            yield f"{name}({', '.join(map(str, parameters))})", _returned(member), _first_line(member)


def _returned(function: object) -> str:
    return str(inspect.get_annotations(function).get("return", ""))  # type: ignore[arg-type]


def _first_line(member: object) -> str:
    return (inspect.getdoc(member) or "").partition("\n\n")[0].replace("\n", " ")


def _row(name: str, kind: str, meaning: str) -> str:
    name, kind = name.replace("'", ""), kind.replace("'", "")  # annotations that are texts
    name, kind, meaning = (text.replace("|", "\\|") for text in (name, kind, meaning))
    return f"| `{name}` | `{kind}` | {meaning} |"
