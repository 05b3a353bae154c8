"""Texts without what is confidential: files, paths, lines of python, annotations, modules and hosts.

Names of ops, calls and kernels stay: without them a report says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from traceanalyzer.model.arrays import distinct
from traceanalyzer.model.device_times import DeviceTime
from traceanalyzer.model.finding import Finding
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.report import Report, TraceReport, Verdict
from traceanalyzer.model.trace import Meta, Trace, matching, narrow_codes, texts_of
from traceanalyzer.render.html.plot_data import MemoryCurve, StepSeries, Stretch


def redacted_curve(curve: MemoryCurve, redactor: Redactor) -> MemoryCurve:
    """Without lines of python."""
    owners = (replace(owner, op=redactor.text(owner.op), line=None) for owner in curve.owners)
    return replace(curve, owners=tuple(owners))


def redacted_steps(series: StepSeries, redactor: Redactor) -> StepSeries:
    """Ops that are annotations are told by their kind alone."""
    ops = (tuple((redactor.text(name), ns) for name, ns in step.ops) for step in series.steps)
    steps = zip(series.steps, ops, strict=True)
    return replace(series, steps=tuple(replace(step, ops=named) for step, named in steps))


def redacted_stretch(one: Stretch, redactor: Redactor) -> Stretch:
    """The same of an idle stretch."""
    return replace(one, op=one.op and redactor.text(one.op), line=None)


FILE, LINE, MARK, PATH = "[file]", "[python line]", "[annotation]", "[path]"
# `path.py(12): function` as traces name frames; `path.py:12` and `path.py`; a path of two parts or more.
_FRAME = re.compile(r"[^\s\"',;<>()]*\.pyx?\b(?:\(\d+\))?(?:: ?[\w.<>]+)?")
_SLASHES = re.compile(r"(?<![\w/.])(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][\w.+@-]+){2,}[/\\]?")
_MODULE = re.compile(r"nn\.Module: \S+")
# Characters of a name: shorter ones, and bare numbers, say nothing, and numbers need their digits.
_SHORTEST = 3
_MARKS = ("user_annotation", "gpu_user_annotation")


@dataclass(frozen=True, slots=True)
class Redactor:
    """What to put in the place of each confidential name; no names where nothing is confidential."""

    names: Mapping[str, str]
    on: bool = False
    _known: dict[str, str] = field(default_factory=dict, repr=False)

    def text(self, text: str) -> str:
        """The text without the names, and without all that looks like a path or a line of python."""
        if self.on and text not in self._known:
            self._known[text] = self._redacted(text)
        return self._known[text] if self.on else text

    def _redacted(self, text: str) -> str:
        for name, instead in self.names.items():  # longest first
            if name in text:
                text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", instead, text)
        for pattern, instead in ((_MODULE, LINE), (_FRAME, LINE), (_SLASHES, PATH)):
            text = pattern.sub(instead, text)
        return text

    def value(self, value: Any) -> Any:
        """The same for texts in lists and mappings; numbers stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, list | tuple) else value

    def report(self, report: Report) -> Report:
        """The report with redacted texts and without what the file says of the machine."""
        if not self.on:
            return report
        return replace(
            report,
            traces=tuple(self._head(trace) for trace in report.traces),
            findings=tuple(self._finding(finding) for finding in report.findings),
            outcomes=tuple(replace(one, why=one.why and self.text(one.why)) for one in report.outcomes),
        )

    def _head(self, trace: TraceReport) -> TraceReport:
        steps = trace.steps
        return replace(
            trace,
            meta=self._meta(trace.meta),
            verdict=self.text(trace.verdict),
            summary=Verdict(**{part: self.text(text) for part, text in asdict(trace.summary).items()}),
            accounting=tuple(self._time(time) for time in trace.accounting),
            parts={},
            regions=(),
            unavailable=self.value(dict(trace.unavailable or {})),
            steps=None if steps is None else replace(steps, source=self.text(steps.source)),
        )

    def _time(self, time: DeviceTime) -> DeviceTime:
        causes = (replace(one, op=one.op and self.text(one.op)) for one in time.idle_causes)
        return replace(time, idle_causes=tuple(causes))

    def _meta(self, meta: Meta) -> Meta:
        damage = tuple(replace(one, message=self.text(one.message)) for one in meta.damage)
        return replace(meta, source=FILE, thread_names={}, extra={}, damage=damage, other_args={})

    def _finding(self, finding: Finding) -> Finding:
        return replace(
            finding,
            title=self.text(finding.title),
            profiler_command="",
            cause=self.text(finding.cause),
            message=self.text(finding.message),
            advice=self.text(finding.advice),
            by=None if finding.by is None else self.text(finding.by),
            evidence=self.value(finding.evidence),
        )


NO_REDACTION = Redactor({})


def redactor_of(traces: Iterable[Trace]) -> Redactor:
    """What hides the names that these traces hold."""
    names: dict[str, str] = {}
    for trace in traces:
        names |= dict.fromkeys(_annotations(trace), MARK)
        names |= dict.fromkeys(_frames(trace), LINE)
        source = Path(trace.meta.source)
        names |= {text: FILE for text in (str(source), source.name) if len(text) > 1}
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return Redactor({name: names[name] for name in longest_first}, on=True)


def _annotations(trace: Trace) -> set[str]:
    found: set[str] = set()
    for lane in (trace.lanes.cpu, trace.lanes.gpu):
        there = matching(lane, "category", _MARKS.__contains__)
        codes = distinct(narrow_codes(lane, "name")[there])
        found |= {str(texts_of(lane, "name")[code]) for code in codes.tolist() if code >= 0}
    return {name for name in found if len(name) >= _SHORTEST and re.search(r"[^\W\d_]", name)}


def _frames(trace: Trace) -> set[str]:
    found = {
        str(name)
        for column in ("module_hierarchy", "call_stack")
        for name in texts_of(trace.lanes.cpu, column)
    }
    found |= {part.strip() for text in list(found) for part in re.split(r";|\n", text)}
    if trace.meta.rows.get("python"):
        found |= set(map(str, texts_of(trace.lanes.python, "name")))
    return {name for name in found if len(name) > 1 and re.search(r"[^\w]", name)}
