"""Findings as cards: those to fix, what is worth knowing, and the rest. Every number has its place in the JSON."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from traceanalyzer.model.finding import Finding, Severity, Status
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.report import TraceReport
from traceanalyzer.model.short_names import short_ops
from traceanalyzer.model.units import format_ns, format_offset, format_share
from traceanalyzer.render.html.markup import Html, code, number, part, pointer, quoted, said, tag, together
from traceanalyzer.render.html.page_data import Page
from traceanalyzer.render.html.plots import range_bar
from traceanalyzer.render.html.strip_data import Strip
from traceanalyzer.render.html.strips import legend, strip_svg
from traceanalyzer.render.words.escape import joined_units
from traceanalyzer.report.finding_order import triage

MARKS = {Severity.HIGH: "▲", Severity.MEDIUM: "◆", Severity.LOW: "●", Severity.INFO: "○"}


@dataclass(frozen=True, slots=True)
class Card:
    """A finding, its place in the report, and the trace that it is of.

    Attributes:
        timeline: whether it is on one.
        page_of_rule: what `explain` prints, or nothing; shown at the `first` finding of the rule.
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

    def linked(self, name: str) -> Html:
        """A name; that of an op in the table of ops leads there."""
        shown, anchor = code(said(short_ops(name), 160)), self.ops.get(name)
        return tag("a", shown, href=f"#{anchor}") if anchor else shown


def card_of(card: Card) -> Html:
    """One finding, whole."""
    finding = card.finding
    return part(
        "cards.card",
        card,
        MARKS[finding.severity],
        advice=coded(card.at("advice"), finding.advice),
        example=example(card.page_of_rule),
        evidence=evidence(card),
        saving=saving(card),
        amounts=(cost(card), count(card), _confidence(card)),
        fault=_fault(card),
        where=_where(card),
        explained=explained(card.page_of_rule),
    )


def _confidence(card: Card) -> Html:
    return together(("confidence ", quoted(card.at("confidence"), card.finding.confidence)))


def _fault(card: Card) -> Html | None:
    """With which other findings one change of the program removes it, and what that saves."""
    fault = next((one for one in card.trace.faults if one.id == card.finding.fault), None)
    if fault is None or len(fault.findings) < 2:
        return None
    where = ("diagnose", "traces", card.trace_index, "faults", card.trace.faults.index(fault))
    others = [
        (n, number(pointer(*where, "findings", k), n, "number"))
        for k, n in enumerate(fault.findings)
        if n != card.index + 1
    ]
    saved = None
    if fault.saving is not None and fault.saving.step_ns > 0:
        saved = number(pointer(*where, "saving", "step_ns"), fault.saving.step_ns, "ns")
    return part("cards.fault", others, saved)


def _where(card: Card) -> Html:
    """A typical occurrence on the timeline, the user's line, and commands that lead there."""
    finding, origin, strip = card.finding, card.trace.meta.origin_ns, card.strip
    length = format_ns(finding.end_ns - finding.start_ns)
    when = joined_units(f"{format_offset(finding.start_ns - origin)}, {length} long")
    label = (
        f"Timeline around a typical occurrence of finding {card.index + 1}; arrow keys go from event to event"
    )
    drawn = (strip_svg(strip, origin, label), legend(strip)) if strip else (None, None)
    return part("cards.where", card, when, *drawn, _commands(card))


def _commands(card: Card) -> list[tuple[str, Html, str]]:
    """What to copy: the command for this part of the trace, the timestamp for Perfetto, and how to open it there."""
    finding, origin, strip = card.finding, card.trace.meta.origin_ns, card.strip
    start, end = (finding.start_ns, finding.end_ns) if strip is None else (strip.start_ns, strip.end_ns)
    first, last = max(start - origin, 0) / 1e6, max(end - origin, 1000) / 1e6
    source = "TRACE" if card.confidential else said(shlex.quote(card.trace.meta.source))
    command, window = f"traceanalyzer diagnose {source} ", f"--window {first:.3f}ms:{last:.3f}ms"
    opened = f"traceanalyzer open {source}" + f" --finding {card.index + 1}" * (not card.several)
    timestamp = tag("code", number(card.at("start_ns"), finding.start_ns, "number"))
    shown = code(command, tag("span", window, class_="whole"), class_="drawn")
    return [
        ("This part alone", shown, command + window),
        ("Perfetto, “Pan to timestamp”", timestamp, str(finding.start_ns)),
        ("Open in Perfetto here", code(opened, class_="drawn open-command"), opened),
    ]


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
    rows = [("" if i else first, line, None) for i, line in enumerate(bad)]
    label = "write" if bad else first
    return part("cards.example", [*rows, *(("" if i else label, line, line) for i, line in enumerate(good))])


def code_in(side: str) -> tuple[str, ...]:
    """Lines of Python in a Bad or Good: between backticks, or else parts that can be parsed; never prose."""
    text = " ".join(side.split()).removesuffix(".")
    pieces = _SPAN.findall(text) or _statements(text)
    return tuple(piece for piece in pieces if _is_code(piece))


def _statements(text: str) -> list[str]:
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


def copied(label: str, shown: Html, text: str | None) -> Html:
    """A text with a button that copies it."""
    return part("cards.copied", label, shown, text)


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
    "late_share": "delays the others, of the step",
    "lines": "functions (first line)",
    "link_gbps": "GB/s of the link",
    "loop_part": "of the launches in the loop",
    "mean_ns": "mean work of all ranks",
    "others_ns": "work of the others",
    "own_ns": "its own work",
    "part_share": "of the step",
    "sms": "SMs",
    "took_ns": "time in these collectives",
    "typical_ns": "typical duration",
}
_SHARES = {"loop_part"}  # whose name does not end so


