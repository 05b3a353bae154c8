"""Points of the plots on small traces: steps with their ops and causes, spreads, and the curve of memory."""

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.render.html.plot_data import (
    MOST_OWNERS,
    MOST_POINTS,
    StepSeries,
    highest_points,
    kernel_spreads,
    kernel_table,
    memory_curves,
    step_series,
)

US = 1_000


def busy(*steps: tuple[int, ...], gap: int = 0, device: int = 0, into: TraceBuilder | None = None) -> TraceBuilder:
    """Steps whose ops launch work of so many us, one after the other; before the last step's the device waits."""
    made, at = into or TraceBuilder(), 50 * US
    for number, lengths in enumerate(steps):
        begin = number * 100 * US
        if device == 0:
            made.step(number + 4, begin, 100 * US)
        at += gap * US if number == len(steps) - 1 else 0
        for i, us in enumerate(lengths):
            call, correlation = begin + (5 * i + 2) * US, 1_000 * device + 10 * number + i + 1
            if us != 7:  # launched by no op
                made.op(f"aten::op{us}", call - US, 4 * US)
            made.launched((call, 2 * US), (at, us * US), correlation, name=f"kernel{us}", device=device)
            at += us * US
    return made


def series_of(made: TraceBuilder, **more: int) -> StepSeries:
    found = step_series(Analysis(made.load()), **more)
    assert found is not None
    return found


def test_of_a_step_the_three_ops_with_most_time_are_named() -> None:
    """Kernels without op by their own name; an op that launches twice has the sum."""
    series = series_of(busy((20, 30, 10, 40), (7, 40, 30, 30), (60, 40), (100,)))
    assert [step.ops for step in series.steps] == [
        (("aten::op40", 40 * US), ("aten::op30", 30 * US), ("aten::op20", 20 * US)),
        (("aten::op30", 60 * US), ("aten::op40", 40 * US), ("kernel7", 7 * US)),
        (("aten::op60", 60 * US), ("aten::op40", 40 * US)),
        (("aten::op100", 100 * US),),
    ]
    assert [step.number for step in series.steps] == [4, 5, 6, 7]


def test_step_has_its_main_idle_cause_and_none_if_busy() -> None:
    series = series_of(busy((100,), (100,), (100,), (60,), gap=40))
    assert [step.cause for step in series.steps[1:3]] == [None, None]
    assert series.steps[1].parts_ns == {"kernel": 100 * US}
    assert (series.steps[3].cause or "").startswith("idle:")
    assert series.steps[3].parts_ns == {"kernel": 60 * US, "other": 40 * US}
    assert series.steps[3].ns == 100 * US


@pytest.mark.parametrize(
    ("most", "together", "shown"),
    [(5, 1, [4, 5, 6, 7, 8]), (4, 2, [5, 6, 8]), (3, 2, [5, 6, 8]), (2, 3, [5, 8]), (1, 5, [5])],
)
def test_of_steps_that_are_taken_together_the_longest_is_shown(most: int, together: int, shown: list[int]) -> None:
    """The median is that of all; before the first step's work the device waits for 50 us."""
    series = series_of(busy((60,), (160,), (130,), (90,), (120,)), most=most)
    assert (series.together, [step.number for step in series.steps]) == (together, shown)
    assert series.median_ns == 120 * US
    ops = {4: 60, 5: 160, 6: 130, 7: 90, 8: 120}
    assert [step.ops for step in series.steps] == [((f"aten::op{ops[n]}", ops[n] * US),) for n in shown]


def test_idle_time_of_a_step_goes_to_what_the_cpu_does() -> None:
    """Of 100 us the GPU works 20; meanwhile the CPU loads data for 30, is in an op for 20, 5 of these in a call."""
    made = TraceBuilder()
    for step in range(3):
        begin = step * 100 * US
        made.step(step, begin, 100 * US)
        made.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin + 30 * US, 30 * US)
        made.op("aten::mm", begin + 70 * US, 20 * US)
        made.launched((begin + 75 * US, 5 * US), (begin + 100 * US, 20 * US), step + 1)
    parts = series_of(made).steps[1].parts_ns
    recorded = {"kernel": 20 * US, "runtime": 5 * US, "CPU op": 15 * US}
    assert parts == {**recorded, "data loading": 30 * US, "other": 30 * US}


