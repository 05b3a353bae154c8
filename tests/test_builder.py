"""The builder writes what the reader understands, in every layout."""

from __future__ import annotations

import pytest
from pandas.testing import assert_frame_equal

from tests.support.exporter_layouts import Layout
from tests.support.trace_builder import TraceBuilder


def _built() -> TraceBuilder:
    trace = TraceBuilder()
    trace.step(0, start=1_000, dur=500_001)
    trace.op("aten::mm", 2_000, 50_000, **{"Input Dims": [[8, 8], [8, 8]]})
    trace.launch("cudaLaunchKernel", 10_000, 5_000, correlation=9, external_id=2)
    trace.kernel(20_000, 100_000, correlation=9, external_id=2)
    trace.memcpy(130_000, 10_000, correlation=10)
    trace.memset(150_000, 1_003, correlation=11)
    trace.gpu_annotation("ProfilerStep#0", 20_000, 200_000, external_id=1)
    trace.overhead("Activity Buffer Request", 30_000, 1_800_000)
    trace.python("train.py(3): step", 0, 600_000, python_id=1)
    trace.memory(40_000, 512, allocated=512, reserved=2 << 20)
    return trace


@pytest.mark.parametrize("layout", ["kineto", "minified", "array"])
def test_every_kind_of_event_arrives(layout: Layout) -> None:
    trace = _built().load(layout)
    assert trace.cpu["start_ns"].tolist() == [1_000, 2_000, 10_000, 30_000]
    assert trace.gpu["dur_ns"].tolist() == [100_000, 10_000, 1_003, 200_000]
    assert trace.gpu["stream"].tolist() == [7, 7, 7, 7]
    assert trace.python["python_id"].tolist() == [1]
    assert trace.memory["bytes"].tolist() == [512]
    assert sum(trace.meta.counted.values()) == 0
    assert trace.meta.damage == ()


def test_variations_change_only_what_they_say() -> None:
    trace = _built()
    plain = trace.load().cpu
    assert_frame_equal(trace.shifted(-1_000).load().cpu, plain.assign(start_ns=plain["start_ns"] - 1_000))
    renumbered = trace.renumbered(5).load()
    assert renumbered.cpu["correlation"].dropna().tolist() == [14]
    assert renumbered.gpu["correlation"].dropna().tolist() == [14, 15, 16]
    assert renumbered.cpu["pid"].tolist() == [1005, 1005, 1005, -1]
    shuffled = trace.shuffled(1).load().cpu.sort_values("start_ns")
    assert shuffled["name"].tolist() == plain.sort_values("start_ns")["name"].tolist()
    assert shuffled["event_id"].tolist() != plain["event_id"].tolist()
