"""The page of indexes says of every index what it is, what it holds and what it is made of."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from traceanalyzer.idle.causes import Idle
from traceanalyzer.report.index_page import ROOMS, index_page, indexes_of
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.steps import Steps

PAGE = index_page()
INDEXES = [index for room in ROOMS for index in indexes_of(room)]


def section(index: type) -> str:
    return re.split(r"^##", PAGE.partition(f"### `{index.__name__}`\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_the_rooms_have_their_indexes() -> None:
    assert {Steps, DeviceWork} <= set(indexes_of("timeline"))
    assert Idle in set(indexes_of("idle"))
    assert list(indexes_of("no_such_room")) == []
    assert len({index.__name__ for index in INDEXES}) == len(INDEXES) > 15


@pytest.mark.parametrize("index", INDEXES, ids=lambda index: index.__name__)
def test_every_index_has_a_title_and_says_what_it_is_made_of(index: type) -> None:
    lines = [line for line in section(index).splitlines() if line]
    assert len(lines[0]) > 10
    assert lines[1].startswith("Made of ")
    for row in lines[4:]:
        assert re.fullmatch(r"\| `.+` \| (`.+`)? \| .* \|", row), row


def test_fields_come_with_type_and_meaning_and_needs_with_their_kind() -> None:
    text = section(DeviceWork)
    assert [f"| `{field.name}` |" in text for field in fields(DeviceWork)] == [True] * len(fields(DeviceWork))
    assert "| `delay_ns` | `Rows` | int64, work.start - launch.start" in text
    assert "one for all windows" in text
    assert "depends on the window" in section(Steps)
    assert "| `durations_ns(device: int \\| None = None)` | `Ns` |" in section(Steps)
    assert "`build" not in PAGE
