"""Names of ops and kernels as a report shows them."""

from __future__ import annotations

import pytest

from traceanalyzer.model.short_names import marked_functions, plain_kernel, short_kernel, short_op


@pytest.mark.parametrize(
    ("kernel", "short"),
    [
        ("void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm>(Params)", "cutlass_80_tensorop_s16816gemm"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::tanh_kernel_cuda"
            "(at::TensorIteratorBase&)::{lambda()#2}>(int)",
            "vectorized_elementwise_kernel(tanh_kernel)",
        ),
        (
            "void at::native::elementwise_kernel<128, 4, at::native::CUDAFunctor_add<float>>(int)",
            "elementwise_kernel(CUDAFunctor_add)",
        ),
        ("void at::native::(anonymous namespace)::cat<int, 4>(int)", "cat"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        ("void (anonymous namespace)::softmax_warp(int)", "softmax_warp"),
        ("void softmax_warp(SumFunctor)", "softmax_warp"),  # an argument is not what it applies
        (
            "void cutlass::device_kernel<dpsk::cuda::fp8_ptp128c::GemmKernel>(Params)",
            "fp8_ptp128c::GemmKernel",
        ),
        (
            "void cutlass::device_kernel<flash::FlashAttnBwd<cute::tuple<cute::C<1> >>>(x)",
            "flash::FlashAttnBwd",
        ),
        ("void cutlass::device_kernel<Gemm>(x)", "Gemm"),
        (
            "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::kernel::"
            "GemmUniversal<cute::tuple<int, int, int, int>, x>>>(y)",
            "kernel::GemmUniversal",
        ),
        (
            "void cutlass__5x_cudnn::Kernel<cutlass__5x_cudnn::conv::kernel::ImplicitGemmConvolution<x>>(y)",
            "ImplicitGemmConvolution",
        ),
        ("void ck_tile::kentry<1, ck_tile::Rmsnorm2dFwd<float>>(ck_tile::Kargs)", "Rmsnorm2dFwd"),
        ("k" * 61, "k" * 60),
        (f"void {'k' * 61}<4>(int)", "k" * 60),
    ],
)
def test_a_kernel_is_called_by_its_function_and_what_it_applies(kernel: str, short: str) -> None:
    assert short_kernel(kernel) == short


@pytest.mark.parametrize(
    ("op", "short"),
    [
        ("autograd::engine::evaluate_function: MmBackward0", "MmBackward0"),
        ("a" * 60, "a" * 60),
        ("a" * 61, f"{'a' * 60}..."),
        ("void at::native::cat<int>(int)", "cat"),
        ("void at::native::cat<int>", "cat"),
    ],
)
def test_an_op_is_called_as_the_user_called_it_in_60_letters(op: str, short: str) -> None:
    assert short_op(op) == short


@pytest.mark.parametrize(
    ("kernel", "plain"),
    [
        (
            "void at::native::reduce_kernel<512, 1, f(int)>(int, (anonymous namespace)::R)",
            "at::native::reduce_kernel<512, 1, f(int)>",
        ),
        ("void (anonymous namespace)::softmax_warp<4>(int)", "softmax_warp<4>"),
        ("Memset (Device)", "Memset (Device)"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("ncclDevKernel_AllReduce", "ncclDevKernel_AllReduce"),
        ("f(int)::g", "f(int)::g"),
    ],
)
def test_a_plain_kernel_has_no_arguments(kernel: str, plain: str) -> None:
    assert plain_kernel(kernel) == plain


def test_functions_of_python_end_in_parentheses() -> None:
    text = "in train.py(45): step and net.py(3): forward, a.py(1): f(x) and b.py(2): g.h"
    assert (
        marked_functions(text)
        == "in train.py(45): step() and net.py(3): forward(), a.py(1): f(x) and b.py(2): g.h"
    )
