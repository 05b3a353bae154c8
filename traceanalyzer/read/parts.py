"""Reading a file in parts, each by a process of its own.

Part k ends and part k+1 begins at the first separator between events at or behind the same byte. Whether that
place is really an event's end is proved by part k, whose text must parse up to there. Only undamaged files are
read in parts: at the first oddity a part gives up, and the file is read as one.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.read.chunks import Batch, Chunks, Style
from traceanalyzer.read.events import Collector
from traceanalyzer.read.layouts import Codes
from traceanalyzer.read.sources import Source
from traceanalyzer.read.window import Failure, Window


class Unsplittable(Exception):
    """This file cannot be read in parts; read it as one."""


class Part(Chunks):
    """Batches of the events between two bytes of a file.

    Attributes:
        begin: byte behind the last event of the part before; 0 for the first part.
        end: byte behind the last event of this part; None for the last part.
    """

    def __init__(self, source: Source, window_bytes: int, start: int, stop: int | None, style: Style) -> None:
        super().__init__(source, window_bytes)
        self.begin = start
        self.end: int | None = None
        self._stop = stop
        self._style = style
        self.envelope.kind = style.envelope

    def _blocks(self) -> Iterator[bytes]:
        return self.source.blocks(self.begin)

    def _open(self, blocks: Iterator[bytes]) -> Window:
        if self.begin == 0:
            window = super()._open(blocks)
            window.separator = self._style.separator
            return window
        window = Window(b"", self.begin, self._style.separator)
        for block in blocks:
            window.extend(block)
            cut = window.first_cut(0)
            if cut is not None:
                self.begin += cut
                if self._stop is not None and self.begin >= self._stop:
                    raise Unsplittable  # both ends in one event
                window.drop(cut)
                return window
        raise Unsplittable

    def _take(self) -> Batch:
        stop = None if self._stop is None else self._stop - self.window.offset
        if stop is None or stop >= len(self.window):
            return super()._take()
        cut = self.window.first_cut(max(stop, 0))
        if cut is None:
            return []
        batch = self.window.parse(cut)
        if isinstance(batch, Failure):
            raise Unsplittable
        self._ended, self._cut = True, cut
        self.end = self.window.offset + cut
        return batch

    def _last(self) -> Batch:
        if self._stop is not None:
            raise Unsplittable
        return super()._last()

    def _finished(self, before: int, batch: Batch | None = None) -> Batch:
        if self._stop is not None:
            raise Unsplittable
        return super()._finished(before, batch)

    def _repaired(self, cut: int) -> Batch:
        raise Unsplittable

    def _broken_end(self) -> Batch:
        raise Unsplittable

    def _close(self, blocks: Iterator[bytes]) -> None:
        if self._stop is None:
            super()._close(blocks)
        if self.damage:
            raise Unsplittable


def work(out: IO[bytes], path: str, window_bytes: int, start: int, stop: int | None, style: Style) -> None:
    """Read a part and write what was read.

    Raises:
        Unsplittable: the part is not plain events from end to end.
    """
    part, collector = Part(Source(path), window_bytes, start, stop, style), Collector()
    try:
        for batch in part.batches():
            collector.add(batch, part.text)
    except TraceAnalyzerError as error:
        raise Unsplittable from error
    send(part, collector, out)


def send(part: Part, collector: Collector, out: IO[bytes]) -> None:
    """Write a part, layout by layout, freeing each: it is never in memory twice."""
    _dump((part.begin, part.end, part.envelope.header), out)
    counters = collector.counted, collector.anomalies, collector.unknown_categories
    _dump((list(collector.heads), collector.events, counters, collector.metadata), out)
    _dump(len(collector.layouts), out)
    while collector.layouts:
        key = next(iter(collector.layouts))
        layout = collector.layouts.pop(key)
        codes = {name: list(shared.codes) for name, shared in layout.shared.items()}
        _dump((key, layout.rows, codes, layout.buffers), out)


def receive(collector: Collector, stream: IO[bytes]) -> tuple[int, int | None, dict[str, Any]]:
    """Add the part behind those that the collector has; returns its begin, its end and its part of the header."""
    begin, end, header = pickle.load(stream)
    heads, events, (counted, anomalies, unknown), metadata = pickle.load(stream)
    code_of = _translation(heads, collector.heads)
    for _ in range(pickle.load(stream)):
        key, rows, codes, buffers = pickle.load(stream)
        layout = collector.layout(*key)
        translations = {
            name: _translation(codes[name], shared.codes) for name, shared in layout.shared.items()
        }
        for name, translation in {"head": code_of, **translations}.items():
            buffers[name] = translation[np.frombuffer(buffers[name], np.int32)].tobytes()
        buffers["id"] = (np.frombuffer(buffers["id"], np.uint32) + np.uint32(collector.events)).tobytes()
        layout.absorb(rows, buffers)
    collector.events += events
    collector.counted += counted
    collector.anomalies += anomalies
    collector.unknown_categories += unknown
    collector.metadata += metadata
    return begin, end, header


def _translation(values: list[Any], codes: Codes) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Code there -> code here."""
    return np.array([codes[value] for value in values], np.int32)


def _dump(message: Any, out: IO[bytes]) -> None:
    pickle.dump(message, out, protocol=pickle.HIGHEST_PROTOCOL)
