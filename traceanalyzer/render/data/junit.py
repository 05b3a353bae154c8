"""Report -> JUnit's XML: a test case per rule, which fails where a finding is as severe as was asked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree as xml

from traceanalyzer.model.finding import Finding, Outcome, Severity, Status
from traceanalyzer.model.report import Report
from traceanalyzer.render.data.encode import unicode_text

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: Report, fail_on: str) -> bytes:
    """One document. `fail_on`: `high`, `medium`, `low`, or `never`, with which nothing fails."""
    worst = -1 if fail_on == "never" else Severity(fail_on).rank
    root = xml.Element("testsuites", name="traceanalyzer")
    for trace in report.traces:
        outcomes = [outcome for outcome in report.outcomes if outcome.rank == trace.rank]
        failing = {f.rule for f in report.findings if f.rank == trace.rank and f.severity.rank <= worst}
        suite = xml.SubElement(root, "testsuite", name=_clean(trace.meta.source), tests=str(len(outcomes)))
        suite.set("failures", str(len(failing)))
        suite.set("errors", str(sum(one.status is Status.FAILED for one in outcomes)))
        suite.set("skipped", str(sum(one.status is Status.NOT_APPLICABLE for one in outcomes)))
        for outcome in outcomes:
            own = (f for f in report.findings if (f.rule, f.rank) == (outcome.rule, outcome.rank))
            _case(suite, outcome, [f for f in own if f.severity.rank <= worst])
    text: bytes = xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


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
