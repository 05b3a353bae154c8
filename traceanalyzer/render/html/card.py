"""One finding as a card: what is wrong, what fixing it saves, where to look, and how to look closer."""

from __future__ import annotations

import shlex

from traceanalyzer.model.finding import Severity
from traceanalyzer.model.units import format_ns, format_offset
from traceanalyzer.render.html.amounts import Card, cost, count, saving
from traceanalyzer.render.html.evidence import evidence, linked
from traceanalyzer.render.html.markup import Html, code, number, pointer, prose, quoted, said, tag, together
from traceanalyzer.render.html.remedy import coded, copied, example, explained
from traceanalyzer.render.html.strip_data import Earlier, Strip
from traceanalyzer.render.html.strips import legend, strip_svg
from traceanalyzer.render.words.escape import joined_units

MARKS = {Severity.HIGH: "▲", Severity.MEDIUM: "◆", Severity.LOW: "●", Severity.INFO: "○"}
_OPEN = 1  # cards whose timeline is shown at once


def card_of(card: Card) -> Html:
    """One finding, whole."""
    finding = card.finding
    heading = f"finding-{card.index + 1}"
    line = card.strip.line if card.strip else None
    said = tag(
        "div",
        _amounts(card),
        _fault(card),
        prose(card.at("message"), finding.message, "p", class_="message"),
        tag("p", tag("b", "Remedy"), " ", coded(card.at("advice"), finding.advice), class_="advice"),
        example(card.page_of_rule),
        tag("p", "Function (file, first line): ", code(line), class_="line drawn") if line else None,
    )
    table = evidence(card)
    return tag(
        "article",
        _title(card, heading),
        tag("div", said, table, class_="told-of" + " wide" * (table is not None)),
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
        if value and value not in card.ops
    ]
    if finding.by in card.ops:
        apart.append(tag("span", linked(card, str(finding.by)), class_="apart drawn"))
    chip = tag(
        "span",
        tag("span", MARKS[finding.severity], aria_hidden="true"),
        " ",
        quoted(card.at("severity"), str(finding.severity)),
        class_=f"chip {finding.severity}",
    )
    rank = tag("a", f"rank {finding.rank}", href=f"#{card.anchor}", class_="rank")
    named = (tag("span", card.index + 1, class_="ordinal"), " ", quoted(card.at("rule"), finding.rule))
    others = [str(one) for one in finding.ranks if one != finding.rank]
    also = tag("span", f"also of {', '.join(others)}", class_="rank apart") if others else None
    title = tag("h3", *named, id=f"{heading}-title")
    here = tag("a", "#", href=f"#{heading}", class_="anchor", aria_label=f"Link to finding {card.index + 1}")
    copy = tag(
        "button",
        "Copy as Markdown",
        type="button",
        class_="markdown script-only",
        aria_label=f"Copy as Markdown: finding {card.index + 1}",
    )
    return tag("header", title, here, *apart, rank if card.several else None, also, copy, chip)


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


def _explained(card: Card) -> Html | None:
    """What `explain` says of the rule, at the first of its findings."""
    if not (card.page_of_rule and card.first):
        return None
    summary = tag("summary", "Why it costs, how sure it is, when it is wrong")
    return tag("details", summary, explained(card.page_of_rule), class_="explain")


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
    return tag("p", "Launched ", *op, f"{before} before the occurrence began, outside this view.")


def _commands(card: Card) -> Html:
    """What to copy: the command for this part of the trace, and the timestamp for Perfetto."""
    finding, origin = card.finding, card.trace.meta.origin_ns
    strip = card.strip
    start, end = (finding.start_ns, finding.end_ns) if strip is None else (strip.start_ns, strip.end_ns)
    first, last = max(start - origin, 0) / 1e6, max(end - origin, 1000) / 1e6
    source = "TRACE" if card.confidential else said(shlex.quote(card.trace.meta.source))
    command, part = f"traceanalyzer diagnose {source} ", f"--window {first:.3f}ms:{last:.3f}ms"
    shown = code(command, tag("span", part, class_="whole"), class_="drawn")
    opened = f"traceanalyzer open {source}" + f" --finding {card.index + 1}" * (not card.several)
    return tag(
        "div",
        copied("This part alone", shown, command + part),
        copied(
            "Perfetto, “Pan to timestamp”",
            tag("code", number(card.at("start_ns"), finding.start_ns, "number")),
            str(finding.start_ns),
        ),
        copied("Open in Perfetto here", code(opened, class_="drawn open-command"), opened),
        class_="commands",
    )
