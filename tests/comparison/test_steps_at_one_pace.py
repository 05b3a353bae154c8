"""Two steps at one pace of their hosts, and how far they must be apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from traceanalyzer.comparison.captures import Captures
from traceanalyzer.comparison.result import StepAxis, Word
from traceanalyzer.comparison.snapshot import StepTime
from traceanalyzer.comparison.step_axis import step_axis

HALVES = ((0.5, 2_000.0), (1.0, 1_000.0), (2.0, 500.0))  # all of it is the CPU's


def side(
    ns: int = 1_000, *, mm_us: float = 10.0, captures: int = 1, gpu: str = "H200", **more: Any
) -> Captures:
    """Captures whose host takes so long for a product."""
    recorded = more.pop("recorded", ("shapes",))
    fields = {"predicted": True, "bound": "cpu", "paces": HALVES, "low_ns": ns, "high_ns": ns, **more}
    host = pd.DataFrame([("mm", 0, 1, 1e3 * mm_us)], columns=["name", "part", "count", "mean_ns"])
    one: Any = SimpleNamespace(
        step=StepTime(ns=ns, recorded_ns=ns, each_ns=(ns, ns), **fields),
        gpus=(gpu,),
        versions={},
        recorded=recorded,
        tables={"host": host},
    )
    return Captures((one,) * captures, one)


def axis(base: Captures, new: Captures, *, changed: bool = False) -> StepAxis:
    found = step_axis(base, new, None, changed)
    assert found is not None
    return found


def test_slower_host_in_one_recording_makes_no_difference() -> None:
    """Twice as long for the same calls: both steps are told for a host between the two."""
    found = axis(side(1_000), side(2_000, mm_us=20))
    assert (found.pace, found.base_ns, found.new_ns) == (2.0, 1_414, 1_414)
    assert (found.base_raw_ns, found.new_raw_ns) == (1_000, 2_000)
    assert found.word is Word.UNKNOWN


@pytest.mark.parametrize(
    ("captures", "more", "pace"),
    [
        ((1, 1), ({}, {}), 2.0),
        ((3, 2), ({}, {}), 2.0),
        ((3, 3), ({}, {}), 1.0),  # their spread holds that of the hosts
        ((1, 1), ({"measured": True}, {}), 2.0),
        ((1, 1), ({"measured": True}, {"measured": True}), 1.0),  # timed by the user
        ((1, 1), ({"predicted": False}, {}), 1.0),  # as recorded
    ],
)
def test_few_captures_are_brought_to_one_pace(
    captures: tuple[int, int], more: tuple[dict[str, Any], dict[str, Any]], pace: float
) -> None:
    sides = side(captures=captures[0], **more[0]), side(captures=captures[1], mm_us=20, **more[1])
    found = axis(*sides)
    assert (found.pace, found.captures) == (pace, captures)
    assert (found.low is None) is (captures != (3, 3))
    measured = all(one.get("measured", False) for one in more)
    assert (found.measured, found.predicted) == (measured, not measured and "predicted" not in more[0])


@pytest.mark.parametrize(
    ("new", "word", "needed"),
    [
        (side(1_200), Word.UNKNOWN, 0.21),
        (side(1_220), Word.SLOWER, 0.21),
        (side(1_200, mm_us=10.1), Word.SLOWER, 0.10),  # brought to one pace
        (side(1_200, mm_us=10.1, recorded=("stacks",)), Word.UNKNOWN, 0.21),  # which costs time itself
        (side(1_200, gpu="H100", low_ns=1_000), Word.UNKNOWN, 0.21),
        (side(1_300, gpu="H100", low_ns=1_000), Word.UNKNOWN, 0.30),
        (side(1_300, gpu="H100", low_ns=1_250), Word.SLOWER, 0.21),
        (side(700, gpu="H100", high_ns=1_050), Word.UNKNOWN, 0.50),  # of the quicker one, the upper end
    ],
)
def test_how_far_two_recordings_must_be_apart(new: Captures, word: Word, needed: float) -> None:
    found = axis(side(1_000), new, changed=True)
    assert (found.word, round(found.needed, 6)) == (word, needed)


@pytest.mark.parametrize("missing", [{"ns": 0}, None])
def test_without_a_step_on_either_side_there_is_no_axis(missing: dict[str, int] | None) -> None:
    none = side(0)
    if missing is None:
        none.together.step = None  # type: ignore[misc]
    assert step_axis(none, side(), None, False) is None
    assert step_axis(side(), none, None, False) is None


def test_interval_of_many_captures_is_half_the_needed_width() -> None:
    found = axis(side(1_000, captures=3), side(1_100, captures=3))
    assert found.low == found.high == pytest.approx(0.1)
    assert (found.word, found.needed) == (Word.SLOWER, 0.01)  # no step is known better
