"""Shapes of plots, with places worked out by hand, and names that differ far behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.html.pages import parsed
from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.render.html.markup import kernel_names, told_apart
from traceanalyzer.render.html.plot_data import KernelSpread, MemoryCurve, StepSeries, StepTime
from traceanalyzer.render.html.plots import accounting_bar, class_of, memory_svg, spread_svg, steps_svg

CURVE = MemoryCurve(0, "GPU 0", 100, 200, None, 0, (100, 200, 300), (-5, 50, 100), None, (), 0, 0)


def test_memory_curve_is_stepped_below_peak_reserved() -> None:
    """Of 170 pixels 96 % are 200 bytes; bytes that were freed before they were seen are none."""
    page = parsed(str(memory_svg(replace(CURVE, reserved_bytes=(100, 200, 200)))).encode())
    steps = "0.0,170.0 H500.0 V129.2 H1000.0 V88.4"
    assert page.of_class("allocated")[0].attributes["d"] == f"M{steps}"
    assert page.of_class("area")[0].attributes["d"] == f"M0,170 L{steps} L1000,170 Z"
    assert page.of_class("reserved")[0].attributes["d"] == "M0.0,88.4 H500.0 V6.8 H1000.0 V6.8"
    assert [one.attributes["x1"] for one in page.of_class("edge")] == ["500.0"]
    alone = parsed(str(memory_svg(CURVE)).encode())
    assert alone.of_class("reserved") == []
    assert alone.of_class("allocated")[0].attributes["d"] == "M0.0,170.0 H500.0 V88.4 H1000.0 V6.8"


def test_steps_are_as_high_as_they_take_with_idle_time_on_top() -> None:
    one = StepTime(3, 100, {"idle": 40, "compute": 60})
    two = StepTime(4, 200, {"copy_d2h": 50, "idle": 50, "compute": 100})
    page = parsed(str(steps_svg(StepSeries(0, 150, 1, (one, two)))).encode())
    rects = [one.attributes for one in page.elements if one.name == "rect"]
    assert [(one["class"], one["y"], one["height"], one["x"]) for one in rects] == [
        ("c-compute", "105.00", "45.00", "4.000%"),
        ("c-idle", "75.00", "30.00", "4.000%"),
        ("c-compute", "75.00", "75.00", "54.000%"),
        ("c-copy-d2h", "37.50", "37.50", "54.000%"),
        ("c-idle", "0.00", "37.50", "54.000%"),
    ]
    assert {one["width"] for one in rects} == {"42.000%"}
    assert page.of_class("median")[0].attributes["y1"] == "37.5"
    assert [(one.text, one.attributes["x"]) for one in page.of_class("tick")] == [
        ("3", "25.00%"),
        ("4", "75.00%"),
    ]
    titles = [one.text for one in page.elements if one.name == "title"]
    assert titles[0].startswith("step 3: 100 ns; ")


def test_a_spread_goes_from_the_least_to_the_most() -> None:
    page = parsed(str(spread_svg(KernelSpread("gemm", 0, 8, 8_000, 1_000, 0.2, 0.9, 1.2, 1.6))).encode())
    line, end = (one.attributes for one in page.of_class("whisker"))
    assert (line["x1"], line["x2"]) == ("10.00%", "80.00%")
    assert (end["x1"], end["x2"]) == ("80.00%", "80.00%")


def test_device_parts_are_window_shares_with_idle_last() -> None:
    parts = {
        "idle:python": 60 * MS,
        "memset": 0,
        "copy_h2d": 10 * MS,
        "compute": 20 * MS,
        "idle:dispatching": 5 * MS,
    }
    report = samples.report(samples.trace(accounting=(samples.accounting(parts_ns=parts, idle_causes=()),)))
    (page,) = (parsed(str(one).encode()) for one in accounting_bar(report, 0))
    rows = [one.text for one in page.elements if one.name == "tr"][1:]
    assert [row.startswith("idle: ") for row in rows[:-1]] == [False, False, True, True]
    assert [one.text for one in page.of_class("derived")] == ["20.0 %", "10.0 %", "60.0 %", "5.0 %", "100 %"]


@pytest.mark.parametrize(("alike", "cut"), [(34, False), (35, False), (36, True), (50, True)])
def test_names_that_differ_far_behind_lose_what_they_share(alike: int, cut: bool) -> None:
    """In 40 characters: the first 24, and from 10 before the difference on, where that is less."""
    one, two = (f"{'k' * alike}{letter * 4}{'z' * 60}" for letter in "AB")
    far = "k" * 30 + "C" * 4 + "k" * (alike - 34) + "z" * 64 if alike == 50 else one
    shown = told_apart([one, two, far], 40)
    assert shown[0] == (f"{'k' * 24}…{'k' * 10}AAAAz" if cut else one)
    assert shown[1] == (f"{'k' * 24}…{'k' * 10}BBBBz" if cut else two)
    assert shown[2] == far if alike == 50 else shown[0]


def test_one_name_may_be_the_beginning_of_another() -> None:
    shown = told_apart(["k" * 80, "k" * 81], 40)
    assert shown == [f"{'k' * 24}…{'k' * 10}", f"{'k' * 24}…{'k' * 11}"]


def test_kernels_of_one_name_are_short_others_have_arguments() -> None:
    one, two = "void a::gemm<float>(int)", "void b::gemm<half>(int)"
    assert kernel_names([one, one], 60) == ["gemm", "gemm"]
    assert kernel_names([one, two, "c::add<int>"], 60) == ["a::gemm<float>", "b::gemm<half>", "add"]


@pytest.mark.parametrize(
    ("name", "look"),
    [
        ("copy_d2h", "c-copy-d2h"),
        ("copy_h2d", "c-copy-h2d"),
        ("copy_d2d", "c-copy"),
        ("idle", "c-idle"),
        ("memset", "c-memset"),
        ("compute", "c-compute"),
        ("compute_over_communication", "c-compute-over"),
        ("communication_waiting", "c-communication-waiting"),
        ("communication_hidden", "c-communication"),
        ("something else", "c-compute"),
    ],
)
def test_a_class_of_time_looks_as_what_its_name_begins_with(name: str, look: str) -> None:
    assert class_of(name) == look
