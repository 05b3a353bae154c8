"""What `diagnose` writes beside its text: machine-readable formats, tables, warnings, and findings that fail a run."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING, Any

from traceanalyzer.cli.output import tell, written
from traceanalyzer.model.errors import BadOption

if TYPE_CHECKING:
    from traceanalyzer.job.ranks import Ranks
    from traceanalyzer.model.analysis import Analysis
    from traceanalyzer.model.finding import Finding
    from traceanalyzer.model.report import Report
    from traceanalyzer.model.step_times import GivenStep


FORMS = ("text", "json", "jsonl", "github", "junit", "markdown", "sarif", "baseline")
MARKED = ("github", "sarif")
"""Formats that mark what a baseline knows."""
_REMEDY = "Write one with traceanalyzer diagnose TRACE --format baseline -o FILE."
_WHY_APART = (
    "the profiler's tracer may still be attached, the program may not have settled, or something else ran; "
    "the report takes the {taken} one"
)
_STARTED_NS = perf_counter_ns() - process_time_ns()  # when the interpreter began, as near as can be told
_MOST_LINES = 25  # of --profile: indexes and rules


def rendered(form: str, report: Report, failing: Sequence[Finding], known: Mapping[str, int] | None = None) -> bytes:
    """The report; `failing` are the findings that fail the run, `known` those of the baseline."""
    from traceanalyzer.render.data import ci, json
    from traceanalyzer.rule.registry import all_rules

    if form == "junit":
        return ci.render_junit(report, failing)
    if form == "sarif":
        return ci.render_sarif(report, {rule.slug: rule.title for rule in all_rules()}, known)
    if form in ("markdown", "github"):
        markdown = ci.render_markdown(report).encode("utf-8", "backslashreplace")
        if form == "markdown":
            return markdown
        _summarise(markdown)
        return ci.render_github(report, known).encode("utf-8", "backslashreplace")
    plain = {"json": json.render_json, "jsonl": json.render_jsonl, "baseline": ci.render_baseline}
    return plain[form](report)


def _summarise(markdown: bytes) -> None:
    """The job's summary, where the runner of GitHub Actions wants one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with open(path, "ab") as stream:
            stream.write(markdown)
    except OSError as error:
        tell(f"warning: {path}: the job's summary cannot be written: {error.strerror}", path)


def write_tables(report: Report, ranks: Ranks, *, findings: Path | None, accounting: Path | None) -> None:
    if findings is not None:
        from traceanalyzer.render.data.results import write_findings

        with written(findings) as stream:
            write_findings(report, stream)
    if accounting is not None:
        from traceanalyzer.render.data.results import write_accounting
        from traceanalyzer.report.summary import accounting_of

        frame = accounting_of(ranks)
        with written(accounting) as stream:
            write_accounting(frame, [trace.meta.source for trace in report.traces], stream)


def baseline_severities(path: Path) -> Mapping[str, int]:
    """Fingerprint -> rank of the worst severity, of what `diagnose --format baseline` or `json` wrote."""
    from traceanalyzer.model.finding import Severity
    from traceanalyzer.render.data.ci import fingerprint_of

    ranks: dict[str, int] = {}
    for finding in _findings(path):
        try:
            lines = (finding.get("evidence") or {}).get("lines")
            name = finding.get("fingerprint") or fingerprint_of(
                str(finding["rule"]), str(finding["cause"]), finding.get("by"), lines
            )
            rank = Severity(finding["severity"]).rank
        except (AttributeError, KeyError, TypeError, ValueError):
            raise BadOption("one of its findings cannot be read", where=path, remedy=_REMEDY) from None
        ranks[str(name)] = min(rank, ranks.get(name, rank))
    return ranks


def _findings(path: Path) -> list[Any]:
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise BadOption(f"cannot be read: {error.strerror}", where=path, remedy=_REMEDY) from error
    except (ValueError, RecursionError):
        raise BadOption("is no JSON", where=path, remedy=_REMEDY) from None
    findings = document.get("findings") if isinstance(document, dict) else None
    if not isinstance(findings, list):
        raise BadOption("is no report of findings", where=path, remedy=_REMEDY)
    return findings


def failing(report: Report, fail_on: str, baseline: Mapping[str, int] | None) -> list[Finding]:
    if fail_on == "never":
        return []
    from traceanalyzer.model.finding import Severity
    from traceanalyzer.render.data.ci import is_known

    return [
        finding
        for finding in report.findings
        if finding.severity.rank <= Severity(fail_on).rank and not finding.pedantic
        if not is_known(finding, baseline)
    ]


def failed_rules(report: Report) -> dict[str, str]:
    """Rule -> why it failed, of the rules that raised an error on a trace, or whose file is broken."""
    from traceanalyzer.model.finding import Status

    return {one.rule: one.why or "" for one in report.outcomes if one.status is Status.FAILED}


def warn_of_step(step_ms: GivenStep | None, ranks: Ranks) -> None:
    if step_ms is None:
        return
    doubts = ranks.each(_doubt, dict.fromkeys(ranks.all), step_ms.ms)
    doubt = next((text for text in doubts.values() if text), None)
    if doubt:
        tell(f"warning: --step-ms {step_ms.text}: {doubt}; is it in ms, and of this run?")


def _doubt(analysis: Analysis, _: None, step_ms: float) -> str | None:
    from traceanalyzer.model.errors import Unavailable
    from traceanalyzer.replay.saving import Forecast

    try:
        return analysis.index(Forecast).doubt(step_ms)
    except Unavailable:
        return None


def warn_of_measured(report: Report) -> None:
    """Warn if the times that the recorder measured differ, or do not fit their trace."""
    from traceanalyzer.model.step_times import GIVEN

    for trace in report.traces:
        measured = trace.measured
        if measured is None or measured.unused == GIVEN:
            continue
        if measured.unused:
            why = f"its measured step of {measured.ms:.3g} ms is not used: {measured.unused}"
            tell(f"warning: {trace.meta.source}: {why}", trace.meta.source)
        elif measured.differ:
            before, after = measured.parts_ms
            taken = "earlier" if measured.ms == before else "later"
            why = f"a step took {before:.3g} ms before the recorded steps and {after:.3g} ms after them"
            tell(f"warning: {trace.meta.source}: {why}: {_WHY_APART.format(taken=taken)}", trace.meta.source)


def print_profile(report: Report, ranks: Ranks, read_from_ns: int, read_to_ns: int) -> None:
    """Prints phases, the slowest indexes and rules, each without what it asked for, and findings that failed checks."""
    from traceanalyzer.model.units import format_ns

    sums: Counter[str] = Counter()
    for times in ranks.each(_times, dict.fromkeys(ranks.all)).values():
        sums.update(times)
    around = {"start-up": read_from_ns - _STARTED_NS, "reading": read_to_ns - read_from_ns}
    total = ("in total", perf_counter_ns() - _STARTED_NS)
    for name, ns in [total, *around.items(), *sums.most_common(_MOST_LINES)]:
        print(f"{format_ns(ns):>10}  {name}", file=sys.stderr)
    for failure in report.failures:
        print(f"{'check':>10}  {failure}", file=sys.stderr)


def _times(analysis: Analysis, _: None, __: None) -> Mapping[str, int]:
    return analysis.times
