"""Stretches of the CPU without ops, against the rows of every recorded fixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cached_reports import analysed
from tests.support.fixtures import TRACES, name_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.report.diagnosis import restricted
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.cpu_gaps import CpuGaps, HostTime
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps

LEAST_NS = 20_000


@pytest.mark.parametrize("path", TRACES, ids=name_of)
def test_stretches_lie_in_the_steps_apart_and_hold_no_op(path: Path) -> None:
    analysis = analysed(path)
    try:
        steps, gaps, host = (analysis.index(one) for one in (Steps, CpuGaps, HostTime))
    except Unavailable:
        return
    nesting, rows = analysis.index(Nesting), analysis.index(Activity).rows["dispatching"]
    for found in (gaps, host):
        assert (found.end_ns - found.start_ns >= LEAST_NS).all()
        assert (found.start_ns[1:] >= found.end_ns[:-1]).all()
        assert (found.start_ns >= max(steps.cpu_start_ns[0], steps.window_start_ns)).all()
        assert (found.end_ns <= min(steps.cpu_end_ns[-1], steps.window_end_ns)).all()
        assert (nesting.end_ns[found.before] <= found.start_ns).all()
        assert (nesting.start_ns[found.after] >= found.end_ns).all()
    for start, end in zip(gaps.start_ns, gaps.end_ns, strict=True):
        assert not ((nesting.start_ns[rows] < end) & (nesting.end_ns[rows] > start)).any()


@pytest.mark.parametrize(("ops", "stretches"), [(1, 0), (2, 1), (3, 2)])
def test_between_two_ops_is_one_stretch(ops: int, stretches: int) -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 1_000_000)
    for number in range(ops):
        trace.op("aten::mm", 100_000 * number, 10_000)
        trace.launched((100_000 * number + 1_000, 5_000), (100_000 * number + 8_000, 1_000), number + 1)
    gaps = Analysis(trace.load()).index(CpuGaps)
    assert (gaps.end_ns - gaps.start_ns).tolist() == [90_000] * stretches


def test_stretches_of_20_us_count_and_queries_are_host_time() -> None:
    """From 10 to 30 us and from 40 to 59.999 us; then from 70 to 90 us with an op in which an event is queried."""
    trace = TraceBuilder()
    trace.step(0, 0, 1_000_000)
    for number, start in enumerate((0, 30_000, 59_999, 90_000)):
        trace.op("aten::mm", start, 10_000)
        trace.launched((start + 1_000, 5_000), (start + 8_000, 1_000), number + 1)
    trace.op("c10d::test", 75_000, 10_000)
    trace.launch("cudaStreamIsCapturing", 76_000, 2_000, 99)
    analysis = Analysis(trace.load())
    origin = analysis.index(Steps).cpu_start_ns[0]
    gaps, host = (
        (one.start_ns - origin, one.end_ns - origin) for one in map(analysis.index, (CpuGaps, HostTime))
    )
    assert [side.tolist() for side in gaps] == [[10_000], [30_000]]
    assert [side.tolist() for side in host] == [[10_000, 69_999], [30_000, 90_000]]


@pytest.mark.parametrize(("until_ns", "length_ns"), [(None, 390_000), (150_000, 140_000)])
def test_stretches_end_with_the_requested_window(until_ns: int | None, length_ns: int) -> None:
    """Two ops at 0 and 0.4 ms of one step, of which a part may be asked for that ends between them."""
    trace = TraceBuilder()
    trace.step(0, 0, 1_000_000)
    for number in range(2):
        trace.op("aten::mm", 400_000 * number, 10_000)
        trace.launched((400_000 * number + 1_000, 5_000), (400_000 * number + 8_000, 1_000), number + 1)
    analysis = restricted(trace.load(), None if until_ns is None else (0, until_ns))
    for gaps in map(analysis.index, (CpuGaps, HostTime)):
        assert (gaps.end_ns - gaps.start_ns).tolist() == [length_ns]
