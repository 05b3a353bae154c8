"""Which launches of a chain are apart from the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.kernel_chains import _PAUSE_NS, KernelChains, _apart, _pauses
from traceanalyzer.timeline.nesting import Nesting


def test_a_pause_begins_beyond_its_limit_and_between_calls_that_are_known() -> None:
    start = np.array([0, 10 + _PAUSE_NS, 31 + 2 * _PAUSE_NS, 90 * _PAUSE_NS])
    work: Any = SimpleNamespace(call_start_ns=start, call_end_ns=start + 10, call=np.array([5, 0, 2, -1]))
    assert _pauses(work, np.arange(4)).tolist() == [False, False, True, False]


def test_launches_in_an_optimizer_are_apart_though_it_is_the_first_row() -> None:
    trace = TraceBuilder()
    trace.op("Optimizer.step#Adam.step", 0, 50_000)
    trace.launch("cudaLaunchKernel", 10_000, 5_000, 1)
    trace.launch("cudaLaunchKernel", 60_000, 5_000, 2)
    analysis = Analysis(trace.load())
    assert _apart(analysis.trace, analysis.index(Nesting), np.array([1, 2])).tolist() == [True, False]


def test_a_chain_is_as_long_as_it_has_kernels_over_its_whole_size() -> None:
    """The first has two of them and a reduction, the second three."""
    chain, whole = np.array([0, 0, 0, 1, 1, 1]), np.array([True, True, False, True, True, True])
    long = KernelChains(np.arange(6), chain, whole, True).longer_than(2)
    assert (long.entry.tolist(), long.chain.tolist()) == ([3, 4, 5], [0, 0, 0])
