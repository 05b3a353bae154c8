"""What stands around the events: where they begin, the file's metadata before and after them, and other JSON."""

import re
from functools import cache
from itertools import islice
from typing import Any

import orjson

from traceanalyzer.model.errors import NotATrace, TraceAnalyzerError, UnreadableTrace
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import Damage
from traceanalyzer.read.foreign_files import EXPECTED, remedy_for_keys
from traceanalyzer.read.text.brackets import closing_of, outer_keys, too_deep, walk
from traceanalyzer.read.text.repair import mended_text, parse_leniently

_KEY = regex(rb'"((?:[^"\\]|\\.)*)"\s*:')
_BASE_TIME = regex(rb'"baseTimeNanoseconds"\s*:\s*"?(\d{1,19})\b')
_BOM = b"\xef\xbb\xbf"
_MAX_PARSED_BYTES = 16 << 20  # of JSON that is no trace, to say what it is
_LOOKED_AT_BYTES = 1 << 20  # at a time
_KEYS_SHOWN = 8


class Envelope:
    """Attributes:
    header: top-level keys other than traceEvents, before and after it.
    form: "object" or "array".
    damage: metadata that could not be read.
    """

    def __init__(self, name: str, events_key: str = "traceEvents") -> None:
        self._events_key = events_key
        self.header: dict[str, Any] = {}
        self.form = "object"
        self.damage: list[Damage] = []
        self._name = name

    def find_events(self, buffer: bytearray, *, all_read: bool = False) -> int | None:
        """Where the first event may start: after the bracket of a bare array or of the outermost traceEvents.

        Once all is read, a list within a header that is no JSON is taken, too.
        """
        first = _first_byte(buffer)
        if buffer[first : first + 1] == b"[":
            self.form = "array"
            return first + 1
        key = self._events_key
        match = _outermost_list(buffer, key) if buffer[first : first + 1] == b"{" else None
        if match is None and all_read and (inner := _list_of(key).search(buffer)):
            match = None if _is_whole(bytes(buffer)) else inner
        if match is None:
            return None
        self._read(_head(buffer, match), "before", 0)
        return match.end()

    def close(self, rest: bytes, offset: int) -> None:
        """Read the metadata after the events; `rest` is all that follows their closing bracket.

        Raises UnreadableTrace: a second list of events is there.
        """
        if self.form == "array":
            self._stray(rest, offset)
            return
        end = self._end_of_object(rest)
        if end is None and not rest.rstrip().endswith(b"}"):
            self._unread("the file ends within the metadata after the events", rest, offset)
            rest += b"}"
        elif end is not None:
            self._stray(rest[end:], offset + end)
            rest = rest[:end]
        self._read(b"{" + rest.strip().removeprefix(b","), "after", offset)

    def _end_of_object(self, rest: bytes) -> int | None:
        for key in outer_keys(rest, b'"traceEvents"', depth=1):
            if _list_of("traceEvents").match(rest, key):
                remedy = "Two traces were joined: pass each in a file of its own."
                raise UnreadableTrace("holds two lists of traceEvents", where=self._name, remedy=remedy)
        for brackets in walk(rest, depth=1):
            closed = brackets.at[brackets.depth == 0]
            if len(closed):
                return int(closed[0]) + 1
        return None

    def _stray(self, text: bytes, offset: int) -> None:
        if text.strip():
            self._unread("stray text after the trace", text.strip(), offset)

    def _read(self, text: bytes, where: str, offset: int) -> None:
        problem = f"the metadata {where} the events are not valid JSON and were"
        try:
            metadata = orjson.loads(text)
        except orjson.JSONDecodeError:
            metadata = parse_leniently(mended_text(text))
            if not self.damage:
                self._unread(f"{problem} {'skipped' if metadata is None else 'mended'}", text, offset)
        if not isinstance(metadata, dict):
            base = _BASE_TIME.search(text)
            metadata = {"baseTimeNanoseconds": int(base.group(1))} if base else {}
        for key, value in metadata.items():
            if too_deep(value):
                self._unread(f"metadata {key!r} nested too deep, skipped", text, offset)
            else:
                self.header[key] = value

    def _unread(self, problem: str, text: bytes, offset: int) -> None:
        message = f"{problem} ({len(text):,} bytes near byte {offset:,})"
        self.damage.append(Damage("metadata", message, byte_offset=offset))

    def refusal(self, buffer: bytearray, damage: list[Damage]) -> TraceAnalyzerError:
        """Why a file in which no events begin is refused."""
        first = _first_byte(buffer)
        if damage:
            return UnreadableTrace(damage[0].message, where=self._name, remedy="Copy or record it again.")
        if first == len(buffer):
            remedy = "Record the trace again."
            return UnreadableTrace("holds nothing but blanks", where=self._name, remedy=remedy)
        if len(buffer) > _MAX_PARSED_BYTES and buffer[first] != ord("{"):
            problem = f"is neither JSON nor gzip nor zstd: byte {first:,} begins no object and no list"
            return UnreadableTrace(problem, where=self._name, remedy=EXPECTED)
        if len(buffer) > _MAX_PARSED_BYTES:
            return self._no_events(_first_keys(bytes(buffer[first : first + _LOOKED_AT_BYTES])))
        try:
            content = orjson.loads(bytes(buffer[first:]))
        except orjson.JSONDecodeError as error:
            before = error.doc[: error.pos] if isinstance(error.doc, str) else ""
            offset = len(before.encode("utf-8", "replace"))
            what = "is not JSON" if chr(buffer[first]).isprintable() else "is neither JSON nor gzip nor zstd"
            problem = f"{what}: {str(error).split(':')[0]} at byte {offset:,}"
            if "UTF-8" in str(error):  # which byte the parser does not say
                problem = f"{what}: it holds bytes that are no UTF-8 text"
            return UnreadableTrace(problem, where=self._name, remedy=EXPECTED)
        return self._no_events(list(content) if isinstance(content, dict) else [])

    def _no_events(self, keys: list[str]) -> NotATrace:
        shown = f"; its top-level keys are {', '.join(keys[:_KEYS_SHOWN])}" if keys else ""
        problem = f"is JSON, but holds no {self._events_key}{shown}"
        return NotATrace(problem, where=self._name, remedy=remedy_for_keys(keys))


