"""What the clock was at an instant, against a search that looks at every sample."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
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


def test_samples_without_device_belong_to_device_0() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1_000)
    names = ("SM Clock (MHz)", "Power (W)", "GPU Temperature (C)", "Memory Clock (MHz)", "Fan (RPM)")
    for value, name in enumerate(names):
        trace.event(ph="C", name=name, ts=1.0, pid="Counters", args={"": float(value)})
    samples = Analysis(trace.load()).index(ClockSamples)
    assert {kind: value.tolist() for kind, value in samples.value.items()} == {
        "clock": [0],
        "power": [1],
        "temperature": [2],
    }
    assert [device.tolist() for device in samples.device.values()] == [[0]] * 3


def test_power_without_a_clock_says_which_torch_records_clocks() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1_000)
    trace.event(ph="C", name="Power (W)", ts=1.0, pid="GPU 0 Counters", args={"": 400.0})
    with pytest.raises(Unavailable, match=r"torch 2\.14"):
        Analysis(trace.load()).index(ClockSamples)


def test_samples_are_ordered_by_device_and_time() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1_000)
    for device, at, mhz in ((1, 1, 5), (0, 4, 3), (1, 3, 6), (0, 2, 2)):
        pid = f"GPU {device} Counters"
        trace.event(ph="C", name="SM Clock (MHz)", ts=float(at), pid=pid, args={"": float(mhz)})
    samples = Analysis(trace.load()).index(ClockSamples)
    assert samples.device["clock"].tolist() == [0, 0, 1, 1]
    assert samples.at_ns["clock"].tolist() == [2_000, 4_000, 1_000, 3_000]
    assert samples.value["clock"].tolist() == [2, 3, 5, 6]
