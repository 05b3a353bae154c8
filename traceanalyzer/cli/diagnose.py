"""`traceanalyzer diagnose`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer.cli import options, report_output
from traceanalyzer.cli.exits import COULD_NOT_RUN
from traceanalyzer.cli.output import check_outputs, height, look, put, put_text, tell
from traceanalyzer.model.errors import BadOption

if TYPE_CHECKING:
    from traceanalyzer.job.ranks import JobView, Ranks
    from traceanalyzer.model.report import Report

Request = SimpleNamespace
"""The options of `diagnose`, by the names that their decorators give them."""


@click.command(short_help="What cost GPU time, where, and what fixing it saves.")
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=options.PATH_OR_URL)
@options.format_option(*report_output.FORMS)
@options.output_option
@options.file_option("--parquet", text="Write the findings as Parquet, too.")
@options.file_option("--accounting", text="Write the accounting of the time as Parquet, too.")
@options.names_option("--select", "Run this rule only; repeatable.")
@options.names_option("--ignore", "Leave this rule out; repeatable.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="RULE.LIMIT=VALUE",
    callback=options.settings_of,
    help="Change a threshold of a rule.",
)
@options.window_option
@options.step_option
@click.option(
    "--fail-on",
    type=click.Choice(["high", "medium", "low", "never"]),
    default="never",
    show_default=True,
    help="Exit with 1 if a finding is at least this severe.",
)
@options.file_option(
    "--baseline",
    text="Findings of this file, of --format baseline or json, are known: they fail only if more severe now.",
)
@click.option("--no-config", is_flag=True, help="Leave [tool.traceanalyzer] of pyproject.toml unread.")
@click.option("--quiet", is_flag=True, help="Findings only: no header, no footer, no progress.")
@click.option("--verbose", is_flag=True, help="The whole report; by default it is one screen.")
@click.option("--pedantic", is_flag=True, help="Print findings of low confidence, too.")
@click.option(
    "--profile",
    is_flag=True,
    help="Write to standard error how long each index and rule took, and which findings failed a check.",
)
@options.force_option
@options.jobs_option
@options.cache_option
@options.number_option("--rank", "Of a job: diagnose this rank alone.", least=0)
@options.number_option(
    "--as-peers",
    "Of a job: predict its step if this rank were like the others; repeatable, for several ranks.",
    least=0,
    multiple=True,
)
@click.option(
    "--tensors",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The execution trace of TRACE; by default NAME.et.json.gz beside it.",
)
@options.scheduler_option
@click.pass_context
def diagnose(ctx: click.Context, /, **given: Any) -> None:
    """Say what cost GPU time in TRACE, and where.

    `traceanalyzer TRACE` alone does the same.

    TRACE is a .json, .json.gz or .json.zst file of torch.profiler, a folder with one file per rank, or - for
    standard input. Several TRACEs are the ranks of one job. RULE is a name from `traceanalyzer rules`.

    Times of --window count from the first op, annotation, call or kernel, as the report's do.

    \b
    Examples:
      traceanalyzer diagnose trace.json.gz
      traceanalyzer diagnose rank0.json rank1.json --parquet findings.parquet
      traceanalyzer diagnose trace.json --window 12.5ms:80ms --select host-gap
      traceanalyzer diagnose trace.json --step-ms 18.3
      traceanalyzer diagnose trace.json --set scheduler-gap.min_gap_ns=20000
      traceanalyzer diagnose trace.json --quiet --fail-on medium
      traceanalyzer diagnose trace.json --format github --baseline old.json
      zstd -dc trace.json.zst | traceanalyzer diagnose - --format jsonl

    \b
    Exit codes: 0 it ran, 1 --fail-on was met, 2 it could not run, or a rule
    failed while --fail-on was given.
    """
    request = Request(**given)
    if not request.no_config:
        _configure(ctx, request)
    ctx.exit(_run(request))


def _configure(ctx: click.Context, request: Request) -> None:
    """Take what pyproject.toml says of options that the command line leaves open."""
    from traceanalyzer.cli.config import read_config

    config = read_config(Path.cwd(), date.today())
    for rule in config.over:
        tell(f"warning: pyproject.toml: {rule} is no longer ignored: the entry's last day has passed")
    asked = ctx.get_parameter_source("fail_on") is click.core.ParameterSource.COMMANDLINE
    request.fail_on = request.fail_on if asked else config.fail_on or request.fail_on
    request.select = request.select or config.select
    request.ignore = (*request.ignore, *config.ignore)
    request.settings = {**config.settings, **request.settings}
    request.step_ms = request.step_ms or config.step_ms


def _run(request: Request) -> int:
    """Read, analyse, write; the exit code. All that can be refused is refused before reading."""
    from traceanalyzer.cli.ranks import with_ranks

    _check(request)
    baseline = None if request.baseline is None else report_output.baseline_severities(request.baseline)
    say = partial(_say, request, baseline, perf_counter_ns())
    how = {name: getattr(request, name) for name in ("quiet", "jobs", "cache", "scheduler", "tensors")}
    code: int = with_ranks(request.traces, request.window, say, meanwhile=_import_analysis, **how)
    return code


def _say(
    request: Request, baseline: Mapping[str, int] | None, read_from: int, ranks: Ranks, view: JobView | None
) -> int:
    from traceanalyzer.render.text.report import render_text
    from traceanalyzer.report.diagnosis import report_of_ranks, with_iterations
    from traceanalyzer.report.rank_report import Asked

    read_to = perf_counter_ns()
    if request.rank is not None:
        if request.rank not in ranks.all:
            names = ", ".join(map(str, ranks.all[:8]))
            raise BadOption(f"no trace of rank {request.rank}: the traces are of ranks {names}")
        ranks.all, view = (request.rank,), None
    asked = Asked.of(request.select, request.ignore, request.settings, request.step_ms)
    report = with_iterations(report_of_ranks(ranks, view, asked, request.as_peers), ranks)
    report_output.write_tables(report, ranks, findings=request.parquet, accounting=request.accounting)
    failed = report_output.failing(report, request.fail_on, baseline)
    if request.form == "text":
        how = {name: getattr(request, name) for name in ("quiet", "verbose", "pedantic")}
        text = render_text(report, height=height(request.output), **how, **look(request.output))
        put_text(text, request.output)
    else:
        put(report_output.rendered(request.form, report, failed, baseline), request.output)
    _warn(report)
    report_output.warn_of_measured(report)
    report_output.warn_of_step(request.step_ms, ranks)
    if request.profile:
        report_output.print_profile(report, ranks, read_from, read_to)
    if request.fail_on == "never":
        return 0
    return COULD_NOT_RUN if report_output.failed_rules(report) else int(bool(failed))


def _import_analysis() -> None:
    for name in ("traceanalyzer.report.diagnosis", "traceanalyzer.render.text.report"):
        import_module(name)
    import_module("traceanalyzer.rule.registry").all_rules()


def _check(request: Request) -> None:
    """Raises TraceAnalyzerError: a rule or limit is unknown, or an output could not be written."""
    if request.select or request.ignore or request.settings:
        from traceanalyzer.rule.registry import configured, select_rules

        configured(select_rules(request.select, request.ignore), request.settings)
    if request.baseline is not None and request.fail_on == "never" and request.form not in report_output.MARKED:
        remedy = "Give --fail-on, or --format github or sarif, which mark what is new."
        raise BadOption("--baseline is given without --fail-on", remedy=remedy)
    outputs = [path for path in (request.output, request.parquet, request.accounting) if path]
    check_outputs(outputs, inputs=request.traces, force=request.force)


def _warn(report: Report) -> None:
    """Otherwise a damaged recording, one without the GPU, or a failed rule would pass a check in silence."""
    for rule, why in report_output.failed_rules(report).items():
        tell(f"warning: rule {rule} failed, so its fault may be there: {why}")
    for trace in report.traces:
        for damage in trace.meta.damage:
            tell(f"warning: {trace.meta.source}: {damage.message}", trace.meta.source)
        if not trace.busy:
            why = (trace.unavailable or {}).get("busy", "no event of a GPU")
            tell(f"warning: {trace.meta.source}: the GPU was not judged: {why}", trace.meta.source)
