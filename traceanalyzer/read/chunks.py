"""Bytes -> batches of raw events, never holding more than a window of the file.

Places a window does not parse, the error's position tells why: at the end, the cut fell into a string or a nested
object, so look further left; behind a `]`, the array is over; anywhere else, the data are damaged and `repair.py`
saves what can be saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from traceanalyzer.model.trace import Damage
from traceanalyzer.read.envelope import Envelope
from traceanalyzer.read.repair import Repairs
from traceanalyzer.read.sources import BLOCK_BYTES, Source
from traceanalyzer.read.window import Failure, Window

Batch = list[Any]

_MAX_HEADER_BYTES = 256 << 20  # bytes without events before the file is given up; 100 times any seen
_MAX_EVENT_BYTES = 64 << 20  # bytes without a cut before they are treated as damage; 1,000 times any seen


class Style(NamedTuple):
    """How a file is laid out: object or array, and the bytes between two events (empty where there are none)."""

    envelope: str
    separator: bytes


class Chunks:
    """Batches of raw events of one file.

    Attributes:
        envelope: what stands around the events; complete once the batches are exhausted.
    """

    def __init__(self, source: Source, window_bytes: int = BLOCK_BYTES) -> None:
        self.source = source
        self.envelope = Envelope(source.name)
        self.events = 0
        self.window = Window()
        self._window_bytes = window_bytes
        self._repairs = Repairs()
        self._truncated: list[Damage] = []
        self._cut = 0
        self._ended = False

    @property
    def damage(self) -> list[Damage]:
        """What could not be read, with byte offsets into the plain JSON; complete at the end."""
        repaired = self._repairs.damage(self.events)
        return [*self.source.damage, *repaired, *self._truncated, *self.envelope.damage]

    def text(self) -> bytes:
        """The JSON of the batch being handled."""
        return self.window.text(0, self._cut)

    def batches(self) -> Iterator[Batch]:
        """Lists of raw events in file order; None stands for an event that could not be read.

        Raises:
            UnreadableTrace: not JSON, or nothing in it can be salvaged.
            NotATrace: JSON without a list of events.
        """
        blocks = self._sliced(self._blocks())
        self.window = self._open(blocks)
        for block in blocks:
            self.window.extend(block)
            if len(self.window) >= self._window_bytes:
                yield from self._handed(self._take())
            if self._ended:
                break
        while not self._ended and (batch := self._take()):
            yield from self._handed(batch)
        if not self._ended:
            yield from self._handed(self._last())
        self._close(blocks)

    def style(self) -> Style:
        """How the file is laid out, told by its first window."""
        window = self._open(self._sliced(self._blocks()))
        next(window.cuts(), None)
        return Style(self.envelope.kind, window.separator)

    def _blocks(self) -> Iterator[bytes]:
        return self.source.blocks()

    def _handed(self, batch: Batch) -> Iterator[Batch]:
        """The batch, if it is one; its text is kept for as long as it is being handled."""
        self.events += len(batch)
        if batch:
            yield batch
        if not self._ended:
            self.window.drop(self._cut)
            self._cut = 0

    def _sliced(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Blocks no larger than a window: a compressed block may unpack to megabytes."""
        for block in blocks:
            for start in range(0, len(block), self._window_bytes):
                yield block[start : start + self._window_bytes]

    def _open(self, blocks: Iterator[bytes]) -> Window:
        """Read up to the first event."""
        buffer = bytearray()
        for block in blocks:
            buffer += block
            start = self.envelope.find_events(bytes(buffer))
            if start is not None:
                return Window(bytes(buffer[start:]), start)
            if len(buffer) > _MAX_HEADER_BYTES:
                break
        raise self.envelope.refusal(bytes(buffer), self.source.damage)

    def _take(self) -> Batch:
        """The events up to the last cut that the parser accepts; empty where there is no cut yet."""
        for cut in self.window.cuts():
            batch = self.window.parse(cut)
            if not isinstance(batch, Failure):
                self._cut = cut
                return batch
            if batch.over:
                return self._finished(batch.at)
            if batch.at < cut - 1:
                return self._repaired(cut)
        return self._repaired(len(self.window)) if len(self.window) > _MAX_EVENT_BYTES else []

    def _last(self) -> Batch:
        """The last event and the array's end, or what a cut file leaves of it."""
        batch = self.window.parse()
        if isinstance(batch, Failure):
            return self._finished(batch.at) if batch.over else self._broken_end()
        return self._finished(len(self.window), batch)

    def _finished(self, before: int, batch: Batch | None = None) -> Batch:
        """The array's own bracket is the last one before an index: the events end there."""
        self._ended = True
        self._cut = self.window.array_end(before)
        parsed = self.window.parse(self._cut) if batch is None else batch
        return [] if isinstance(parsed, Failure) else parsed

    def _repaired(self, cut: int) -> Batch:
        self._cut = cut
        return self._repairs.mend(self.window.text(0, cut), self.window.offset)

    def _broken_end(self) -> Batch:
        """No parsable end: a damaged or half-written last event, or a file that just stops."""
        end = self.window.likely_array_end()
        self._ended = end is not None
        self._cut = len(self.window) if end is None else end
        body = self.window.text(0, self._cut).rstrip().removesuffix(b",")
        return self._repairs.mend(body, self.window.offset, cut=end is None) if body.strip() else []

    def _close(self, blocks: Iterator[bytes]) -> None:
        """Metadata behind the events, and whether the file ends as it should."""
        end = self.window.offset + (self._cut if self._ended else len(self.window))
        if not self._ended:
            message = f"the file ends at byte {end:,}, before the list of events is closed"
            self._truncated.append(Damage("truncated", message, byte_offset=end))
            return
        rest = bytearray(self.window.text(self._cut + 1))
        for block in blocks:
            rest += block
            if len(rest) > _MAX_HEADER_BYTES:
                break
        self.envelope.close(bytes(rest), end + 1)
