"""The flame graph: a place in the page, and its data for the script that draws it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traceanalyzer.model.short_names import ENGINE, short_kernel, short_op
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.html.markup import Html, said, tag
from traceanalyzer.render.html.names import kernel_names
from traceanalyzer.render.html.templates import filled
from traceanalyzer.report.time_tree import WORK_KINDS, Node

_MODULE = "nn.Module: "
_ABOVE = ("module", "annotation", "op")  # kinds of frames around work
_BRANCHES = 8  # that are named without scripts
_LONGEST = 160  # characters of a name


def flame(i: int, root: Node) -> Html:
    """Where the script draws; without scripts the largest branches as a list."""
    branches = tag("ul", *map(_branch, root.inside[:_BRANCHES]))
    return filled("flame.html", {"i": i, "branches": branches, "legend": _legend(root)})


def _legend(root: Node) -> Html:
    """What the colours mean, of the kinds that are in the graph."""
    there = {one.kind for one in _nodes(root)}
    items = (
        tag("li", tag("span", class_=f"swatch f-{kind}"), kind)
        for kind in (*_ABOVE, *WORK_KINDS)
        if kind in there
    )
    more = (
        tag("li", tag("span", class_=f"swatch f-{kind}"), name)
        for kind, name in (("call", "runtime call"), ("idle", "cause of idle time"))
    )
    return tag("ul", *items, *more, class_="legend script-only")


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for one in node.inside:
        yield from _nodes(one)


def _branch(node: Node) -> Html:
    return tag("li", tag("code", short_op(node.name)), f" {format_ns(node.ns)}")


def flame_data(root: Node | None) -> dict[str, Any] | None:
    """Names once each, in full, short, and where that is neither as findings name them; nodes as lists.

    A node is [name, kind, ns, count, nodes inside].
    """
    if root is None:
        return None
    names: dict[str, int] = {}
    kinds: dict[str, int] = {}

    def node(one: Node) -> list[Any]:
        name, kind = names.setdefault(one.name, len(names)), kinds.setdefault(one.kind, len(kinds))
        return [name, kind, one.ns, one.count, [node(child) for child in one.inside]]

    tree = node(root)
    full = [said(name, _LONGEST) for name in names]
    bare = [name.removeprefix(_MODULE).removeprefix(ENGINE) for name in names]
    short = kernel_names(bare, _LONGEST)
    plain = (said(short_kernel(name)) for name in bare)
    told = {i: text for i, text in enumerate(plain) if text not in short[i] and text not in full[i]}
    return {"names": full, "shorts": short, "told": told, "kinds": list(kinds), "root": tree}
