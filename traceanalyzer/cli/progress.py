"""Progress of a long read: bytes, events and rate on one line of the terminal, from one second on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TextIO

from traceanalyzer.cli.output import dumb
from traceanalyzer.model.units import format_bytes

SILENT_S = 1.0
EVERY_S = 0.2
_FILE_WIDTH = 50  # characters of a path that are shown, the last
_ERASE = "\r\x1b[K"


class ProgressLine:
    """Call it with (bytes read, bytes in all or None, events read); leave it to erase the line."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._begun = clock()
        self._due = self._begun + SILENT_S
        self._shown = False

    def __call__(self, done: int, total: int | None, events: int) -> None:
        now = self._clock()
        if now < self._due:
            return
        self._due = now + EVERY_S
        self._shown = True
        done = min(done, total or done)  # of a file in parts the parts' number times what the first one is at
        size = f"{format_bytes(done)} of {format_bytes(total)}" if total else format_bytes(done)
        rate = format_bytes(done / (now - self._begun))
        self._stream.write(f"{_ERASE}{size}, {events:,} events, {rate}/s")
        self._stream.flush()

    def of_rank(self, file: str, done: int, count: int) -> None:
        """One more of the ranks is done; the file says which."""
        now = self._clock()
        if now < self._due:
            return
        self._due, self._shown = now + EVERY_S, True
        self._stream.write(f"{_ERASE}{done} of {count} ranks, {file[-_FILE_WIDTH:]}")
        self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._stream.write(_ERASE)
            self._stream.flush()


@contextmanager
def told_progress(quiet: bool = False) -> Iterator[ProgressLine | None]:
    """A line on the terminal, where the user looks at one and did not ask for quiet."""
    if quiet or dumb() or not sys.stderr.isatty():
        yield None
        return
    with ProgressLine(sys.stderr) as progress:
        yield progress


@contextmanager
def told_ranks(quiet: bool = False) -> Iterator[Callable[[str, int, int], None] | None]:
    """The same of a job's ranks, which are read and analysed beside each other."""
    with told_progress(quiet) as line:
        yield None if line is None else line.of_rank
