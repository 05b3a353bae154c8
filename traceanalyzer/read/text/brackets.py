"""Where the brackets of a JSON text are, and how deep values are nested: one vectorised pass over any text.

It neither parses nor judges: text that is no JSON gives places that parsing refuses later.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]

_PASS_BYTES = 1 << 20  # walked at a time, so that the places of a long text need no memory
_MAX_OPEN = 1_000  # what is nested deeper, no parser reads
_OPENING = np.frombuffer(b"[{", np.uint8)
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_STEPS = np.zeros(256, np.int64)
_STEPS[[ord("{"), ord("[")]] = 1
_STEPS[[ord("}"), ord("]")]] = -1
_LOOKED_AT = _STEPS != 0
_LOOKED_AT[_QUOTE] = True


class Brackets(NamedTuple):
    """The brackets outside strings and the strings of one stretch of text, in order.

    Attributes:
        at: int64 (brackets,), index into the text.
        depth: int64 (brackets,), how many are open after it.
        string_at: int64 (strings,), index of the quote that opens it.
        string_depth: int64 (strings,), how many brackets are open there.
    """

    at: Places
    depth: Places
    string_at: Places
    string_depth: Places


def walk(text: bytes | bytearray, start: int = 0, depth: int = 0) -> Iterator[Brackets]:
    """The brackets from an index on, where `depth` are open."""
    in_string, backslashes = False, 0  # before the piece
    for at in range(start, len(text), _PASS_BYTES):
        piece = np.frombuffer(bytes(text[at : at + _PASS_BYTES]), np.uint8)
        places = np.flatnonzero(_LOOKED_AT[piece])
        byte = piece[places]
        quotes = byte == _QUOTE
        escaped, backslashes = _escaped(piece, places[quotes], backslashes)
        quotes[quotes] = ~escaped
        inside = (np.cumsum(quotes) + in_string) % 2 == 1
        steps = np.where(inside, 0, _STEPS[byte])
        depths = depth + np.cumsum(steps)
        if len(places):
            depth, in_string = int(depths[-1]), bool(inside[-1])
        places += at
        outside, opening = steps != 0, quotes & inside
        yield Brackets(places[outside], depths[outside], places[opening], depths[opening])


def _escaped(piece: Bytes, quotes: Places, backslashes: int) -> tuple[NDArray[np.bool_], int]:
    """(whether an odd number of backslashes stands before each quote, how many end the piece)."""
    plain = piece != _BACKSLASH
    if plain.all():
        return (quotes == 0) & (backslashes % 2 == 1), 0
    others = np.flatnonzero(plain)
    before = np.searchsorted(others, quotes) - 1  # the last byte before the quote that is no backslash
    run = quotes - 1 - np.where(before >= 0, others[before], -1 - backslashes)
    last = int(others[-1]) if len(others) else -1 - backslashes
    return run % 2 == 1, len(piece) - 1 - last


def outer_keys(text: bytes | bytearray, key: bytes, depth: int = 0) -> Iterator[int]:
    """Where a string begins that is `key`, quotes included, and belongs to the outermost object.

    In the text, which is JSON, `depth` brackets are open already.
    """
    if key not in text:
        return
    whole = np.frombuffer(text, np.uint8)
    for brackets in walk(text, depth=depth):
        quotes = brackets.string_at[brackets.string_depth == 1]
        quotes = quotes[quotes <= len(text) - len(key)]
        for offset, byte in enumerate(key):
            quotes = quotes[whole[quotes + offset] == byte]
        yield from quotes.tolist()


def closing_of(text: bytes) -> bytes:
    """The brackets that close what is open at the end, strings left aside; at most the outer 1,000."""
    opened = np.full(_MAX_OPEN, -1, np.int64)
    depth = 0
    for brackets in walk(text):
        if len(brackets.at):
            depth = int(brackets.depth[-1])
            level = brackets.depth - 1
            opening = np.isin(np.frombuffer(text, np.uint8)[brackets.at], _OPENING)
            tracked = opening & (level >= 0) & (level < _MAX_OPEN)
            opened[level[tracked]] = brackets.at[tracked]  # of several, the last one stays
    # `[` and `{` come 2 before.
    return bytes(text[position] + 2 for position in reversed(opened[: max(depth, 0)].tolist()))


def depth_of(text: bytes) -> int:
    return max((int(brackets.depth.max(initial=0)) for brackets in walk(text)), default=0)


def event_ends(text: bytearray, start: int) -> int | None:
    """Index of the closing brace of the last event from `start` on that a comma follows; None where there is none."""
    last_complete, closed = -1, -1
    for brackets in walk(text, start):
        over = np.flatnonzero(brackets.depth < 0)
        inside = slice(None, int(over[0]) if len(over) else None)
        ends = brackets.at[inside][(brackets.depth[inside] == 0)]
        if len(ends):
            before = int(ends[-2]) if len(ends) > 1 else closed
            last_complete, closed = before, int(ends[-1])
        if len(over):
            break
    if closed >= 0 and text[closed + 1 : closed + 64].lstrip().startswith(b","):
        return closed
    return last_complete if last_complete >= 0 else None


MAX_NESTING = 64  # of one value; traces have 4, orjson writes 254, Python's own recursion ends near 1,000


def too_deep(value: Any) -> bool:
    """Whether a parsed JSON value is nested deeper than that; looks at no more levels."""
    level = [value]
    for _ in range(MAX_NESTING):
        nested = [one for one in level if isinstance(one, dict | list)]
        level = [inner for one in nested for inner in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return False
    return True
