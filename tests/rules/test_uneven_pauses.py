"""Long and short pauses at one place."""

from __future__ import annotations

from tests.rules.hosts import MS, alarms
from tests.rules.loops import Loop, loop_of


def test_long_and_short_pauses_at_one_place_are_told_with_their_sum() -> None:
    """Two of 9 ms and one of 1 ms a step: three times their median is more than they take."""

    def body(loop: Loop, number: int) -> None:
        for pause_ms in (9, 1, 9):
            loop.launched("aten::mul")
            loop.pause(pause_ms * MS)
        loop.launched("aten::mul")

    (found,) = alarms(loop_of(body), "host-gap")
    assert found.message.startswith("long pauses without ops (3 times a step) take 19.0 ms a step on average")
