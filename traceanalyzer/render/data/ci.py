"""Report -> what CI shows: JUnit, SARIF, commands of GitHub Actions, which become annotations, and Markdown."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from xml.etree import ElementTree as xml

from traceanalyzer.model.finding import Finding, Severity, Status
from traceanalyzer.model.report import Report, TraceReport
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.render.data.encode import indented_json, unicode_text
from traceanalyzer.render.words.escape import plain_markdown, to_markdown
from traceanalyzer.render.words.phrases import amount_words, titled
from traceanalyzer.report.words import in_words
from traceanalyzer.version import __version__

_NO_XML = regex("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.HIGH: "error", Severity.MEDIUM: "warning", Severity.LOW: "note", Severity.INFO: "none"}
_LINE = regex(r"^(?P<file>.+\.py)\((?P<line>\d{1,9})\): (?P<function>.*)$")
Known = Mapping[str, int]
"""Fingerprint -> rank of the worst severity, of the findings of a baseline."""
_COMMANDS = {Severity.HIGH: "error", Severity.MEDIUM: "warning", Severity.LOW: "notice"}
_BAR = 20  # characters of a whole window
_MARKS = {Severity.HIGH: "🔴", Severity.MEDIUM: "🟠", Severity.LOW: "🟡", Severity.INFO: "⚪"}


def render_junit(report: Report, failing: Sequence[Finding]) -> bytes:
    """One document: a suite per trace, and one for a whole job, in which a rule fails that has one of `failing`."""
    root = xml.Element("testsuites", name="traceanalyzer")
    sources = {trace.rank: trace.meta.source for trace in report.traces}
    for rank in dict.fromkeys(outcome.rank for outcome in report.outcomes):
        outcomes = [outcome for outcome in report.outcomes if outcome.rank == rank]
        of_rank = [one for one in failing if rank is None or one.rank == rank]
        found = {outcome.rule: [f for f in of_rank if f.rule == outcome.rule] for outcome in outcomes}
        suite = xml.SubElement(root, "testsuite", name=_clean(sources.get(rank, "all ranks")))
        suite.set("tests", str(len(outcomes)))
        suite.set("failures", str(sum(bool(findings) for findings in found.values())))
        suite.set("errors", str(sum(one.status is Status.FAILED for one in outcomes)))
        suite.set("skipped", str(sum(one.status is Status.NOT_APPLICABLE for one in outcomes)))
        for one in outcomes:
            case = xml.SubElement(suite, "testcase", name=one.rule, classname=f"traceanalyzer.{one.group}", time="0")
            if one.status is Status.NOT_APPLICABLE:
                xml.SubElement(case, "skipped", message=_clean(one.why or ""))
            if one.status is Status.FAILED:
                xml.SubElement(case, "error", message=_clean(one.why or ""), type="failed")
            if texts := [f"{f.severity}: {f.message}. {f.advice}" for f in found[one.rule]]:
                failure = xml.SubElement(case, "failure", message=_clean(texts[0]), type="finding")
                failure.text = _clean("\n".join(texts))
    text: bytes = xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _clean(text: str) -> str:
    return _NO_XML.sub("\ufffd", unicode_text(text))


def render_sarif(report: Report, titles: Mapping[str, str], known: Known | None = None) -> bytes:
    """One SARIF document. `titles`: rule -> what it finds, of every rule that may be named."""
    printed = [finding for finding in report.findings if not finding.pedantic]
    placed = [(finding, place) for finding in printed if (place := source_line(finding))]
    rules = sorted({finding.rule for finding, _ in placed})
    described = [{"id": rule, "shortDescription": {"text": titles.get(rule, rule)}} for rule in rules]
    driver = {"name": "traceanalyzer", "semanticVersion": __version__, "rules": described}
    results = [_result(finding, place, rules.index(finding.rule), known) for finding, place in placed]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return indented_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _result(finding: Finding, place: SourceLine, rule_index: int, known: Known | None) -> dict[str, Any]:
    uri = place.file.replace("\\", "/").replace(" ", "%20")
    location = {"artifactLocation": {"uri": uri}, "region": {"startLine": max(place.line, 1)}}
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        **({} if known is None else {"baselineState": state_of(finding, known)}),
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{titled(finding)}. {finding.message}. {finding.advice}"},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"traceanalyzer/v1": fingerprint(finding)},
        "properties": {
            "severity": str(finding.severity),
            "cause": finding.cause,
            "saving": None if finding.saving is None else finding.saving.share,
        },
    }


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of Python: the file as the trace names it, the line from 1, the function."""

    file: str
    line: int
    function: str


