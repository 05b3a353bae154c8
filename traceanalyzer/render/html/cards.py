"""Findings as cards: those to fix, what is worth knowing, and the rest."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Sequence

from traceanalyzer.model.finding import Finding, Severity, Status
from traceanalyzer.model.units import format_ns, format_offset
from traceanalyzer.render.html.evidence import Card, cost, count, evidence, linked, saving
from traceanalyzer.render.html.markup import (
    Html,
    code,
    number,
    pointer,
    prose,
    quoted,
    said,
    scrolled,
    tag,
    together,
)
from traceanalyzer.render.html.page_data import Page
from traceanalyzer.render.html.strip_data import Earlier, Strip
from traceanalyzer.render.html.strips import legend, strip_svg
from traceanalyzer.render.words.escape import joined_units
from traceanalyzer.report.finding_order import triage

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


# What reads like code: `torch.compile(model)`, `non_blocking=True`, `aten::item`.
_CODE = re.compile(
    r"\b[A-Za-z_][\w.]*\([^()\n]*\)|\b[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)+|\b\w+=(?:True|False|None|\d+)\b"
)
_PAIR = re.compile(r"^Bad:\s(.*?)\sGood:\s(.*?)\.?$(?=\n[A-Z]|\n*\Z)", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")
_CONNECTED = re.compile(r"^(?:or|and)\s+")
_WRITTEN = (ast.Call, ast.Assign, ast.Subscript, ast.With)  # a name alone is nothing to write


def coded(where: str, text: str) -> Html:
    """Advice, with what is code in it as code."""
    shown = joined_units(text)
    parts, done = [], 0
    for found in _CODE.finditer(shown):
        parts += [shown[done : found.start()], tag("code", found.group())]
        done = found.end()
    return tag("span", *parts, shown[done:], data_path=where, data_unit="text")


def explained(page_of_rule: str) -> Html:
    """A rule's page, with what stands between backticks as code."""
    parts = _SPAN.split(page_of_rule)  # every second one is code
    drawn = (tag("code", part) if i % 2 else part for i, part in enumerate(parts))
    return tag("div", *drawn, class_="explained drawn")


def example(page_of_rule: str) -> Html | None:
    """What the rule's page says to write instead of what, a line each, to be copied; None where that is no code."""
    pair = _PAIR.search(page_of_rule)
    bad, good = (code_in(side) for side in pair.groups()) if pair else ((), ())
    if not good:
        return None
    first = "In general: instead of" if bad else "In general: write"
    rows = [copied("" if i else first, tag("code", line), None) for i, line in enumerate(bad)]
    label = "write" if bad else first
    rows += [copied("" if i else label, tag("code", line), line) for i, line in enumerate(good)]
    return tag("div", *rows, class_="example drawn")


def code_in(side: str) -> tuple[str, ...]:
    """Lines of Python in a Bad or Good: between backticks, or else parts that can be parsed; never prose."""
    text = " ".join(side.split()).removesuffix(".")
    pieces = _SPAN.findall(text) or _parts(text)
    return tuple(piece for piece in pieces if _is_code(piece))


def _parts(text: str) -> list[str]:
    """Text between commas and semicolons outside brackets, without `or` and `and` before it."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and letter in ",;":
            parts.append("")
        else:
            parts[-1] += letter
    return [_CONNECTED.sub("", part.strip()) for part in parts]


def _is_code(text: str) -> bool:
    """Whether it is Python that does something; the first line of a block is."""
    for whole in (text, f"{text} ..."):
        try:
            return any(isinstance(node, _WRITTEN) for node in ast.walk(ast.parse(whole)))
        except (SyntaxError, ValueError):
            continue
    return False


def copied(label: str, code: Html, text: str | None) -> Html:
    """A text with a button that copies it."""
    said = f"Copy: {label or text}"
    button = text and tag("button", "Copy", type="button", class_="copy", data_copy=text, aria_label=said)
    return tag("div", tag("span", label, class_="label"), code, button or None, class_="copied")


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
