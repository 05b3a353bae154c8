"""Findings as cards: what is wrong, what fixing it saves, where to look, and how to look closer."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from traceanalyzer.model.finding import Severity, Status
from traceanalyzer.model.offsets import format_offset
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.html.amounts import Card, cost, count, saving
from traceanalyzer.render.html.markup import (
    UNITS,
    Html,
    breakable,
    number,
    pointer,
    prose,
    quoted,
    said,
    scrolled,
    tag,
    together,
)
from traceanalyzer.render.html.strips import legend, strip_svg
from traceanalyzer.render.text.page import joined_units
from traceanalyzer.report.apart import apart
from traceanalyzer.report.page.page import Page
from traceanalyzer.report.page.strip import Earlier, Strip

MARKS = {Severity.HIGH: "▲", Severity.MEDIUM: "◆", Severity.LOW: "●", Severity.INFO: "○"}
_MOST_EVIDENCE = 14  # lines of it
_SAID = {"count", "total_ns", "per_step_ns", "share", "steps", "by"}  # above it already
_SMALL = "Too little to act on, or the profiler’s own"
# What reads like code: `torch.compile(model)`, `non_blocking=True`, `aten::item`.
_CODE = re.compile(
    r"\b[A-Za-z_][\w.]*\([^()\n]*\)|\b[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)+|\b\w+=(?:True|False|None|\d+)\b"
)
_OPEN = 1  # cards whose timeline is shown at once


def cards(page: Page) -> Html:
    """All findings: those to fix, what is worth knowing, and last what the text has in its footer."""
    every = list(_cards(page))
    counted = apart(page.report).others
    wrong = [card for card in every if card.finding.severity is not Severity.INFO]
    info = [card for card in every if card.finding.severity is Severity.INFO]
    known = [card for card in info if card.index + 1 in counted]
    small = [card for card in info if card.index + 1 not in counted]
    nothing = tag("p", *_nothing(page), class_="nothing")
    parts = [_list(wrong) if wrong else nothing]
    for heading, group in (("Worth knowing: nothing sure to gain", known), (_SMALL, small)):
        if group:
            parts += [tag("h3", heading, class_="known"), _list(group)]
    return together(parts)


def _nothing(page: Page) -> tuple[object, ...]:
    """That nothing was found, or that nobody could look."""
    if any(trace.accounting for trace in page.report.traces):
        return ("Nothing was found that is worth fixing.",)
    outcomes = page.report.outcomes
    looked = sum(one.status is not Status.NOT_APPLICABLE for one in outcomes)
    count = tag("span", f"{len(outcomes) - looked} of {len(outcomes)} rules", class_="derived")
    return ("Not judged: the trace holds no GPU work, so ", count, " had nothing to look at.")


def _list(group: Sequence[Card]) -> Html:
    """Cards with the numbers that other outputs give them."""
    return tag("ol", *(tag("li", _card(card), value=card.index + 1) for card in group), class_="cards")


def _cards(page: Page) -> Iterator[Card]:
    places = {trace.rank: i for i, trace in enumerate(page.report.traces)}
    several = len(places) > 1
    told: set[str] = set()
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
            page.explained.get(finding.rule, "") * (finding.rule not in told),
        )
        told.add(finding.rule)


def _card(card: Card) -> Html:
    finding = card.finding
    heading = f"finding-{card.index + 1}"
    line = card.strip.line if card.strip else None
    said = tag(
        "div",
        _amounts(card),
        _fault(card),
        prose(card.at("message"), finding.message, "p", class_="message"),
        tag("p", tag("b", "Remedy"), " ", coded(card.at("advice"), finding.advice), class_="advice"),
        tag("p", "Your line: ", tag("code", breakable(line)), class_="line drawn") if line else None,
    )
    evidence = _evidence(card)
    return tag(
        "article",
        _title(card, heading),
        tag("div", said, evidence, class_="told-of" + " wide" * (evidence is not None)),
        _where(card),
        _explained(card),
        class_=f"card {finding.severity}",
        id=heading,
        aria_labelledby=f"{heading}-title",
    )


def _title(card: Card, heading: str) -> Html:
    finding = card.finding
    apart = [
        quoted(card.at(name), value, class_=f"apart {name}")
        for name, value in (("cause", finding.cause), ("by", finding.by))
        if value
    ]
    chip = tag(
        "span",
        tag("span", MARKS[finding.severity], aria_hidden="true"),
        " ",
        quoted(card.at("severity"), str(finding.severity)),
        class_=f"chip {finding.severity}",
    )
    rank = tag("a", f"rank {finding.rank}", href=f"#trace-{card.trace_index}", class_="rank")
    named = (tag("span", card.index + 1, class_="ordinal"), " ", quoted(card.at("rule"), finding.rule))
    title = tag("h3", *named, id=f"{heading}-title")
    here = tag("a", "#", href=f"#{heading}", class_="anchor", aria_label=f"Link to finding {card.index + 1}")
    copy = tag(
        "button",
        "Copy as Markdown",
        type="button",
        class_="markdown script-only",
        aria_label=f"Copy as Markdown: finding {card.index + 1}",
    )
    return tag("header", title, here, *apart, rank if card.several else None, copy, chip)


def _fault(card: Card) -> Html | None:
    """With which other findings one change of the program removes it, and what that saves."""
    fault = next((one for one in card.trace.faults if one.id == card.finding.fault), None)
    if fault is None or len(fault.findings) < 2:
        return None
    place = card.trace.faults.index(fault)
    where = ("diagnose", "traces", card.trace_index, "faults", place)
    others = [
        tag("a", number(pointer(*where, "findings", k), n, "number"), href=f"#finding-{n}")
        for k, n in enumerate(fault.findings)
        if n != card.index + 1
    ]
    joined = [part for other in others for part in (other, ", ")][:-1]
    saved: tuple[object, ...] = ()
    if fault.saving is not None and fault.saving.step_ns > 0:
        at = pointer(*where, "saving", "step_ns")
        saved = ("; together that saves ", number(at, fault.saving.step_ns, "ns"), " a step")
    return tag("p", "One change removes this and finding ", *joined, *saved, ".", class_="fault")


def coded(where: str, text: str) -> Html:
    """Advice, with what is code in it as code."""
    shown = joined_units(text)
    parts, done = [], 0
    for found in _CODE.finditer(shown):
        parts += [shown[done : found.start()], tag("code", found.group())]
        done = found.end()
    return tag("span", *parts, shown[done:], data_path=where, data_unit="text")


def _explained(card: Card) -> Html | None:
    """What `explain` says of the rule, at the first of its findings."""
    if not card.page_of_rule:
        return None
    summary = tag("summary", "Why it costs, how sure it is, when it is wrong")
    return tag("details", summary, tag("pre", card.page_of_rule, class_="explained drawn"), class_="explain")


def _amounts(card: Card) -> Html:
    """What it saves, costs, and how often it is there."""
    confidence = together(("confidence ", quoted(card.at("confidence"), str(card.finding.confidence))))
    items = [tag("li", part) for part in (cost(card), count(card), confidence) if part is not None]
    return tag("div", saving(card), tag("ul", *items, class_="amounts"), class_="numbers")


def _where(card: Card) -> Html:
    """A typical occurrence on the timeline, the user's line, and commands that lead there."""
    finding, origin = card.finding, card.trace.meta.origin_ns
    which = "For example at " if finding.count > 1 else "At "
    length = format_ns(finding.end_ns - finding.start_ns)
    places = [
        together((f", {name} ", number(card.at(name), getattr(finding, name), "number")))
        for name in ("step", "device", "stream", "thread")
        if getattr(finding, name) is not None
    ]
    when = f"{format_offset(finding.start_ns - origin)}, {length} long"
    link = tag(
        "a",
        "Show on the timeline",
        href="#timeline",
        data_at=f"#at-{card.index + 1}-1",
        class_="to-timeline script-only",
    )
    summary = tag("summary", which, tag("span", joined_units(when), class_="drawn"), *places)
    picture = None if card.strip is None else _picture(card, card.strip)
    body = (picture, _commands(card))
    where = tag("details", summary, *body, class_="where", open=card.index < _OPEN)
    return together((link if card.timeline else None, where))


