"""Findings as text: what is wrong, what to do about it, and where to look at one of each."""

import re
from collections.abc import Iterator
from dataclasses import replace

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Fault, Report, TraceReport, fixed_along
from traceanalyzer.model.short_names import short_ops
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.units import format_ns, format_offset
from traceanalyzer.render.text.job import ranks_in_words
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.words import phrases
from traceanalyzer.render.words.escape import printable
from traceanalyzer.report.words import listed
from traceanalyzer.rule.messages import times
from traceanalyzer.rule.registry import all_rules
from traceanalyzer.rule.titles import MAX_TITLE, first_clauses, is_closed

_PATH = regex(r"[^\s(]*/([^\s/]+/[^\s/]+\.pyx?(?:\(\d+\))?)")
_ENDS = regex(r"(?<=[.;:,)])(?<!\.\.\.)(?<!its kernels:)(?<!; by op:)(?<!\d\):) (?!and (?:others|elsewhere))")
_WORDS = regex("(?<! >) (?!> )")  # a chain `add > mul > ...` is one
_PLACE = regex(r"\(([^\s()]+):(\d+)\)$")  # that a title ends with
_COUNTS = regex(r"(?<![\w.])\d[\d.,]* [^\s,;:]+")  # numbers, each with what it counts
_EVIDENCE_OF = regex("for inputs of|from|in|at ")
_SENTENCES = regex(r"(?<=[.;])(?<!\.\.\.) ")
SEVERITY_STYLES = dict(zip(Severity, ("red", "yellow", "blue", "dim"), strict=True))
_OF_THE_GPU = ("copies", "kernels")  # groups of rules
_CPU_FIRST = "The CPU is the limit: until that changes, fixing this saves nothing. "
_LEAST_REST = 40  # characters of what happened that deserve a line
WHOLE = 2  # detail of a finding in as many lines as the first screen gives it at most
_NUMBER = 3  # columns of a finding's number


def _first_of(parts: re.Match[str]) -> str:
    """The largest part of a list, and that there are others, unless the clause says that it is the largest."""
    clause = re.split("[;,] ", parts.string[: parts.start()])[-1]
    words = set(clause.split())
    others = "elsewhere" if "at" in words else "others"
    return parts[1] + f" and {others}" * (not {"most", "longest", "between"} & words)


# Evidence that a narrow page does without, the first first: all but the largest part of a list, shapes, details.
_EVIDENCE = (
    (regex(r"(\(\d+ % of th\w+ [^()]+\))(?:, (?:(?! % of th)[^;])+? \(\d+ %\))+"), _first_of),
    (regex(r", for inputs of shapes? [\dx]+(?:, [\dx]+)*"), ""),
    (regex(r"(?<! x) \((?!\d+ %)[^()]*(?:\([^()]*\)[^()]*)*\)"), ""),
)
# What a text does not end with.
_LEADS_ON = regex(r"(?:[,;:]? (?:at|in|of|on|by|to|for|from|with|the|an?|and|or|which|that))+$")
# How many times the room a text is looked at: long names and evidence shrink, so that more than the room may fit.
_MOST_ROOMS = 4
_ENOUGH = 0.4  # of the room: a clause that ends there is better than a word later


def short_paths(text: str) -> str:
    """`/home/me/env/lib/torch/nn/linear.py(12): forward` as `nn/linear.py(12): forward`."""
    return _PATH.sub(r"\1", text)


def put_fitted(
    page: Page, text: str, lines: int, *, indent: int = 0, hang: int = 0, style: str = "", whole: bool = False
) -> None:
    """Put the text in so many lines: without evidence, then without clauses; of a `whole` one no sentence is cut."""
    text = short_paths(text[: _MOST_ROOMS * _MOST_ROOMS * lines * page.width])
    sentences = [text[: end.start()] for end in re.finditer(r"(?<=[.]) (?=[A-Z`(]|\w+=)", text)]
    trials = [text, *reversed(sentences)] if whole else [*_without_evidence(text), *_shorter(text, lines, page)]
    for trial in trials:
        own = Page(page.width)
        own.put(trial, indent=indent, hang=hang)
        if len(own.lines) <= lines and max(map(len, own.lines), default=0) <= page.width:
            break
    page.put(trial, indent=indent, hang=hang, style=style)


