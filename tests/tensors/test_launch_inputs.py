"""What indexing writes where the grids of its kernels are not all recorded."""

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.tensors.launch_inputs import Indexed
from traceanalyzer.tensors.signatures import Signature


@pytest.mark.parametrize("kernel", ["index_elementwise_kernel<128, 4, f>", "vectorized_gather_kernel<16>"])
def test_without_a_grid_nothing_tells_what_is_indexed(kernel: str) -> None:
    trace = TraceBuilder()
    for number, grid in enumerate(("[]", None, "[3]"), start=1):
        trace.launch("cudaLaunchKernel", number * 9_000, 3_000, number)
        event = trace.kernel(number * 9_000 + 4_000, 1_000, number, name=kernel)
        trace.events[event]["args"]["grid"] = [] if grid == "[]" else [3]
        if grid is None:
            del trace.events[event]["args"]["grid"]
    found = Indexed.of(trace.load(), np.arange(3), np.arange(3), 3)
    known = found.rows if "gather" in kernel else found.elements
    assert known.tolist() == [0, 0, 3 if "gather" in kernel else 3 * 512]
    op = Signature("aten::index", ([50, 8], []), ("float", ""), ("", ""))
    assert [found.work(op, which) is None for which in range(3)] == [True, True, False]
