"""Limits of rules: numbers with their unit in the name, and where each comes from."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from traceanalyzer.model.units import format_bytes, format_ns, format_share

LEAST_NS = 100  # of a limit: what is shorter was meant as µs or ms; the shortest that a rule has is 800 ns
_CHOSEN = "; chosen"
_FORMS = {"ns": format_ns, "bytes": format_bytes, "share": format_share}


@dataclass(frozen=True, slots=True)
class LimitInfo:
    """One limit of a rule, as `explain` prints it; `source` is empty where none is given."""

    name: str
    value: int | float
    source: str

    @property
    def explained(self) -> str:
        """What the number is for and where it comes from, in a sentence: `chosen` says that nobody measured it."""
        return self.source.replace(_CHOSEN, " (set by judgement, not measured)")

    @property
    def shown(self) -> str:
        """The value with its unit, `2.00 µs`; empty where the name has none."""
        words = self.name.split("_")
        form = _FORMS.get("share" if "share" in words else words[-1])
        return form(self.value) if form else ""


def limits_of(limits: Any) -> Iterator[LimitInfo]:
    """Every limit in the order of declaration, of an instance of a rule's `Limits`, or of None for a rule without."""
    sources = {} if limits is None else _sentences(type(limits))
    for declared in fields(limits) if limits is not None else ():
        yield LimitInfo(declared.name, getattr(limits, declared.name), sources.get(declared.name, ""))


def _sentences(kind: type) -> dict[str, str]:
    """The sentence below each field of a class, which Python itself does not keep; by the field's name."""
    try:
        text = textwrap.dedent(inspect.getsource(kind))
    except OSError:  # an installation without its sources
        return {}
    declared: Any = ast.parse(text).body[0]
    return {
        named.target.id: " ".join(ast.literal_eval(below.value).split())
        for named, below in pairwise(declared.body)
        if isinstance(below, ast.Expr)
    }
