"""Steps that have more events than there is room for: what of them the timeline draws."""

from __future__ import annotations

import pytest

from tests.report.test_timeline_parts import US, rows
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.render.html.timeline_data import timeline_of
from traceanalyzer.render.html.timeline_events import chosen


def steps_of(*kernels: int) -> TraceBuilder:
    """Steps of 3 ms, the last of 4, with so many kernels of 20 us, each launched by a call in an op of 3 us."""
    trace, number = TraceBuilder(), 0
    for step, count in enumerate(kernels):
        trace.step(step, step * 3_000 * US, (3_000 + 1_000 * (step == len(kernels) - 1)) * US)
        for at in range(count):
            begin, number = (step * 3_000 + 1 + at * 21) * US, number + 1
            trace.op("aten::mm", begin, 3 * US)
            trace.launch("cudaLaunchKernel", begin + US, US, number)
            trace.kernel(begin + 5 * US, 20 * US, number)
    return trace


@pytest.mark.parametrize(
    ("most", "kernels"),
    [
        pytest.param(140, 100, id="all kernels last long enough"),
        pytest.param(400, 100, id="all events have room"),
        pytest.param(110, 0, id="one kernel too many: as long as each other, they stay or go together"),
    ],
)
def test_every_kernel_that_is_drawn_has_its_launch_and_op(most: int, kernels: int) -> None:
    """One of three steps is drawn, of 300 events; 7.5 us are seen from afar, but there is no room for 300 kernels."""
    made = timeline_of(Analysis(steps_of(100, 100, 100).load()), [], [], most, 100, None)
    drawn = [one for one in rows(made) if one[1] == "compute"]
    assert len(drawn) == kernels
    assert {(name, op) for _, _, _, name, _, op in drawn} <= {("cudaLaunchKernel", "aten::mm")}
    assert sum(one[1] == "op" for one in rows(made)) == sum(one[1] == "call" for one in rows(made)) == kernels


@pytest.mark.parametrize(
    ("most", "drawn"),
    [
        pytest.param(140, [(6, 3_001)], id="too many events"),
        pytest.param(700, [(6, 0)], id="room for the usual step"),
        pytest.param(800, [(6, 0), (9, 0)], id="room for both"),
    ],
)
def test_the_step_that_is_thinned_is_the_usual_one(most: int, drawn: list[tuple[int, int]]) -> None:
    """Of three of 3 ms the last, of 300 events; the longest, of 420, only where all have room: (ms, least ns)."""
    bands = chosen(Analysis(steps_of(100, 100, 100, 140).load()), [], [], most).bands
    assert [(band.start_ns // 1_000 // US, band.least_ns) for band in bands] == drawn
