"""Which op the user called, below compilers and autograd."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.nesting import CalledOps

US = 1_000


def called(*ops: str) -> str | None:
    """Of nested ops around a call, the name of the one that was called."""
    trace = TraceBuilder()
    for depth, op in enumerate(ops):
        trace.op(op, depth * US, (100 - 2 * depth) * US)
    trace.launch("cudaLaunchKernel", 50 * US, 2 * US, 1)
    trace.kernel(60 * US, 10 * US, 1)
    analysis = Analysis(trace.load())
    row = int(analysis.index(CalledOps).row[len(ops)])
    return str(analysis.trace.cpu["name"].iloc[row]) if row >= 0 else None


@pytest.mark.parametrize(
    ("ops", "name"),
    [
        ((), None),
        (("aten::where", "aten::nonzero_numpy", "aten::nonzero"), "aten::where"),
        (("Torch-Compiled Region: 0/1", "aten::mm"), "aten::mm"),
        (("autograd::engine::evaluate_function: MmBackward0", "MmBackward0", "aten::mm"), "aten::mm"),
        (("mylib::layer", "torch::autograd::AccumulateGrad", "aten::add_"), "aten::add_"),
        (("## Call CompiledFxGraph ##",), "## Call CompiledFxGraph ##"),
    ],
)
def test_wrappers_are_no_called_ops(ops: tuple[str, ...], name: str | None) -> None:
    assert called(*ops) == name
