"""What a finding saves and costs and how often it occurs, every number with its place in the JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import TraceReport
from traceanalyzer.model.step_times import Saving
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.html.markup import Html, number, pointer, tag, together
from traceanalyzer.render.html.plots import range_bar
from traceanalyzer.render.html.strip_data import Strip


@dataclass(frozen=True, slots=True)
class Card:
    """A finding, its place in the report, and the trace that it is of.

    Attributes:
        timeline: whether it is on one.
        page_of_rule: what `explain` says, or nothing; told at the `first` finding of the rule.
        anchor: where the page speaks of the trace.
        ops: name of an op -> the id of its row in the table of ops.
    """

    index: int
    finding: Finding
    trace: TraceReport
    trace_index: int
    strip: Strip | None
    several: bool
    confidential: bool
    timeline: bool
    page_of_rule: str
    first: bool
    anchor: str
    ops: Mapping[str, str]

    def at(self, *keys: object) -> str:
        """Where something of the finding stands in the JSON."""
        return pointer("diagnose", "findings", self.index, *keys)


def saving(card: Card) -> Html | None:
    """What fixing it saves, with its interval; None where that is not known."""
    found = card.finding.saving
    if found is None:
        return None
    if Severity.of(abs(found.share)) is Severity.INFO:
        return tag("p", "Fixing it saves almost nothing.", class_="saving")
    if found.share < 0:
        more = tag("data", format_ns(-found.step_ns), value=-found.step_ns, class_="derived")
        return tag("p", "Fixing it alone makes ", _step(card), " a step ", more, " longer.", class_="saving")
    bar = range_bar(found.share, found.low_share, found.high_share, "saving as a share of the step")
    return together((_saved(card, found), bar))


def _saved(card: Card, found: Saving) -> Html:
    at = card.at
    low = number(at("saving", "low_share"), found.low_share, "percent")
    high = number(at("saving", "high_share"), found.high_share, "percent")
    return tag(
        "p",
        "saves ",
        tag("strong", number(at("saving", "step_ns"), found.step_ns, "ns")),
        " of ",
        _step(card),
        " a step: ",
        tag("strong", number(at("saving", "share"), found.share, "share")),
        tag("span", " (", low, " to ", high, " %)", class_="interval"),
        class_="saving",
    )


def _step(card: Card) -> Html:
    """The step without the profiler."""
    step = card.trace.step
    if step is None:
        return Html("the time of")
    where = pointer("diagnose", "traces", card.trace_index, "step", "unprofiled_ns")
    return number(where, step.unprofiled_ns, "ns")


def cost(card: Card) -> Html | None:
    """Time that it took in the trace; None where nothing was lost."""
    finding, at = card.finding, card.at
    if not finding.cost_ns:
        return None
    per_step = (number(at("cost_per_step_ns"), finding.cost_per_step_ns, "ns"), " a step, ")
    return together(
        (
            "cost ",
            *(per_step if finding.cost_per_step_ns else ()),
            number(at("cost_ns"), finding.cost_ns, "ns"),
            " in all, ",
            number(at("cost_share"), finding.cost_share, "share"),
            " of the window",
        )
    )


def count(card: Card) -> Html:
    """`40 times in 4 steps`."""
    finding = card.finding
    times = (number(card.at("count"), finding.count, "count"), " time" + "s" * (finding.count > 1))
    steps = (" in ", number(card.at("steps"), finding.steps, "count"), " step" + "s" * (finding.steps > 1))
    return together((*times, *(steps if finding.steps else ())))
