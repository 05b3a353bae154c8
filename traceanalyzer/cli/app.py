"""The program: its commands, and how it ends. Importing this imports click and nothing heavy."""

import gc
import os
import sys
from importlib import import_module

import click

from traceanalyzer.cli.exits import BROKEN_PIPE, COULD_NOT_RUN, guarded, open_closed_streams
from traceanalyzer.cli.output import tell
from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.version import __version__

_TRACES = (".json", ".json.gz", ".json.zst")
_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))

# Modules of several commands.
_OF_MODULE = {
    "agents": ("mcp", "skill"),
    "compare": ("compare", "baseline"),
    "explain": ("explain", "rules"),
    "report": ("report", "brief"),
    "views": ("regions", "ops", "list", "facts", "memory", "table", "collectives"),
}
_MODULES = {name: module for module, names in _OF_MODULE.items() for name in names}
_FUNCTIONS = {"open": "open_", "list": "list_"}  # names that Python has already
_GROUPS = {
    "Diagnose": ("diagnose", "brief", "explain", "facts", "rules"),
    "Look": ("report", "open", "annotate", "regions", "ops", "list", "memory", "table", "collectives"),
    "Compare": ("compare", "baseline"),
    "Record": ("record",),
    "Data": ("export",),
    "Agents": ("mcp", "skill"),
}
NAMES = tuple(sorted(name for names in _GROUPS.values() for name in names))


def command_of(name: str) -> click.Command:
    """Imported when it is first used."""
    module = import_module(f"traceanalyzer.cli.{_MODULES.get(name, name)}")
    command: click.Command = getattr(module, _FUNCTIONS.get(name, name))
    return command


class Program(click.Group):
    """Commands, of which `diagnose` need not be named before a trace; a file named like a command must be `./facts`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command_of(cmd_name) if cmd_name in NAMES else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, with `diagnose` put before what begins with a trace or with an option of `diagnose`."""
        return super().parse_args(ctx, ["diagnose", *args] if self._is_diagnosis(args) else args)

    def _is_diagnosis(self, args: list[str]) -> bool:
        first = args[0] if args else ""
        if first in NAMES:
            return False
        if first.startswith("-") and first != "-":
            return first.partition("=")[0] in {name for one in command_of("diagnose").params for name in one.opts}
        is_path = first == "-" or first.endswith(_TRACES) or any(separator in first for separator in _SEPARATORS)
        return is_path or os.path.exists(first)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, command_of(name).get_short_help_str(64)) for name in names])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the commands that come close also where click is too old to name them."""
        if args[0] not in NAMES and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = " or ".join(map(repr, get_close_matches(args[0], NAMES)))
            meant = f"Did you mean {close}?" if close else "No file has this name either."
            ctx.fail(f"No such command {args[0]!r}. {meant}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Program,
    subcommand_metavar="TRACE... | COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "--version", message="traceanalyzer %(version)s")
def cli() -> None:
    """Read a torch.profiler trace and report why the GPU is idle or slow.

    TRACE alone means `diagnose TRACE`. Each command has its own --help.
    """


def main() -> None:
    """The program: prints errors in one or two lines and exits with the code that says what happened."""
    open_closed_streams()
    if sys.argv[1:2] != ["record"]:  # whose program would inherit it
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else its threads spin for 40 ms: none is needed
    code = run(sys.argv[1:])
    gc.freeze()  # else the interpreter looks for cycles among all objects before it ends: 25 ms
    sys.exit(code)


def run(arguments: list[str]) -> int:
    def invoke() -> int:
        try:
            result = cli.main(arguments, prog_name="traceanalyzer", standalone_mode=False)
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except TraceAnalyzerError as error:
            tell(f"traceanalyzer: {error}", error.where)
            return COULD_NOT_RUN
        except SystemExit:  # by click, with 1, where nobody reads standard error any more
            return BROKEN_PIPE
        return result if isinstance(result, int) else 0

    return guarded(invoke)
