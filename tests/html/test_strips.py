"""Strips show the events around an occurrence, at their times, the inner below the outer, with a legend."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.html.pages import Parsed, busy_loop, page, parsed
from tests.report import report_samples as samples
from tests.support.cached_reports import loaded
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Finding
from traceanalyzer.render.html.event_bars import Bar, levels_of, rows_within
from traceanalyzer.render.html.strip_data import Earlier, Lane, Link, Strip, fair_parts, longest_of, strip_of
from traceanalyzer.render.html.strips import legend, strip_svg
from traceanalyzer.report.diagnosis import report_of
from traceanalyzer.timeline.selection import Events

SOME = [FIXTURES / name / "bad.json.gz" for name in ("implicit-sync", "launch-bound", "dataloader-stall")]


def strips(path: Path) -> list[tuple[Finding, Strip]]:
    made = page(path)
    pairs = [(found, strip) for found, strip in zip(made.report.findings, made.strips, strict=True) if strip]
    assert pairs
    return pairs


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.parent.name)
def test_bars_are_events_of_the_trace(path: Path) -> None:
    trace = loaded(path)
    known: set[tuple[int, str, int, int]] = set()
    for frame in (trace.cpu, trace.gpu):
        ends = frame["start_ns"] + frame["dur_ns"]
        known |= set(zip(frame["event_id"], frame["name"].astype(str), frame["start_ns"], ends, strict=True))
    for _, strip in strips(path):
        bars = [bar for lane in strip.lanes for bar in lane.bars]
        assert {(bar.event_id, bar.name, bar.start_ns, bar.end_ns) for bar in bars} <= known
        assert len({bar.event_id for bar in bars}) == len(bars) == strip.drawn <= strip.seen
        assert all(bar.start_ns < strip.end_ns and bar.end_ns > strip.start_ns for bar in bars)


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.parent.name)
def test_the_occurrence_is_in_it_with_its_events(path: Path) -> None:
    for finding, strip in strips(path):
        assert strip.start_ns < finding.start_ns <= finding.end_ns < strip.end_ns
        assert (strip.from_ns, strip.to_ns) == (finding.start_ns, finding.end_ns)
        own = {bar.event_id for lane in strip.lanes for bar in lane.bars if bar.own}
        assert own <= set(finding.event_ids)
    first, strip = strips(path)[0]
    assert any(bar.own for lane in strip.lanes for bar in lane.bars)
    assert next(lane.number for lane in strip.lanes if lane.kind == "thread") == first.thread


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.parent.name)
def test_no_bar_hides_another_of_its_level(path: Path) -> None:
    for _, strip in strips(path):
        for lane in strip.lanes:
            for level in range(lane.levels):
                bars = sorted((bar.start_ns, bar.end_ns) for bar in lane.bars if bar.level == level)
                assert all(first[1] <= second[0] for first, second in pairwise(bars)), (lane.kind, level)


def test_the_longest_are_drawn_and_the_rest_counted() -> None:
    analysis = Analysis(busy_loop(400).load())
    report = report_of([(None, analysis)])
    for finding in report.findings:
        strip = strip_of(analysis, finding, 30)
        assert strip.drawn <= 30
        assert max(lane.levels for lane in strip.lanes) <= 7
        assert {lane.kind for lane in strip.lanes} == {"thread", "stream"}
    assert any(strip_of(analysis, finding, 30).seen > 30 for finding in report.findings)


def test_launches_lead_to_their_work_or_are_told() -> None:
    analysis = Analysis(busy_loop(400).load())
    (found,) = [one for one in report_of([(None, analysis)]).findings if one.rule == "launch-bound"]
    strip = strip_of(analysis, found)
    ids = {bar.event_id: bar for lane in strip.lanes for bar in lane.bars}
    assert strip.links
    assert all(ids[link.launch].kind == "call" and ids[link.work].kind == "compute" for link in strip.links)
    assert strip.earlier is None


@pytest.mark.parametrize("named", ["call", "work"])
def test_work_and_launch_are_joined_whichever_is_named(named: str) -> None:
    made = TraceBuilder()
    made.op("aten::mul", 10_000, 20_000)
    call = made.launch("cudaLaunchKernel", 15_000, 5_000, 1)
    kernel = made.kernel(25_000, 10_000, 1)
    analysis = Analysis(made.load())
    at = int(analysis.trace.cpu["start_ns"].min())
    own = {"call": call, "work": kernel}[named]
    finding = samples.finding(0, start_ns=at, end_ns=at + 30_000, event_ids=(own,), thread=TID)
    assert strip_of(analysis, finding).links == (Link(call, kernel),)


def test_a_launch_long_before_is_told_with_its_op() -> None:
    made = TraceBuilder()
    made.op("aten::mul", 10_000, 20_000)
    made.launch("cudaLaunchKernel", 15_000, 5_000, 1)
    kernel = made.kernel(30_000_000, 10_000, 1)
    analysis = Analysis(made.load())
    at = int(analysis.trace.gpu["start_ns"].iloc[0])
    finding = samples.finding(0, start_ns=at, end_ns=at + 10_000, event_ids=(kernel,), thread=None)
    strip = strip_of(analysis, finding)
    assert [(lane.kind, len(lane.bars)) for lane in strip.lanes] == [("stream", 1)]
    assert strip.earlier == Earlier(30_000_000 - 15_000, "aten::mul")
    assert (strip.end_ns - strip.start_ns, strip.from_ns - strip.start_ns) == (20_000, 5_000)


def test_lanes_are_the_thread_s_and_the_device_s() -> None:
    made = busy_loop(20)
    made.op("aten::elsewhere", 110_000, 50_000, tid=TID + 1)
    made.kernel(112_000, 30_000, 9_999, device=1)
    analysis = Analysis(made.load())
    for finding in report_of([(None, analysis)]).findings:
        if finding.device == 0 and finding.thread == TID:
            names = {bar.name for lane in strip_of(analysis, finding).lanes for bar in lane.bars}
            assert "aten::elsewhere" not in names
            assert [lane.number for lane in strip_of(analysis, finding).lanes] == [TID, 7]


def test_second_thread_launches_most_of_the_occurrence() -> None:
    """After the occurrence's own; those that neither launch nor wait for any of it are not shown."""
    made, calls = TraceBuilder(), []
    for thread, rows in ((TID, 1), (TID + 1, 2), (TID + 2, 4), (TID + 3, 9)):
        for row in range(rows):
            call = made.launch("cudaLaunchKernel", 1_000 + 2_000 * row, 1_000, 10 * thread + row, tid=thread)
            calls += [call] if thread < TID + 3 else []
    analysis = Analysis(made.load())
    at = int(analysis.trace.cpu["start_ns"].min())
    finding = samples.finding(0, start_ns=at, end_ns=at + 9_000, event_ids=tuple(calls), thread=TID)
    assert [lane.number for lane in strip_of(analysis, finding).lanes] == [TID, TID + 2]