def _without_evidence(text: str) -> Iterator[str]:
    yield text
    for pattern, kept in _EVIDENCE:
        text = pattern.sub(kept, text)
        yield text


def _shorter(text: str, lines: int, page: Page) -> list[str]:
    """Ever shorter beginnings of it: those that end with a sentence, clauses, and words, never in parentheses."""
    *_, text = _without_evidence(text)
    room = lines * page.width
    text = text[: _MOST_ROOMS * room]
    sentences, clauses, words = (
        [
            _LEADS_ON.sub("", text[: end.start()].rstrip(" .;:,")) + mark
            for end in reversed(list(pattern.finditer(text)))
        ]
        for pattern, mark in ((_SENTENCES, ""), (_ENDS, ""), (_WORDS, " …"))
    )
    long = [one for one in (*sentences, *clauses, *words) if len(one) > _ENOUGH * room and is_closed(one)]
    return [*long, *words, text[: max(room // 2, 20)]]


def put_finding(page: Page, number: int, finding: Finding, report: Report) -> None:
    page.blank()
    fault = _fault(number, report)
    _heading(page, number, finding, report, _amounts(number, finding, fault))
    page.put(short_ops(finding.message), indent=3)
    page.put(f"-> {_advice(finding, report)}", indent=3, hang=3)
    if finding.profiler_command:
        page.lines.append(f"   $ {printable(finding.profiler_command)}")
    amounts = phrases.amount_words(finding, _trace(finding, report).step, _before(number, report))
    if amounts:
        alone = fault and finding.saving and not finding.saving.beyond
        page.put(f"fixing only this: {amounts}" if alone else amounts, indent=3, style="dim")
    page.put(_place(finding, report), indent=3, hang=3, style="dim")


def _beside_title(rest: str, title: str) -> str:
    """What the message says more than the title: without the title's place, and clauses that repeat its numbers."""
    if place := _PLACE.search(title):
        file, line = map(re.escape, place.groups())
        named = rf",? (?<!longest )(?:from|at|in) (?:[^\s,;]*/)?{file}\({line}\): [\w.<>]+(?:\(\))?"
        rest = re.sub(named + r"(?: \(\d+ % of [^()]*\)(?:, [^;]*?\(\d+ %\))*)?", "", rest, count=1)
    known = set(_COUNTS.findall(title))
    clauses: list[str] = []
    for clause in rest.split("; "):
        said, comma, more = clause.partition(", ")
        counts = set(_COUNTS.findall(said))
        repeats = counts and counts <= known and is_closed(said) and (not comma or _EVIDENCE_OF.match(more))
        # What a first clause is about is the title's subject, a later one's own goes with it.
        clauses += [] if repeats and clauses else [more if repeats else clause]
    rest = "; ".join(filter(None, clauses))
    return rest if "::" in rest.partition(" ")[0] else rest[:1].upper() + rest[1:]


def put_short(page: Page, number: int, finding: Finding, report: Report, detail: int) -> None:
    """The same in few lines: `detail` is 0 for the title alone, 1 for what it saves and what to do, `WHOLE` for more.

    What to do is never cut within a sentence; what is fixed with another finding needs no advice.
    """
    fault = _fault(number, report)
    first = fault is None or number == fault.findings[0]
    amounts = _amounts(number, finding, fault)
    if not detail or not first:
        right = amounts.partition(", best guess")[0].partition(";")[0]
        title = phrases.in_one_line(printable(phrases.titled(finding)), page.width - _NUMBER - len(right) - 2)
        page.sides(f"{number:<{_NUMBER}}{title}", right, style=SEVERITY_STYLES[finding.severity])
        return
    _heading(page, number, finding, report, amounts)
    _, rest = first_clauses(short_paths(short_ops(printable(finding.message))), MAX_TITLE)
    rest = _beside_title(rest, phrases.titled(finding))
    if detail == WHOLE and len(rest) >= _LEAST_REST:
        put_fitted(page, rest, 2, indent=_NUMBER)
    in_vain = finding.saving is not None and phrases.saves_nothing(finding.saving)
    if fault is not None or finding.severity is not Severity.INFO or not in_vain:
        put_fitted(page, f"-> {_advice(finding, report)}", detail, indent=_NUMBER, hang=3, whole=True)


def _amounts(number: int, finding: Finding, fault: Fault | None) -> str:
    """What the fix of the finding saves; of several that one change removes what that saves, with the first."""
    if fault is None:
        return phrases.short_amounts(finding)
    if number != fault.findings[0]:
        in_vain = fault.saving is not None and phrases.probably_nothing(fault.saving)
        return f"{'same fix as' if in_vain else 'fixed with'} {fault.findings[0]}"
    whole = phrases.short_amounts(replace(finding, saving=fault.saving, severity=fault.severity))
    return f"{whole}; also fixes {listed(fault.findings[1:])}"


def _advice(finding: Finding, report: Report) -> str:
    """What to do; of the GPU's work, after what it saves nothing for: the CPU that is the limit."""
    step = _trace(finding, report).step
    of_gpu = any(one.slug == finding.rule and one.group in _OF_THE_GPU for one in all_rules())
    waits = step is not None and step.bound == "cpu" and not step.open and of_gpu
    vain = finding.saving is not None and phrases.probably_nothing(finding.saving)
    return _CPU_FIRST * (waits and vain) + finding.advice


def _before(number: int, report: Report) -> list[int]:
    """The findings on the CPU that are to be fixed and that a saving which is `beyond` comes on top of."""
    own = report.findings[number - 1]
    gone = fixed_along(fault for trace in report.traces for fault in trace.faults)
    return [
        n
        for n, one in enumerate(report.findings, 1)
        if n != number and n not in gone and one.rank == own.rank and one.stream is None
        if one.severity is not Severity.INFO and one.saving is not None and not one.saving.beyond
    ]


def _fault(number: int, report: Report) -> Fault | None:
    faults = (fault for trace in report.traces for fault in trace.faults)
    return next((fault for fault in faults if number in fault.findings and len(fault.findings) > 1), None)


def _heading(page: Page, number: int, finding: Finding, report: Report, amounts: str) -> None:
    """The title; below it what the fix saves, and the rule, which else stands at the title's end."""
    title = f"{number:<{_NUMBER}}{printable(phrases.titled(finding))}"
    right = f"{finding.severity}  {finding.rule}{_whose(finding, report)}"
    style = SEVERITY_STYLES[finding.severity]
    if amounts:
        page.put(title, hang=_NUMBER, style="bold")
        page.sides(amounts, right, style=style, left_style="", indent=_NUMBER)
    else:
        page.sides(title, right, style=style)


def _trace(finding: Finding, report: Report) -> TraceReport:
    (trace,) = (one for one in report.traces if one.rank == finding.rank)
    return trace


def _whose(finding: Finding, report: Report) -> str:
    """The rank or device that the finding is about, where there are several."""
    if len(report.traces) > 1:
        count = len(finding.ranks)
        if count == len(report.traces):
            return " (both ranks)" if count == 2 else f" (all {count} ranks)"
        return f" ({ranks_in_words(finding.ranks or (() if finding.rank is None else (finding.rank,)))})"
    several = any(len(trace.meta.devices) > 1 or len(trace.accounting) > 1 for trace in report.traces)
    return f" (device {finding.device})" if several and finding.device is not None else ""


def _place(finding: Finding, report: Report) -> str:
    steps = f" in {finding.steps:,} step{'s' * (finding.steps > 1)}" if finding.steps else ""
    offset = format_offset(finding.start_ns - _trace(finding, report).meta.origin_ns)
    places = {"stream": finding.stream, "thread": finding.thread}
    on = next((f" on {name} {at}" for name, at in places.items() if at is not None), "")
    example = "for example at" if finding.count > 1 else "at"
    length = format_ns(finding.end_ns - finding.start_ns)
    return (
        f"{times(finding.count)}{steps}, {example} {offset} for {length}{on}, timestamp {finding.start_ns}; "
        f"confidence {finding.confidence}"
    )
