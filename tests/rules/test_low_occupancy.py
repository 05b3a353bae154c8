"""Kernels with few blocks: which, what they could take, and what to do."""

import pytest

from tests.rules.kernel_programs import NVJET, US, Op, found, program

SCAN = "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float>>(int)"
OTHER = Op("aten::mm", NVJET, 100)


@pytest.mark.parametrize(
    ("grid", "dur", "said"), [(65, 100, 1), (66, 100, 0), (4, 21, 1), (4, 20, 0), ((13, 5), 100, 1)]
)
def test_limits_of_blocks_and_duration(grid: int | tuple[int, int], dur: int, said: int) -> None:
    assert len(found(program([Op("aten::cumsum", SCAN, dur, grid=grid), OTHER]), "low-occupancy")) == said


@pytest.mark.parametrize(("grid", "left_us"), [(33, 25), (4, 5)])
def test_saving_splits_work_down_to_5_us(grid: int, left_us: int) -> None:
    (one,) = found(program([Op("aten::cumsum", SCAN, 100, grid=grid), OTHER]), "low-occupancy")
    assert one.cost_ns == pytest.approx(6 * (100 - left_us) * US)
    assert (one.evidence["blocks"], one.evidence["sms"]) == (grid, 132)
    assert one.evidence["gpu_share"] == pytest.approx(0.5)


def test_a_softmax_across_rows_needs_its_dimension_last() -> None:
    kernel = "void at::native::cunn_SpatialSoftMaxForward<float>(float*)"
    for dim, advice in (("1", "Put the reduced dimension last"), ("2", "Give the op more rows at once")):
        softmax = Op(
            "aten::_log_softmax",
            kernel,
            900,
            [[8, 50_304, 1_024], [], []],
            ["float", "Scalar", "Scalar"],
            grid=8,
            scalars=["", dim, "False"],
        )
        (one,) = found(program([softmax, OTHER]), "low-occupancy")
        assert one.advice.startswith(advice)
