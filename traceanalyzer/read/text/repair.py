"""Recovers events from malformed JSON.

Damage seen in the wild: NaN and inf (kineto#105), invalid UTF-8 (pytorch#121219), control characters
(pytorch#130622), single backslashes (kineto#336), unescaped quotes (pytorch#146900). All but the last are
mended in place; an event that cannot be mended is lost alone, and counted.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import orjson

from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import Damage
from traceanalyzer.read.text.brackets import depth_of

_SEPARATOR = regex(r"(?<=\})\s*,\s*(?=\{)")
_SEPARATOR_BYTES = regex(_SEPARATOR.pattern.encode())
_BAD_ESCAPE = regex(
    r"""\\(?:["\\/bfnrt]|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"""
    r"""|(?P<surrogate>u[dD][89a-fA-F][0-9a-fA-F]{2})|u[0-9a-fA-F]{4}|(?P<bad>))"""
)
_NO_NUMBER = r"(?<=[:\[,\s])[-+]?(?:nan|inf(?:inity)?)(?=\s*[,\]}])"
_BAD_NUMBER = regex(_NO_NUMBER, re.IGNORECASE)
_TEXT_OR_BAD_NUMBER = regex(rf'"[^"\\]*(?:\\.[^"\\]*)*"|{_NO_NUMBER}', re.IGNORECASE | re.DOTALL)
_MAX_DEPTH = 512
_EXACT_DIGITS = 18  # always within 64 bit


class Repairs:
    """The account of all repairs of one file."""

    def __init__(self) -> None:
        self._events: Counter[str] = Counter()
        self._places: dict[str, list[int]] = {}

    def mend(self, text: bytes, offset: int, *, truncated: bool = False) -> list[Any]:
        """The events of a damaged stretch, None for each that is lost.

        If `truncated`, the stretch ends where the file does, so its last event may be half there.
        """
        as_it_is = _strictly(text)
        if as_it_is is not None:  # nothing wrong within: the file only ends too early, or a comma too late
            return as_it_is
        events: list[Any] = []
        for start, end, intact in _stretches(text):
            last = truncated and end == len(text)
            events += self._mended(text[start:end], offset + start, last) if intact is None else intact
        return events

    def _mended(self, text: bytes, offset: int, truncated: bool) -> list[Any]:
        as_it_is = _strictly(text)
        if as_it_is is not None:  # a separator within a text split it
            return as_it_is
        mended = mended_text(text)
        whole = parse_leniently(f"[{mended}]")
        if whole is None:  # a quote that is not escaped: what is a text cannot be told
            mended = _BAD_NUMBER.sub("null", mended)
            whole = parse_leniently(f"[{mended}]")
        if isinstance(whole, list):
            self._note("mended", len(whole), offset)
            return whole
        events, lost_at = _one_by_one(mended)
        if truncated and events and events[-1] is None:
            events.pop()
            self._note("half", 1, offset + len(mended[: lost_at.pop()].encode()))
        if lost_at:
            self._note("lost", len(lost_at), offset + len(mended[: lost_at[0]].encode()))
        return events

    def _note(self, what: str, events: int, offset: int) -> None:
        self._events[what] += events
        self._places.setdefault(what, []).append(offset)

    def damage(self, events: int) -> list[Damage]:
        """One entry per kind of damage; `events` is how many entries were handed on, lost ones included."""
        return [self._entry(what, events - self._events["lost"]) for what in self._places]

    def _entry(self, what: str, read: int) -> Damage:
        count, places = self._events[what], self._places[what]
        near = f"near byte {places[0]:,}" + (f" and in {len(places) - 1:,} more" if len(places) > 1 else "")
        if what == "half":
            return Damage("truncated event", f"the last event, {near}, is incomplete", places[0], count)
        events = f"{count:,} event{'s' * (count != 1)}"
        if what == "lost":
            return Damage("unreadable", f"{events} unreadable {near}; {read:,} read", places[0], count)
        message = f"invalid characters or numbers among {events} {near} were mended; {read:,} read"
        return Damage("mended", message, places[0], 0)


def _escaped(match: re.Match[str]) -> str:
    """A backslash that escapes nothing stands for itself; half of a surrogate pair is no character."""
    if match["surrogate"] is not None:
        return r"\ufffd"
    return match.group() if match["bad"] is None else "\\\\"


def _stretches(text: bytes) -> Iterator[tuple[int, int, list[Any] | None]]:
    """(start, end, events) of stretches between separators; None for the events of those that are damaged."""
    start = 0
    damaged: tuple[int, int] | None = None
    for match in chain(_SEPARATOR_BYTES.finditer(text), (None,)):
        end, following = match.span() if match else (len(text), len(text))
        events = _strictly(text[start:end])
        if events is None or events == [{}]:  # an empty one may stand in a text that holds separators
            damaged = start if damaged is None else damaged[0], end
        else:
            if damaged is not None:
                yield *damaged, None
            damaged = None
            yield start, end, events
        start = following
    if damaged is not None:
        yield *damaged, None


def _one_by_one(text: str) -> tuple[list[Any], list[int]]:
    """Parse event by event. A separator within a string splits an event: a failing piece is tried joined."""
    bounds = [0, *(edge for match in _SEPARATOR.finditer(text) for edge in match.span()), len(text)]
    pieces = [(bounds[i], text[bounds[i] : bounds[i + 1]]) for i in range(0, len(bounds), 2)]
    events: list[Any] = []
    lost_at: list[int] = []
    held: int | None = None
    for start, piece in pieces:
        event = parse_leniently(piece) if piece.lstrip()[:1] == "{" and piece.rstrip()[-1:] == "}" else None
        failed = held is not None and not isinstance(event, dict)
        whole = parse_leniently(text[held : start + len(piece)]) if failed else None
        if isinstance(whole, dict):
            events[-1], held = whole, None
            lost_at.pop()
        elif isinstance(event, dict):
            events.append(event)
            held = None
        else:
            events.append(None)
            lost_at.append(held := start)
    return events, lost_at


def mended_text(text: bytes) -> str:
    """JSON text in which bad characters, escapes and numbers are replaced; numbers not within texts."""
    escaped = _BAD_ESCAPE.sub(_escaped, text.decode("utf-8", "replace"))
    return _TEXT_OR_BAD_NUMBER.sub(lambda match: match[0] if match[0].startswith('"') else "null", escaped)


def parse_leniently(text: str) -> Any:
    """What mended text says; None where it says nothing. Numbers as orjson gives them: none beyond 64 bit."""
    if text.count("[") + text.count("{") > _MAX_DEPTH and depth_of(text.encode()) > _MAX_DEPTH:
        return None  # Python's parser recurses, and a caller may have allowed more of it than the stack holds
    try:
        return json.loads(text, strict=False, parse_constant=lambda _: None, parse_int=_integer)
    except (ValueError, RecursionError):
        return None


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _EXACT_DIGITS else float(digits)


def _strictly(text: bytes) -> list[Any] | None:
    """The events, if they are valid JSON as they stand."""
    try:
        events: list[Any] = orjson.loads(b"[%b]" % text)
    except orjson.JSONDecodeError:
        return None
    return events
