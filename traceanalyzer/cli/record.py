"""`traceanalyzer record`."""

import shlex
from pathlib import Path
from typing import Any

import click

from traceanalyzer.cli.options import file_option, force_option, number_option
from traceanalyzer.cli.output import ascii_only, check_outputs, height, tell, width
from traceanalyzer.model.errors import OutputExists, TraceAnalyzerError

_DIAGNOSED = 3  # recordings of separate processes; the others are named only


@click.command(
    short_help="Run a program, record some steps, say what costs GPU time.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-m", "module", is_flag=True, help="COMMAND is a module, as after python -m.")
@file_option(
    "--output",
    "-o",
    text="The trace; several ranks write trace-rank0.json.gz and so on, further processes trace-2.json.gz.",
    default=Path("trace.json.gz"),
    show_default=True,
)
@number_option("--steps", "Steps to record.", metavar=None, default=6)
@number_option("--skip", "Steps of warm-up before.", least=0, metavar=None, default=10)
@number_option(
    "--timed",
    "Steps to time without the profiler, before the recorded ones and again after them.",
    metavar=None,
    default=24,
)
@click.option("--shapes", is_flag=True, help="Record the shapes of ops' inputs.")
@click.option("--stacks", is_flag=True, help="Record Python calls; slows the recorded steps most.")
@click.option("--memory", is_flag=True, help="Record allocations.")
@click.option(
    "--tensors/--no-tensors",
    default=None,
    help="Record which tensors ops read and write, in two steps more; default: if the program is one process.",
)
@click.option(
    "--max-wait",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait at most so long for step times to settle, as while torch.compile compiles.",
)
@click.option("--require", is_flag=True, help="Exit with 2 if nothing is recorded and the program succeeds.")
@click.option("--stop", is_flag=True, help="End the program after the recording.")
@click.option(
    "--every-call-of",
    metavar="MODULE:FUNCTION",
    help="Each call of this function is a step; __main__:step is one of the script.",
)
@force_option
@click.pass_context
def record(
    ctx: click.Context,
    /,
    command: tuple[str, ...],
    module: bool,
    output: Path,
    force: bool,
    require: bool,
    **options: Any,
) -> None:
    """Run COMMAND, record some of its steps with torch.profiler, and say what cost GPU time.

    The program needs no change. It runs in its own Python, which needs only torch. Its output and exit code are
    unchanged; the diagnosis goes to standard error. A step ends with the optimizer's step. Without an optimizer a step
    is a replay of a CUDA graph, a backward pass, or a forward pass of the outermost module.

    Steps are timed without the profiler before and after the recorded ones. The trace holds these times, versions, the
    command, the git commit, and variables that change how fast it runs. `diagnose` takes the step's time from it.

    A profiler that the program starts itself has precedence: its trace is diagnosed if nothing else is recorded.
    Signals to end or to save a checkpoint are passed on to the program.

    \b
    Examples:
      traceanalyzer record -- python train.py --epochs 1
      traceanalyzer record --stop -- torchrun --nproc-per-node 2 train.py
      traceanalyzer record -m package.train --batch 64
      traceanalyzer record --every-call-of serve:answer -- python serve.py

    \b
    Exit codes: the program's own, 128 plus the signal that ended it,
    2 if it could not be started, or nothing is recorded and --require is given.
    """
    from traceanalyzer.recorder.files import existing_outputs
    from traceanalyzer.recorder.launch import NoFolder, run

    words = ["-m", *command] if module else list(command)
    if "{rank}" not in str(output):
        check_outputs([output], force=force)
    if not force and (existing := existing_outputs(str(output))):
        raise OutputExists("already exists", where=Path(existing[0]), remedy="Pass --force to replace it.")
    try:
        outcome = run(words, {"path": str(output), "force": force, **options}, _say)
    except NoFolder as error:
        cause = error.__cause__
        reason = (cause.strerror if isinstance(cause, OSError) else None) or cause
        problem = f"cannot hold the recorder's files: {reason}"
        raise TraceAnalyzerError(
            problem, where=output.resolve().parent, remedy="Choose another place with --output."
        ) from error
    except OSError as error:
        problem = f"{shlex.join(words[:1])} cannot be started: {error.strerror}"
        raise TraceAnalyzerError(problem, remedy="Give the command as in a shell, after --.") from error
    jobs = outcome.jobs
    if outcome.problem:
        _say(f"nothing is recorded: {outcome.problem}")
        if outcome.rivals:
            _say(f"this is the trace of the program's own profiler: {outcome.rivals[-1]}")
            jobs = (outcome.rivals[-1:],)
    for paths in jobs[:_DIAGNOSED]:
        _diagnose(paths)
    for paths in jobs[_DIAGNOSED:]:
        _say(f"not diagnosed here: traceanalyzer diagnose {shlex.join(map(str, paths))}")
    ctx.exit(2 if require and outcome.problem and not outcome.exit_code else outcome.exit_code)


def _say(text: str) -> None:
    tell(f"traceanalyzer record: {text}")


def _diagnose(paths: tuple[Path, ...]) -> None:
    """The diagnosis on standard error: standard output and the exit code are the program's."""
    from traceanalyzer import diagnose
    from traceanalyzer.cli.loading import load_all
    from traceanalyzer.render.text.report import render_text

    try:
        report = diagnose(load_all(paths, quiet=True))
        text = render_text(report, width=width(), colour=False, ascii_only=ascii_only(), height=height())
    except Exception as error:  # the program has succeeded or failed before, which its exit code says
        again = f"traceanalyzer diagnose {shlex.join(map(str, paths))}"
        _say(f"the recording is complete, and its diagnosis failed: {error or type(error).__name__}; run {again}")
        return
    click.echo(text, err=True, nl=False)
