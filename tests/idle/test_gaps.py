"""Gaps, the one at the tail, and which member of a set overlaps an interval longest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.idle.one_gap import gap, pieces
from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import load
from traceanalyzer.idle.gaps import Gaps
from traceanalyzer.model import intervals
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.device_work import DeviceWork

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=12)


@examples(200)
@given(spans, spans)
def test_the_longest_overlap_is_the_longest(
    members: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    begins, lengths = (np.array([row[i] for row in members], np.int64) for i in (0, 1))
    found = intervals.union(begins, begins + lengths)
    starts, ends = np.array([s for s, _ in wanted], np.int64), np.array([s + d for s, d in wanted], np.int64)
    position, longest = intervals.longest_overlap(found, starts, ends)
    for at, ns, start, end in zip(
        position.tolist(), longest.tolist(), starts.tolist(), ends.tolist(), strict=True
    ):
        overlaps = [
            min(b, end) - max(a, start) for a, b in zip(found[0].tolist(), found[1].tolist(), strict=True)
        ]
        best = max([0, *overlaps])
        assert ns == best
        assert at == (overlaps.index(best) if best else -1)


def test_gaps_know_what_ran_before_and_what_comes_next() -> None:
    trace = TraceBuilder()
    trace.kernel(10, 90, 1, stream=7)  # runs on while the next one comes and goes
    trace.kernel(20, 10, 2, stream=13)
    trace.launch("cudaLaunchKernel", 120, 10, 3)
    trace.kernel(150, 10, 3)
    trace.kernel(155, 30, 4, device=1)
    gaps = Gaps.of(Analysis(trace.load()).index(DeviceWork), (0, 200))
    assert gaps.device.tolist() == [0, 0, 0, 1, 1]
    assert gaps.start_ns.tolist() == [0, 100, 160, 0, 185]
    assert gaps.end_ns.tolist() == [10, 150, 200, 155, 200]
    assert gaps.previous_work.tolist() == [-1, 0, 2, -1, 3]
    assert gaps.next_work.tolist() == [0, 2, -1, 3, -1]
    assert gaps.in_time.tolist() == [True, False, True, True, True]
    assert gaps.overlap_ns(gaps.launched_ns, gaps.returned_ns).tolist() == [0, 10, 0, 0, 0]


def test_the_tail_of_a_file_that_was_cut_is_not_recorded(tmp_path: Path) -> None:
    written = gap().write(tmp_path / "trace.json").read_bytes()
    (tmp_path / "cut.json").write_bytes(written[: written.rindex(b"]")])
    whole, cut = (pieces(load(tmp_path / name), work=-1) for name in ("trace.json", "cut.json"))
    assert whole == {"tail": sum(whole.values())}
    assert cut == {"not-recorded": sum(whole.values())}


@pytest.mark.parametrize("kernel_first", [False, True])
def test_no_call_at_the_head_is_charged_for_unknown_waits(kernel_first: bool) -> None:
    """A copy's call of 80 us before the first work that was recorded: work before it would not be in the file."""
    trace = TraceBuilder()
    trace.step(0, 0, 1_000_000)
    if kernel_first:
        trace.op("aten::mm", 1_000, 8_000)
        trace.launch("cudaLaunchKernel", 2_000, 5_000, 1)
        trace.kernel(8_000, 1_000, 1)
    trace.op("aten::copy_", 10_000, 100_000)
    trace.launch("cudaMemcpyAsync", 12_000, 90_000, 2)
    trace.memcpy(90_000, 10_000, 2, name="Memcpy HtoD (Pageable -> Device)")
    found = pieces(trace, work=int(kernel_first))
    assert bool({"synchronisation", "blocking-upload"} & found.keys()) is kernel_first
