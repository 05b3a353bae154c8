"""Points of the plots are true; the roofline draws ops below the device's peaks."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.html.pages import Parsed, parsed
from tests.support.cached_reports import analysed
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.allocator.memory_view import MemoryView
from traceanalyzer.job.ranks import Here
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.render.html.markup import style
from traceanalyzer.render.html.page_data import Inputs, OpRow, OpTable
from traceanalyzer.render.html.plot_data import (
    MOST_POINTS,
    MOST_STEPS,
    STEP_PARTS,
    kernel_spreads,
    memory_curves,
    step_series,
)
from traceanalyzer.render.html.plots import class_of, memory_svg, roofline, spread_svg, steps_svg
from traceanalyzer.report.summary import accounting_of

LOOP = FIXTURES / "kernel-variance" / "bad.json.gz"


def test_steps_are_those_of_the_accounting() -> None:
    analysis = analysed(LOOP)
    series = step_series(analysis)
    assert series is not None
    frame = accounting_of(Here({None: analysis}))
    frame = frame[frame["device"] == series.device]
    whole = frame.groupby("step")["ns"].sum()
    idle = frame[frame["class"] == "idle"].groupby("step")["ns"].sum()
    assert {step.number: step.ns for step in series.steps} == whole.to_dict()
    for step in series.steps:
        assert sum(step.parts_ns.values()) == step.ns
        assert sum(step.parts_ns.get(name, 0) for name in STEP_PARTS[4:]) == idle.get(step.number, 0)
    assert series.together == 1


def many_steps(count: int) -> Analysis:
    made = TraceBuilder()
    for step in range(count):
        begin = step * 100_000
        made.step(step, begin, 100_000)
        made.launched((begin + 1_000, 2_000), (begin + 10_000, 20_000 + 50 * (step % 7)), step + 1)
    return Analysis(made.load())


def test_of_many_steps_the_longest_of_each_run_are_drawn() -> None:
    analysis = many_steps(1_000)
    series = step_series(analysis)
    assert series is not None
    assert series.together == 5
    assert len(series.steps) == 200 <= MOST_STEPS
    assert {step.number // 5 for step in series.steps} == set(range(200))
    assert steps_svg(series).count("<title>") == 200


def test_ops_of_a_step_are_those_of_the_device_that_is_shown() -> None:
    """The second device's are longer."""
    made = TraceBuilder()
    for step in range(4):
        begin = step * 1_000_000
        made.step(step, begin, 1_000_000)
        for device, name in enumerate(("aten::mm", "aten::bmm")):
            at, correlation = begin + 100_000 * device, 2 * step + device + 1
            made.op(name, at, 50_000)
            made.launch("cudaLaunchKernel", at + 10_000, 5_000, correlation)
            made.kernel(at + 60_000, 100_000 * (device + 1), correlation, device=device)
    series = step_series(Analysis(made.load()))
    assert series is not None
    assert [step.ops for step in series.steps] == [(("aten::mm", 100_000),)] * 4


def test_without_marks_there_are_no_steps() -> None:
    made = TraceBuilder()
    made.launched((1_000, 2_000), (10_000, 20_000), 1)
    assert step_series(Analysis(made.load())) is None


def test_spread_is_that_of_the_same_work() -> None:
    """Two kernels of one name, one four times as long as the other: neither varies but in one step, by a half."""
    made = TraceBuilder()
    for step in range(8):
        begin = step * 1_000_000
        made.step(step, begin, 1_000_000)
        for i, dur in enumerate((100_000, 400_000)):
            made.launch("cudaLaunchKernel", begin + 1_000 + 10_000 * i, 2_000, 2 * step + i + 1)
            longer = 1.5 if (step, i) == (5, 1) else 1.0
            made.kernel(begin + 20_000 + 150_000 * i, int(dur * longer), 2 * step + i + 1, name="gemm")
    (spread,) = kernel_spreads(Analysis(made.load()))
    assert spread.name == "gemm"
    assert (spread.least, spread.p10, spread.p90, spread.most) == (1.0, 1.0, 1.0, 1.5)
    assert "50.00%" in spread_svg(spread)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_kernel_of_several_steps_has_a_spread(steps: int) -> None:
    """Another one in the third step alone has none."""
    made = TraceBuilder()
    for step in range(4):
        begin = step * 1_000_000
        made.step(step, begin, 1_000_000)
        for i, name in enumerate(["always", *["some"] * (step < steps)]):
            made.launch("cudaLaunchKernel", begin + 1_000 + 10_000 * i, 2_000, 2 * step + i + 1)
            made.kernel(begin + 20_000 + 150_000 * i, 100_000, 2 * step + i + 1, name=name)
    found = {spread.name for spread in kernel_spreads(Analysis(made.load()))}
    assert found == {"always"} | ({"some"} if steps > 1 else set())


def test_spreads_of_a_recording() -> None:
    spreads = kernel_spreads(analysed(LOOP))
    assert spreads
    for spread in spreads:
        assert spread.least <= spread.p10 <= 1.0 <= spread.p90 <= spread.most
    assert max(spread.most for spread in spreads) > 1.25


def allocations(count: int) -> TraceBuilder:
    """Blocks that come and go, one large one in the middle."""
    made = TraceBuilder(profile_memory=1)
    held = 0
    for i in range(count):
        size = 50 << 20 if i == count // 2 else 2 << 20
        held += size
        made.op("aten::empty", i * 1_000, 900)
        made.memory(i * 1_000 + 100, size, address=i + 1, allocated=held, reserved=64 << 20)
        if i % 2:
            held -= size
            made.memory(i * 1_000 + 500, -size, address=i + 1, allocated=held, reserved=64 << 20)
    return made


