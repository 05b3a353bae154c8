"""Reading a file in parts, each by a process of its own.

Part k ends and part k+1 begins at the first separator between events at or after the same byte. Whether that
place is really an event's end is proved by part k, whose text must parse up to there. Only undamaged files are
read in parts: at the first oddity a part gives up, and the file is read as one.
"""

from __future__ import annotations

from collections.abc import Iterator

from traceanalyzer.read.text.batches import Batch, Batches, Style
from traceanalyzer.read.text.event_text import EventText, Failure
from traceanalyzer.read.text.repair import Repairs
from traceanalyzer.read.text.source import Source


class Unsplittable(Exception):
    """This file cannot be read in parts; read it as one."""


class _NoRepairs(Repairs):
    """A part in which something has to be mended is given up."""

    def mend(self, text: bytes, offset: int, *, truncated: bool = False) -> Batch:
        raise Unsplittable


class Part:
    """Batches of the events between two bytes of a file.

    Attributes:
        begin: byte after the last event of the part before; 0 for the first part.
        end: byte after the last event of this part; None for the last part.
        whole: the reader of the file, which this part leads from `begin` to `end`.
    """

    def __init__(self, source: Source, batch_bytes: int, start: int, stop: int | None, style: Style) -> None:
        self.begin = start
        self.end: int | None = None
        self.whole = Batches(source, batch_bytes, _NoRepairs())
        self.whole.envelope.form = style.envelope
        self._stop = stop
        self._separator = style.separator

    def batches(self) -> Iterator[Batch]:
        """Lists of raw events in file order.

        Raises:
            Unsplittable: the part is not plain events from end to end.
        """
        blocks = self.whole.blocks(self.begin)
        text = self._entered(blocks) if self.begin else self.whole.opened(blocks)
        text.separator = self._separator
        self.whole.text = text
        if self._stop is None:
            yield from self.whole.until_the_end(blocks)
        else:
            yield from self.whole.batches_by(self._take, blocks)
        if self.whole.damage or (self._stop is not None and self.end is None):
            raise Unsplittable

    def _entered(self, blocks: Iterator[bytes]) -> EventText:
        """The text from the first event on that begins in this part."""
        text = EventText(b"", self.begin, self._separator)
        searched = 0
        for block in blocks:
            text.extend(block)
            cut = text.first_cut(searched)
            searched = max(len(text) - len(self._separator) - 1, 0)
            if cut is not None:
                self.begin += cut
                if self._stop is not None and self.begin >= self._stop:
                    raise Unsplittable  # both ends in one event
                text.drop(cut)
                return text
        raise Unsplittable

    def _take(self) -> Batch:
        """As of the whole file, up to the first separator at or after `stop`."""
        text = self.whole.text
        stop = (self._stop or 0) - text.offset
        if stop >= len(text):
            return self._undivided(self.whole.take())
        cut = text.first_cut(max(stop, 0))
        if cut is None:
            return []
        batch = text.parse(cut)
        if isinstance(batch, Failure):
            raise Unsplittable
        self.whole.end_at(cut)
        self.end = text.offset + cut
        return batch

    def _undivided(self, batch: Batch) -> Batch:
        if self.whole.ended:  # the list of events is closed before the next part begins
            raise Unsplittable
        return batch
