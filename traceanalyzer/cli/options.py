"""Arguments and options that several commands share."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.step_times import GivenStep
from traceanalyzer.model.units import parse_window

F = TypeVar("F", bound=Callable[..., Any])


class _LocalPath(click.Path):
    """A path of this machine; a URL would lose a slash."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if "://" in str(value):
            self.fail(f"{value!r} is a URL: fetch it, and pass the file.", param, ctx)
        return super().convert(value, param, ctx)


class _PathOrUrl(click.Path):
    """A path, or the URL of what fsspec reads."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from traceanalyzer.read.remote import as_path, is_url

        return as_path(value) if is_url(value) else super().convert(value, param, ctx)


def file_option(*names: str, text: str, **more: Any) -> Callable[[F], F]:
    return click.option(*names, type=FILE, metavar="FILE", help=text, **more)


def number_option(name: str, text: str, *, least: int = 1, metavar: str | None = "N", **more: Any) -> Callable[[F], F]:
    kind, shown = click.IntRange(min=least), ("default" in more) or None
    return click.option(name, type=kind, metavar=metavar, help=text, show_default=shown, **more)


def _step_time(_: click.Context, __: click.Parameter, value: str | None) -> GivenStep | None:
    try:
        return GivenStep.of(value)
    except BadOption as error:
        raise click.BadParameter(f"{error.problem}. {error.remedy}") from None


def format_option(*forms: str) -> Callable[[F], F]:
    """`--format`, by default the first of the forms."""
    return click.option("--format", "form", type=click.Choice(forms), default=forms[0], show_default=True)


def names_option(name: str, text: str) -> Callable[[F], F]:
    return click.option(name, multiple=True, metavar="RULE", callback=split_names, help=text)


def split_names(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def settings_of(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for (name, equals, _), value in zip(pairs, values, strict=True):
        if not equals or "." not in name:
            raise click.BadParameter(f"{value!r} is not rule.limit=value", ctx, param)
    return {name.strip(): text.strip() for name, _, text in pairs}


PATH = _LocalPath(path_type=Path)
PATH_OR_URL = _PathOrUrl(path_type=Path)
FILE = click.Path(path_type=Path, dir_okay=False)
trace_argument = click.argument("trace", type=PATH_OR_URL)
output_option = file_option("--output", "-o", text="Write to FILE instead of standard output.")
force_option = click.option("--force", is_flag=True, help="Replace existing output files.")
window_option = click.option(
    "--window",
    callback=lambda ctx, param, value: parse_window(value) if value else None,
    metavar="START:END",
    help="Analyse this part only, as offsets: 12.5ms:80ms.",
)
Window = tuple[int | None, int | None]
step_option = click.option(
    "--step-ms",
    callback=_step_time,
    metavar="MS",
    help="How long a step takes without the profiler, where you have measured it: 18.3, or 18.3,18.9, or 18:19.",
)
limit_option = number_option("--limit", "Rows of each list.", default=10)
cache_option = click.option(
    "--cache", is_flag=True, help="Keep the parsed trace in ~/.cache/traceanalyzer for the next run."
)
scheduler_option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Of a job: read and analyse its ranks on the workers of this Dask scheduler, such as tcp://host:8786.",
)
jobs_option = number_option(
    "--jobs", "Processes that read a large file or a job's ranks, and threads that analyse it; by default one per core."
)


def view_options(*forms: str) -> Callable[[F], F]:
    """What commands that print one view of one trace take: the trace, the form, and where it goes."""

    def decorated(command: F) -> F:
        return trace_argument(format_option(*forms)(output_option(force_option(command))))

    return decorated