@pytest.mark.parametrize("count", [20, 3_000])
def test_the_curve_keeps_its_peak_and_its_ends(count: int) -> None:
    analysis = Analysis(allocations(count).load())
    (curve,) = memory_curves(analysis)
    (device,) = analysis.index(MemoryView).devices
    whole = dict(zip(device.curve["time_ns"], device.curve["allocated_bytes"], strict=True))
    assert max(curve.allocated_bytes) == curve.peak_bytes == device.peak_bytes
    assert len(curve.time_ns) <= MOST_POINTS + 2
    assert all(whole[at] == size for at, size in zip(curve.time_ns, curve.allocated_bytes, strict=True))
    assert (curve.time_ns[0], curve.time_ns[-1]) == (min(whole), max(whole))
    assert list(curve.time_ns) == sorted(curve.time_ns)
    alive = sum(owner.bytes for owner in curve.owners) + curve.others_bytes + curve.before_bytes
    assert alive == curve.peak_bytes
    assert curve.reserved_bytes is not None
    assert memory_svg(curve).count("<path") == 3


def test_shared_memory_curves(shared: object) -> None:
    path: Path = shared("real/gpt2_train.eager")  # type: ignore[operator]
    for curve in memory_curves(analysed(path)):
        assert max(curve.allocated_bytes) == curve.peak_bytes
        total = sum(owner.bytes for owner in curve.owners) + curve.others_bytes + curve.before_bytes
        assert total == curve.peak_bytes


def test_copies_of_different_ways_look_different() -> None:
    ways = ("copy_h2d", "copy_d2h", "copy_d2d")
    looks = {class_of(way) for way in ways}
    assert len(looks) == len(ways)
    sheet = style()
    colours = {re.search(rf"^\.{look} {{ fill: var\((--[\w-]+)\)", sheet, re.MULTILINE)[1] for look in looks}
    assert len(colours) == len(ways)


def inputs(tflops: float | None, gbps: float | None, ns: int = 1_000, **more: Any) -> Inputs:
    given = {"peak_share": None, "limit": None, "note": None, "peak_tflops": None, "peak_gbps": None} | more
    return Inputs(0, "8x8", "bf16", 1, ns, tflops, gbps, *given.values())


def drawn(*points: Inputs) -> Parsed:
    rows = tuple(OpRow(f"op{at}", 1, one.gpu_ns, 0.1, (one,)) for at, one in enumerate(points))
    return parsed(str(roofline(OpTable(rows, 0, 0, ()))).encode())


def places(page: Parsed) -> list[tuple[str | None, ...]]:
    return [tuple(one.attributes[name] for name in ("cx", "cy", "r")) for one in page.named("circle")]


def slopes(page: Parsed) -> list[tuple[str | None, ...]]:
    lines = [one.attributes for one in page.of_class("roof") if one.attributes["x1"] != "0"]
    return [tuple(one[name] for name in ("x1", "y1", "x2", "y2")) for one in lines]


ONE, HUNDRED = inputs(1.0, 1_000.0, 400), inputs(100.0, 1_000.0, 100)  # FLOPs per byte: 1 and 100


def test_points_lie_by_logarithms_and_their_area_is_their_time() -> None:
    """From 1/1.6 to 160 on both axes, 256 times as much: ln 1.6 / ln 256 is 0.0848."""
    page = drawn(HUNDRED, ONE)
    assert places(page) == [("8.48%", "238.0", "12.0"), ("91.52%", "22.0", "7.5")]
    assert page.texts("title") == [
        "op1 [8x8]: 1.00 TFLOP/s, 1.00 FLOPs per byte, 400 ns of GPU time",
        "op0 [8x8]: 100.00 TFLOP/s, 100.00 FLOPs per byte, 100 ns of GPU time",
    ]
    assert page.of_class("roof") == []
    (caption,) = page.texts("figcaption")
    assert caption.startswith("Roofline: 2 ops by")


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (100.0, [("8.48%", "1"), ("50.00%", "10")]),
        (640.0, [("6.35%", "1"), ("37.46%", "10"), ("68.57%", "100")]),
        (62.6, [("9.26%", "1"), ("54.61%", "10")]),
        (62.4, [("9.26%", "1"), ("54.65%", "10")]),
    ],
)
def test_the_axis_has_powers_of_ten_within_it(most: float, ticks: list[tuple[str, str]]) -> None:
    """At its right end stands what it is of."""
    html = str(roofline(OpTable((OpRow("a", 1, 1, 0.1, (ONE, inputs(most, 1_000.0))),), 0, 0, ())))
    found = re.findall(r'<text class="tick" x="(-?[\d.]+%)" y="276">(.*?)</text>', html)
    assert found == ticks
    assert "FLOPs per byte</text>" in html


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
def test_memory_roof_meets_arithmetic_roof(tflops: float | None, gbps: float, slope: tuple[str, ...]) -> None:
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
    titles = page.texts("title")
    assert titles[0].endswith("400 ns of GPU time")
    assert titles[1].endswith("10 ns of GPU time, 13 % of the memory peak")


def test_of_many_ops_the_sixty_of_most_time_are_drawn() -> None:
    page = drawn(*(inputs(1.0 + at, 1_000.0, 100 + at) for at in range(61)), inputs(9.0, None, 999))
    titles = [one.text.partition(" ")[0] for one in page.named("title")]
    assert titles == [f"op{at}" for at in range(60, 0, -1)]
    assert roofline(OpTable((OpRow("a", 1, 1, 0.1, (ONE, inputs(9.0, None))),), 0, 0, ())) is None
