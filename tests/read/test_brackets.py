"""Where brackets and strings are, how deep they nest, and where the last whole event ends."""

from typing import Any

import numpy as np
import pytest

from traceanalyzer.read.text import brackets
from traceanalyzer.read.text.brackets import closing_of, depth_of, event_ends, outer_keys, too_deep, walk

PIECES = [1, 2, 5, 1 << 20]


@pytest.fixture(params=PIECES)
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes are looked at in a pass."""
    monkeypatch.setattr(brackets, "_PASS_BYTES", request.param)
    return int(request.param)


def walked(text: bytes, start: int = 0, depth: int = 0) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(index, depth) of the brackets, and of the strings."""
    found = list(walk(text, start, depth))
    assert all(np.all(np.diff(one.at) > 0) for one in found)
    return (
        [pair for one in found for pair in zip(one.at.tolist(), one.depth.tolist(), strict=True)],
        [pair for one in found for pair in zip(one.string_at.tolist(), one.string_depth.tolist(), strict=True)],
    )


def test_brackets_within_strings_are_none(piece: int) -> None:
    text = b'{"a[": [1, {"]}": 2}], "": "{"}'
    #        0         1         2         3
    #        0123456789012345678901234567890
    expected = [(0, 1), (7, 2), (11, 3), (19, 2), (20, 1), (30, 0)]
    assert walked(text) == (expected, [(1, 1), (12, 3), (23, 1), (27, 1)])


@pytest.mark.parametrize("backslashes", range(7))
def test_quote_after_odd_backslashes_ends_no_string(backslashes: int, piece: int) -> None:
    before = b'["' + b"\\" * backslashes + b'"'
    at = len(before)
    found, strings = walked(before + b'[" ]')
    if backslashes % 2:  # the string ends with the quote that follows the bracket
        assert found == [(0, 1), (at + 3, 0)]
        assert strings == [(1, 1)]
    else:
        assert found == [(0, 1), (at, 2)]
        assert strings == [(1, 1), (at + 1, 2)]


def test_backslashes_elsewhere_escape_no_quote(piece: int) -> None:
    """At the beginning of the text, and far before a quote in the same or another piece."""
    assert walked(b'\\a"[" [')[0] == [(6, 1)]
    assert walked(b'"\\n[" [')[0] == [(6, 1)]
    assert walked(b'"\\\\", "[", [')[0] == [(11, 1)]


def test_a_walk_may_begin_within_a_list(piece: int) -> None:
    assert walked(b'xx[]]"a"', 2, 4) == ([(2, 5), (3, 4), (4, 3)], [(5, 3)])


@pytest.mark.parametrize(
    ("text", "depth", "expected"),
    [
        (b'{"key": 1}', 0, [1]),
        (b'{"a": {"key": 1}, "b": ["key"], "key": 2}', 0, [32]),
        (b'{"a": "key", "key"', 0, [6, 13]),  # a value as well, and at the very end
        (b'{"keys": 1, "ke', 0, []),
        (b'{"a": "\\"key\\"", "key": 1}', 0, [17]),
        (b'"a": 1, "key": 2, "b": {"key": 3}', 1, [8]),
        (b'"key": 2}', 1, [0]),
        (b'"key": 2}', 0, []),
        (b'{"a": 1}', 0, []),
        (b"", 0, []),
    ],
)
def test_keys_of_the_outermost_object_alone(text: bytes, depth: int, expected: list[int], piece: int) -> None:
    assert list(outer_keys(text, b'"key"', depth)) == expected
    assert list(outer_keys(bytearray(text), b'"key"', depth)) == expected


@pytest.mark.parametrize(
    ("text", "closing"),
    [
        (b"", b""),
        (b"[]", b""),
        (b'{"a": [1, {"b": 2', b"}]}"),
        (b'{"a": [1, 2], "b": {"c": [', b"]}}"),
        (b'[{"a": "[{', b"}]"),
        (b"[{}, [", b"]]"),
        (b"[[{}], {", b"}]"),
        (b"]]", b""),
    ],
)
def test_what_is_open_is_closed_in_the_other_order(text: bytes, closing: bytes, piece: int) -> None:
    assert closing_of(text) == closing


@pytest.mark.parametrize("depth", [999, 1_000, 1_001, 1_500])
def test_of_very_many_brackets_the_outer_thousand_are_closed(depth: int) -> None:
    assert closing_of(b"{" + b"[" * (depth - 1)) == b"]" * (min(depth, 1_000) - 1) + b"}"
    assert depth_of(b"{" + b"[" * (depth - 1) + b"]" * 40) == depth


def test_depth_is_that_of_the_deepest_place(piece: int) -> None:
    assert depth_of(b'{"a": [[1], [[2]]], "b": "[[[[["}') == 4
    assert depth_of(b"12") == depth_of(b"") == 0


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (b'{"a": 1}, {"b": {}}, {"c"', 18),  # a comma follows the second
        (b'{"a": 1}, {"b": {}}', 7),  # nobody knows yet whether one follows
        (b'{"a": 1}, {"b": {}} ', 7),
        (b'{"a": 1}', None),
        (b'{"a": 1} ,', 7),
        (b'{"a": 1}\n  \t,\n', 7),
        (b'{"a": 1}, {"b": 2}, {"c": 3}', 17),
        (b'{"a": "},{"', None),
        (b'{"a": "},{"}, {"b": [{}, {}', 11),
        (b'{"a": 1}, {"b": 2}], "x": [{}, {}, {}], ', 7),  # beyond the list's own bracket
        (b'{"a": 1}], "x": {}, ', None),
        (b"1, 2, ", None),
        (b"", None),
    ],
)
@pytest.mark.parametrize("start", [0, 3])
def test_the_last_event_that_a_comma_follows(text: bytes, end: int | None, start: int, piece: int) -> None:
    found = event_ends(bytearray(b"[" * start + text), start)
    assert found == (None if end is None else end + start)


@pytest.mark.parametrize(("blanks", "found"), [(62, 7), (63, None)])
def test_comma_is_searched_a_short_way_beyond_known_text(blanks: int, found: int | None) -> None:
    assert event_ends(bytearray(b'{"a": 1}' + b" " * blanks + b","), 0) == found


def nested(levels: int, inner: Any = 1) -> Any:
    """Lists and mappings in turn around a value."""
    for level in range(levels):
        inner = [0, inner] if level % 2 else {"a": 0, "b": inner}
    return inner


@pytest.mark.parametrize(("levels", "deep"), [(0, False), (63, False), (64, True), (9_999, True)])
def test_a_value_has_less_than_64_levels_around_it(levels: int, deep: bool) -> None:
    assert too_deep(nested(levels)) is deep


def test_many_values_beside_one_another_are_not_deep() -> None:
    assert not too_deep([[{"a": [1]}] * 100] * 3)