def test_event_forty_times_as_long_does_not_widen_the_strip() -> None:
    """An op of 10 ms in nine others around a kernel of 1 us; of ten levels seven are drawn, from the outermost."""
    made = TraceBuilder()
    ids = [made.op(f"aten::level{depth}", depth * 100, 10_000_000 - 200 * depth) for depth in range(10)]
    made.launch("cudaLaunchKernel", 5_000_000, 5_000, 1, tid=TID + 1)
    kernel = made.kernel(5_000_000, 1_000, 1)
    analysis = Analysis(made.load())
    at = int(analysis.trace.gpu["start_ns"].iloc[0])
    finding = samples.finding(0, start_ns=at, end_ns=at + 1_000, event_ids=(ids[0], kernel), thread=TID)
    strip = strip_of(analysis, finding)
    assert strip.end_ns - strip.start_ns == 20_000
    assert [(lane.number, lane.levels) for lane in strip.lanes] == [(TID, 7), (7, 1)]
    assert [bar.level for bar in strip.lanes[0].bars] == list(range(7))


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0, 1_000, ["outer", "first", "inner", "second"]),
        (150, 200, ["outer", "first", "inner"]),
        (180, 200, ["outer", "first"]),  # the inner one ends there
        (200, 300, ["outer"]),
        (250, 301, ["outer", "second"]),
        (100, 110, ["outer", "first"]),
        (1_000, 2_000, []),
    ],
)
def test_rows_of_a_time_are_those_that_are_open_in_it(low: int, high: int, shown: list[str]) -> None:
    made = TraceBuilder()
    for name, start, end in (
        ("outer", 0, 1_000),
        ("first", 100, 200),
        ("inner", 110, 180),
        ("second", 300, 400),
    ):
        made.op(name, start, end - start)
    analysis = Analysis(made.load())
    origin = int(analysis.trace.cpu["start_ns"].min())
    rows = rows_within(analysis.index(Events), 0, origin + low, origin + high)
    assert analysis.trace.cpu["name"].iloc[rows].tolist() == shown


