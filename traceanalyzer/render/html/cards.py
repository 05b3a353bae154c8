"""Findings as cards: those to fix, what is worth knowing, and the rest. Every number has its place in the JSON."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from traceanalyzer.model.finding import Finding, Severity, Status
from traceanalyzer.model.report import TraceReport
from traceanalyzer.model.short_names import short_ops
from traceanalyzer.model.units import format_ns, format_offset, format_share
from traceanalyzer.render.html.head import named, typical_place
from traceanalyzer.render.html.markup import Html, code, number, part, pointer, quoted, said, tag
from traceanalyzer.render.html.page_data import Page
from traceanalyzer.render.html.plots import range_bar
from traceanalyzer.render.words.escape import joined_units
from traceanalyzer.render.words.phrases import OF_SAVINGS, short_amounts
from traceanalyzer.report.finding_order import triage
from traceanalyzer.timeline.user_code import is_user_code

MARKS = {Severity.HIGH: "▲", Severity.MEDIUM: "◆", Severity.LOW: "●", Severity.INFO: "○"}
# What reads like code: `torch.compile(model)`, `non_blocking=True`, `aten::item`.
_CODE = re.compile(
    r"\b[A-Za-z_][\w.]*\([^()\n]*\)|\b[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)+|\b\w+=(?:True|False|None|\d+)\b"
)
_SPAN = re.compile(r"`([^`]+)`")
_MOST, _MOST_PARTS = 12, 5  # of the evidence: rows; parts of one sum
_UNITS = {"_ns": "ns", "_bytes": "bytes", "_share": "share", "loop_part": "share"}
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
_MOST_CARDS, _MOST_LINES = 40, 120  # findings as cards, and further ones as lines of a table
_SMALL = "About the recording, too small to act on, or of low confidence"


@dataclass(frozen=True, slots=True)
class Card:
    """A finding, its place in the report, and the trace that it is of, of which the page speaks at `anchor`.

    `page_of_rule` is what `explain` prints, shown at the `first` finding of the rule; `ops` are the ids of rows by op.
    """

    index: int
    finding: Finding
    trace: TraceReport
    trace_index: int
    several: bool
    confidential: bool
    timeline: bool
    page_of_rule: str
    first: bool
    anchor: str
    ops: Mapping[str, str]

    def at(self, *keys: object) -> str:
        return pointer("diagnose", "findings", self.index, *keys)

    def linked(self, name: str) -> Html:
        """A name; that of an op in the table of ops leads there."""
        shown, anchor = code(said(short_ops(name), 160)), self.ops.get(name)
        return tag("a", shown, href=f"#{anchor}") if anchor else shown


def card_of(card: Card) -> Html:
    finding = card.finding
    return part(
        "cards.card",
        card,
        MARKS[finding.severity],
        advice=coded(card.at("advice"), finding.advice),
        worth=short_amounts(finding),
        line=user_line(finding),
        evidence=evidence(card),
        saving=saving(card),
        fault=_fault(card),
        where=_where(card),
        explained=explained(card.page_of_rule),
    )


def _fault(card: Card) -> Html | None:
    """With which other findings one change of the program removes it, and what that saves."""
    fault = next((one for one in card.trace.faults if one.id == card.finding.fault), None)
    if fault is None or len(fault.findings) < 2:
        return None
    where = ("diagnose", "traces", card.trace_index, "faults", card.trace.faults.index(fault))
    links = [(n, number(pointer(*where, "findings", k), n, "number")) for k, n in enumerate(fault.findings)]
    saves = fault.saving is not None and fault.saving.step_ns > 0
    saved = number(pointer(*where, "saving", "step_ns"), fault.saving.step_ns, "ns") if fault.saving and saves else None
    return part("cards.fault", [link for link in links if link[0] != card.index + 1], saved)


def user_line(finding: Finding) -> str | None:
    """The function of the program that the finding names; None where it names none."""
    lines = finding.evidence.get("lines")
    if isinstance(lines, Mapping) and lines:
        return str(next(iter(lines)))
    return finding.by if finding.by is not None and is_user_code(finding.by) else None


def _where(card: Card) -> Html:
    """A typical occurrence on the timeline, and commands that lead there."""
    finding, origin = card.finding, card.trace.meta.origin_ns
    length = format_ns(finding.end_ns - finding.start_ns)
    when = joined_units(f"{format_offset(finding.start_ns - origin)}, {length} long")
    source = "TRACE" if card.confidential else shlex.quote(named(card.trace.meta.source))
    opened = f"traceanalyzer open {source}" + f" --finding {card.index + 1}" * (not card.several)
    timestamp = tag("code", number(card.at("start_ns"), finding.start_ns, "number"))
    commands = [
        ("Open in Perfetto here", code(opened, class_="drawn open-command"), opened),
        ("Perfetto, “Pan to timestamp”", timestamp, str(finding.start_ns)),
    ]
    return part("cards.where", card, when, typical_place(finding) + 1, commands)


def coded(where: str, text: str) -> Html:
    shown = joined_units(text)
    parts, done = [], 0
    for found in _CODE.finditer(shown):
        parts += [shown[done : found.start()], tag("code", found.group())]
        done = found.end()
    return tag("span", *parts, shown[done:], data_path=where, data_unit="text")


def explained(page_of_rule: str) -> Html:
    parts = _SPAN.split(page_of_rule)  # every second one is code
    drawn = (tag("code", part) if i % 2 else part for i, part in enumerate(parts))
    return tag("div", *drawn, class_="explained drawn")


def evidence(card: Card) -> Html | None:
    rows = [(said(_in_words(name), 200), value) for name, value in _rows(card)][:_MOST]
    return part("cards.evidence", card.index + 1, rows) if rows else None


def _rows(card: Card) -> Iterator[tuple[str, Html]]:
    for name, value in card.finding.evidence.items():
        if name in _SAID:
            continue
        if isinstance(value, Mapping):
            if value and all(isinstance(one, int | float) for one in value.values()):
                whole = sum(value.values()) or 1
                largest = sorted(value.items(), key=lambda one: -one[1])[:_MOST_PARTS]
                shown = [(str(part), amount, format_share(amount / whole)) for part, amount in largest]
                yield name, part("cards.parts", card, shown, len(value) - len(largest))
        elif isinstance(value, str) and value and not value.startswith(","):  # else a part of the message
            yield name, quoted(card.at("evidence", name), value)
        elif isinstance(value, int | float):
            yield name, number(card.at("evidence", name), value, _unit(name, value))


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
    return found or ("number" if isinstance(value, float) else "count")


def saving(card: Card) -> Html | None:
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


def cards(page: Page) -> Html:
    """All findings: those to fix, what is worth knowing, and last what the text has in its footer."""
    every = list(_cards(page))
    counted = triage(page.report).others
    every, rest = every[:_MOST_CARDS], every[_MOST_CARDS:]
    info = [card for card in every if card.finding.severity is Severity.INFO or card.finding.pedantic]
    groups = {
        "": [card for card in every if card not in info],
        "Worth knowing: no certain gain": [card for card in info if card.index + 1 in counted],
        _SMALL: [card for card in info if card.index + 1 not in counted],
    }
    drawn = [(heading, [(card, card_of(card), *_whose(card)) for card in group]) for heading, group in groups.items()]
    outcomes = page.report.outcomes
    judged = any(trace.accounting for trace in page.report.traces)
    unjudged = None if judged else sum(one.status is Status.NOT_APPLICABLE for one in outcomes)
    lines, left = rest[:_MOST_LINES], len(rest) - _MOST_LINES
    saved = OF_SAVINGS if any(one.saving is not None for one in page.report.findings) else None
    return part("cards.cards", choice(page), drawn, lines, left, unjudged, len(outcomes), saved)


def _whose(card: Card) -> tuple[str | None, bool]:
    """Of several traces the ranks that it is of, and whether it concerns the job."""
    return (" ".join(map(str, _ranks_of(card.finding))), _of_job(card.finding)) if card.several else (None, False)


def choice(page: Page) -> Html | None:
    """Of a job: whose findings are shown; a rank's own stand back."""
    if page.report.job is None:
        return None
    found = page.report.findings
    options = [("all", f"all ({len(found)})"), ("job", f"the job ({sum(map(_of_job, found))})")]
    ranks = sorted({rank for finding in found for rank in _ranks_of(finding)})
    options += [(str(rank), f"rank {rank} ({sum(finding.is_of(rank) for finding in found)})") for rank in ranks]
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
    for i, finding in enumerate(page.report.findings):
        at = places[finding.rank]
        explained, timeline = page.explained.get(finding.rule, ""), page.traces[at].timeline is not None
        where = page.report.traces[at], at, several, page.confidential, timeline
        first = finding.rule not in explained_rules
        yield Card(i, finding, *where, explained, first, page.anchor(at), ops[at])
        explained_rules.add(finding.rule)
