"""A trace's JSON with the overlay's events among its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def merged(head: bytes, events: Iterable[bytes], rest: Iterable[bytes]) -> Iterator[bytes]:
    """The file, part by part; the trace's own bytes stay as they are.

    Args:
        head: the trace up to where its first event may begin.
        events: JSON objects.
        rest: the trace from there on.
    """
    yield head
    comma = b"\n"
    for event in events:
        yield comma + event
        comma = b",\n"
    following = iter(rest)
    blank = b""
    for block in following:
        blank += block
        if stripped := blank.lstrip():
            ends = stripped.startswith(b"]") or comma == b"\n"
            yield (b"" if ends else b",") + blank
            break
    yield from following
