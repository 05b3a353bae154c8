"""The program: its commands, and how it ends. Importing this imports click and nothing heavy."""

from __future__ import annotations

import sys

import click

from traceanalyzer.cli.diagnose import diagnose
from traceanalyzer.cli.exits import COULD_NOT_RUN, guarded
from traceanalyzer.cli.explain import explain
from traceanalyzer.cli.export import export
from traceanalyzer.cli.facts import facts
from traceanalyzer.cli.indexes import indexes
from traceanalyzer.cli.memory import memory
from traceanalyzer.cli.ops import ops
from traceanalyzer.cli.rules import rules
from traceanalyzer.cli.table import table
from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="traceanalyzer %(version)s")
def cli() -> None:
    """Read a torch.profiler trace and say why the GPU is idle or slow.

    \b
    Examples:
      traceanalyzer diagnose trace.json.gz
      traceanalyzer diagnose traces/ --format json --output report.json
      traceanalyzer explain scheduler-gap
    """


for command in (diagnose, explain, export, facts, indexes, memory, ops, rules, table):
    cli.add_command(command)


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
