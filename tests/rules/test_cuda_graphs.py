"""CUDA graphs: what their inputs cost, and when one is to be advised."""

from __future__ import annotations

import pytest

from tests.builder import TraceBuilder
from tests.rules.programs import US, found


@pytest.mark.parametrize(
    ("region", "cause"), [("Torch-Compiled Region: 0/0", "graph-inputs"), ("step", "copies")]
)
def test_copies_into_the_buffers_of_a_compiled_graph_are_told_apart(region: str, cause: str) -> None:
    """torch.compile copies its inputs before it launches its graph: no other layout or dtype avoids that."""
    trace, number = TraceBuilder(), 0
    for step in range(5):
        at, number = 1_000 * US * step, number + 2
        trace.step(step, at, 1_000 * US)
        trace.op(region, at + 10 * US, 100 * US)
        trace.op("aten::_foreach_copy_", at + 20 * US, 30 * US)
        trace.launch("cudaLaunchKernel", at + 30 * US, 10 * US, number)
        trace.kernel(at + 50 * US, 200 * US, number, name="void multi_tensor_apply_kernel<UnaryOpFunctor>()")
        trace.launch("cudaGraphLaunch", at + 60 * US, 20 * US, number + 1)
        trace.kernel(at + 250 * US, 600 * US, number + 1, name="nvjet_tst_128x256")
    (one,) = found(trace, "data-movement")
    assert (one.by, one.cause, one.evidence["gpu_share"]) == ("aten::_foreach_copy_", cause, 0.25)
    assert ("mark_static_address" in one.advice) == (cause == "graph-inputs")
