"""Where a strip draws its lanes, bars and links, and what its colours mean."""

from __future__ import annotations

import pytest

from tests.html.pages import Parsed, parsed
from traceanalyzer.render.html.event_bars import Bar
from traceanalyzer.render.html.strip_data import Lane, Link, Strip
from traceanalyzer.render.html.strips import legend, strip_svg

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
