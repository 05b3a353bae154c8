"""`traceanalyzer record`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from traceanalyzer.cli.options import FILE, force_option
from traceanalyzer.cli.output import ascii_only, check_outputs, tell, width
from traceanalyzer.model.errors import TraceAnalyzerError


@click.command(
    short_help="Run a program, record some steps, say what costs GPU time.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-m", "module", is_flag=True, help="COMMAND is a module, as after python -m.")
@click.option(
    "--output",
    "-o",
    type=FILE,
    default=Path("trace.json.gz"),
    show_default=True,
    metavar="FILE",
    help="The trace; several ranks write trace-rank0.json.gz and so on.",
)
@click.option("--steps", type=click.IntRange(min=1), default=6, show_default=True, help="Steps to record.")
@click.option(
    "--skip", type=click.IntRange(min=0), default=10, show_default=True, help="Steps of warm-up before."
)
@click.option(
    "--timed",
    type=click.IntRange(min=1),
    default=24,
    show_default=True,
    help="Steps to time without the profiler, before the recorded ones and again after them.",
)
@click.option("--shapes", is_flag=True, help="Record the shapes of ops' inputs.")
@click.option("--stacks", is_flag=True, help="Record Python calls; slows the recorded steps most.")
@click.option("--memory", is_flag=True, help="Record allocations.")
@click.option("--stop", is_flag=True, help="End the program after the recording.")
@click.option(
    "--every-call-of",
    metavar="MODULE:FUNCTION",
    help="Each call of this function is a step; __main__:step is one of the script.",
)
@force_option
@click.pass_context
def record(
    ctx: click.Context, /, command: tuple[str, ...], module: bool, output: Path, force: bool, **options: Any
) -> None:
    """Run COMMAND, record some of its steps with torch.profiler, and say what cost GPU time.

    The program needs no change. It runs in its own Python, which needs only torch. Its output and exit code are
    unchanged; the diagnosis goes to standard error. A step ends with the optimizer's step. Without an optimizer a step
    is a replay of a CUDA graph, or a forward pass of the outermost module.

    Steps are timed without the profiler before and after the recorded ones. The trace holds these times, versions, the
    command, the git commit, and variables that change how fast it runs. `diagnose` takes the step's time from it.

    \b
    Examples:
      traceanalyzer record -- python train.py --epochs 1
      traceanalyzer record --stop -- torchrun --nproc-per-node 2 train.py
      traceanalyzer record -m package.train --batch 64
      traceanalyzer record --every-call-of serve:answer -- python serve.py

    \b
    Exit codes: the program's own, 128 plus the signal that ended it,
    2 if it could not be started.
    """
    from traceanalyzer.recorder.launch import run

    words = ["-m", *command] if module else list(command)
    check_outputs([output], force=force)
    try:
        outcome = run(
            words, {"path": str(output), **options}, lambda text: tell(f"traceanalyzer record: {text}")
        )
    except OSError as error:
        problem = f"{shlex.join(words[:1])} cannot be started: {error.strerror}"
        raise TraceAnalyzerError(problem, remedy="Give the command as in a shell, after --.") from error
    if outcome.problem:
        tell(f"traceanalyzer record: nothing is recorded: {outcome.problem}")
    else:
        _diagnose(outcome.written)
    ctx.exit(outcome.exit_code)


def _diagnose(paths: tuple[Path, ...]) -> None:
    """The diagnosis on standard error: standard output is the program's."""
    from traceanalyzer.cli.loading import load_all
    from traceanalyzer.render.text.report import render_text
    from traceanalyzer.report.diagnosis import diagnose

    report = diagnose(load_all(paths, quiet=True))
    text = render_text(report, width=width(), colour=False, ascii_only=ascii_only())
    click.echo(text, err=True, nl=False)
