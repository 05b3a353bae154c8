"""The report in the form that was asked for, other than text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from traceanalyzer.cli.output import tell

if TYPE_CHECKING:
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
