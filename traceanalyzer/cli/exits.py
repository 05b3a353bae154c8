"""How the program ends when it is interrupted, or its output cannot be written."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

COULD_NOT_RUN = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells count
TERMINATED = 143  # 128 + SIGTERM
BROKEN_PIPE = 141  # 128 + SIGPIPE


class Terminated(BaseException):
    """SIGTERM: files that are half written go away as after Ctrl-C."""


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    def end(number: int, frame: object) -> None:
        raise Terminated

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # a program that runs us in a thread of its own has handlers of its own
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def guarded(program: Callable[[], int]) -> int:
    """The program's exit code, also when Ctrl-C or a fault of our own cuts it short."""
    try:
        with _ended_by_sigterm():
            return program()
    except Terminated:
        return TERMINATED
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # of standard error: that of standard output is `emit`'s
        _silence(sys.stderr.fileno())
        return BROKEN_PIPE
    except MemoryError:
        click.echo("traceanalyzer: error: not enough memory\n  Pass --window, or fewer traces.", err=True)
        return COULD_NOT_RUN
    except Exception:
        import traceback

        traceback.print_exc()
        click.echo("traceanalyzer: this is a fault of the program, not of your trace; please report it", err=True)
        return COULD_NOT_RUN


def open_closed_streams() -> None:
    """Connect closed standard streams with the null device, or the next files that are opened would become them."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this stream's
            setattr(sys, name, os.fdopen(number, mode))


def emit(content: bytes) -> None:
    """Write to standard output, all of it now."""
    try:
        click.echo(content, nl=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout.fileno())
        raise click.exceptions.Exit(BROKEN_PIPE) from None
    except OSError as error:
        _silence(sys.stdout.fileno())
        click.echo(f"traceanalyzer: error: standard output cannot be written: {error.strerror}", err=True)
        raise click.exceptions.Exit(COULD_NOT_RUN) from None


def _silence(stream: int) -> None:
    """What is still buffered goes nowhere, or the interpreter would complain about it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream)
    os.close(nowhere)
