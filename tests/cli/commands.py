"""Commands called in this process, and a small trace for them."""

from pathlib import Path

from click.testing import CliRunner, Result

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.cli.app import cli
from traceanalyzer.model.errors import TraceAnalyzerError

MS = 1_000_000


def written(path: Path, **header: object) -> Path:
    """A trace in a file: two kernels with 6 ms between them."""
    made = TraceBuilder(**header)
    for at, begin in enumerate((0, 7 * MS)):
        made.launched((begin, 10_000), (begin + 20_000, MS), at + 1)
    return made.write(path)


def call(*arguments: object) -> Result:
    """The command as click runs it; errors for the user come through."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def printed(*arguments: object) -> str:
    """Standard output of a command that went well."""
    result = call(*arguments)
    assert result.exception is None, result.exception
    assert result.exit_code == 0
    return result.stdout


def diagnosed(*arguments: object) -> str:
    """Standard output of a diagnosis that went well."""
    return printed("diagnose", *arguments)


def refused(*arguments: object) -> str:
    """What the user reads when a command could not run."""
    result = call(*arguments)
    assert isinstance(result.exception, TraceAnalyzerError), result.output
    return str(result.exception)
