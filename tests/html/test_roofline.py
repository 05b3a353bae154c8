"""The roofline draws the ops whose FLOPs and bytes are known, below the device's peaks."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from traceanalyzer.render.html.page_data import Inputs, OpRow, OpTable
from traceanalyzer.render.html.plots import roofline


def row(name: str, tflops: float | None, gbps: float | None) -> OpRow:
    inputs = Inputs(0, "8x8", "bf16", 3, 1_000, tflops, gbps, 0.5, "compute", None, 990.0, 4_800.0)
    return OpRow(name, 3, 1_000, 0.1, (inputs,), 0)


TABLE = OpTable((row("mm", 495.0, 1_000.0), row("add", 0.2, 2_400.0), row("copy", None, 900.0)), 0, 0, ())


def test_every_point_is_an_op_with_known_rates() -> None:
    drawn = str(roofline(TABLE))
    assert drawn.count("<circle") == 2
    assert "mm [8x8]: 495.00 TFLOP/s, 495.00 FLOPs per byte" in drawn
    assert "add [8x8]: 0.20 TFLOP/s, 0.08 FLOPs per byte" in drawn
    assert "copy" not in drawn


def test_points_and_the_memory_s_slope_lie_below_the_peak() -> None:
    drawn = str(roofline(TABLE))
    (roof,) = (float(y) for y in re.findall(r'class="roof" x1="0" x2="100%" y1="([\d.]+)"', drawn))
    points = [float(y) for y in re.findall(r'cy="([\d.]+)"', drawn)]
    assert min(points) > roof
    (x, y) = re.findall(r'class="roof" x1="[\d.]+%" x2="([\d.]+)%" y1="[\d.]+" y2="([\d.]+)"', drawn)[0]
    assert float(y) == pytest.approx(roof, abs=0.2)  # the slope ends where it meets the peak
    assert 0 < float(x) < 100


def test_without_rates_there_is_none() -> None:
    assert roofline(replace(TABLE, rows=TABLE.rows[1:])) is None
