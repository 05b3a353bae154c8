"""Stretches of the CPU without ops, against the rows of every recorded fixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loaded import analysed
from tests.recorded import TRACES, name_of
from traceanalyzer.model.errors import Unavailable
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