def _picture(card: Card, strip: Strip) -> Html:
    label = (
        f"Timeline around a typical occurrence of finding {card.index + 1}; arrow keys go from event to event"
    )
    left_out = strip.seen - strip.drawn
    note = f"The {strip.drawn:,} longest of {strip.seen:,} events are drawn." if left_out > 0 else None
    earlier = None if strip.earlier is None else _earlier(strip.earlier)
    return tag(
        "figure",
        strip_svg(strip, card.trace.meta.origin_ns, label),
        tag("figcaption", legend(strip), note, earlier),
        class_="timeline drawn",
    )


def _earlier(launch: Earlier) -> Html:
    op = ("by ", tag("code", launch.op), " ") if launch.op else ()
    before = joined_units(format_ns(launch.before_ns))
    return tag("p", "Launched ", *op, f"{before} before the occurrence began, out of sight.")


def _commands(card: Card) -> Html:
    """What to copy: the command for this part of the trace, and the timestamp for Perfetto."""
    finding, origin = card.finding, card.trace.meta.origin_ns
    strip = card.strip
    start, end = (finding.start_ns, finding.end_ns) if strip is None else (strip.start_ns, strip.end_ns)
    first, last = max(start - origin, 0) / 1e6, max(end - origin, 1000) / 1e6
    source = "TRACE" if card.confidential else said(shlex.quote(card.trace.meta.source))
    command, part = f"traceanalyzer diagnose {source} ", f"--window {first:.3f}ms:{last:.3f}ms"
    shown = tag("code", breakable(command), tag("span", part, class_="whole"), class_="drawn")
    opened = f"traceanalyzer open {source}" + f" --finding {card.index + 1}" * (not card.several)
    return tag(
        "div",
        copied("This part alone", shown, command + part),
        copied(
            "Perfetto, “Pan to timestamp”",
            tag("code", number(card.at("start_ns"), finding.start_ns, "number")),
            str(finding.start_ns),
        ),
        copied("Open in Perfetto here", tag("code", breakable(opened), class_="drawn"), opened),
        class_="commands",
    )


