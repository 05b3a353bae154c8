"""What a fix can do and what not: savings, reasons and advice that other people's programs showed to be wrong."""

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import F32, SGEMM, Op, found, program

POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::Functor>(int)"
GAMMA_BETA = "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float>(long)"
INPUT_GRADIENT = "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel<float, float>(int)"


def test_tf32_makes_no_product_faster_than_memory_takes_it() -> None:
    """Distances of points of 5 coordinates: 1.07 GB are written, which takes an H200 224 us at its peak."""
    thin = Op("aten::bmm", SGEMM, 400, [[16, 4096, 5], [16, 5, 4096]], [F32, F32])
    (one,) = found(program([thin]), "no-tensor-cores")
    assert one.cost_ns < 6 * (400 - 224) * 1_000
    (deep,) = found(program([replace(thin, dims=[[16, 1024, 1024], [16, 1024, 1024]])]), "no-tensor-cores")
    assert deep.cost_ns > 6 * 330 * 1_000


COMPLEX = POINTWISE.replace("Functor", "BinaryFunctor<c10::complex<float>, c10::complex<float>>")
LARGE = [4096, 4096]


@pytest.mark.parametrize(("kernel", "inside", "chains"), [
    (POINTWISE, None, 1),
    (COMPLEX, None, 0),
    (POINTWISE, "aten::_fft_c2r", 0),
])  # fmt: skip
def test_compiler_fuses_no_complex_numbers_or_transforms(kernel: str, inside: str | None, chains: int) -> None:
    ops = [Op("aten::mul", kernel, 100, [LARGE, LARGE], [F32, F32], inside=inside)] * 5
    assert len(found(program(ops), "unfused-pointwise")) == chains


def test_double_gradients_are_not_sent_to_compile_silently() -> None:
    chain = [Op("aten::mul", POINTWISE, 100, [LARGE, LARGE], [F32, F32])] * 5
    (one,) = found(program(chain), "unfused-pointwise")
    assert "torch.func" not in one.advice
    twice = replace(chain[0], inside="autograd::engine::evaluate_function: TanhBackwardBackward0")
    (one,) = found(program([*chain, twice]), "unfused-pointwise")
    assert "torch.func" in one.advice


REDUCE = "void at::native::reduce_kernel<512, 1>(int)"


def test_a_product_of_few_blocks_is_told_to_split_the_sum() -> None:
    (one,) = found(program([Op("aten::mm", "_block_scaled_block_gemm", 100, grid=18)]), "low-occupancy")
    assert "split-K" in one.advice
    (one,) = found(program([Op("aten::argmax", REDUCE, 100, grid=16)]), "low-occupancy")
    assert "long rows" in one.advice


def test_advice_for_one_kernel_is_not_given_for_all() -> None:
    """A norm's weight gradients have a kernel of their own under torch.compile; its other kernel's rows stay few."""
    own = Op("aten::native_layer_norm_backward", GAMMA_BETA, 60, grid=16)
    (one,) = found(program([own]), "low-occupancy")
    assert "torch.compile" in one.advice
    (one,) = found(program([own, replace(own, kernel=INPUT_GRADIENT)]), "low-occupancy")
    assert (one.count, one.by) == (12, "aten::native_layer_norm_backward")
    assert one.advice.startswith("Give the op more rows at once")