def _first_byte(buffer: bytearray) -> int:
    """Index of the first byte that is neither blank nor a byte order mark."""
    position = len(_BOM) if buffer.startswith(_BOM) else 0
    while position < len(buffer):
        piece = buffer[position : position + _LOOKED_AT_BYTES]
        rest = piece.lstrip()
        if rest:
            return position + len(piece) - len(rest)
        position += len(piece)
    return position


@cache
def _list_of(key: str) -> re.Pattern[bytes]:
    """A key whose value is a list, up to the list's first entry."""
    return regex(rb'"%b"\s*:\s*\[' % key.encode())


def _outermost_list(buffer: bytearray, name: str) -> re.Match[bytes] | None:
    """The list of events that belongs to the whole, not to something within it; the first where that is damaged."""
    first = _list_of(name).search(buffer)
    if first is None or _is_whole(_head(buffer, first)):
        return first
    # What follows is within a string or an inner object if the text before is JSON once that is closed.
    before = bytes(buffer[: first.start()]).removeprefix(_BOM)
    closing, before = closing_of(before), before.rstrip().removesuffix(b",")
    if not any(_is_whole(before + end + closing) for end in (b"", b'"', b'":0')):
        return first
    keys = outer_keys(bytes(buffer), b'"%b"' % name.encode())
    return next((match for key in keys if (match := _list_of(name).match(buffer, key))), None)


def _head(buffer: bytearray, events: re.Match[bytes]) -> bytes:
    """What stands before the events, as an object."""
    return bytes(buffer[_first_byte(buffer) : events.start()]).rstrip().removesuffix(b",") + b"}"


def _is_whole(text: bytes) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _first_keys(text: bytes) -> list[str]:
    """The first top-level keys of a JSON object of which this is the beginning."""
    strings = (place for part in walk(text) for place in part.string_at[part.string_depth == 1].tolist())
    keys = (match[1].decode("utf-8", "replace") for place in strings if (match := _KEY.match(text, place)))
    return list(islice(keys, _KEYS_SHOWN))
