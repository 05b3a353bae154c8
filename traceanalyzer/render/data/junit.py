"""Report -> JUnit's XML: a test case per rule, which fails where a finding is as severe as was asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree as xml

from traceanalyzer.model.finding import Finding, Outcome, Status
from traceanalyzer.model.report import Report
from traceanalyzer.render.data.encode import unicode_text

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: Report, failing: Sequence[Finding]) -> bytes:
    """One document: a suite per trace, and one for a whole job, in which a rule fails that has one of `failing`."""
    root = xml.Element("testsuites", name="traceanalyzer")
    sources = {trace.rank: trace.meta.source for trace in report.traces}
    for rank in dict.fromkeys(outcome.rank for outcome in report.outcomes):
        outcomes = [outcome for outcome in report.outcomes if outcome.rank == rank]
        found = {outcome.rule: [f for f in failing if _is_of(f, outcome)] for outcome in outcomes}
        suite = xml.SubElement(root, "testsuite", name=_clean(sources.get(rank, "all ranks")))
        suite.set("tests", str(len(outcomes)))
        suite.set("failures", str(sum(bool(findings) for findings in found.values())))
        suite.set("errors", str(sum(one.status is Status.FAILED for one in outcomes)))
        suite.set("skipped", str(sum(one.status is Status.NOT_APPLICABLE for one in outcomes)))
        for outcome in outcomes:
            _case(suite, outcome, found[outcome.rule])
    text: bytes = xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _is_of(finding: Finding, outcome: Outcome) -> bool:
    return finding.rule == outcome.rule and (outcome.rank is None or finding.rank == outcome.rank)


def _case(suite: xml.Element, outcome: Outcome, failing: Iterable[Finding]) -> None:
    case = xml.SubElement(
        suite, "testcase", name=outcome.rule, classname=f"traceanalyzer.{outcome.group}", time="0"
    )
    if outcome.status is Status.NOT_APPLICABLE:
        xml.SubElement(case, "skipped", message=_clean(outcome.why or ""))
    if outcome.status is Status.FAILED:
        xml.SubElement(case, "error", message=_clean(outcome.why or ""), type="failed")
    texts = [f"{f.severity}: {f.message}. {f.advice}" for f in failing]
    if texts:
        failure = xml.SubElement(case, "failure", message=_clean(texts[0]), type="finding")
        failure.text = _clean("\n".join(texts))


def _clean(text: str) -> str:
    """What XML can hold."""
    return _NO_XML.sub("\ufffd", unicode_text(text))
