"""Where a launching thread ran no op, and who did what around it."""

from __future__ import annotations

import numpy as np

from tests.builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.host_gaps import HostGaps

US = 1_000


def looping(*, stacks: bool = False) -> TraceBuilder:
    """Two steps; in each an op that launches, a pause of 500 us, a view."""
    trace = TraceBuilder()
    for number in (0, 1):
        start = number * 1_000 * US
        trace.step(number, start, 1_000 * US)
        trace.op("aten::mm", start + 10 * US, 40 * US)
        trace.op("aten::empty", start + 20 * US, 5 * US)
        trace.launch("cudaLaunchKernel", start + 30 * US, 5 * US, number + 1)
        trace.kernel(start + 60 * US, 100 * US, number + 1)
        trace.op("aten::view", start + 550 * US, 10 * US)
        trace.op("aten::view", start + 575 * US, 10 * US)  # 15 us later: no gap
    if stacks:
        trace.python("train.py(1): main", 0, 2_000 * US, python_id=1)
        trace.python("gc.py(7): collect", 60 * US, 480 * US, python_id=2, parent=1)
        trace.python("loader.py(1): work", 60 * US, 1_900 * US, python_id=3, tid=77)
    return trace


def test_stretches_between_ops() -> None:
    trace = looping().load()
    gaps = Analysis(trace).index(HostGaps)
    assert gaps.start_ns.tolist() == [50 * US, 585 * US, 1_050 * US]
    assert gaps.end_ns.tolist() == [550 * US, 1_010 * US, 1_550 * US]
    assert gaps.step.tolist() == [0, 0, 1]
    names = trace.cpu["name"].astype(str).to_numpy()
    assert names[gaps.before].tolist() == ["aten::mm", "aten::view", "aten::mm"]
    assert names[gaps.after].tolist() == ["aten::view", "aten::mm", "aten::view"]
    assert gaps.function.tolist() == [-1, -1, -1]


def test_the_function_is_the_innermost_on_that_thread() -> None:
    trace = looping(stacks=True).load()
    gaps = Analysis(trace).index(HostGaps)
    functions = trace.python["name"].cat.categories[gaps.function].tolist()
    assert functions == ["gc.py(7): collect", "train.py(1): main", "train.py(1): main"]


def test_threads_that_launch_nothing_have_none() -> None:
    trace = looping()
    for start in (0, 900 * US):
        trace.op("aten::stack", start, 10 * US, tid=5_000)
    gaps = Analysis(trace.load()).index(HostGaps)
    assert len(np.unique(gaps.thread)) == 1


def test_each_thread_has_its_own() -> None:
    trace = looping()
    for i, start in enumerate((100 * US, 400 * US)):
        trace.op("MmBackward0", start, 20 * US, tid=5_000)
        trace.launch("cudaLaunchKernel", start + 5 * US, 5 * US, 50 + i, tid=5_000)
        trace.kernel(start + 1_300 * US, 10 * US, 50 + i)
    gaps = Analysis(trace.load()).index(HostGaps)
    assert gaps.start_ns.tolist() == [n * US for n in (50, 585, 1_050, 120)]
    assert gaps.thread.tolist() == sorted(gaps.thread.tolist())
    found = gaps.longest(np.array([60 * US, 5_000 * US]), np.array([700 * US, 6_000 * US]))
    assert found.tolist() == [0, -1]
