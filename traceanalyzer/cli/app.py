"""Commands, files, options and exit codes; no analysis. Heavy imports stand where they are needed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import click

from traceanalyzer.cli.exits import COULD_NOT_RUN, guarded
from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.version import __version__

_TRACE = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path, dir_okay=False)

_ELSEWHERE = dict.fromkeys(("table", "memory", "ops"), "traceanalyzer.cli.commands_table")
"""Commands that live in a module of their own, imported when first named."""


class Commands(click.Group):
    """Knows commands by name before their modules are imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        there = {name for name, module in _ELSEWHERE.items() if importlib.util.find_spec(module)}
        return sorted({*super().list_commands(ctx), *there})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _ELSEWHERE and cmd_name in self.list_commands(ctx):
            command = getattr(importlib.import_module(_ELSEWHERE[cmd_name]), cmd_name)
            return command if isinstance(command, click.Command) else None
        return super().get_command(ctx, cmd_name)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="traceanalyzer %(version)s")
def cli() -> None:
    """Read a torch.profiler trace and say why the GPU is idle or slow.

    \b
    Examples:
      traceanalyzer diagnose trace.json.gz
      traceanalyzer diagnose traces/ --format json --output report.json
      traceanalyzer explain scheduler-gap
    """


def _settings(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for (name, equals, _), value in zip(pairs, values, strict=True):
        if not equals or "." not in name:
            raise click.BadParameter(f"{value!r} is not rule.limit=value", ctx, param)
    return {name.strip(): text.strip() for name, _, text in pairs}


def _slugs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(slug.strip() for value in values for slug in value.split(",") if slug.strip())


@cli.command()
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=_TRACE)
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "jsonl"]), default="text", show_default=True
)
@click.option(
    "--output", type=_FILE, metavar="FILE", help="Write the report there instead of standard output."
)
@click.option("--parquet", type=_FILE, metavar="FILE", help="Write the findings as Parquet, too.")
@click.option("--accounting", type=_FILE, metavar="FILE", help="Write where every ns went as Parquet, too.")
@click.option(
    "--select", multiple=True, metavar="RULE", callback=_slugs, help="Run this rule only; repeatable."
)
@click.option(
    "--ignore", multiple=True, metavar="RULE", callback=_slugs, help="Leave this rule out; repeatable."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="RULE.LIMIT=VALUE",
    callback=_settings,
    help="Override a limit.",
)
@click.option("--window", metavar="START:END", help="Analyse this part only, as offsets: 12.5ms:80ms.")
@click.option(
    "--fail-on",
    type=click.Choice(["high", "medium", "low", "never"]),
    default="never",
    show_default=True,
    help="Exit with 1 if a finding is at least this severe.",
)
@click.option("--quiet", is_flag=True, help="Findings only: no header, no footer, no progress.")
@click.option("--force", is_flag=True, help="Replace output files that are already there.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that read a file of 32 MB or more; by default one per core.",
)
@click.option(
    "--cache", is_flag=True, help="Keep the parsed trace in ~/.cache/traceanalyzer for the next run."
)
@click.pass_context
def diagnose(ctx: click.Context, /, **options: Any) -> None:
    """Say what cost GPU time in TRACE, and where.

    TRACE is a .json, .json.gz or .json.zst file of torch.profiler, a folder with one file per rank, or - for
    standard input. Several TRACEs are the ranks of one job. RULE is a name from `traceanalyzer rules`.

    Times of --window count from the trace's first event, as the report prints them.

    \b
    Examples:
      traceanalyzer diagnose trace.json.gz
      traceanalyzer diagnose rank0.json rank1.json --parquet findings.parquet
      traceanalyzer diagnose trace.json --window 12.5ms:80ms --select scheduler-gap
      traceanalyzer diagnose trace.json --set scheduler-gap.min_gap_ns=20000
      traceanalyzer diagnose trace.json --quiet --fail-on medium
      zstd -dc trace.json.zst | traceanalyzer diagnose - --format jsonl

    \b
    Exit codes: 0 it ran, 1 --fail-on was met, 2 it could not run.
    """
    from traceanalyzer.cli.run import Request, run_diagnose

    if run_diagnose(Request(**options)):
        ctx.exit(1)


@cli.command()
def rules() -> None:
    """List the rules, each with its title.

    \b
    Example:
      traceanalyzer rules
    """
    from traceanalyzer.cli.run import list_rules

    list_rules()


@cli.command()
@click.argument("rule")
def explain(rule: str) -> None:
    """Print what RULE looks for, why it costs, and how sure it is.

    \b
    Example:
      traceanalyzer explain scheduler-gap
    """
    from traceanalyzer.cli.run import explain_rule

    explain_rule(rule)


@cli.command()
@click.argument("trace", type=_TRACE)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace files that are already there.")
def export(**options: Any) -> None:
    """Write the frames of TRACE into DIR as Parquet, for DuckDB, polars or pandas.

    \b
    Examples:
      traceanalyzer export trace.json.gz frames/
      duckdb -c "select name, sum(dur_ns) from 'frames/gpu.parquet' group by name"
    """
    from traceanalyzer.cli.run import export_frames

    export_frames(**options)


def main() -> None:
    """The program: prints errors in one or two lines and exits with the code that says what happened."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""

    def invoke() -> int:
        try:
            result = cli.main(arguments, prog_name="traceanalyzer", standalone_mode=False)
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except TraceAnalyzerError as error:
            click.echo(f"traceanalyzer: {error}", err=True)
            return COULD_NOT_RUN
        return result if isinstance(result, int) else 0

    return guarded(invoke)