def source_line(finding: Finding) -> SourceLine | None:
    """The user's line that most of the finding's time belongs to; None without stacks."""
    return _largest(finding.evidence.get("lines"))


def _largest(lines: Any) -> SourceLine | None:
    lines = lines if isinstance(lines, Mapping) else {}
    timed = {str(name): ns for name, ns in lines.items() if isinstance(ns, int | float)}
    for text in sorted(timed, key=lambda name: (-timed[name], name)):
        if match := _LINE.match(text):
            return SourceLine(match["file"], int(match["line"]), match["function"])
    return None


def fingerprint(finding: Finding) -> str:
    """32 hexadecimal digits that stay when lines move: of the rule, its cause, what it names, file and function."""
    return fingerprint_of(finding.rule, finding.cause, finding.by, finding.evidence.get("lines"))


def fingerprint_of(rule: str, cause: str, by: str | None, lines: Any) -> str:
    """The same of a finding's fields, as they are in the JSON."""
    place = _largest(lines)
    known = [rule, cause, by or ""]
    known += [PurePosixPath(place.file).name, place.function] if place else []
    return hashlib.sha256("\0".join(known).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def state_of(finding: Finding, known: Known) -> str:
    """`new`, `unchanged`, or `updated` where the severity differs, as SARIF calls them."""
    rank = known.get(fingerprint(finding))
    return "new" if rank is None else "unchanged" if rank == finding.severity.rank else "updated"


def is_known(finding: Finding, known: Known | None) -> bool:
    return known is not None and known.get(fingerprint(finding), len(Severity)) <= finding.severity.rank


def render_baseline(report: Report) -> bytes:
    """What identifies each finding, and its severity: all that `--baseline` needs."""
    findings = [
        {"rule": one.rule, "cause": one.cause, "severity": one.severity, "fingerprint": fingerprint(one)}
        for one in report.findings
    ]
    return indented_json({"findings": findings})


def render_github(report: Report, known: Known | None = None) -> str:
    """One command per finding above `info`, at the user's line; a notice of what the baseline knows."""
    return "".join(_command(f, known) for f in report.findings if f.severity in _COMMANDS and not f.pedantic)


def _command(finding: Finding, known: Known | None) -> str:
    place = source_line(finding)
    where = {"file": place.file, "line": str(place.line)} if place else {}
    old, words = is_known(finding, known), f"{finding.rule}, {finding.severity}"
    if known is not None:
        words += ", known" if old else ", new" if state_of(finding, known) == "new" else ", more severe"
    properties = {**where, "title": f"{titled(finding)} ({words})"}
    pairs = (f"{name}={_data(value)}" for name, value in properties.items())
    listed = ",".join(pair.replace(":", "%3A").replace(",", "%2C") for pair in pairs)
    command = "notice" if old else _COMMANDS[finding.severity]
    return f"::{command} {listed}::{_data(f'{finding.message}. {finding.advice}')}\n"


def _data(text: str) -> str:
    """As the runner reads it: percent signs and ends of lines are escaped."""
    return unicode_text(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def render_markdown(report: Report) -> str:
    """Headings from the second level on, so that it can stand in any page."""
    return "\n".join(part for trace in report.traces for part in _of_trace(report, trace))


def _of_trace(report: Report, trace: TraceReport) -> Iterator[str]:
    yield f"## {plain_markdown(trace.meta.source)}\n"
    if trace.verdict:
        yield f"{plain_markdown(trace.verdict)}\n"
    findings = [one for one in report.findings if one.rank == trace.rank and not one.pedantic]
    told = [finding for finding in findings if finding.severity is not Severity.INFO]
    if told:
        rows = [[f"{_MARKS[f.severity]} {f.severity}", titled(f), amount_words(f, trace.step)] for f in told]
        yield to_markdown(["severity", "finding", "saves"], rows)
    for finding in told:
        text = plain_markdown(f"{finding.message}. {finding.advice}")
        yield f"- **{plain_markdown(titled(finding))}** ({finding.rule}): {text}"
    rest = len(findings) - len(told)
    counted = f"{rest} more for information." if rest else ""
    yield f"\n{counted}\n" if told else f"No finding above `info`. {counted}\n"
    for device in trace.accounting:
        rows = []
        for name, ns in device.classes_ns.items():
            if ns:
                share = ns / max(device.length_ns, 1)
                bar = "█" * max(round(_BAR * share), 1)
                rows.append([in_words(name), format_ns(ns), format_share(share), bar])
        yield to_markdown([f"device {device.device}", "time", "share", ""], rows)
