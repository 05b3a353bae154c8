"""Decisions of the reader about text, each by an example at either side of it."""

from __future__ import annotations

import numpy as np
import pytest

from traceanalyzer.read.text.brackets import _State, event_ends
from traceanalyzer.read.text.repair import _one_by_one


def test_an_event_that_a_separator_in_a_string_split_is_not_lost() -> None:
    assert _one_by_one('{"name": "a},{b"}') == ([{"name": "a},{b"}], [])
    assert _one_by_one('{"name": "a},{b"},{"name": }') == ([{"name": "a},{b"}, None], [18])


@pytest.mark.parametrize(
    ("text", "end"),
    [(b'{"a":1},{"b":2},', 14), (b'{"a":1},{"b":2}', 6), (b'{"a":1}', None), (b'{"a":1},', 6)],
)
def test_the_last_event_that_a_comma_follows_ends_there(text: bytes, end: int | None) -> None:
    assert event_ends(bytearray(text), 0) == end


@pytest.mark.parametrize("content", [rb'[{"a\\\"}{": 1}, {"c\\": {}}]', rb'[{"a\"}{": 1}, {"c": {}}]'])
def test_a_walk_finds_the_same_brackets_wherever_it_pauses(content: bytes) -> None:
    text = np.frombuffer(content, np.uint8)
    whole = _State(0, 0).over(text)
    for cut in range(len(text)):
        state = _State(0, 0)
        parts = [state.over(piece) for piece in (text[:cut], text[cut:])]
        for name in ("at", "depth"):
            assert (
                np.concatenate([getattr(part, name) for part in parts]).tolist()
                == getattr(whole, name).tolist()
            ), cut
