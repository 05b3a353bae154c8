"""What healthy programs pay as well is information until it is more than they pay."""

from __future__ import annotations

import pytest

from tests.rules.kernel_programs import F32, NVJET, Op, found, program
from traceanalyzer.model.finding import Severity

CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4, 64, 64>(int)"
NORM = "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float>(long)"
POINTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda()::{lambda()#1}>(int)"
)
SQUARE = [[4096, 4096]]
SHORT_ROWS = Op(
    "aten::native_layer_norm",
    "void vectorized_layer_norm_kernel<float, float>(int)",
    40,
    [[1024, 128], [], [128], [128], []],
    [F32, "ScalarList", F32, F32, "Scalar"],
)
PAID = {
    "far-from-bound": [SHORT_ROWS],
    "strided-copy": [Op("aten::cat", CAT, 30, [[[64, 64], [64, 64]], []], ["TensorList", "Scalar"])],
    "low-occupancy": [Op("aten::native_layer_norm_backward", NORM, 30, grid=16)],
    "unfused-pointwise": [Op("aten::exp", POINTWISE, 15, SQUARE)] * 3,
}


@pytest.mark.parametrize(("product_us", "severity"), [(400, Severity.INFO), (20, Severity.HIGH)])
@pytest.mark.parametrize("slug", PAID)
def test_severity_is_info_while_the_saving_is_usual(slug: str, product_us: int, severity: Severity) -> None:
    (one,) = found(program([*PAID[slug], Op("aten::mm", NVJET, product_us)]), slug)
    assert one.severity is severity
    assert one.saving is not None
    assert one.saving.share > 0.03
