"""Saves what can be saved of a stretch of JSON that does not parse.

Damage seen in the wild: NaN and inf (kineto#105), invalid UTF-8 (pytorch#121219), control characters
(pytorch#130622), single backslashes (kineto#336), unescaped quotes (pytorch#146900). All but the last are
mended in place; an event that cannot be mended is lost alone, and counted.
"""

from __future__ import annotations

import json
import re
from typing import Any

from traceanalyzer.trace import Damage

_SEPARATOR = re.compile(r"(?<=\})\s*,\s*(?=\{)")
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_BAD_NUMBER = re.compile(r"(?<=[:\[,\s])[-+]?(?:nan|inf(?:inity)?)(?=\s*[,\]}])", re.IGNORECASE)


def repair(text: bytes, offset: int, *, cut: bool = False) -> tuple[list[Any], Damage]:
    """The events of a damaged stretch, None for each that is lost, and the account of it.

    Args:
        text: events separated by commas, without the brackets around them.
        offset: byte offset of the stretch in the plain JSON.
        cut: the stretch ends where the file was cut, so its last event may be half there.
    """
    mended = _BAD_NUMBER.sub("null", _BAD_ESCAPE.sub(r"\\\\", text.decode("utf-8", "replace")))
    whole = _parse(f"[{mended}]")
    if isinstance(whole, list):
        message = f"{_events(len(whole))} near byte {offset:,} made readable: invalid characters or numbers"
        return whole, Damage("mended", message, offset, 0)
    events, lost_at = _one_by_one(mended)
    if cut and events and events[-1] is None:
        events.pop()
        message = f"the last event, near byte {offset:,}, is only half there"
        return events, Damage("truncated event", message, offset, 1)
    near = offset + len(mended[: lost_at[0]].encode()) if lost_at else offset
    message = f"{_events(len(lost_at))} unreadable near byte {near:,}"
    return events, Damage("unreadable", message, near, len(lost_at))


def _one_by_one(text: str) -> tuple[list[Any], list[int]]:
    """Parse event by event; a separator within a string splits an event, so a failing piece is tried joined."""
    bounds = [0, *(edge for match in _SEPARATOR.finditer(text) for edge in match.span()), len(text)]
    pieces = [(bounds[i], text[bounds[i] : bounds[i + 1]]) for i in range(0, len(bounds), 2)]
    events: list[Any] = []
    lost_at: list[int] = []
    held: tuple[int, str] | None = None
    for start, piece in pieces:
        event = _parse(piece)
        joined = _parse(f"{held[1]},{piece}") if held and not isinstance(event, dict) else None
        if isinstance(joined, dict):
            events[-1] = joined
            lost_at.pop()
            held = None
        elif isinstance(event, dict):
            events.append(event)
            held = None
        else:
            events.append(None)
            lost_at.append(start)
            held = (start, piece)
    return events, lost_at


def _parse(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def _events(count: int) -> str:
    return f"{count:,} event{'' if count == 1 else 's'}"
