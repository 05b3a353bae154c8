"""Points of the plots are true: against plain sums over the trace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.html.pages import parsed
from tests.support.cached_reports import analysed
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.allocator.memory_view import MemoryView
from traceanalyzer.job.ranks import Here
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.html.markup import style
from traceanalyzer.render.html.plot_data import (
    MOST_POINTS,
    MOST_STEPS,
    kernel_spreads,
    memory_curves,
    step_series,
)
from traceanalyzer.render.html.plots import class_of, memory_svg, spread_svg, steps_svg
from traceanalyzer.render.html.tables import steps as steps_table
from traceanalyzer.report.summary import accounting_of
from traceanalyzer.rule.views import Work

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
        assert step.parts_ns.get("idle", 0) == idle.get(step.number, 0)
    assert series.together == 1


def test_each_step_is_a_row_with_its_time_busy_and_idle() -> None:
    series = step_series(analysed(LOOP))
    assert series is not None
    rows = [one for one in parsed(steps_table(series, 0).encode()).elements if one.name == "tr"][1:]
    for step, row in zip(series.steps, rows, strict=True):
        idle = step.parts_ns["idle"]
        assert 0 < idle < step.ns
        numbers = "".join(map(format_ns, (step.ns, step.ns - idle, idle)))
        assert row.text.startswith(f"{step.number}{numbers}{step.ops[0][0][:10]}")


def many_steps(count: int) -> Analysis:
    made = TraceBuilder()
    for step in range(count):
        begin = step * 100_000
        made.step(step, begin, 100_000)
        made.launch("cudaLaunchKernel", begin + 1_000, 2_000, step + 1)
        made.kernel(begin + 10_000, 20_000 + 50 * (step % 7), step + 1)
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
    made.launch("cudaLaunchKernel", 1_000, 2_000, 1)
    made.kernel(10_000, 20_000, 1)
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
    assert (spread.name, spread.count, spread.total_ns) == ("gemm", 16, 8 * 500_000 + 200_000)
    assert (spread.least, spread.p10, spread.p90, spread.most) == (1.0, 1.0, 1.0, 1.5)
    assert spread.median_ns == 250_000
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
    found = {spread.name: spread.count for spread in kernel_spreads(Analysis(made.load()))}
    assert found == {"always": 4} | ({"some": steps} if steps > 1 else {})


def test_spreads_of_a_recording() -> None:
    analysis = analysed(LOOP)
    work = analysis.index(Work).of_kind("compute")
    spreads = kernel_spreads(analysis)
    assert spreads
    for spread in spreads:
        durations = work.dur_ns[work.name.one_of(spread.name) & (work.step >= 0)]
        assert 1 < spread.count <= len(durations)
        assert spread.total_ns <= durations.sum()
        assert spread.least <= spread.p10 <= 1.0 <= spread.p90 <= spread.most
    assert max(spread.most for spread in spreads) > 1.25
    assert [spread.total_ns for spread in spreads] == sorted((one.total_ns for one in spreads), reverse=True)


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


def test_median_line_is_at_the_top_of_a_median_step() -> None:
    """As far below the top of the longest as the median is shorter."""
    series = step_series(analysed(LOOP))
    assert series is not None
    drawn = str(steps_svg(series))
    line = re.search(r'class="median"[^>]*? y1="([\d.]+)"', drawn)
    tops = [float(y) for y in re.findall(r'<rect[^>]*? y="([\d.]+)"', drawn)]
    assert line is not None
    nearest = min(series.steps, key=lambda step: abs(step.ns - series.median_ns))
    assert abs(nearest.ns - series.median_ns) < 0.01 * series.median_ns
    assert min(abs(top - float(line[1])) for top in tops) < 1.0
