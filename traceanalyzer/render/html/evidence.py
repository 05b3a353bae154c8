"""What a finding saves and costs and how often it occurs, every number with its place in the JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import TraceReport
from traceanalyzer.model.short_names import short_ops
from traceanalyzer.model.step_times import Saving
from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.render.html.markup import (
    Html,
    code,
    number,
    pointer,
    quoted,
    said,
    scrolled,
    tag,
    together,
)
from traceanalyzer.render.html.plots import range_bar
from traceanalyzer.render.html.strip_data import Strip

_MOST, _MOST_PARTS = 12, 5  # rows; parts of one sum
_UNITS = {"_ns": "ns", "_bytes": "bytes", "_share": "share"}
_SAID = {"count", "total_ns", "per_step_ns", "share", "steps", "by"}  # above it already
# What the field calls it, where the name alone does not say.
_WORDS = {
    "all_ns": "all collectives",
    "each_ns": "of each, mean",
    "gbps": "GB/s",
    "gpu_ns": "GPU time",
    "gpu_share": "of GPU time",
    "late": "comes last",
    "late_share": "holds up the others, of the step",
    "lines": "functions (first line)",
    "link_gbps": "GB/s of the link",
    "loop_part": "of the launches in the loop",
    "mean_ns": "mean work of all ranks",
    "others_ns": "work of the others",
    "own_ns": "its own work",
    "part_share": "of the step",
    "sms": "multiprocessors",
    "took_ns": "time in these collectives",
    "typical_ns": "typical duration",
}
_SHARES = {"loop_part"}  # whose name does not end so


def evidence(card: Card) -> Html | None:
    """The numbers that the message was made of, by their names."""
    rows = list(_rows(card))[:_MOST]
    if not rows:
        return None
    body = [
        tag("tr", tag("th", said(_in_words(name), 200), scope="row"), tag("td", value))
        for name, value in rows
    ]
    table = tag("table", tag("caption", "Evidence"), *body, class_="evidence")
    return scrolled(f"Evidence of finding {card.index + 1}", table)


def _rows(card: Card) -> Iterator[tuple[str, Html]]:
    """(name, number, text or parts of a sum); lists are left to the JSON."""
    for name, value in card.finding.evidence.items():
        if name in _SAID:
            continue
        if isinstance(value, Mapping):
            if value and all(isinstance(one, int | float) for one in value.values()):
                yield name, _parts(card, value)
        elif isinstance(value, str) and value and not value.startswith(","):  # else a part of the message
            yield name, quoted(card.at("evidence", name), value)
        elif isinstance(value, int | float):
            yield name, number(card.at("evidence", name), value, _unit(name, value))


def _parts(card: Card, sums: Mapping[str, float]) -> Html:
    """The largest parts with their shares; ops lead to their rows."""
    whole = sum(sums.values()) or 1
    largest = sorted(sums.items(), key=lambda part: -part[1])[:_MOST_PARTS]
    parts = (
        tag("li", linked(card, str(name)), " ", tag("data", format_share(value / whole), value=value))
        for name, value in largest
    )
    more = len(sums) - len(largest)
    return tag("ul", *parts, tag("li", f"and {more} more") if more else None, class_="derived")


def linked(card: Card, name: str) -> Html:
    """A name; that of an op in the table of ops leads there."""
    shown = code(said(short_ops(name), 160))
    anchor = card.ops.get(name)
    return tag("a", shown, href=f"#{anchor}") if anchor else together((shown,))


def _in_words(name: str) -> str:
    """`largest_gap_ns` as `largest gap`: its value says the unit."""
    if name in _WORDS:
        return _WORDS[name]
    ends = (name.removesuffix(end) for end in _UNITS if name.endswith(end))
    return next(ends, name).replace("_", " ")


def _unit(name: str, value: float) -> str:
    """By the end of the name, as everywhere."""
    if isinstance(value, bool):
        return "number"
    found = next((unit for end, unit in _UNITS.items() if name.endswith(end)), None)
    if name in _SHARES:
        return "share"
    return found or ("number" if isinstance(value, float) else "count")


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
