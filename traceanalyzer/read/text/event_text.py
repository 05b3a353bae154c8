"""The part of the events' text that is in memory, cut and parsed in place: nothing is copied or scanned in Python.

A cut is an index just after an event's closing brace, where a comma follows. The text always starts at an event
and stands after a bracket; parsing puts the closing bracket at a cut for as long as it takes. The parser proves the
cut: what starts at an event and parses as a list ends at an event's end.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from traceanalyzer.model.text_queries import regex
from traceanalyzer.read.text.brackets import event_ends

_OPEN, _CLOSE = ord("["), ord("]")
_SEPARATOR = regex(rb"\}\s*,\s*\{")
_MAX_LIKELY_CUTS = 3  # tried where the file's own separator stands, before the brackets are counted
_ARRAY_END = regex(rb"\}\s*(?:,\s*)?(\])\s*(?:,\s*\"|\}|$)")


class Failure(NamedTuple):
    """Why a text did not parse: where (an index into it), and whether the array had ended before."""

    at: int
    over: bool


class EventText:
    """Text of events that starts at one of them, at the byte `offset` of the plain JSON.

    The separator is the bytes between two events, which the exporter repeats throughout; empty until known.
    """

    def __init__(self, text: bytes | bytearray = b"", offset: int = 0, separator: bytes = b"") -> None:
        self.offset = offset
        self.separator = separator
        self._buffer = bytearray(b"[") + text

    def __len__(self) -> int:
        return len(self._buffer) - 1

    def extend(self, block: bytes) -> None:
        self._buffer += block

    def text(self, start: int = 0, end: int | None = None) -> bytes:
        return bytes(self._buffer[start + 1 : None if end is None else end + 1])

    def parse(self, cut: int | None = None) -> list[Any] | Failure:
        """The events up to `cut`, or all of the text, which brings its own closing bracket."""
        end = len(self._buffer) if cut is None else cut + 2
        if cut is not None:
            after, self._buffer[cut + 1] = self._buffer[cut + 1], _CLOSE
        try:
            with memoryview(self._buffer) as whole, whole[:end] as document:
                events: list[Any] = orjson.loads(document)
                return events
        except orjson.JSONDecodeError as error:
            position = self._index(error.pos, end)
            return Failure(position, "content after document" in str(error))
        finally:
            if cut is not None:
                self._buffer[cut + 1] = after

    def _index(self, characters: int, end: int) -> int:
        """orjson counts characters from the bracket; this is the same place as an index into the text."""
        document = self._buffer[:end]
        if document.isascii():
            return characters - 1
        return len(document.decode("utf-8", "replace")[:characters].encode("utf-8", "replace")) - 1

    def likely_cuts(self) -> Iterator[int]:
        """The last places where the file's own separator stands, from the right; within a string it may stand, too."""
        end = len(self._buffer)
        for _ in range(_MAX_LIKELY_CUTS if self.learn_separator() else 0):
            end = self._buffer.rfind(self.separator, 0, end)
            if end < 0:
                break
            yield end
            end += len(self.separator) - 1

    def counted_cut(self) -> int | None:
        """The last cut, found by counting brackets; None where no event is complete. Right where the text is JSON."""
        return event_ends(self._buffer, 1)

    def first_cut(self, start: int) -> int | None:
        """The first place at or after `start` where the file's own separator stands."""
        position = self._buffer.find(self.separator, start + 1)
        return None if position < 0 else position

    def learn_separator(self) -> bytes:
        """The bytes between the first two events: parsing one event stops after it."""
        if self.separator:
            return self.separator
        try:
            with memoryview(self._buffer) as whole, whole[1:] as document:
                orjson.loads(document)
        except orjson.JSONDecodeError as error:
            end = self._index(error.pos, len(self._buffer)) + 2
            match = _SEPARATOR.match(self._buffer, max(self._buffer.rfind(b"}", 0, end), 0))
            self.separator = match.group() if match else b""
        return self.separator

    def drop(self, cut: int) -> None:
        """Forget the events up to `cut` and the comma after them; nothing where `cut` is 0."""
        comma = self._buffer.find(b",", cut + 1) if cut else 0
        end = len(self._buffer) - 1 if comma < 0 else comma
        self._buffer[end] = _OPEN
        del self._buffer[:end]
        self.offset += end

    def array_end(self, before: int) -> int:
        return self._buffer.rfind(b"]", 0, before + 1) - 1

    def likely_array_end(self) -> int | None:
        """Where the events' closing bracket seems to stand in text that does not parse."""
        matches = list(_ARRAY_END.finditer(self._buffer))
        return matches[-1].start(1) - 1 if matches else None
