"""Bytes -> batches of raw events, never holding more than a piece of the file.

Where the text does not parse up to a cut, the error's position tells why: at the cut, which fell into a string or a
nested object; after a `]`, where the list is over; anywhere else, where the data are damaged and `repair.py` recovers
events. Text without a cut is looked at again when it has doubled, so that the time stays linear.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.model.trace import Damage
from traceanalyzer.read.foreign_files import format_of
from traceanalyzer.read.text.envelope import Envelope
from traceanalyzer.read.text.event_text import EventText, Failure
from traceanalyzer.read.text.repair import Repairs
from traceanalyzer.read.text.source import BATCH_BYTES, Source

Batch = list[Any]

_MAX_HEADER_BYTES = 64 << 20  # bytes without events before the file is given up; 25 times any seen
_MAX_EVENT_BYTES = 4 << 20  # bytes without a cut before they are treated as damage; 60 times any seen


class Style(NamedTuple):
    """How a file is laid out: object or array, and the bytes between two events (empty where there are none)."""

    envelope: str
    separator: bytes


class Batches:
    """Batches of raw events of one file.

    Attributes:
        envelope: what stands around the events; complete once the batches are exhausted.
        ended: the list of events, or the part of it that is wanted, is over.
    """

    def __init__(
        self,
        source: Source,
        batch_bytes: int = BATCH_BYTES,
        repairs: Repairs | None = None,
        events_key: str = "traceEvents",
    ) -> None:
        self.source = source
        self.envelope = Envelope(source.name, events_key)
        self.events = 0
        self.text = EventText()
        self.ended = False
        self._batch_bytes = batch_bytes
        self._wanted_bytes = batch_bytes
        self._repairs = repairs or Repairs()
        self._truncated: list[Damage] = []
        self._cut = 0

    @property
    def damage(self) -> list[Damage]:
        """What could not be read, with byte offsets into the plain JSON; complete at the end."""
        repaired = self._repairs.damage(self.events)
        return [*self.source.damage, *repaired, *self._truncated, *self.envelope.damage]

    def text_of_batch(self) -> bytes:
        """The JSON of the batch being handled."""
        return self.text.text(0, self._cut)

    def batches(self) -> Iterator[Batch]:
        """Lists of raw events in file order; None stands for an event that could not be read.

        Raises UnreadableTrace: not JSON, or nothing in it can be salvaged; NotATrace: JSON without a list of events.
        """
        blocks = self.blocks()
        self.text = self.opened(blocks)
        yield from self.until_the_end(blocks)

    def listed(self) -> Iterator[Batch]:
        """`batches` up to the list's end; what follows is not read."""
        blocks = self.blocks()
        self.text = self.opened(blocks)
        yield from self._to_list_end(blocks)

    def style(self) -> Style:
        """How the file is laid out, told by its first events."""
        text = self.opened(self.blocks())
        return Style(self.envelope.form, text.learn_separator())

    def blocks(self, start: int = 0) -> Iterator[bytes]:
        """Blocks from a byte on, none larger than a batch: a compressed block may unpack to megabytes."""
        for block in self.source.blocks(start):
            for offset in range(0, len(block), self._batch_bytes):
                yield block[offset : offset + self._batch_bytes]

    def opened(self, blocks: Iterator[bytes]) -> EventText:
        """Read up to the first event."""
        buffer, wanted = bytearray(), 0
        for block in blocks:
            if not buffer and (other := format_of(block)):
                raise UnreadableTrace(f"is {other.name}", where=self.source.name, remedy=other.remedy)
            buffer += block
            if len(buffer) < wanted:
                continue
            start = self.envelope.find_events(buffer)
            if start is not None:
                return EventText(buffer[start:], start)
            if len(buffer) > _MAX_HEADER_BYTES:
                break
            wanted = 2 * len(buffer)
        start = self.envelope.find_events(buffer, all_read=True)
        if start is None:
            raise self.envelope.refusal(buffer, self.source.damage)
        return EventText(buffer[start:], start)

    def until_the_end(self, blocks: Iterator[bytes]) -> Iterator[Batch]:
        """The batches up to the list's end, and then the metadata that follow it."""
        yield from self._to_list_end(blocks)
        if not self.ended:
            return
        end = self.text.offset + self._cut
        rest = bytearray(self.text.text(self._cut + 1))
        for block in blocks:
            rest += block
            if len(rest) > _MAX_HEADER_BYTES:
                break
        self.envelope.close(bytes(rest), end + 1)

    def _to_list_end(self, blocks: Iterator[bytes]) -> Iterator[Batch]:
        yield from self.taken(blocks)
        if not self.ended:
            yield from self._handed(self._last())
        if not self.ended:
            end = self.text.offset + len(self.text)
            message = f"the file ends at byte {end:,}, before the list of events is closed"
            self._truncated.append(Damage("truncated", message, byte_offset=end))

    def taken(self, blocks: Iterator[bytes]) -> Iterator[Batch]:
        """What `take` takes as often as the text is long enough for it, and at the end what is left."""
        for block in blocks:
            self.text.extend(block)
            if len(self.text) >= self._wanted_bytes:
                yield from self._handed(self.take())
            if self.ended:
                return
        while not self.ended and (batch := self.take()):
            yield from self._handed(batch)

    def take(self) -> Batch:
        """The events up to the last cut that the parser accepts; empty where there is no cut yet."""
        for cut in self.text.likely_cuts():
            batch = self._parsed(cut)
            if batch is not None:
                return batch
        counted = self.text.counted_cut()
        if counted is None:
            return self._without_a_cut()
        batch = self._parsed(counted)
        return self._repaired(counted) if batch is None else batch

    def _without_a_cut(self) -> Batch:
        """Nothing while the text may be the beginning of an event; the list may also be over, or the text too long."""
        if len(self.text) < 2 * self._batch_bytes:
            return []
        batch = self.text.parse()
        if not isinstance(batch, Failure):
            return self._finished(len(self.text), batch)
        if batch.over:
            return self._finished(batch.at)
        return self._oversized() if len(self.text) > _MAX_EVENT_BYTES else []

    def _oversized(self) -> Batch:
        """The events that can be mended in a text that is too long for one; none in blanks, else one that is lost."""
        self._cut = next(self.text.likely_cuts(), len(self.text))
        text = self.text.text(0, self._cut).strip()
        if text and b"}" not in text:
            text = b"}"  # no event ends in it: it stands for one that is lost
        return self._repairs.mend(text, self.text.offset)

    def end_at(self, cut: int) -> None:
        self.ended, self._cut = True, cut

    def _handed(self, batch: Batch) -> Iterator[Batch]:
        """The batch, if it is one; its text is kept for as long as it is being handled."""
        self.events += len(batch)
        self._wanted_bytes = self._batch_bytes if self._cut else 2 * len(self.text)
        if batch:
            yield batch
        if not self.ended:
            self.text.drop(self._cut)
            self._cut = 0

    def _parsed(self, cut: int) -> Batch | None:
        """The events up to a cut, also where they have to be mended; None where it is none."""
        batch = self.text.parse(cut)
        if not isinstance(batch, Failure):
            self._cut = cut
            return batch
        if batch.over:
            return self._finished(batch.at)
        return self._repaired(cut) if batch.at < cut - 1 else None

    def _last(self) -> Batch:
        """The last event and the array's end, or what a truncated file leaves of it."""
        batch = self.text.parse()
        if isinstance(batch, Failure):
            return self._finished(batch.at) if batch.over else self._broken_end()
        return self._finished(len(self.text), batch)

    def _finished(self, before: int, batch: Batch | None = None) -> Batch:
        """The array's own bracket is the last one before an index: the events end there."""
        self.end_at(self.text.array_end(before))
        parsed = self.text.parse(self._cut) if batch is None else batch
        return [] if isinstance(parsed, Failure) else parsed

    def _repaired(self, cut: int) -> Batch:
        self._cut = cut
        return self._repairs.mend(self.text.text(0, cut), self.text.offset)

    def _broken_end(self) -> Batch:
        """No parsable end: a damaged or half-written last event, or a file that just stops."""
        end = self.text.likely_array_end()
        self.ended = end is not None
        self._cut = len(self.text) if end is None else end
        body = self.text.text(0, self._cut).rstrip().removesuffix(b",")
        return self._repairs.mend(body, self.text.offset, truncated=end is None) if body.strip() else []