def copied(label: str, code: Html, text: str) -> Html:
    """A text with a button that copies it."""
    button = tag("button", "Copy", type="button", class_="copy", data_copy=text, aria_label=f"Copy: {label}")
    return tag("div", tag("span", label, class_="label"), code, button, class_="copied")


def _evidence(card: Card) -> Html | None:
    """The numbers that the message was made of, by their names."""
    evidence = {name: value for name, value in card.finding.evidence.items() if name not in _SAID}
    rows = list(_flat(evidence))[:_MOST_EVIDENCE]
    if not rows:
        return None
    body = [
        tag("tr", tag("th", said(" › ".join(keys), 200), scope="row"), tag("td", _value(card, keys, value)))
        for keys, value in rows
    ]
    caption = tag("caption", "Evidence")
    return scrolled(f"Evidence of finding {card.index + 1}", tag("table", caption, *body, class_="evidence"))


def _flat(
    evidence: Mapping[str, object], keys: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], object]]:
    """(path of names, number or text); lists are left to the JSON."""
    for name, value in evidence.items():
        if isinstance(value, Mapping):
            yield from _flat(value, (*keys, str(name)))
        elif isinstance(value, int | float | str):
            yield (*keys, str(name)), value


def _value(card: Card, keys: tuple[str, ...], value: object) -> Html:
    if any(said(key) != key for key in keys):  # a place that no attribute can hold
        text = UNITS[_unit(keys, value)](value)
        return tag("span" if isinstance(value, str) else "data", text, class_="drawn")
    where = card.at("evidence", *keys)
    if isinstance(value, str):
        return quoted(where, value)
    return number(where, value, _unit(keys, value))


def _unit(keys: tuple[str, ...], value: object) -> str:
    """By the end of the name, as everywhere."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "number"
    units = {"_ns": "ns", "_bytes": "bytes", "_share": "share"}
    found = next((unit for end, unit in units.items() if keys[-1].endswith(end)), None)
    return found or ("number" if isinstance(value, float) else "count")
