"""What a strip shows of one occurrence: its surroundings, its device, its line, and which bars are its own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.report import report_samples as samples
from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.render.html.strip_data import Strip, strip_of

US = 1_000


def strip(made: TraceBuilder, start: int, end: int, *events: int, most: int = 90, **finding: Any) -> Strip:
    """Of a finding whose occurrence lasts from `start` to `end` after the begin of the trace, in us."""
    analysis = Analysis(made.load())
    starts = [frame["start_ns"].min() for frame in (analysis.trace.cpu, analysis.trace.gpu) if len(frame)]
    origin = int(min(starts))
    whole = {"thread": TID, "event_ids": events, "start_ns": origin + start * US, "end_ns": origin + end * US}
    return strip_of(analysis, samples.finding(0, **{**whole, **finding}), most)


def lasting(found: Strip) -> tuple[int, int]:
    """(before the occurrence, after it) in us."""
    return (found.from_ns - found.start_ns) // US, (found.end_ns - found.to_ns) // US


@pytest.mark.parametrize(
    ("at", "sides"),
    [
        (100, (30, 30)),  # as long as the occurrence: 0.3 of it on either side
        (300, (90, 290)),  # up to 400: 0.3 of 300 on either side
        (4_199, (1_259, 5_358)),  # 40 times as far away as the occurrence is long: 0.3 of 4,199
        (4_200, (30, 30)),
    ],
)
def test_near_event_of_an_occurrence_widens_its_strip(at: int, sides: tuple[int, int]) -> None:
    made = TraceBuilder()
    made.op("aten::begin", 0, 5 * US)
    other = made.op("aten::later", at * US, 100 * US)
    assert lasting(strip(made, 100, 200, other)) == sides


def test_only_the_work_of_the_finding_s_device_is_shown() -> None:
    """Of both devices' streams of one number; without a device of its own the first that has work."""
    made = TraceBuilder()
    made.kernel(0, 10 * US, 1, device=1)
    made.kernel(2 * US, 5 * US, 2, device=2)
    for device, shown in ((1, [10]), (2, [5]), (None, [10])):
        (lane,) = strip(made, 0, 10, device=device).lanes
        assert [(bar.end_ns - bar.start_ns) // US for bar in lane.bars] == shown


def test_work_running_at_strip_start_is_in_it() -> None:
    """The strip begins 15 us before the occurrence."""
    made = TraceBuilder()
    made.kernel(0, 34 * US, 1, name="before")
    made.kernel(34 * US, 2 * US, 2, name="into")
    made.kernel(64 * US, 9 * US, 3, name="in")
    made.kernel(115 * US, 9 * US, 4, name="after")
    (lane,) = strip(made, 50, 100).lanes
    assert [bar.name for bar in lane.bars] == ["into", "in"]


def test_own_bars_are_the_occurrences_in_any_file_order() -> None:
    made = TraceBuilder()
    late = made.kernel(20 * US, 5 * US, 2, name="late")
    early = made.kernel(10 * US, 5 * US, 1, name="early")
    for event, name in ((late, "late"), (early, "early")):
        (lane,) = strip(made, 0, 15, event).lanes
        assert [(bar.event_id, bar.name, bar.own) for bar in lane.bars] == [
            (early, "early", name == "early"),
            (late, "late", name == "late"),
        ]


def stacked() -> tuple[TraceBuilder, int, int]:
    """An op of a line of the user's launches work; (trace, the call, the work)."""
    made = TraceBuilder(with_stack=1)
    made.python("mine.py(3): forward", 0, 90 * US, python_id=1)
    made.op("aten::mm", 10 * US, 20 * US)
    call = made.launch("cudaLaunchKernel", 15 * US, 5 * US, 1)
    return made, call, made.kernel(40 * US, 10 * US, 1)


@pytest.mark.parametrize(
    ("evidence", "by", "line"),
    [
        ({"lines": {"first.py(1): f": 3, "second.py(2): g": 2}}, "by.py(7): h", "first.py(1): f"),
        ({"lines": {}}, "by.py(7): h", "by.py(7): h"),
        ({"lines": "text"}, None, "mine.py(3): forward"),
        ({}, "aten::mm", "mine.py(3): forward"),  # an op is no line
    ],
)
def test_the_line_is_the_finding_s_or_else_the_user_s_around_it(
    evidence: dict[str, Any], by: str | None, line: str
) -> None:
    made, call, work = stacked()
    assert strip(made, 10, 30, call, evidence=evidence, by=by).line == line
    assert strip(made, 40, 50, work, evidence=evidence, by=by).line == line  # by its launch


def test_without_stacks_there_is_no_line() -> None:
    made = TraceBuilder()
    op = made.op("aten::mm", 0, 10 * US)
    assert strip(made, 0, 10, op).line is None


@pytest.mark.parametrize(("start", "before"), [(79, None), (80, 36)])
def test_launch_before_the_strip_is_given_with_its_distance(start: int, before: int | None) -> None:
    """The launch at 64 us, its work at 100; the strip begins 15 us before the occurrence."""
    made = TraceBuilder()
    made.op("aten::first", 0, 5 * US)
    made.launch("cudaLaunchKernel", 64 * US, 5 * US, 1)
    work = made.kernel(100 * US, 10 * US, 1)
    lost = made.kernel(112 * US, 10 * US, 2)
    found = strip(made, start, start + 50, work).earlier
    assert (found and (found.before_ns // US, found.op)) == (before and (before, None))
    assert strip(made, start, start + 50, lost).earlier is None


def test_threads_of_finding_and_events_are_shown_at_least_one() -> None:
    """Where neither has rows there, the one with most."""
    made = TraceBuilder()
    made.op("aten::mine", 0, 10 * US)
    for at in range(3):
        made.op("aten::other", at * US, US, tid=TID + 1)
    event = made.op("aten::third", 0, 10 * US, tid=TID + 2)
    assert [lane.number for lane in strip(made, 0, 10, event).lanes] == [TID, TID + 2]
    assert [lane.number for lane in strip(made, 0, 10).lanes] == [TID]
    assert [lane.number for lane in strip(made, 0, 10, thread=TID + 9).lanes] == [TID + 1]


def test_hidden_lanes_are_counted_and_empty_ones_omitted() -> None:
    made = TraceBuilder()
    ids = [made.op(f"aten::op{at}", at * 2 * US, US) for at in range(4)]
    made.kernel(0, US, 1)
    made.kernel(2 * US, US, 2)
    found = strip(made, 0, 8, *ids)
    assert (found.seen, found.drawn, len(found.lanes)) == (6, 6, 2)
    one = strip(made, 0, 8, *ids, most=1)
    assert (one.seen, one.drawn) == (6, 1)
    assert [lane.kind for lane in one.lanes] == ["thread"]
