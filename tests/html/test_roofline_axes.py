"""Where the roofline draws ops, the device's peaks and the marks of its axes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.html.pages import Parsed, parsed
from traceanalyzer.render.html.page_data import Inputs, OpRow, OpTable
from traceanalyzer.render.html.plots import roofline


def inputs(tflops: float | None, gbps: float | None, ns: int = 1_000, **more: Any) -> Inputs:
    given = {"peak_share": None, "limit": None, "note": None, "peak_tflops": None, "peak_gbps": None} | more
    return Inputs(0, "8x8", "bf16", 1, ns, tflops, gbps, *given.values())


def drawn(*points: Inputs) -> Parsed:
    rows = tuple(OpRow(f"op{at}", 1, one.gpu_ns, 0.1, (one,), 0) for at, one in enumerate(points))
    return parsed(str(roofline(OpTable(rows, 0, 0, ()))).encode())


def places(page: Parsed) -> list[tuple[str | None, ...]]:
    return [
        tuple(one.attributes[name] for name in ("cx", "cy", "r"))
        for one in page.elements
        if one.name == "circle"
    ]


def slopes(page: Parsed) -> list[tuple[str | None, ...]]:
    lines = [one.attributes for one in page.of_class("roof") if one.attributes["x1"] != "0"]
    return [tuple(one[name] for name in ("x1", "y1", "x2", "y2")) for one in lines]


ONE, HUNDRED = inputs(1.0, 1_000.0, 400), inputs(100.0, 1_000.0, 100)  # FLOPs per byte: 1 and 100


def test_points_lie_by_logarithms_and_their_area_is_their_time() -> None:
    """From 1/1.6 to 160 on both axes, 256 times as much: ln 1.6 / ln 256 is 0.0848."""
    page = drawn(HUNDRED, ONE)
    assert places(page) == [("8.48%", "238.0", "12.0"), ("91.52%", "22.0", "7.5")]
    titles = [one.text for one in page.elements if one.name == "title"]
    assert titles == [
        "op1 [8x8]: 1.00 TFLOP/s, 1.00 FLOPs per byte, 400 ns of GPU time",
        "op0 [8x8]: 100.00 TFLOP/s, 100.00 FLOPs per byte, 100 ns of GPU time",
    ]
    assert page.of_class("roof") == []
    (caption,) = [one.text for one in page.elements if one.name == "figcaption"]
    assert caption.startswith("Roofline: 2 ops by")


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (100.0, [("8.48%", "start", "1"), ("50.00%", "start", "10"), ("91.52%", "start", "100")]),
        (
            640.0,
            [
                ("6.35%", "start", "1"),
                ("37.46%", "start", "10"),
                ("68.57%", "start", "100"),
                ("99.68%", "end", "1000"),
            ],
        ),
        (62.6, [("9.26%", "start", "1"), ("54.61%", "start", "10"), ("99.97%", "end", "100")]),
        (62.4, [("9.26%", "start", "1"), ("54.65%", "start", "10")]),  # the axis ends before 100
    ],
)
def test_the_axis_has_powers_of_ten_within_it(most: float, ticks: list[tuple[str, str, str]]) -> None:
    """Whose letters lie inside at its right end."""
    html = str(roofline(OpTable((OpRow("a", 1, 1, 0.1, (ONE, inputs(most, 1_000.0)), 0),), 0, 0, ())))
    found = re.findall(r'<text class="tick" x="(-?[\d.]+%)" y="276" text-anchor="(\w+)">(.*?)</text>', html)
    assert found == ticks


@pytest.mark.parametrize(
    ("tflops", "gbps", "slope"),
    [
        # From the left end, up to where it meets the peak of 200 TFLOP/s at 100 FLOPs per byte.
        (200.0, 2_000.0, ("0.00%", "231.1", "91.52%", "19.6")),
        # From the bottom at 1.25 FLOPs per byte, up to the right end, where it is at 80 TFLOP/s.
        (200.0, 500.0, ("12.50%", "260.0", "100.00%", "57.8")),
        # No peak of arithmetic is known: up to the top, at 160 TFLOP/s and 80 FLOPs per byte.
        (None, 2_000.0, ("0.00%", "227.5", "87.50%", "0.0")),
    ],
)
def test_the_memory_s_peak_rises_to_that_of_arithmetic(
    tflops: float | None, gbps: float, slope: tuple[str, ...]
) -> None:
    more = {"peak_tflops": tflops, "peak_gbps": gbps}
    page = drawn(inputs(1.0, 1_000.0, **more), inputs(100.0, 1_000.0, **more))
    assert slopes(page) == [slope]
    names = [one.text for one in page.of_class("tick") if "TFLOP/s" in one.text]
    assert names == ([] if tflops is None else ["200 TFLOP/s"])


def test_each_peak_is_drawn_once_and_slopes_end_at_the_highest() -> None:
    """Of 10 and 200 TFLOP/s; a memory so slow that its slope begins right of all points is left out."""
    page = drawn(
        inputs(1.0, 1_000.0, peak_tflops=10.0, peak_gbps=2_000.0),
        inputs(100.0, 1_000.0, peak_tflops=200.0, peak_gbps=2_000.0),
        inputs(50.0, 1_000.0, peak_tflops=200.0, peak_gbps=1.0),
    )
    names = [one.text for one in page.of_class("tick") if "TFLOP/s" in one.text]
    assert names == ["10 TFLOP/s", "200 TFLOP/s"]
    assert slopes(page) == [("0.00%", "231.1", "91.52%", "19.6")]


def test_what_of_a_peak_is_reached_is_said_with_its_limit() -> None:
    page = drawn(replace(ONE, limit="compute"), inputs(50.0, 1_000.0, 10, peak_share=0.126, limit="memory"))
    titles = [one.text for one in page.elements if one.name == "title"]
    assert titles[0].endswith("400 ns of GPU time")
    assert titles[1].endswith("10 ns of GPU time, 13 % of the memory peak")


def test_of_many_ops_the_sixty_of_most_time_are_drawn() -> None:
    page = drawn(*(inputs(1.0 + at, 1_000.0, 100 + at) for at in range(61)), inputs(9.0, None, 999))
    titles = [one.text.partition(" ")[0] for one in page.elements if one.name == "title"]
    assert titles == [f"op{at}" for at in range(60, 0, -1)]