def test_kernels_have_the_mean_occupancy_that_was_recorded() -> None:
    """By time, 0 stands for none; of the SMs a kernel uses all at most."""
    made = TraceBuilder()
    given = (
        ("gemm_f16", 30, 50.0, 2.0),
        ("gemm_f16", 10, 10.0, 0.5),
        ("nvjet_hsh_64x8", 20, 0.0, 1.0),
        ("add", 40, None, None),
    )
    for i, (name, us, occupancy, blocks) in enumerate(given):
        more = {} if occupancy is None else {"est. achieved occupancy %": occupancy, "blocks per SM": blocks}
        made.op("aten::mm", i * 100 * US, 10 * US)
        made.launch("cudaLaunchKernel", i * 100 * US + US, 5 * US, i + 1)
        made.kernel(i * 100 * US + 20 * US, us * US, i + 1, name=name, **more)
    table = kernel_table(Analysis(made.load()), most=2)
    rows = [(one.name, one.count, one.total_ns) for one in table.rows]
    assert rows == [("gemm_f16", 2, 40 * US), ("add", 1, 40 * US)]
    assert (table.rows[0].occupancy_pct, table.rows[0].sm_share) == (40.0, 0.875)
    assert table.rows[1].occupancy_pct is None
    assert [one.tensor_cores for one in table.rows] == [True, False]
    assert (table.tensor_share, table.others, table.every.count) == (0.6, 1, 4)


def test_steps_are_those_of_the_first_device() -> None:
    """The second one's work is longer."""
    made = busy((100,), (100,), (100,))
    busy((130,), (130,), (130,), device=1, into=made)
    series = series_of(made)
    assert series.device == 0
    assert [step.parts_ns.get("kernel") for step in series.steps] == [100 * US] * 3


def repeated(*kernels: tuple[str, tuple[int, ...]]) -> TraceBuilder:
    """Each kernel once a step, for so many us."""
    made = TraceBuilder()
    for step in range(len(kernels[0][1])):
        begin, at = step * 1_000 * US, step * 1_000 * US + 100 * US
        made.step(step, begin, 1_000 * US)
        for i, (name, lengths) in enumerate(kernels):
            made.launch("cudaLaunchKernel", begin + (5 * i + 1) * US, 2 * US, 100 * step + i + 1)
            made.kernel(at, lengths[step] * US, 100 * step + i + 1, name=name, grid=(2, 3, 4 + i))
            at += lengths[step] * US
    return made


def test_spreads_are_over_the_usual_time_longest_first() -> None:
    """Eleven executions of 100 us, but for the least and the most: tenths are at the second and the last but one."""
    one = (100,) * 5 + (50, 80, 120, 200) + (100,) * 2
    found = kernel_spreads(Analysis(repeated(("small", (10,) * 11), ("varied", one)).load()))
    assert [(spread.name, spread.blocks) for spread in found] == [("varied", 30), ("small", 24)]
    varied = found[0]
    assert [varied.least, varied.p10, varied.p90, varied.most] == pytest.approx([0.5, 0.8, 1.2, 2.0])
    (alone,) = kernel_spreads(Analysis(repeated(("small", (10,) * 11), ("varied", one)).load()), 1)
    assert alone == varied


@pytest.mark.parametrize("more", [0, 2])
def test_largest_peak_owners_are_named_and_rest_summed(more: int) -> None:
    made, held = TraceBuilder(profile_memory=1), 0
    for i in range(MOST_OWNERS + more):
        held += (i + 1) << 20
        made.op(f"aten::op{i}", i * 10 * US, 5 * US)
        made.memory(i * 10 * US + US, (i + 1) << 20, address=i + 1, allocated=held, reserved=held + 512)
    (curve,) = memory_curves(Analysis(made.load()))
    assert [(owner.op, owner.blocks, owner.bytes) for owner in curve.owners] == [
        (f"aten::op{i}", 1, (i + 1) << 20) for i in range(MOST_OWNERS + more - 1, more - 1, -1)
    ]
    assert {owner.line for owner in curve.owners} == {None}
    assert (curve.others, curve.others_bytes) == (more, sum(i + 1 for i in range(more)) << 20)
    assert curve.reserved_bytes == tuple(one + 512 for one in curve.allocated_bytes)


def test_curve_has_first_maxima_of_each_part_and_ends() -> None:
    """Parts of 20 ns; the values of each are highest at its fourth and eighth."""
    at = np.arange(20 * MOST_POINTS + 1)
    values = np.where(np.isin(at % 20, (3, 7)), 5, 1)
    assert highest_points(at, values).tolist() == [0, *range(3, len(at), 20), len(at) - 1]
    few = np.arange(MOST_POINTS)
    assert highest_points(few, few % 3).tolist() == few.tolist()
    more = np.arange(MOST_POINTS + 1)
    assert len(highest_points(more, -more)) <= MOST_POINTS + 1


def test_each_allocator_has_a_curve_that_of_the_gpu_first() -> None:
    made = TraceBuilder(profile_memory=1)
    made.op("aten::empty", 0, 50 * US)
    made.memory(10 * US, 3 << 20, address=1, allocated=3 << 20, device=-1, device_type=0)
    made.memory(20 * US, 1 << 20, address=2, allocated=1 << 20, reserved=2 << 20)
    made.memory(30 * US, 4 << 20, address=3, allocated=7 << 20, device=-1, device_type=0)
    curves = memory_curves(Analysis(made.load()))
    peaks = [(one.position, one.device, one.peak_bytes) for one in curves]
    assert peaks == [(0, "CUDA:0", 1 << 20), (1, "CPU", 7 << 20)]
