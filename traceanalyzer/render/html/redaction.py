"""Texts without what is confidential: files, paths, lines of python, annotations, modules and hosts.

Names of ops, calls and kernels stay: without them a report says nothing.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from traceanalyzer.model.arrays import distinct
from traceanalyzer.model.report import Report, TraceReport
from traceanalyzer.model.trace import Trace, matching, narrow_codes, texts_of

R = TypeVar("R", bound=Any)
FILE, LINE, MARK, PATH = "[file]", "[python line]", "[annotation]", "[path]"
_SAID = ("title", "cause", "message", "advice", "by", "evidence")  # fields of a finding
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
        if not self.on:
            return text
        if text not in self._known:
            shown = text
            for name, instead in self.names.items():  # longest first
                if name in shown:
                    shown = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", instead, shown)
            for pattern, instead in ((_MODULE, LINE), (_FRAME, LINE), (_SLASHES, PATH)):
                shown = pattern.sub(instead, shown)
            self._known[text] = shown
        return self._known[text]

    def value(self, value: Any) -> Any:
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
            findings=tuple(replace(self._texts(one, *_SAID), profiler_command="") for one in report.findings),
            outcomes=tuple(self._texts(one, "why") for one in report.outcomes),
        )

    def _texts(self, record: R, *names: str) -> R:
        return replace(record, **{name: self.value(getattr(record, name)) for name in names})

    def _head(self, trace: TraceReport) -> TraceReport:
        damage = tuple(self._texts(one, "message") for one in trace.meta.damage)
        times = (
            replace(t, idle_causes=tuple(self._texts(one, "op") for one in t.idle_causes)) for t in trace.accounting
        )
        return replace(
            self._texts(trace, "verdict", "unavailable"),
            meta=replace(trace.meta, source=FILE, thread_names={}, extra={}, damage=damage, other_args={}),
            summary=self._texts(trace.summary, *asdict(trace.summary)),
            accounting=tuple(times),
            parts={},
            regions=(),
            steps=trace.steps and self._texts(trace.steps, "source"),
        )


NO_REDACTION = Redactor({})


def redactor_of(traces: Iterable[Trace]) -> Redactor:
    names: dict[str, str] = {}
    for trace in traces:
        for lane in (trace.lanes.cpu, trace.lanes.gpu):
            codes = distinct(narrow_codes(lane, "name")[matching(lane, "category", _MARKS.__contains__)])
            marks = [str(texts_of(lane, "name")[code]) for code in codes.tolist() if code >= 0]
            names |= {mark: MARK for mark in marks if len(mark) >= _SHORTEST and re.search(r"[^\W\d_]", mark)}
        names |= dict.fromkeys(_frames(trace), LINE)
        source = Path(trace.meta.source)
        names |= {text: FILE for text in (str(source), source.name) if len(text) > 1}
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return Redactor({name: names[name] for name in longest_first}, on=True)


def _frames(trace: Trace) -> set[str]:
    found = {str(name) for column in ("module_hierarchy", "call_stack") for name in texts_of(trace.lanes.cpu, column)}
    found |= {part.strip() for text in list(found) for part in re.split(r";|\n", text)}
    if trace.meta.rows.get("python"):
        found |= set(map(str, texts_of(trace.lanes.python, "name")))
    return {name for name in found if len(name) > 1 and re.search(r"[^\w]", name)}
