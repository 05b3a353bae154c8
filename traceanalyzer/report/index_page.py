"""The page of indexes: what rules can ask for, with every column's type, and what each is made of.

Made from the code: signatures of `build`, attributes in docstrings, properties and methods with their first lines.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import fields as fields_of
from dataclasses import is_dataclass

from traceanalyzer.model.analysis import depends_on_window, index_needs

ROOMS = {
    "rule.views": "what rules see",
    "timeline": "what happened",
    "idle": "why nothing ran",
    "replay": "what if",
    "roofline": "how near to the peak",
    "allocator": "memory",
    "torch_table": "the profiler's own table",
    "job": "many ranks",
}
_ATTRIBUTES = re.compile(r"^Attributes:\n((?:[ \t]+.*\n?|\n)*)", re.MULTILINE)
_ATTRIBUTE = re.compile(r"^ {4}(\w[\w, ]*): (.*(?:\n {8,}.*)*)", re.MULTILINE)


def index_page() -> str:
    """Markdown: a section per room, a table per index."""
    parts = []
    for room, title in ROOMS.items():
        found = list(indexes_of(room))
        if found:
            parts += [f"## {room.replace('.', '/')}: {title}", *map(_section, found)]
    return "\n\n".join(parts) + "\n"


def indexes_of(room: str) -> Iterator[type]:
    """Every index that is defined in a package below `traceanalyzer`, by name; none where there is no such package."""
    try:
        package = importlib.import_module(f"traceanalyzer.{room}")
    except ModuleNotFoundError:
        return
    names = [info.name for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    members = [vars(importlib.import_module(name)).items() for name in names]
    found = {
        name: kind
        for module, items in zip(names, members, strict=True)
        for name, kind in items
        if inspect.isclass(kind) and kind.__module__ == module and "build" in vars(kind)
    }
    yield from (found[name] for name in sorted(found))


def _section(index: type) -> str:
    title = inspect.cleandoc(index.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    table = ["| | type | |", "|---|---|---|", *map(_row, _members(index))]
    return "\n\n".join([f"### `{index.__name__}`", title, _made_of(index), "\n".join(table)])


def _made_of(index: type) -> str:
    needs = [
        f"`{need.kind.__name__}`{' (may be missing)' if need.optional else ''}"
        for need in index_needs(index).values()
    ]
    window = "depends on the window" if depends_on_window(index) else "one for all windows"
    return f"Made of {', '.join(needs) or 'nothing'}; {window}."


def _row(member: tuple[str, str, str]) -> str:
    name, kind, meaning = (text.replace("|", "\\|") for text in member)
    return f"| `{name}` | {f'`{kind}`' if kind else ''} | {meaning} |"


def _members(index: type) -> Iterator[tuple[str, str, str]]:
    """(name, type, meaning) of fields, properties and methods, in the order of the code."""
    described = _described(index)
    if is_dataclass(index):
        yield from ((one.name, str(one.type), described.get(one.name, "")) for one in fields_of(index))
    own = [kind for kind in reversed(index.__mro__) if kind.__module__.startswith("traceanalyzer.")]
    members = {name: member for kind in own for name, member in vars(kind).items()}
    for name, member in members.items():
        if name.startswith("_"):
            continue
        if isinstance(member, property) and member.fget is not None:
            yield name, _returned(member.fget), _first_line(member)
        elif inspect.isfunction(member):
            signature = inspect.signature(member)
            shown = ", ".join(str(one) for one in list(signature.parameters.values())[1:])
            yield f"{name}({shown})".replace("'", ""), _returned(member), _first_line(member)


def _described(index: type) -> dict[str, str]:
    """What the docstring says of each attribute; several may share a line."""
    section = _ATTRIBUTES.search(inspect.cleandoc(index.__doc__ or ""))
    if section is None:
        return {}
    said = _ATTRIBUTE.findall(section[1])
    return {name.strip(): " ".join(text.split()) for names, text in said for name in names.split(",")}


def _returned(function: object) -> str:
    return str(inspect.get_annotations(function).get("return", "")).strip("'")  # type: ignore[arg-type]


def _first_line(member: object) -> str:
    return (inspect.getdoc(member) or "").partition("\n\n")[0].replace("\n", " ")
