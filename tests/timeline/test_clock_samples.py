"""What the clock was at an instant, against a search that looks at every sample."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.builder import TraceBuilder
from tests.examples import examples
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.clock_samples import ClockSamples

TIMES = st.integers(0, 6)  # few, so that samples and questions fall on one instant


@examples(100)
@given(st.dictionaries(st.tuples(st.integers(0, 1), TIMES), st.integers(1, 9), min_size=1), st.lists(TIMES))
def test_a_sample_holds_from_its_instant_to_the_next(
    clocks: dict[tuple[int, int], int], asked: list[int]
) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1_000)
    for (device, at), mhz in clocks.items():
        trace.event(
            ph="C", name="SM Clock (MHz)", ts=float(at), pid=f"GPU {device} Counters", args={"": float(mhz)}
        )
    samples = Analysis(trace.load()).index(ClockSamples)
    for device in (0, 1):
        own = sorted((at, mhz) for (ordinal, at), mhz in clocks.items() if ordinal == device)
        found = samples.at("clock", device, np.array(asked, np.int64) * 1_000).tolist()
        for at, mhz in zip(asked, found, strict=True):
            earlier = [value for when, value in own if when <= at]
            first = own[0][1] if own else math.nan
            assert mhz == (earlier[-1] if earlier else first) or (math.isnan(mhz) and not own)
