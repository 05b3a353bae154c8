"""Transforms of real numbers in traces without shapes: what the transforms call tells what they are given."""

from dataclasses import replace
from typing import Any

import pytest

from tests.rules.kernel_programs import US, Op, changed, found, program
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Trace, diagnose
from traceanalyzer.model.finding import Status

FFT = "void regular_fft<1024u, EPT<16u>, float>(kernel_arguments_t<unsigned int>)"
TIMES = (
    "void at::native::vectorized_elementwise_kernel<2, at::native::BinaryFunctor<c10::complex<float>, "
    "c10::complex<float>, c10::complex<float>, at::native::binary_internal::MulFunctor<c10::complex<float> > > >(int)"
)
WIDENED = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>"
SUM = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"
FORTH = [Op("aten::_to_copy", WIDENED, 60), Op("aten::_fft_c2c", FFT, 200)]
BACK = [Op("aten::_fft_c2c", FFT, 300), Op("aten::mul_", TIMES, 100)]
FILTER, REAL, ADDED = Op("aten::mul", TIMES, 120), Op("aten::real", ""), Op("aten::add", SUM, 80)
FORWARD, INVERSE = "aten::fft_fft2", "aten::fft_ifft2"
ROUND = [*FORTH, FILTER, *BACK, REAL, ADDED]
AROUND: dict[int, tuple[str, int, dict[str, Any]]] = {0: (FORWARD, 2, {}), 3: (INVERSE, 2, {})}


def there_and_back(*others: Op, **changed: Op) -> Trace:
    """A real field to its spectrum, a filter, and back, then others."""
    ops = [changed.get(op.name.removeprefix("aten::"), op) for op in ROUND]
    return program([*ops, *others], around=AROUND)


def test_what_a_transform_calls_shows_that_its_input_is_real() -> None:
    (one,) = found(there_and_back(), "full-spectrum")
    halves = 200 + 120 + 300 + 100
    assert one.cost_ns == 6 * (60 + halves // 2) * US
    assert one.evidence["gpu_share"] == pytest.approx((60 + halves) / (140 + halves), rel=0.01)
    assert one.message.startswith("complex Fourier transforms work on real numbers: half of each spectrum is")


def test_one_dimension_calls_the_real_transform_and_mirrors_it() -> None:
    ops = [Op("aten::_fft_r2c", FFT, 200), Op("aten::_fft_fill_with_conjugate_symmetry_", "mirror", 100)]
    (one,) = found(program([*ops, FILTER], around={0: ("aten::fft_fft", 2, {})}), "full-spectrum")
    assert one.cost_ns == 6 * (200 + 100 + 120) * US // 2


def test_a_transform_that_converts_nothing_is_of_complex_numbers() -> None:
    ops = [Op("aten::reshape", ""), FORTH[1], FILTER]
    assert found(program(ops, around={0: (FORWARD, 2, {})}), "full-spectrum") == []
    ops = [FORTH[0], Op("aten::_fft_c2c", FFT, 200), FILTER]
    assert found(program(ops, around={1: (FORWARD, 1, {})}), "full-spectrum") == []  # converted elsewhere


def test_one_complex_field_leaves_it_open() -> None:
    other = [replace(BACK[0], inside=INVERSE), Op("aten::abs", SUM, 80)]
    report = diagnose(there_and_back(*other), select=["full-spectrum"])
    (outcome,) = (one for one in report.outcomes if one.rule == "full-spectrum")
    assert outcome.status is Status.NOT_APPLICABLE
    assert "no shapes recorded" in (outcome.why or "")


def test_what_backward_transforms_counts_with_it() -> None:
    backward = replace(BACK[0], inside="FftC2CBackward0", dur=220)
    (one,) = found(there_and_back(backward), "full-spectrum")
    assert one.cost_ns == 6 * (60 + (720 + 220) // 2) * US


def test_products_and_ops_on_real_numbers_are_no_part_of_it() -> None:
    product = Op("aten::bmm", "void cutlass::Kernel<complex<float>>(gemm)", 400)
    (one,) = found(there_and_back(product), "full-spectrum")
    assert one.cost_ns == 6 * (60 + 720 // 2) * US


def test_a_real_part_on_another_thread_does_not_count() -> None:
    ops = [*FORTH, FILTER, *BACK, REAL]

    def elsewhere(event: dict[str, Any]) -> None:
        if event.get("name") == "aten::real":
            event["tid"] += 1

    trace = program(ops, around=AROUND, steps=1)
    assert len(found(trace, "full-spectrum")) == 1
    assert found(changed(trace, elsewhere), "full-spectrum") == []


def test_replays_without_ops_have_no_transforms() -> None:
    """A step may be one launch of a CUDA graph."""
    trace = TraceBuilder()
    for step in range(3):
        trace.step(step, step * 100 * US, 90 * US)
        trace.launch("cudaGraphLaunch", step * 100 * US, 5 * US, step + 1)
        trace.kernel(step * 100 * US + 10 * US, 50 * US, step + 1)
    assert found(trace.load(), "full-spectrum") == []
