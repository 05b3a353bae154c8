"""Several processes read one large file: this one the first part, workers the others.

Part k ends and part k+1 begins at the first separator between events at or after the same byte. Whether that
place is really an event's end is proved by part k, whose text must parse up to there. Only undamaged files are
read in parts: at the first oddity a part gives up, and the file is read as one.
"""

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Any

import numpy as np

from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.model.interpreter import cores
from traceanalyzer.read.columns.collector import Collector
from traceanalyzer.read.columns.packing import Codes
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


class Part(Batches):
    """Batches of the events between two bytes of a file.

    Attributes:
        begin: byte after the last event of the part before; 0 for the first part.
        end: byte after the last event of this part; None for the last part.
    """

    def __init__(self, source: Source, batch_bytes: int, start: int, stop: int | None, style: Style) -> None:
        super().__init__(source, batch_bytes, _NoRepairs())
        self.envelope.form, self._separator = style
        self.begin, self._stop = start, stop
        self.end: int | None = None

    def batches(self) -> Iterator[Batch]:
        """Lists of raw events in file order. Raises Unsplittable: the part is not plain events from end to end."""
        blocks = self.blocks(self.begin)
        self.text = self._entered(blocks) if self.begin else self.opened(blocks)
        self.text.separator = self._separator
        yield from self.until_the_end(blocks) if self._stop is None else self.taken(blocks)
        if self.damage or (self._stop is not None and self.end is None):
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

    def take(self) -> Batch:
        """As of the whole file, up to the first separator at or after `stop`."""
        if self._stop is None:
            return super().take()
        stop = self._stop - self.text.offset
        if stop >= len(self.text):
            batch = super().take()
            if self.ended:  # the list of events is closed before the next part begins
                raise Unsplittable
            return batch
        cut = self.text.first_cut(max(stop, 0))
        if cut is None:
            return []
        events = self.text.parse(cut)
        if isinstance(events, Failure):
            raise Unsplittable
        self.end_at(cut)
        self.end = self.text.offset + cut
        return events


# A worker costs 0.15 s to start and to hand its part over, in which one process reads this much.
WORTH_BYTES = 16 << 20

# A program of its own rather than a fork: it runs everywhere, does not inherit the caller's threads or its
# __main__, and needs neither pandas nor pyarrow.
_PROGRAM = """
import gc, pickle, sys
gc.disable()
sys.path[:] = pickle.load(sys.stdin.buffer)
from traceanalyzer.read.parallel import work
work(sys.stdout.buffer, *pickle.load(sys.stdin.buffer))
"""


def parts_of(source: Source, jobs: int | None) -> int:
    size = source.plain_bytes() if sys.executable else None
    return max(1, min(jobs or cores(), (size or 0) // WORTH_BYTES))


def read_in_parts(
    path: str, parts: int, batch_bytes: int, progress: Callable[[Source, int], None]
) -> tuple[Batches, Collector] | None:
    """What reading the file as one gives, or None where it has to be read as one."""
    try:
        style = Batches(Source(path), batch_bytes).style()
        if not style.separator:
            return None
        bounds = bounds_of(Source(path).plain_bytes() or 0, parts)
        with workers([(path, batch_bytes, *bounds[k : k + 2], style) for k in range(1, parts)]) as outputs:
            first, collector = Part(Source(path), batch_bytes, 0, bounds[1], style), Collector()
            for batch in first.batches():
                collector.add(batch, first.text_of_batch)
                progress(first.source, first.events)
            end = first.end
            for output in outputs:
                begin, after, header = receive(collector, output)
                if begin != end:
                    return None
                first.envelope.header |= header
                end = after
        first.events = collector.events
        return first, collector
    except (Unsplittable, TraceAnalyzerError, OSError, EOFError, pickle.UnpicklingError):
        return None


def bounds_of(size: int, parts: int) -> list[int | None]:
    """Where each part begins, and None for the end of the file, which is of so many bytes.

    They are equally large: what this process imports meanwhile takes as long as a worker's start.
    """
    return [0, *(size * k // parts for k in range(1, parts)), None]


@contextmanager
def workers(tasks: list[tuple[object, ...]]) -> Iterator[list[IO[bytes]]]:
    """The outputs of one process per task; whatever happens, no process is left behind."""
    import subprocess

    command = [sys.executable, "-P", "-c", _PROGRAM]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    started: list[subprocess.Popen[bytes]] = []
    try:
        for task in tasks:
            worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=quiet, env=environment)
            started.append(worker)
            assert worker.stdin is not None
            worker.stdin.write(pickle.dumps(sys.path) + pickle.dumps(task))  # the task needs the path to load
            worker.stdin.close()
        yield [worker.stdout for worker in started if worker.stdout is not None]
    finally:
        for worker in started:
            worker.kill()
            worker.__exit__(None, None, None)


def work(out: IO[bytes], path: str, batch_bytes: int, start: int, stop: int | None, style: Style) -> None:
    """Read a part and write what was read. Raises Unsplittable: the part is not plain events from end to end."""
    part, collector = Part(Source(path), batch_bytes, start, stop, style), Collector()
    try:
        for batch in part.batches():
            collector.add(batch, part.text_of_batch)
    except TraceAnalyzerError as error:
        raise Unsplittable from error
    send(part, collector, out)


def send(part: Part, collector: Collector, out: IO[bytes]) -> None:
    """Write a part, group by group, freeing each: it is never in memory twice."""
    dump = partial(pickle.dump, file=out, protocol=pickle.HIGHEST_PROTOCOL)
    dump((part.begin, part.end, part.envelope.header))
    dump((list(collector.heads), collector.events, collector.counts(), collector.declared))
    dump(len(collector.groups))
    while collector.groups:
        key = next(iter(collector.groups))
        group = collector.groups.pop(key)
        codes = {name: list(shared.codes) for name, shared in group.shared.items()}
        group.settle_starts()
        dump((key, group.rows, codes, group.buffers))


def receive(collector: Collector, stream: IO[bytes]) -> tuple[int, int | None, dict[str, Any]]:
    """Add the part after those that the collector has; returns its begin, its end and its part of the header."""
    begin, end, header = pickle.load(stream)
    heads, events, counts, declared = pickle.load(stream)
    code_of = _translation(heads, collector.heads)
    for _ in range(pickle.load(stream)):
        key, rows, codes, buffers = pickle.load(stream)
        group = collector.group(*key)
        translations = {name: _translation(codes[name], known.codes) for name, known in group.shared.items()}
        for name, translation in {"head": code_of, **translations}.items():
            buffers[name] = translation[np.frombuffer(buffers[name], np.int32)].tobytes()
        buffers["id"] = (np.frombuffer(buffers["id"], np.uint32) + np.uint32(collector.events)).tobytes()
        group.absorb(rows, buffers)
    collector.events += events
    for counter, part_counter in zip(collector.counts(), counts, strict=True):
        counter.update(part_counter)
    collector.declared.update(declared)
    return begin, end, header


def _translation(values: list[Any], codes: Codes) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Code there -> code here."""
    return np.array([codes[value] for value in values], np.int32)
