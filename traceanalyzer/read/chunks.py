"""Bytes -> batches of raw events, never holding more than a window of the file.

A window ends at the file's own separator between events, looked for from its right end; brackets are put
around it and the parser proves the cut: a window that starts at an event and parses as a list ends at an
event's end. No byte is scanned in Python. Where a window does not parse, the error's position tells why: at
the end, the cut fell into a string or a nested object, so look further left; behind a `]`, the array is over;
anywhere else, the data are damaged and `repair.py` saves what can be saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from traceanalyzer.errors import NotATrace, UnreadableTrace
from traceanalyzer.read.repair import repair
from traceanalyzer.read.sources import BLOCK_BYTES, Source
from traceanalyzer.trace import Damage

Event = dict[str, Any]
Batch = list[Any]

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_SEPARATOR = re.compile(rb"\}\s*,\s*\{")
_BASE_TIME = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d+)')
_MAX_HEADER_BYTES = (
    256 << 20
)  # bytes without a traceEvents key before the file is given up; 100 times any seen
_MAX_EVENT_BYTES = 64 << 20  # bytes without a cut before they are treated as damage; 1,000 times any seen
_MAX_CUTS = 16  # wrong cuts tried at the same separator before all spellings of it are tried


class Chunks:
    """Batches of raw events of one file.

    After the batches are exhausted:
        header: top-level keys other than traceEvents, before and after it.
        envelope: "object" or "array".
        damage: what could not be read, with byte offsets into the plain JSON.
    """

    def __init__(self, source: Source, window_bytes: int = BLOCK_BYTES) -> None:
        self.source = source
        self.header: dict[str, Any] = {}
        self.envelope = "object"
        self.damage: list[Damage] = []
        self.events = 0
        self.text = b""
        self._window = window_bytes
        self._separator = b""
        self._offset = 0
        self._ended = False

    def batches(self) -> Iterator[Batch]:
        """Lists of raw events in file order; None stands for an event that could not be read.

        While a batch is being handled, `text` is the JSON that it came from.

        Raises:
            UnreadableTrace: not JSON, or nothing in it can be salvaged.
            NotATrace: JSON without a list of events.
        """
        blocks = self._sliced(self.source.blocks())
        buffer = self._open(blocks)
        for block in blocks:
            buffer += block
            if len(buffer) < self._window:
                continue
            batch, buffer = self._cut(buffer)
            if batch:
                yield self._counted(batch)
            if self._ended:
                break
        while not self._ended:
            batch, rest = self._cut(buffer)
            if not batch:
                break
            buffer = rest
            yield self._counted(batch)
        if not self._ended:
            batch, buffer = self._last(buffer)
            yield self._counted(batch)
        self._close(buffer + b"".join(blocks))

    def _counted(self, batch: Batch) -> Batch:
        self.events += len(batch)
        return batch

    def _sliced(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Blocks no larger than a window: a compressed block may unpack to megabytes."""
        for block in blocks:
            for start in range(0, len(block), self._window):
                yield block[start : start + self._window]

    # -- before the events -------------------------------------------------------------------------------

    def _open(self, blocks: Iterator[bytes]) -> bytes:
        """Read up to the first event; returns what follows the opening bracket."""
        buffer = b""
        for block in blocks:
            buffer += block
            start = self._find_events(buffer)
            if start is not None:
                self._offset = start
                return buffer[start:]
            if len(buffer) > _MAX_HEADER_BYTES:
                break
        raise self._no_events(buffer)

    def _find_events(self, buffer: bytes) -> int | None:
        """Where the first event may start: behind the bracket of a bare array or of traceEvents."""
        text = buffer.removeprefix(b"\xef\xbb\xbf").lstrip()
        if text.startswith(b"["):
            self.envelope = "array"
            return len(buffer) - len(text) + 1
        match = _EVENTS_KEY.search(buffer) if text.startswith(b"{") else None
        if match is None:
            return None
        head = buffer[: match.start()].removeprefix(b"\xef\xbb\xbf").rstrip().removesuffix(b",")
        self._read_metadata(head + b"}", "before")
        return match.end()

    def _no_events(self, buffer: bytes) -> Exception:
        name = self.source.name
        text = buffer.removeprefix(b"\xef\xbb\xbf").strip()
        if self.source.damage:
            return UnreadableTrace(
                self.source.damage[0].message, where=name, remedy="Copy or record it again."
            )
        if not text:
            return UnreadableTrace("holds nothing but blanks", where=name, remedy="Record the trace again.")
        try:
            content = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            offset = _byte_position(text, error.pos)
            problem = f"is not JSON: {str(error).split(':')[0]} at byte {offset:,}"
            return UnreadableTrace(problem, where=name, remedy=_EXPECTED)
        keys = list(content) if isinstance(content, dict) else []
        shown = f"; its top-level keys are {', '.join(keys[:8])}" if keys else ""
        return NotATrace(f"is JSON, but holds no traceEvents{shown}", where=name, remedy=_origin_of(keys))

    # -- the events --------------------------------------------------------------------------------------

    def _cut(self, buffer: bytes) -> tuple[Batch, bytes]:
        """The events up to the last cut that the parser accepts, and the bytes behind it."""
        failure: tuple[int, orjson.JSONDecodeError] | None = None
        for cut in self._cuts(buffer):
            document = b"[%b]" % buffer[:cut]
            try:
                batch = orjson.loads(document)
            except orjson.JSONDecodeError as error:
                at = _byte_position(document, error.pos)
                if at > len(document) - 3:
                    continue
                if "content after document" in str(error):
                    return self._finish(buffer, at)
                failure = failure or (cut, error)
                break
            return self._accept(batch, buffer, cut)
        if failure is not None:
            return self._repaired(buffer, failure[0])
        if len(buffer) > _MAX_EVENT_BYTES:
            return self._repaired(buffer, len(buffer))
        return [], buffer

    def _accept(self, batch: Batch, buffer: bytes, cut: int) -> tuple[Batch, bytes]:
        rest = buffer[cut:].lstrip()[1:]  # the comma
        self.text = buffer[:cut]
        self._offset += len(buffer) - len(rest)
        return batch, rest

    def _finish(self, buffer: bytes, at: int) -> tuple[Batch, bytes]:
        """The array's own bracket is before `at` (an offset into b"[" + buffer): the events end here."""
        self._ended = True
        end = buffer[: at - 1].rfind(b"]")
        self.text = buffer[:end]
        self._offset += end + 1
        return orjson.loads(b"[%b]" % buffer[:end]), buffer[end + 1 :]

    def _cuts(self, buffer: bytes) -> Iterator[int]:
        """Candidate cuts from the right, each just behind an event's closing brace."""
        if not self._separator:
            self._learn_separator(buffer)
        end = len(buffer)
        for _ in range(_MAX_CUTS if self._separator else 0):
            end = buffer.rfind(self._separator, 0, end)
            if end < 0:
                break
            yield end + 1
            end += len(self._separator) - 1
        yield from (match.start() + 1 for match in reversed(list(_SEPARATOR.finditer(buffer))))

    def _learn_separator(self, buffer: bytes) -> None:
        """The bytes between the first two events, which the exporter repeats throughout."""
        try:
            orjson.loads(buffer)
        except orjson.JSONDecodeError as error:
            end = _byte_position(buffer, error.pos)
            match = _SEPARATOR.match(buffer, buffer.rfind(b"}", 0, end)) if end else None
            self._separator = match.group() if match else b""

    def _repaired(self, buffer: bytes, cut: int) -> tuple[Batch, bytes]:
        batch, problem = repair(buffer[:cut], self._offset)
        self.damage.append(problem)
        return self._accept(batch, buffer, cut)

    # -- behind the events -------------------------------------------------------------------------------

    def _last(self, buffer: bytes) -> tuple[Batch, bytes]:
        """The last event and the array's end, or what a cut file leaves of it."""
        document = b"[" + buffer
        try:
            batch = orjson.loads(document)
        except orjson.JSONDecodeError as error:
            at = _byte_position(document, error.pos)
            if "content after document" in str(error):
                return self._finish(buffer, at)
            return self._broken_end(buffer)
        self._ended = True
        self.text = buffer
        self._offset += len(buffer)
        return batch, b""

    def _broken_end(self, buffer: bytes) -> tuple[Batch, bytes]:
        """No parsable end: a damaged or half-written last event, or a file that just stops."""
        end = _array_end(buffer)
        self._ended = end is not None
        body = buffer if end is None else buffer[:end]
        body = body.rstrip().removesuffix(b",")
        batch: Batch = []
        if body.strip():
            batch, problem = repair(body, self._offset, cut=end is None)
            if problem.events_lost or end is not None:
                self.damage.append(problem)
        self.text = body
        self._offset += len(buffer) if end is None else end + 1
        return batch, b"" if end is None else buffer[end + 1 :]

    def _close(self, rest: bytes) -> None:
        """Metadata behind the events, and whether the file ends as it should."""
        if not self._ended:
            message = f"the file ends at byte {self._offset:,}, before the list of events is closed"
            self.damage.append(Damage("truncated", message, byte_offset=self._offset))
            return
        rest = rest.strip()
        if self.envelope == "array":
            if rest:
                self._unread("stray text behind the events", rest)
            return
        if not rest.endswith(b"}"):
            self._unread("the file ends within the metadata behind the events", rest)
            rest += b"}"
        self._read_metadata(b"{" + rest.removeprefix(b","), "behind")

    def _read_metadata(self, text: bytes, where: str) -> None:
        try:
            self.header |= orjson.loads(text)
        except orjson.JSONDecodeError:
            base = _BASE_TIME.search(text)
            if base:
                self.header["baseTimeNanoseconds"] = int(base.group(1))
            self._unread(f"the metadata {where} the events are not valid JSON and were skipped", text)

    def _unread(self, problem: str, text: bytes) -> None:
        message = f"{problem} ({len(text):,} bytes near byte {self._offset:,})"
        self.damage.append(Damage("metadata", message, byte_offset=self._offset))


_EXPECTED = "Expected the file that prof.export_chrome_trace(...) or tensorboard_trace_handler(...) writes."


def _origin_of(keys: list[str]) -> str:
    """What to do about JSON from other tools, told by their top-level keys."""
    known = {
        "rocprofiler-sdk-tool": "This is rocprofv3's own JSON; record with torch.profiler instead.",
        "nodes": "This looks like an execution trace (ET), which has no timeline; pass the profiler's trace.",
        "viztracer_metadata": "This is VizTracer's file; record with torch.profiler instead.",
    }
    return next((hint for key, hint in known.items() if key in keys), _EXPECTED)


def _byte_position(document: bytes, characters: int) -> int:
    """orjson counts characters; this is the same place in bytes."""
    if document.isascii():
        return characters
    return len(document.decode("utf-8", "replace")[:characters].encode("utf-8", "replace"))


def _array_end(buffer: bytes) -> int | None:
    """Where the events' closing bracket stands in text that does not parse: `}]` or `},]` at a line of its own."""
    matches = list(re.finditer(rb"\}\s*,?\s*(\])\s*(?:,\s*\"|\}|$)", buffer))
    return matches[-1].start(1) if matches else None
