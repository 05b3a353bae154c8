"""Work whose result is the same again, is thrown away, or goes through memory for nothing."""

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import US, Op, found, program
from tests.support.spectra import ADD, BF16, C64, F32, FIELD, GEMM, MOVE, SUM, spectral
from traceanalyzer import diagnose


def test_a_real_field_has_half_a_spectrum() -> None:
    (one,) = found(program(spectral()), "full-spectrum")
    assert "shape 1024x1024" in one.message
    assert "irfft2" in one.advice
    assert one.cost_ns == 6 * (199 + 100 + 200) * US // 2


def test_real_field_cast_to_complex_has_half_a_spectrum() -> None:
    """The conversion is needless, too."""
    widened = Op("aten::copy_", MOVE, 60, [FIELD, FIELD], [C64, F32], inside="aten::to")
    (one,) = found(program([widened, *spectral(kind=C64)]), "full-spectrum")
    (plain,) = found(program(spectral()), "full-spectrum")
    assert one.cost_ns == plain.cost_ns + 6 * 60 * US
    between = Op("aten::mul", ADD, 100, [FIELD, FIELD], [C64, C64])
    assert found(program([widened, between, *spectral(kind=C64)]), "full-spectrum") == []


def test_complex_fields_need_their_whole_spectrum() -> None:
    other = Op("aten::fft_fft2", "void vector_fft<1024u>(float)", 50, [FIELD], [C64])
    for ops in (spectral(kind=C64), spectral(inverse="aten::abs"), [*spectral(), other]):
        assert found(program(ops), "full-spectrum") == []
    assert found(program([*spectral(), replace(other, dims=[[512, 512]])]), "full-spectrum")


def test_all_float64_is_a_choice_mixed_types_a_fault() -> None:
    double = Op("aten::mul", ADD, 500, [FIELD, FIELD], ["double", "double"])
    (one,) = found(program([double]), "float64-math")
    assert (one.cause, str(one.severity)) == ("throughout", "info")
    mixed = Op("aten::mul", ADD, 500, [FIELD, FIELD], [F32, "double"])
    (one,) = found(program([mixed, double]), "float64-math")
    assert (one.cause, str(one.severity)) == ("", "low")


@pytest.mark.parametrize(("times", "saved"), [(1, 0.5), (2, 0.125)])
def test_half_the_bytes_halve_only_memory_bound_time(times: int, saved: float) -> None:
    """What takes twice as long as memory needs computes places, which stay: a quarter of the gain is left."""
    at_rate = 2 * 8 * 4096 * 4096 / 4_800 / 0.87 / US
    kernel = "void at::native::roll_cuda_kernel<double>(double const*, double*, long)"
    inputs = [[4096, 4096], [], []], ["double", "ScalarList", "ScalarList"]
    roll = Op("aten::roll", kernel, round(times * at_rate), *inputs)
    narrow = Op("aten::mul", ADD, 10, [FIELD, FIELD], [F32, F32])
    (one,) = found(program([roll, narrow]), "float64-math")
    assert one.cost_ns == pytest.approx(6 * saved * roll.dur * US, rel=0.03)


def unshaped(*kernels: str) -> list[Op]:
    return [Op("aten::op", f"void at::native::{kernel}", 500, grid=65_536) for kernel in kernels]


SUB = "elementwise_kernel<128, 4, at::native::sub>(int)"
POW = "vectorized_elementwise_kernel<4, at::native::pow>(int)"


def test_two_pointwise_kernels_and_a_reduction_are_a_chain() -> None:
    three = unshaped(SUB, POW, "reduce_kernel<512, 1, at::native::sum>(float)")
    (one,) = found(program(three), "unfused-pointwise")
    assert "torch.cdist" in one.advice
    assert found(program(unshaped(SUB, POW)), "unfused-pointwise") == []


def scores(classes: int) -> list[Op]:
    """A product that gives scores, the loss over them, and another product."""
    return [
        Op("aten::mm", GEMM, 400, [[8_192, 1_024], [1_024, classes]], [BF16, BF16]),
        Op("aten::_log_softmax", SUM, 300, [[8_192, classes], [], []], [F32, "Scalar", "Scalar"]),
        Op("aten::mm", GEMM, 700, [[8_192, 1_024], [1_024, 4_096]], [BF16, BF16]),
    ]


def test_what_the_scores_of_a_vocabulary_cost_is_a_fact() -> None:
    (one,) = found(program(scores(64_000)), "loss-head")
    assert str(one.severity) == "info"
    assert (
        "64,000 classes for 8,192 positions take 50.0 % of all GPU work, forward and backward, the largest part in head"
        in one.message
    )
    assert "loss and conversions (43 %)" in one.message
    assert one.advice.startswith(
        "If many labels are ignored (-100; the trace does not show how many), apply lm_head and the loss to the "
        "other positions only: head(hidden[index])"
    )
    assert found(program(scores(100)), "loss-head") == []


def test_a_fact_is_ranked_by_its_gpu_share() -> None:
    rules = [one.rule for one in diagnose(program(scores(64_000))).findings if str(one.severity) == "info"]
    assert rules.index("loss-head") < rules.index("hotspot")
