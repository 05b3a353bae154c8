"""Counters beside the trace: what changes often is drawn by its mean, and no peak is lost."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.render.perfetto.overlay import MOST_SAMPLES, overlays_of, queue_counters
from traceanalyzer.report.diagnosis import analyses_of, report_of
from traceanalyzer.timeline.steps import Steps

MS = 1_000_000
US = 1_000


def test_queued_counts_launched_but_unfinished_work() -> None:
    """Launches at 0, 10 and 20 us, the last as the first work ends; what has no launch was queued at no known time."""
    made = TraceBuilder()
    made.kernel(5 * US, 10 * US, 99)
    for number, (start, end, device) in enumerate(((5, 20, 0), (20, 30, 0), (30, 40, 0), (12, 60, 1)), 1):
        made.launch("cudaLaunchKernel", min(number - 1, 2) * 10 * US, 2 * US, number)
        made.kernel(start * US, (end - start) * US, number, device=device)
    made.kernel(5 * US, 10 * US, 98, device=2)
    analysis = Analysis(made.load())
    origin = int(analysis.trace.cpu["start_ns"].min())
    found = {one.name: (one.at_ns - origin, one.value) for one in queue_counters(analysis)}
    drawn = {
        name: list(zip((at // US).tolist(), depth.tolist(), strict=True))
        for name, (at, depth) in found.items()
    }
    assert drawn == {
        "Queue depth: device 0": [(0, 1), (10, 2), (20, 2), (30, 1), (40, 0)],
        "Queue depth: device 1": [(20, 1), (60, 0)],
        "Queue depth: device 2": [],
    }


def test_many_changes_are_drawn_by_their_mean() -> None:
    """The area under the queue's curve stays what it was."""
    made = TraceBuilder()
    made.step(0, 0, 300 * MS)
    rng = np.random.default_rng(5)
    count = MOST_SAMPLES
    starts = np.cumsum(rng.integers(11_000, 14_000, count))
    for at, start in enumerate(starts.tolist(), 1):
        made.launch("cudaLaunchKernel", start - 9_000, 2_000, at)
        made.kernel(start, int(rng.integers(500, 9_000)), at)
    analysis = analyses_of(made.load())
    (overlay,) = overlays_of(report_of(analysis, select=["hotspot"]), analysis)
    queue = next(one for one in overlay.counters if one.name.startswith("Queue"))
    assert len(queue.at_ns) <= MOST_SAMPLES
    frame = analysis[0][1].trace.gpu
    calls = analysis[0][1].trace.cpu
    launched = calls[calls["name"] == "cudaLaunchKernel"]["start_ns"].sum()
    area = int((frame["start_ns"] + frame["dur_ns"]).sum() - launched)
    window = analysis[0][1]
    widths = np.diff(np.append(queue.at_ns, window.index(Steps).window_end_ns))
    assert float(queue.value @ widths) == pytest.approx(area, rel=1e-3)


def test_no_peak_of_memory_is_lost() -> None:
    made = TraceBuilder(profile_memory=1)
    made.op("aten::empty", 0, 300 * MS)
    rng = np.random.default_rng(7)
    allocated = rng.integers(1, 1 << 30, MOST_SAMPLES + 5_000)
    for at, size in enumerate(allocated.tolist()):
        made.memory(at * 10_000, 512, allocated=size, reserved=1 << 31)
    analysed_ = analyses_of(made.load())
    (overlay,) = overlays_of(report_of(analysed_, select=["hotspot"]), analysed_)
    curves = {one.name: one for one in overlay.counters}
    drawn = curves["Memory allocated: CUDA:0"]
    assert len(drawn.at_ns) <= MOST_SAMPLES
    assert drawn.value.max() == allocated.max()
    assert np.isin(np.sort(allocated)[-100:], drawn.value).all()
    assert set(curves["Memory reserved: CUDA:0"].value) == {float(1 << 31)}
