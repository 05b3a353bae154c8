"""The report in the form that was asked for, other than text, and its tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traceanalyzer.cli.files import written
from traceanalyzer.cli.output import tell

if TYPE_CHECKING:
    from traceanalyzer.job.ranks import Ranks
    from traceanalyzer.model.finding import Finding
    from traceanalyzer.model.report import Report

FORMS = ("text", "json", "jsonl", "github", "junit", "markdown", "sarif")


def rendered(form: str, report: Report, failing: Sequence[Finding]) -> bytes:
    """The bytes of the report. `failing`: the findings that fail the run."""
    if form == "junit":
        from traceanalyzer.render.data.junit import render_junit

        return render_junit(report, failing)
    if form == "sarif":
        from traceanalyzer.render.data.sarif import render_sarif
        from traceanalyzer.rule.registry import all_rules

        return render_sarif(report, {rule.slug: rule.title for rule in all_rules()})
    if form == "markdown":
        return _markdown(report)
    if form == "github":
        from traceanalyzer.render.data.github import render_github

        _summarise(_markdown(report))
        return render_github(report).encode("utf-8", "backslashreplace")
    from traceanalyzer.render.data import json

    return json.render_json(report) if form == "json" else json.render_jsonl(report)


def _markdown(report: Report) -> bytes:
    from traceanalyzer.render.data.markdown import render_markdown

    return render_markdown(report).encode("utf-8", "backslashreplace")


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
    """The findings, and where every nanosecond went, as Parquet where a file for it is given."""
    if findings is not None:
        from traceanalyzer.render.data.parquet import write_findings

        with written(findings) as stream:
            write_findings(report, stream)
    if accounting is not None:
        from traceanalyzer.render.data.parquet import write_accounting
        from traceanalyzer.report.summary import accounting_of

        frame = accounting_of(ranks)
        with written(accounting) as stream:
            write_accounting(frame, [trace.meta.source for trace in report.traces], stream)
