"""Findings as cards: those to fix, what is worth knowing, and the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceanalyzer.model.finding import Finding, Severity, Status
from traceanalyzer.render.html.amounts import Card
from traceanalyzer.render.html.card import card_of
from traceanalyzer.render.html.markup import (
    Html,
    prose,
    quoted,
    scrolled,
    tag,
    together,
)
from traceanalyzer.render.html.page_data import Page
from traceanalyzer.report.finding_order import triage

_MOST_CARDS, _MOST_LINES = 40, 120  # findings as cards, and further ones as lines of a table
_SMALL = "Too small to act on, or profiler overhead"


def cards(page: Page) -> Html:
    """All findings: those to fix, what is worth knowing, and last what the text has in its footer."""
    every = list(_cards(page))
    counted = triage(page.report).others
    every, rest = every[:_MOST_CARDS], every[_MOST_CARDS:]
    wrong = [card for card in every if card.finding.severity is not Severity.INFO]
    info = [card for card in every if card.finding.severity is Severity.INFO]
    known = [card for card in info if card.index + 1 in counted]
    small = [card for card in info if card.index + 1 not in counted]
    nothing = tag("p", *_nothing(page), class_="nothing")
    parts = [_list(wrong) if wrong else nothing]
    for heading, group in (("Worth knowing: no certain gain", known), (_SMALL, small)):
        if group:
            parts += [tag("h3", heading, class_="known"), _list(group)]
    return together((_choice(page), *parts, _lines(rest) if rest else None))


def _choice(page: Page) -> Html | None:
    """Of a job: whose findings are shown; a rank's own stand back."""
    if page.report.job is None:
        return None
    found = page.report.findings
    options = [("all", f"all ({len(found)})"), ("job", f"the job ({sum(map(_of_job, found))})")]
    ranks = sorted({rank for finding in found for rank in _ranks_of(finding)})
    options += [
        (str(rank), f"rank {rank} ({sum(finding.is_of(rank) for finding in found)})") for rank in ranks
    ]
    listed = (tag("option", text, value=value, selected=value == "job") for value, text in options)
    chosen = tag("select", *listed, id="whose", autocomplete="off")
    hidden = tag("output", id="hidden")
    show = tag("button", "Show", type="button", id="show-hidden", hidden=True)
    return tag("p", tag("label", "Findings of ", chosen), hidden, show, class_="script-only tools drawn")


def _of_job(finding: Finding) -> bool:
    """Whether it is worth a fix, or concerns several ranks."""
    return finding.severity is not Severity.INFO or len(finding.ranks) > 1


def _ranks_of(finding: Finding) -> Sequence[int]:
    return finding.ranks or ((finding.rank,) if finding.rank is not None else ())


def _lines(rest: Sequence[Card]) -> Html:
    """Findings beyond those that are cards."""
    rows = (
        tag(
            "tr",
            tag("th", f"{card.index + 1} ", quoted(card.at("rule"), card.finding.rule), scope="row"),
            tag("td", str(card.finding.severity)),
            tag("td", f"rank {card.finding.rank}" if card.several else ""),
            tag("td", prose(card.at("message"), card.finding.message)),
            id=f"finding-{card.index + 1}",
        )
        for card in rest[:_MOST_LINES]
    )
    head = tag(
        "tr", *(tag("th", name, scope="col") for name in ("finding", "severity", "rank", "what was found"))
    )
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="lines")
    left = len(rest) - _MOST_LINES
    note = tag("p", f"{left} more are in the JSON of diagnose.", class_="note drawn") if left > 0 else None
    return together((tag("h3", "More findings", class_="known"), scrolled("More findings", table), note))


def _nothing(page: Page) -> tuple[object, ...]:
    """That nothing was found, or that nobody could look: the verdict says why."""
    if any(trace.accounting for trace in page.report.traces):
        return ("Nothing found that is worth fixing.",)
    outcomes = page.report.outcomes
    looked = sum(one.status is not Status.NOT_APPLICABLE for one in outcomes)
    count = tag("span", f"{len(outcomes) - looked} of {len(outcomes)} rules", class_="derived")
    return (count, " had nothing to look at.")


def _list(group: Sequence[Card]) -> Html:
    """Cards with the numbers that other outputs give them."""
    items = (
        tag(
            "li",
            card_of(card),
            value=card.index + 1,
            data_ranks=" ".join(map(str, _ranks_of(card.finding))) if card.several else None,
            data_job=card.several and _of_job(card.finding),
        )
        for card in group
    )
    return tag("ol", *items, class_="cards")


def _cards(page: Page) -> Iterator[Card]:
    places = {trace.rank: i for i, trace in enumerate(page.report.traces)}
    several = len(places) > 1
    told: set[str] = set()
    ops = [
        {row.name: f"op-{i}-{place}" for place, row in enumerate(trace.ops.rows if trace.ops else ())}
        for i, trace in enumerate(page.traces)
    ]
    for i, (finding, strip) in enumerate(zip(page.report.findings, page.strips, strict=True)):
        at = places[finding.rank]
        there = page.traces[at].timeline is not None
        yield Card(
            i,
            finding,
            page.report.traces[at],
            at,
            strip,
            several,
            page.confidential,
            there,
            page.explained.get(finding.rule, ""),
            finding.rule not in told,
            page.anchor(at),
            ops[at],
        )
        told.add(finding.rule)
