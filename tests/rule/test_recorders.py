"""Which op recorded a node of backward, where several threads record."""

from __future__ import annotations

from typing import Any

from tests.builder import TraceBuilder
from traceanalyzer import Analysis
from traceanalyzer.rule.recorders import recorded_nodes
from traceanalyzer.rule.views import Calls

FORWARD, ENGINE = 1000, 2000


def test_each_forward_thread_counts_by_itself() -> None:
    """A gradient that is differentiated: the engine's thread records ops, whose numbers may be those of the other."""
    trace = TraceBuilder()
    ops = [
        ("aten::linear", FORWARD, 7, 0),
        ("aten::tanh", FORWARD, 8, 0),
        ("TanhBackward0", ENGINE, 8, 1),
        ("aten::tanh_backward", ENGINE, 8, 0),
        ("TanhBackwardBackward0", ENGINE, 8, 2),
        ("TanhBackward0", ENGINE, 8, 1),
        ("AddmmBackward0", ENGINE, 7, 1),
    ]
    for at, (name, tid, number, origin) in enumerate(ops):
        args: dict[str, Any] = {"Sequence number": number, "Fwd thread id": origin}
        trace.op(name, at * 10_000, 5_000, tid=tid, **args)
    trace.launch("cudaLaunchKernel", 1_000, 1_000, 1)
    trace.kernel(3_000, 1_000, 1)
    calls = Analysis(trace.load()).index(Calls)
    calls = calls[calls.is_op]
    nodes, recorder = recorded_nodes(calls, calls)
    named = zip(nodes.name.values(), (str(calls.name.values()[at]) for at in recorder), strict=True)
    assert sorted(map(tuple, named)) == [
        ("AddmmBackward0", "aten::linear"),
        ("TanhBackward0", "aten::tanh"),
        ("TanhBackward0", "aten::tanh"),
        ("TanhBackwardBackward0", "aten::tanh_backward"),
    ]