def evidence(card: Card) -> Html | None:
    """The numbers that the message was made of, by their names."""
    rows = [(said(_in_words(name), 200), value) for name, value in _rows(card)][:_MOST]
    return part("cards.evidence", card.index + 1, rows) if rows else None


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
    largest = sorted(sums.items(), key=lambda one: -one[1])[:_MOST_PARTS]
    shown = [(str(name), value, format_share(value / whole)) for name, value in largest]
    return part("cards.parts", card, shown, len(sums) - len(largest))


def _in_words(name: str) -> str:
    """`largest_gap_ns` as `largest gap`: its value says the unit."""
    if name in _WORDS:
        return _WORDS[name]
    ends = (name.removesuffix(end) for end in _UNITS if name.endswith(end))
    return next(ends, name).replace("_", " ")


def _unit(name: str, value: float) -> str:
    if isinstance(value, bool):
        return "number"
    found = next((unit for end, unit in _UNITS.items() if name.endswith(end)), None)
    if name in _SHARES:
        return "share"
    return found or ("number" if isinstance(value, float) else "count")


def saving(card: Card) -> Html | None:
    """What fixing it saves, with its interval; None where that is not known."""
    found, step = card.finding.saving, card.trace.step
    if found is None:
        return None
    if Severity.of(abs(found.share)) is Severity.INFO:
        return tag("p", "Fixing it saves almost nothing.", class_="saving")
    where = pointer("diagnose", "traces", card.trace_index, "step", "unprofiled_ns")
    before = "the time of" if step is None else number(where, step.unprofiled_ns, "ns")
    bar = range_bar(found.share, found.low_share, found.high_share, "saving as a share of the step")
    longer = format_ns(-found.step_ns) if found.share < 0 else None
    return part("cards.saving", card, found, before, bar, longer)


def cost(card: Card) -> Html | None:
    """Time that it took in the trace; None where nothing was lost."""
    return part("cards.cost", card.finding, card.at) if card.finding.cost_ns else None


def count(card: Card) -> Html:
    """`40 times in 4 steps`."""
    return part("cards.count", card.finding, card.at)


_MOST_CARDS, _MOST_LINES = 40, 120  # findings as cards, and further ones as lines of a table
_SMALL = "Too small to act on, of low confidence, or profiler overhead"


def cards(page: Page) -> Html:
    """All findings: those to fix, what is worth knowing, and last what the text has in its footer."""
    every = list(_cards(page))
    counted = triage(page.report).others
    every, rest = every[:_MOST_CARDS], every[_MOST_CARDS:]
    info = [card for card in every if card.finding.severity is Severity.INFO or card.finding.pedantic]
    groups = {
        "": [card for card in every if all(card is not one for one in info)],
        "Worth knowing: no certain gain": [card for card in info if card.index + 1 in counted],
        _SMALL: [card for card in info if card.index + 1 not in counted],
    }
    drawn = [(heading, [_item(card) for card in group]) for heading, group in groups.items()]
    outcomes = page.report.outcomes
    judged = any(trace.accounting for trace in page.report.traces)
    unjudged = None if judged else sum(one.status is Status.NOT_APPLICABLE for one in outcomes)
    lines, left = rest[:_MOST_LINES], len(rest) - _MOST_LINES
    return part("cards.cards", choice(page), drawn, lines, left, unjudged, len(outcomes))


def _item(card: Card) -> tuple[Card, Html, str | None, bool]:
    """A card with the ranks that it is of, and whether it concerns the job."""
    ranks = " ".join(map(str, _ranks_of(card.finding))) if card.several else None
    return card, card_of(card), ranks, card.several and _of_job(card.finding)


def choice(page: Page) -> Html | None:
    """Of a job: whose findings are shown; a rank's own stand back."""
    if page.report.job is None:
        return None
    found = page.report.findings
    options = [("all", f"all ({len(found)})"), ("job", f"the job ({sum(map(_of_job, found))})")]
    ranks = sorted({rank for finding in found for rank in _ranks_of(finding)})
    options += [
        (str(rank), f"rank {rank} ({sum(finding.is_of(rank) for finding in found)})") for rank in ranks
    ]
    return part("cards.choice", options)


def _of_job(finding: Finding) -> bool:
    """Whether it is worth a fix, or concerns several ranks."""
    return finding.severity is not Severity.INFO or len(finding.ranks) > 1


def _ranks_of(finding: Finding) -> Sequence[int]:
    return finding.ranks or ((finding.rank,) if finding.rank is not None else ())


def _cards(page: Page) -> Iterator[Card]:
    places = {trace.rank: i for i, trace in enumerate(page.report.traces)}
    several = len(places) > 1
    explained_rules: set[str] = set()
    ops = [
        {row.name: f"op-{i}-{place}" for place, row in enumerate(trace.ops.rows if trace.ops else ())}
        for i, trace in enumerate(page.traces)
    ]
    for i, (finding, strip) in enumerate(zip(page.report.findings, page.strips, strict=True)):
        at = places[finding.rank]
        yield Card(
            index=i,
            finding=finding,
            trace=page.report.traces[at],
            trace_index=at,
            strip=strip,
            several=several,
            confidential=page.confidential,
            timeline=page.traces[at].timeline is not None,
            page_of_rule=page.explained.get(finding.rule, ""),
            first=finding.rule not in explained_rules,
            anchor=page.anchor(at),
            ops=ops[at],
        )
        explained_rules.add(finding.rule)
