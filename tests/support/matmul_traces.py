"""A trace of two matrix products, a softmax and a copy, as `ops` and `table` show it."""

from tests.support.trace_builder import TraceBuilder

BF16, F32 = "c10::BFloat16", "float"


def matmuls() -> TraceBuilder:
    """A step with two products of one shape, a softmax, a copy from the host, and a kernel that no op launched."""
    trace = TraceBuilder(record_shapes=1)
    trace.step(0, 0, 1_000_000, external_id=90)
    inputs = {"Input Dims": [[1024, 1024], [1024, 1024]], "Input type": [BF16, BF16], "Concrete Inputs": ["", ""]}
    for number in (1, 2):
        start = number * 10_000
        trace.op("aten::mm", start, 5_000, external_id=number, **inputs)
        trace.launch("cudaLaunchKernel", start + 100, 1_000, correlation=number, external_id=number)
        trace.kernel(start + 50_000, 4_000, correlation=number, external_id=number, name="gemm")
    trace.op("aten::_softmax", 40_000, 5_000, external_id=3, **{"Input Dims": [[4]], "Input type": [F32]})
    trace.launch("cudaLaunchKernel", 40_100, 1_000, correlation=3, external_id=3)
    trace.kernel(90_000, 1_000, correlation=3, external_id=3, name="softmax")
    copy = {"Input Dims": [[1024], [1024]], "Input type": [F32, F32], "Concrete Inputs": ["", ""]}
    trace.op("aten::copy_", 60_000, 5_000, external_id=4, **copy)
    trace.launch("cudaMemcpyAsync", 60_100, 1_000, correlation=4, external_id=4)
    trace.memcpy(95_000, 500, correlation=4, external_id=4, name="Memcpy HtoD (Pageable -> Device)")
    trace.kernel(99_000, 200, correlation=77, name="stray")
    return trace
