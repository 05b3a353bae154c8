"""A fact: something true of the trace that is nobody's fault, with the events that show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from traceanalyzer.model.arrays import pick
from traceanalyzer.model.trace import ints
from traceanalyzer.rule.views import Calls, Work

Value = int | float | str | None


@dataclass(frozen=True, slots=True)
class Fact:
    """One statement.

    Attributes:
        name: kebab-case kind; several facts may have the same.
        text: one sentence.
        values: the numbers and names in it, units in their names; shares are 0 to 1.
        event_ids: events to look at, the outermost first.
    """

    name: str
    text: str
    values: Mapping[str, Value] = field(default_factory=dict)
    event_ids: tuple[int, ...] = ()


Facts = Iterator[Fact]


def ids_of(*views: Calls | Work) -> tuple[int, ...]:
    """Event ids of all rows of some views, in their order, each once."""
    found: list[int] = []
    for view in views:
        trace = view.events.trace
        if isinstance(view, Calls):
            found += pick(ints(trace.lanes.cpu, "event_id"), view.rows).tolist()
        elif view.events.work is not None:
            found += ints(trace.lanes.gpu, "event_id")[view.events.work.row[view.entries]].tolist()
    return tuple(dict.fromkeys(event for event in found if event >= 0))
