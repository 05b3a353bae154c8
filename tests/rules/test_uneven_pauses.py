"""Long and short pauses at one place."""

from __future__ import annotations

from tests.rules.hosts import MS, alarms
from tests.rules.loops import Loop, loop_of


def test_uneven_pauses_report_their_sum() -> None:
    """Two of 9 ms and one of 1 ms a step: three times their median is more than they take."""

    def body(loop: Loop, number: int) -> None:
        for pause_ms in (9, 1, 9):
            loop.launched("aten::mul")
            loop.pause(pause_ms * MS)
        loop.launched("aten::mul")

    (found,) = alarms(loop_of(body), "host-gap")
    assert found.message.startswith("long pauses without ops (3 times a step) take 19.0 ms a step on average")


def test_uneven_function_reports_median_and_longest() -> None:
    """Three runs of 1 ms and one of 20 ms a step: 4 ms is far from what they take, but each is a run of its own."""

    def body(loop: Loop, number: int) -> None:
        for pause_ms in (1, 1, 1, 20):
            loop.launched("aten::mul")
            loop.pause(pause_ms * MS, "train.py(12): metrics")
        loop.launched("aten::mul")

    (found,) = alarms(loop_of(body), "host-gap")
    assert found.by == "train.py(12): metrics"
    assert found.message.startswith(
        "train.py(12): metrics() runs 4 times a step and takes 1.00 ms each time (median; at most 20.0 ms)"
    )