@pytest.mark.parametrize(
    ("start_us", "end_us", "ticks"),
    [
        (1_234, 2_234, "26.600% middle 1.5 ms, 76.600% middle 2 ms"),
        (920, 1_920, "8.000% middle 1 ms, 58.000% middle 1.5 ms"),
        (921, 1_921, "7.900% start 1 ms, 57.900% middle 1.5 ms"),
        (150, 1_150, "35.000% middle 0.5 ms, 85.000% middle 1 ms"),
        (149, 1_149, "35.100% middle 0.5 ms, 85.100% end 1 ms"),
        (
            0,
            20,
            "0.000% start 0 ms, 25.000% middle 0.005 ms, 50.000% middle 0.01 ms, 75.000% middle 0.015 ms, "
            "100.000% end 0.02 ms",
        ),
        (0, 21, "0.000% start 0 ms, 47.619% middle 0.01 ms, 95.238% end 0.02 ms"),
        (
            -300,
            400,
            "14.286% middle -0.2 ms, 42.857% middle 0 ms, 71.429% middle 0.2 ms, 100.000% end 0.4 ms",
        ),
        (999_990, 1_000_031, "24.390% middle 1,000 ms, 73.171% middle 1,000.02 ms"),
    ],
)
def test_the_axis_names_round_times_within_the_strip(start_us: int, end_us: int, ticks: str) -> None:
    """Since the first event of the trace; at either edge the letters lie inside."""
    origin = 5_000_123
    start, end = (origin + 1_000 * us for us in (start_us, end_us))
    svg = strip_svg(Strip(start, end, start, end, (), (), 0, 0, None), origin, "around it")
    found = re.findall(r'<text class="tick" x="(.*?)".*?anchor="(.*?)">(.*?)</text>', svg)
    assert ", ".join(map(" ".join, found)) == ticks


def test_bar_is_as_long_as_its_event_and_has_letters_if_wide() -> None:
    """From 3.5 % of the width on."""
    bars = tuple(
        Bar(at, f"aten::op{at}", "op", start, end, at, False)
        for at, (start, end) in enumerate(((100, 600), (600, 635), (700, 734), (50, 200)))
    )
    strip = Strip(100, 1_100, 300, 500, (Lane("thread", 7, 4, bars),), (), 4, 4, None)
    svg = str(strip_svg(strip, 0, "around it"))
    drawn = re.findall(
        r'<rect class="b b-op"[^>]*? x="(.*?)%" width="(.*?)%" height="(\d+)"><title>(.*?)<', svg
    )
    assert [(x, width, height) for x, width, height, _ in drawn] == [
        ("0.000", "50.000", "18"),
        ("50.000", "3.500", "18"),
        ("60.000", "3.400", "18"),
        ("0.000", "10.000", "18"),
    ]
    assert [title.partition(" from ")[0] for *_, title in drawn] == [
        "aten::op0, 500 ns",
        "aten::op1, 35 ns",
        "aten::op2, 34 ns",
        "aten::op3, 150 ns",
    ]
    assert re.findall(r'class="letters".*?>(aten::op\d)<', svg) == ["aten::op0", "aten::op1", "aten::op3"]
    (here,) = re.findall(r'class="here" x="(.*?)%" y="0" width="(.*?)%"', svg)
    assert here == ("20.000", "20.000")


def test_small_lanes_leave_their_room_to_the_large_ones() -> None:
    assert fair_parts([50, 1, 60], 30) == [14, 1, 15]
    assert fair_parts([3, 4], 30) == [3, 4]
    assert fair_parts([], 30) == []


def test_drawn_are_those_of_the_occurrence_and_then_the_longest() -> None:
    durations, own = np.array([5, 90, 70, 1, 90]), np.array([False, False, False, True, False])
    assert longest_of(durations, own, 3).tolist() == [1, 3, 4]
    assert longest_of(durations, own, 2).tolist() == [1, 3]


def test_of_too_many_levels_those_near_the_occurrence_are_drawn() -> None:
    """Seven of ten: the levels that no row has are left out, and one inside the occurrence is kept."""
    depth = np.array([0, 2, 3, 5, 6, 7, 8, 9, 11, 12])
    none = np.zeros(10, bool)
    assert levels_of(depth, none)[0] == -1
    for place, first in ((0, 0), (5, 0), (6, -1), (7, -2), (9, -3)):
        own = none.copy()
        own[place] = True
        assert levels_of(depth, own).tolist() == [first + level for level in range(10)]
    assert levels_of(np.array([4, 9]), none[:2]).tolist() == [0, 1]


