"""Limits of rules: numbers with their unit in the name, and where each comes from."""

from collections.abc import Iterator
from dataclasses import field, fields
from typing import Any, TypeVar

from traceanalyzer.model.records import dataclass
from traceanalyzer.model.units import format_bytes, format_ns, format_share

Number = TypeVar("Number", int, float)

LEAST_NS = 100  # of a limit: what is shorter was meant as µs or ms; the shortest that a rule has is 800 ns
_SOURCE = "source"
_CHOSEN = "; chosen"
_FORMS = {"ns": format_ns, "bytes": format_bytes, "share": format_share}


def limit(default: Number, source: str) -> Number:
    """A field of a rule's `Limits`: `min_gap_ns: int = limit(2_000, "shortest gap on an H200, torch 2.11")`.

    Args:
        default: the number in force where the user sets none.
        source: where the number comes from: trace, GPU, torch version, data sheet or formula.
    """
    declared: Any = field(default=default, metadata={_SOURCE: source})
    return declared  # type: ignore[no-any-return]


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
    """Every limit in the order of declaration; `limits` is a dataclass instance, or None for a rule without."""
    for declared in fields(limits) if limits is not None else ():
        yield LimitInfo(declared.name, getattr(limits, declared.name), declared.metadata.get(_SOURCE, ""))
