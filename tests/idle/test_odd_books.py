"""The books of work that runs at once, and of what is missing: durations, launches, idle time, the device's number."""

from __future__ import annotations

import pytest

from tests.idle.one_gap import US, gap
from tests.job.ranks import REDUCES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.model.analysis import Analysis


def test_integer_microseconds_are_no_trouble() -> None:
    """Old exporters round down: kernels last no time, and work starts as its launch does."""
    trace = TraceBuilder()
    for i in range(4):
        trace.launch("cudaLaunchKernel", 10 * i * US, 2 * US, i + 1)
        trace.kernel(10 * i * US, 0, i + 1)
    rows = Analysis(trace.load()).index(Accounting).summaries
    assert sum(rows[0]["parts_ns"].values()) == rows[0]["end_ns"] - rows[0]["start_ns"] == 32 * US
    assert all(name.startswith("idle") for name in rows[0]["parts_ns"])


def test_a_trace_of_nothing_but_kernels() -> None:
    trace = TraceBuilder()
    trace.kernel(0, 10 * US, 1)
    trace.kernel(30 * US, 10 * US, 2)
    (row,) = Analysis(trace.load()).index(Accounting).summaries
    assert row["parts_ns"] == {"compute": 20 * US, "idle:unlinked": 20 * US}


def test_a_device_that_is_never_idle() -> None:
    trace = TraceBuilder()
    trace.kernel(0, 10 * US, 1)
    (row,) = Analysis(trace.load()).index(Accounting).summaries
    assert row["parts_ns"] == {"compute": 10 * US}
    assert row["idle_causes"] == []


@pytest.mark.parametrize(
    ("kinds", "named"),
    [
        ("kernel nccl HtoD memset", "compute_over_communication"),
        ("kernel nccl", "compute_over_communication"),
        ("kernel HtoD memset", "compute_over_copy"),
        ("kernel DtoD", "compute_over_copy"),
        ("kernel memset", "compute"),
        ("nccl DtoH memset", "communication"),
        ("DtoH HtoD memset", "copy_h2d"),
        ("DtoD memset", "copy_d2d"),
    ],
)
def test_work_that_runs_at_once_is_named_by_what_hides_the_rest(kinds: str, named: str) -> None:
    """On streams of their own, in whatever order the file has them."""
    for ordered in (kinds.split(), kinds.split()[::-1]):
        trace = TraceBuilder()
        for number, kind in enumerate(ordered):
            where = {"start": 0, "dur": 10 * US, "correlation": number + 1, "stream": 7 + number}
            if kind == "memset":
                trace.memset(**where)
            elif kind in ("kernel", "nccl"):
                trace.kernel(**where, name=REDUCES if kind == "nccl" else "gemm")
            else:
                trace.memcpy(**where, name=f"Memcpy {kind}")
        (row,) = Analysis(trace.load()).index(Accounting).summaries
        assert row["parts_ns"] == {named: 10 * US}


def test_work_without_a_device_is_on_device_0() -> None:
    trace = gap()
    loaded = trace.load()
    null = loaded.gpu["device"].mask(loaded.gpu["device"] == 0)
    lost = loaded.with_frames(gpu=loaded.gpu.assign(device=null, stream=null))
    (row,) = Analysis(lost).index(Accounting).summaries
    assert row["device"] == 0
    assert row["parts_ns"] == Analysis(loaded).index(Accounting).summaries[0]["parts_ns"]
