"""Where a part of a file begins and ends: at the first separator at or after a byte, however its blocks fall."""

from pathlib import Path
from typing import Any

import pytest

from traceanalyzer.read.parallel import Part, Unsplittable
from traceanalyzer.read.text.batches import Style
from traceanalyzer.read.text.source import Source

CONTENT = b'[{"a": 1},\n{"b": 2},\n{"c": 3}]'
#           0        9          19        29
STYLE = Style("array", b"},\n{")


def part(folder: Path, batch_bytes: int, start: int, stop: int | None, content: bytes = CONTENT) -> Part:
    (path := folder / "t.json").write_bytes(content)
    return Part(Source(path), batch_bytes, start, stop, STYLE)


def events(read: Part) -> list[Any]:
    return [event for batch in read.batches() for event in batch]


@pytest.mark.parametrize("batch_bytes", [1, 2, 3, 4, 7, 100])
@pytest.mark.parametrize(
    ("start", "stop", "begin", "end", "expected"),
    [
        (0, None, 0, None, "abc"),
        (0, 8, 0, 9, "a"),
        (0, 9, 0, 19, "ab"),
        (0, 18, 0, 19, "ab"),
        (1, None, 9, None, "bc"),
        (8, None, 9, None, "bc"),
        (9, None, 19, None, "c"),
        (18, None, 19, None, "c"),
        (5, 10, 9, 19, "b"),
        (8, 18, 9, 19, "b"),
    ],
)
def test_a_part_has_the_events_between_two_bytes(
    start: int, stop: int | None, begin: int, end: int | None, expected: str, batch_bytes: int, tmp_path: Path
) -> None:
    read = part(tmp_path, batch_bytes, start, stop)
    assert [next(iter(event)) for event in events(read)] == list(expected)
    assert (read.begin, read.end) == (begin, end)
    assert (read.events, read.damage) == (len(expected), [])


@pytest.mark.parametrize("batch_bytes", [1, 4, 100])
@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (19, None),  # within the last event
        (29, None),
        (90, None),
        (5, 9),  # both in one event
        (9, 19),
        (0, 19),  # no separator follows: the next part cannot begin
        (5, 25),
    ],
)
def test_part_without_events_or_end_is_given_up(start: int, stop: int | None, batch_bytes: int, tmp_path: Path) -> None:
    with pytest.raises(Unsplittable):
        events(part(tmp_path, batch_bytes, start, stop))


@pytest.mark.parametrize(
    ("old", "new", "start", "stop"),
    [
        (b'"b": 2', b'"b": }', 0, None),
        (b'"b": 2', b'"b": }', 5, None),
        (b'"b": 2', b'"b": }', 0, 18),
        (b'"c": 3}]', b'"c": 3}', 0, None),
        (b'"c": 3}]', b'"c": 3', 9, None),
        (b'"c": 3}]', b'"c": 3}], "d": ', 9, None),
        (b'"b": 2},', b'"b": 2}], "x": [{}, {"y": 1},', 0, 30),
    ],
)
def test_a_part_with_anything_odd_is_given_up(
    old: bytes, new: bytes, start: int, stop: int | None, tmp_path: Path
) -> None:
    with pytest.raises(Unsplittable):
        events(part(tmp_path, 100, start, stop, CONTENT.replace(old, new)))