def test_streams_are_the_busiest_four_and_that_of_the_occurrence() -> None:
    """The occurrence's own has least of six; the others are busy for 1, 2 .. 5 us."""
    made = TraceBuilder()
    own = made.kernel(10_000, 500, 1, stream=30)
    for number in range(1, 6):
        made.kernel(10_000, 1_000 * number, 1 + number, stream=20 + number)
    analysis = Analysis(made.load())
    at = int(analysis.trace.gpu["start_ns"].iloc[0])
    finding = samples.finding(0, start_ns=at, end_ns=at + 500, event_ids=(own,), thread=None)
    assert [lane.number for lane in strip_of(analysis, finding).lanes] == [23, 24, 25, 30]


GEMM = "void at::native::gemm_kernel<float, 4>(float*, int)"


THREAD = Lane(
    "thread",
    31,
    3,
    (Bar(1, "aten::mm", "op", 1_000, 1_600, 0, False), Bar(2, "launch", "call", 1_100, 1_200, 2, True)),
)


STREAM = Lane(
    "stream",
    7,
    1,
    (
        Bar(3, GEMM, "compute_gemm", 1_500, 1_900, 0, True),
        Bar(4, "Memcpy", "copy_d2h", 1_950, 2_400, 0, False),
    ),
)


STRIP = Strip(1_000, 2_000, 1_500, 1_900, (THREAD, STREAM), (Link(2, 3),), 4, 4, None)


def drawn(strip: Strip = STRIP, origin: int = 0) -> Parsed:
    return parsed(str(strip_svg(strip, origin, "around it")).encode())


def test_lanes_lie_one_below_the_other_as_high_as_their_levels() -> None:
    """The first from 2 to 77 with 18 of a heading and 19 of each level, 8 below it; the second to 130."""
    page = drawn()
    lanes = [(one.text, one.attributes["y"]) for one in page.of_class("lane")]
    assert lanes == [("CPU thread 31", "14"), ("GPU stream 7", "97")]
    grounds = [(one.attributes["y"], one.attributes["height"]) for one in page.of_class("ground")]
    assert grounds == [("20", "56"), ("103", "18")]
    assert [one.attributes["y"] for one in page.of_class("b")] == ["20", "58", "103", "103"]
    assert page.of_class("strip")[0].attributes["height"] == "152"
    assert page.of_class("strip")[0].attributes["aria-label"] == "around it"
    assert [one.attributes["height"] for one in page.of_class("here")] == ["130"]
    assert next(one.attributes["y1"] for one in page.of_class("axis")) == "130"


def test_link_leads_from_calls_lower_to_works_upper_edge() -> None:
    (link,) = drawn().of_class("link")
    assert [link.attributes[name] for name in ("x1", "y1", "x2", "y2")] == ["10.000%", "76", "50.000%", "103"]


def test_bars_look_like_their_kind_and_own_occurrence() -> None:
    looks = [one.attributes["class"] for one in drawn().of_class("b")]
    assert looks == ["b b-op", "b b-call own", "b b-compute own", "b b-copy"]


def test_bars_say_their_whole_time_since_the_trace_s_first_event() -> None:
    """Also of what ends outside the strip; a kernel's letters are its short name."""
    page = drawn(origin=400)
    titles = [one.text for one in page.elements if one.name == "title"]
    assert titles == [
        "aten::mm, 600 ns from 0.001 ms",
        "launch, 100 ns from 0.001 ms",
        f"{GEMM}, 400 ns from 0.001 ms",
        "Memcpy, 450 ns from 0.002 ms",
    ]
    assert [one.text for one in page.of_class("letters")] == ["aten::mm", "launch", "gemm_kernel", "Memcpy"]


@pytest.mark.parametrize(
    ("start", "end", "width"), [(1_500, 1_900, "40.000%"), (1_500, 1_500, "0.100%"), (900, 1_002, "0.200%")]
)
def test_the_occurrence_can_be_seen_however_short_it_is(start: int, end: int, width: str) -> None:
    page = drawn(Strip(1_000, 2_000, start, end, (), (), 0, 0, None))
    assert [one.attributes["width"] for one in page.of_class("here")] == [width]
    left, right = page.of_class("edge")
    begin = 50.0 if start == 1_500 else 0.0
    assert left.attributes["x1"] == left.attributes["x2"] == f"{begin:.3f}%"
    assert right.attributes["x1"] == f"{begin + float(width[:-1]):.3f}%"
    assert page.of_class("here")[0].attributes["height"] == "2"


def test_the_legend_explains_the_kinds_of_all_lanes() -> None:
    page = parsed(str(legend(STRIP)).encode())
    assert [one.text for one in page.elements if one.name == "li"] == [
        "op",
        "runtime call",
        "kernel",
        "copy",
        "belongs to this occurrence",
    ]
    looks = [one.attributes["class"] for one in page.of_class("swatch")]
    assert looks == ["swatch b-op", "swatch b-call", "swatch b-compute", "swatch b-copy", "swatch own"]
