"""The estimate of the profiler's own time brackets what was measured without it, as often as it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.builder import TraceBuilder
from tests.conftest import SHARED, shared_names
from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.inflation import COSTS, Inflation
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.load import load_file
from traceanalyzer.timeline.steps import Steps

Shared = Callable[[str], Path]

# Their CPU's time is not the profiler's to swell: it waits for a clock, for workers, for garbage or for a copy.
BY_THE_CLOCK = (
    "python_between.bad",
    "dataloader",
    "gc_pause",
    "cpu_roundtrip",
    "straggler_cpu",
    "recompile.bad",
)


def unprofiled_ns(name: str) -> float | None:
    """Median step without the profiler."""
    path = SHARED / f"{name}.meta.json"
    steps = json.loads(path.read_text()).get("unprofiled_step_ms") if path.exists() else None
    return float(np.median(steps)) * 1e6 if steps else None


def busy_per_step_ns(trace: Trace) -> float:
    """What the device needs for a step."""
    row = Analysis(trace).index(Accounting).summaries[0]
    busy = sum(ns for name, ns in row["parts_ns"].items() if not name.startswith("idle"))
    return busy / len(Analysis(trace).index(Steps))


def bracketed(name: str) -> bool | None:
    """Whether the truth lies in the stated range; None where the loop is not CPU-bound, or has no truth."""
    truth_without = unprofiled_ns(name)
    if truth_without is None or any(part in name for part in BY_THE_CLOCK):
        return None
    trace = load_file(SHARED / f"{name}.json.gz")
    try:
        inflation = Analysis(trace).index(Inflation)
    except Unavailable:
        return None
    if busy_per_step_ns(trace) > 0.8 * truth_without or Analysis(trace).index(Steps).kind != "ProfilerStep":
        return None  # without the profiler the device sets the pace
    truth = float(np.median(inflation.cpu_ns)) - truth_without
    return float(np.median(inflation.low_ns)) <= truth <= float(np.median(inflation.high_ns))


def test_the_range_holds_four_times_of_five() -> None:
    judged = {name: found for name in shared_names() if (found := bracketed(name)) is not None}
    if not judged:
        pytest.skip("no shared traces")
    assert len(judged) >= 17
    assert sum(judged.values()) >= 0.8 * len(judged), [name for name, found in judged.items() if not found]


def test_the_range_says_something() -> None:
    assert COSTS.high_factor / COSTS.low_factor < 7


@pytest.mark.parametrize(
    "name", ["clean_gemm.fixed", "clean_train.fixed", "low_occupancy.bad", "fp32_gemm.bad"]
)
def test_gpu_bound_loops_have_none(shared: Shared, name: str) -> None:
    with pytest.raises(Unavailable, match="sets the pace"):
        Analysis(load_file(shared(f"pairs/{name}"))).index(Inflation)


def steps_of(rows: int) -> TraceBuilder:
    """Two steps of 10 ms; the first with `rows` ops, calls and python functions, the device mostly idle."""
    trace = TraceBuilder()
    for number in (3, 4):
        trace.step(number, number * 10_000_000, 10_000_000)
    for i in range(rows):
        start = 30_000_000 + 20_000 * (i + 1)
        trace.op("aten::mm", start, 10_000)
        trace.launch("cudaLaunchKernel", start + 1_000, 5_000, i + 1)
        trace.kernel(start + 7_000, 1_000, i + 1)
        trace.python("f.py(1): f", start, 10_000, python_id=i)
    return trace


def test_every_recorded_row_costs() -> None:
    inflation = Analysis(steps_of(100).load()).index(Inflation)
    assert inflation.cpu_ns.tolist() == [10_000_000, 10_000_000]
    # The mark itself is an annotation: 101 op rows in the first step, one in the second.
    first = COSTS.step_ns + 101 * COSTS.op_ns + 100 * (COSTS.call_ns + COSTS.python_ns)
    second = COSTS.step_ns + COSTS.op_ns
    assert inflation.estimate_ns.tolist() == [first, second]
    assert inflation.low_ns.tolist() == pytest.approx([first * 0.4, second * 0.4], abs=1)
    assert inflation.high_ns.tolist() == pytest.approx([first * 2.5, second * 2.5], abs=1)
    assert inflation.share == pytest.approx((first + second) / 20_000_000)
    assert "50 call rows at 4.50 µs" in inflation.basis


def test_stalls_are_added_as_measured() -> None:
    without = Analysis(steps_of(10).load()).index(Inflation)
    trace = steps_of(10)
    trace.op("aten::add", 41_000_000, 3_000_000)
    trace.overhead("Activity Buffer Request", 41_500_000, 2_000_000)
    inflation = Analysis(trace.load()).index(Inflation)
    assert inflation.stalled_ns.tolist() == [0, 2_000_000]
    added = inflation.estimate_ns - without.estimate_ns
    assert added.tolist() == [0, 2_000_000 + COSTS.op_ns]


def test_it_is_never_most_of_a_step() -> None:
    trace = TraceBuilder()
    for number in (0, 1):
        trace.step(number, number * 60_000, 60_000)
    trace.launch("cudaLaunchKernel", 1_000, 5_000, 1)
    trace.kernel(10_000, 1_000, 1)
    inflation = Analysis(trace.load()).index(Inflation)
    assert inflation.high_ns.tolist() == [36_000, 36_000]


def test_a_loop_without_a_device_has_one() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 1_000_000)
    trace.op("aten::mm", 1_000, 500_000)
    assert Analysis(trace.load()).index(Inflation).estimate_ns.tolist() == [COSTS.step_ns + 2 * COSTS.op_ns]


def test_without_steps_there_is_none() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 1_000, 500_000)
    with pytest.raises(Unavailable, match=r"prof\.step"):
        Analysis(trace.load()).index(Inflation)
