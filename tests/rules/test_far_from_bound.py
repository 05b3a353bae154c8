"""Calls that take many times what their shapes need: small built traces."""

from __future__ import annotations

import pytest

from tests.rules.kernel_programs import F32, NVJET, Op, found, program
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Confidence, Status

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, Arrays>(int)"
BIG = [[4096, 4096], [4096, 4096]]


def test_a_call_far_from_what_its_shapes_need_is_found_without_knowing_why() -> None:
    index = Op(
        "aten::index_add_",
        "indexFuncLargeIndex",
        3_200,
        [[16], [], [1 << 24], [1 << 24], []],
        [F32, "Scalar", "long int", F32, "Scalar"],
    )
    (one,) = found(program([index]), "far-from-bound")
    assert (one.by, one.confidence) == ("aten::index_add_", Confidence.MEDIUM)
    assert one.evidence["ratio"] > 50
    assert "torch.histc" in one.advice
    near = Op("aten::add", ADD, 60, BIG, [F32, F32])
    assert found(program([near]), "far-from-bound") == []


@pytest.mark.parametrize(("took_us", "said"), [(7_700, True), (150, False)])
def test_equal_indices_that_are_added_one_after_the_other(took_us: int, said: bool) -> None:
    """Relative positions looked up as table[index]: 147,456 rows of 8 go into 32 rows."""
    put = Op(
        "aten::_index_put_impl_",
        "void (anonymous namespace)::indexing_backward_kernel_small_stride<float>(int)",
        took_us,
        [[32, 8], [], [384, 384, 8], [], []],
        [F32, "", F32, "Scalar", "Scalar"],
        scalars=["", "", "", "True", "True"],
    )
    findings = found(program([put]), "far-from-bound")
    assert bool(findings) is said
    if findings:
        assert "F.embedding" in findings[0].advice


def test_a_direct_convolution_of_very_many_taps_is_far_from_what_ffts_need() -> None:
    conv = Op(
        "aten::_conv_depthwise2d",
        "void at::native::conv_depthwise2d_forward_kernel_generic<float, int>(int)",
        7_600,
        [[1, 32, 1, 63_999], [32, 1, 1, 16_000], [], [], [], [], []],
        [F32, F32, "ScalarList", "", "ScalarList", "ScalarList", "ScalarList"],
        scalars=["", "", "[1, 16000]", "", "[1, 1]", "[0, 0]", "[1, 1]"],
    )
    (one,) = found(program([conv]), "far-from-bound")
    assert "; the bytes and operations of FFTs need" in one.message
    assert "fftconvolve" in one.advice
    (said,) = found(program([conv]), "hotspot")
    assert (said.cause, "10 % of the compute peak" in said.message) == ("below-bounds", True)


def test_far_from_bound_needs_shapes() -> None:
    report = diagnose(program([Op("aten::mm", NVJET, 100)]), select=["far-from-bound"])
    assert report.outcomes[0].status is Status.NOT_APPLICABLE
    assert "record_shapes" in (report.outcomes[0].why or "")
