"""Names of kernels that the profiler wrote mangled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.read.columns.demangle import demangled

ADD = (
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEENS_6detail5ArrayIPcLi3EEEEEviT0_T1_",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3>>(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)",
)
LAMBDA = (
    "_ZN2at6native54_GLOBAL__N__d8ceb000_21_DistributionNormal_cu_17e44f7d4scanIfEEvZNS0_3runEvEUldE_",
    "void at::native::(anonymous namespace)::scan<float>(at::native::run()::{lambda(double)#1})",
)


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ADD,
        LAMBDA,
        ("_Z6kernelPfPKfi", "kernel(float*, float const*, int)"),
        ("_Z6kernelPfPKfi.kd", "kernel(float*, float const*, int)"),
        ("_Z4callPFviEPA4_f", "call(void (*)(int), float (*) [4])"),
        ("_Z4manyIJifPdEEvDpT_", "void many<int, float, double*>(int, float, double*)"),
        ("_Z4litsILm4ELln3ELb1EL4Kind1EEvv", "void lits<4ul, -3l, true, (Kind)1>()"),
        ("_ZNK1SclIfEEvT_", "void S::operator()<float>(float) const"),
        (
            "_ZN7ck_tile6kentryILi1ENS_4NormIDF16bfEEEEvNT0_5KargsE",
            "void ck_tile::kentry<1, ck_tile::Norm<std::bfloat16_t, float>>("
            "ck_tile::Norm<std::bfloat16_t, float>::Kargs)",
        ),
    ],
)
def test_mangled_names_read_as_the_demangler_of_c_prints_them(mangled: str, name: str) -> None:
    unspaced = [text.replace(" ", "") for text in (demangled(mangled), name)]
    assert unspaced[0] == unspaced[1]


@pytest.mark.parametrize(
    "name", ["ampere_sgemm_128x64_nn", "_Z1fILi4EEvDTplLi1ELi2EE", "_ZN", "_Z3fooI", "_Z9cut", "_Z1fS_", "_ZZZ", ""]
)
def test_other_and_damaged_names_stay_as_they_are(name: str) -> None:
    assert demangled(name) == name


@given(st.text("SITENZ_0123456789PRKFALXJDfidvUlsE", max_size=60))
def test_any_letters_give_a_name(letters: str) -> None:
    assert demangled(f"_Z{letters}")


def test_kernels_are_demangled_when_read_and_ops_are_not() -> None:
    trace = TraceBuilder()
    trace.op(ADD[0], 0, 50_000)
    trace.launched((10_000, 5_000), (20_000, 10_000), 1, name=ADD[0])
    trace.kernel(40_000, 10_000, 1, name="gemm")
    loaded = trace.load()
    assert loaded.gpu["name"].tolist()[0].startswith("void at::native::vectorized_elementwise_kernel<4, ")
    assert ADD[0] in loaded.cpu["name"].tolist()
    assert loaded.gpu["mangled_name"].dropna().to_dict() == {0: ADD[0]}
