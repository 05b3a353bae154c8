"""Programs with one hot op."""

from tests.rules.kernel_programs import BF16, NVJET, US, Op, found
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer import Finding
from traceanalyzer.model.trace import Trace

UNKNOWN = {**H200, "name": "Graphics Card 9000"}
TERA = 2 * 4_096**3 / 1e6  # operations in a us, of a product that takes 138.9 us at the peak of 989.5 TFLOP/s
SHAPES = [
    (4_096, 4_096, 4_096),
    (2_048, 8_192, 4_096),
    (8_192, 2_048, 4_096),
    (4_096, 2_048, 8_192),
    (2_048, 4_096, 8_192),
    (8_192, 4_096, 2_048),
]


def mm(dur: int, shape: tuple[int, int, int] = SHAPES[0], grid: int = 1_320) -> Op:
    rows, inner, columns = shape
    return Op("aten::mm", NVJET, dur, [[rows, inner], [inner, columns]], [BF16] * 2, grid=grid)


def one(trace: Trace) -> Finding:
    (found_one,) = found(trace, "hotspot")
    return found_one


def copying(*work: tuple[str, int], before: int = 0) -> Trace:
    """Steps of 1 ms of one op that launches this work, each `copy` or `kernel` for so many us.

    Args:
        before: us that another op takes on the GPU before the first step.
    """
    trace, number, first = TraceBuilder(), 0, 10_000 * US
    for step in range(3):
        begin = gpu = first + step * 1_000 * US
        trace.step(step, begin, 990 * US)
        trace.op("aten::copy_", begin + US, 50 * US)
        for place, (kind, us) in enumerate(work):
            number += 1
            trace.launch("cudaMemcpyAsync", begin + (3 + 5 * place) * US, 3 * US, number)
            start = gpu + 60 * US
            if kind == "copy":
                trace.memcpy(start, us * US, number, name="Memcpy HtoD (Pageable -> Device)")
            else:
                trace.kernel(start, us * US, number)
            gpu += us * US
    if before:
        trace.op("aten::sort", US, 20 * US)
        trace.launched((2 * US, 3 * US), (10 * US, before * US), number + 1)
    return trace.load()


ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, Arrays>(int)"
