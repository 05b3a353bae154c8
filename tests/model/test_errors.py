"""Errors without credentials, short names, and sizes in JSON text."""

import pickle
from pathlib import Path

import pytest

from traceanalyzer.model.errors import (
    BadOption,
    TraceAnalyzerError,
    Unavailable,
    UnreadableTrace,
    asked_of,
    without_credentials,
)
from traceanalyzer.model.shapes import elements_of, product_of, shapes_of, sizes_of
from traceanalyzer.model.short_names import marked_functions, plain_kernel, short_kernel, short_op


def test_what_is_unavailable_says_problem_and_remedy() -> None:
    both = Unavailable("no memory events", "record with profile_memory=True")
    assert str(both) == "no memory events: record with profile_memory=True"
    assert (both.problem, both.remedy) == ("no memory events", "record with profile_memory=True")
    assert str(Unavailable("no step: marks")) == "no step: marks"


def test_it_becomes_an_error_that_names_the_file() -> None:
    with pytest.raises(TraceAnalyzerError) as both, asked_of("trace.json"):
        raise Unavailable("no memory events", "record with profile_memory=True")
    assert str(both.value) == "trace.json: no memory events\n  Record with profile_memory=True."
    with pytest.raises(TraceAnalyzerError) as problem, asked_of("trace.json"):
        raise Unavailable("nothing here")
    assert str(problem.value) == "trace.json: nothing here"


@pytest.mark.parametrize(
    "error",
    [
        BadOption("no rule is called 'x'", where=Path("t.json"), remedy="Did you mean y?"),
        BadOption("no rule is called 'x'"),
        Unavailable("no memory events", "record with profile_memory=True"),
        Unavailable("no step: marks"),
    ],
)
def test_an_error_is_the_same_after_its_way_from_another_process(error: BadOption | Unavailable) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_a_remedy_keeps_the_capitals_of_its_names() -> None:
    with pytest.raises(TraceAnalyzerError) as error, asked_of("t.json"):
        raise Unavailable("no memory", "record with CUDA and pass profile_memory=True")
    assert error.value.remedy == "Record with CUDA and pass profile_memory=True."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://alice:s3cr3t@host/t.json.gz?X-Amz-Signature=TOP", "http://host/t.json.gz"),
        ("s3://bucket/key.json", "s3://bucket/key.json"),
        ("see 'https://host/a?token=1#b': 404", "see 'https://host/a': 404"),
        ("a@b.json?x=1", "a@b.json?x=1"),
    ],
)
def test_addresses_are_shown_without_credentials(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


def test_an_error_has_no_credentials_in_any_part() -> None:
    address = "http://alice:s3cr3t@host/t.json?sig=TOP"
    error = UnreadableTrace(f"{address} is gone", where=address, remedy=f"Try {address}")
    for text in (str(error), str(pickle.loads(pickle.dumps(error)))):
        assert "s3cr3t" not in text
        assert "TOP" not in text


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
        ("void cutlass::device_kernel<dpsk::cuda::fp8_ptp128c::Gemm>(Params)", "fp8_ptp128c::Gemm"),
        ("void cutlass::device_kernel<flash::FlashBwd<cute::tuple<cute::C<1> >>>(x)", "flash::FlashBwd"),
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
    marked = "in train.py(45): step() and net.py(3): forward(), a.py(1): f(x) and b.py(2): g.h"
    assert marked_functions(text) == marked


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("[[4096,768],[768]]", [(4096, 768), (768,)]),
        ("[[[8],[4,2]],[]]", [(8,), (4, 2)]),
        ('[[2,"a"],[3]]', [(3,)]),
        ("[[0,3],[0]]", [(0, 3), (0,)]),
        ("[[2.5],[true],[-1],[null],7]", []),
        ("7", []),
        ("[", []),
    ],
)
def test_shapes_are_those_of_tensors_and_of_lists_of_them(text: str, shapes: list[tuple[int, ...]]) -> None:
    assert shapes_of(text) == shapes


@pytest.mark.parametrize(
    ("text", "product"),
    [
        *(("[132,2,1]", 264), ("[4294967296,4294967296]", 2**62), ("[0,1,1]", 0), ('["",1]', 0)),
        *(("[null]", 0), ("1.5", 0), ("[[1]]", 0), ("[]", 0), ("", 0)),
    ],
)
def test_a_product_is_zero_where_there_are_no_sizes(text: str, product: int) -> None:
    assert product_of(text) == product


@pytest.mark.parametrize(("text", "sizes"), [("[132,0,1]", (132, 0, 1)), ("[-1]", ()), ("[]", ()), ("", ())])
def test_sizes_are_those_of_one_list(text: str, sizes: tuple[int, ...]) -> None:
    assert sizes_of(text) == sizes


def test_elements_fit_a_column() -> None:
    assert elements_of((3, 4)) == 12
    assert elements_of((2**40, 2**40)) == 2**62
