"""Traces as they lie on disk, for copies of them: block by block, never in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from traceanalyzer.model.errors import BadOption, UnreadableTrace
from traceanalyzer.read.text.envelope import Envelope
from traceanalyzer.read.text.source import STDIN, Source

_MOST_HEAD_BYTES = 64 << 20  # of metadata before the events; some jobs write megabytes of it


def blocks_of(source: str) -> Iterator[bytes]:
    """The trace's JSON, unpacked where the file is compressed.

    Raises:
        UnreadableTrace: the file has gone since it was read.
    """
    return Source(source).blocks()


def refuse_standard_input(paths: Sequence[Path]) -> None:
    """
    Raises:
        BadOption: what is to be copied can be read only once.
    """
    if any(str(path) == STDIN for path in paths):
        remedy = "Save it to a file first, or write the overlay alone with -o FILE.pftrace."
        raise BadOption("standard input can be read only once and is not copied", remedy=remedy)


def split_at_events(source: str) -> tuple[bytes, Iterator[bytes]]:
    """(the trace up to where its first event may begin, the rest).

    Raises:
        UnreadableTrace: no events begin in it.
    """
    blocks, envelope, buffer = blocks_of(source), Envelope(source), bytearray()
    for block in blocks:
        buffer += block
        at = envelope.find_events(buffer)
        if at is not None:
            return bytes(buffer[:at]), chain([bytes(buffer[at:])], blocks)
        if len(buffer) > _MOST_HEAD_BYTES:
            break
    raise UnreadableTrace("has no events that others could be put among", where=source)
