"""Copies that only seed what a matrix product adds to."""

import pytest

from tests.rules.kernel_programs import BF16, Op, found, program
from tests.rules.launches import GEMM, POINTWISE, US, of_rule
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding

MOVED = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}> >(int, int)"
)


def adding(
    *,
    op: str = "aten::addmm",
    around: str = "",
    memsets: int = 1,
    kernel: str = GEMM,
    apart: bool = False,
    stream: int = 7,
    beside_us: int = 0,
    last: bool = False,
) -> list[Finding]:
    """Three steps of an op that copies 2 MB in 20 us, clears some bytes and launches a kernel of 100 us.

    Args:
        around: an op around it.
        apart: another op makes the copy.
        stream: of the copy.
        beside_us: how long another stream computes during the copy.
        last: the recording ends after a further copy and a memset.
    """
    trace, number, at, gpu = TraceBuilder(), 0, 0, 0
    for step in range(3):
        begin = at
        length = (30 + 10 * memsets) * US
        if around:
            trace.op(around, at, length + 4 * US)
        if apart:
            trace.op("aten::copy_", at + US, 9 * US)
        trace.op(
            op,
            at + (11 * US if apart else US),
            length - (10 * US if apart else 0),
            **{"Input Dims": [[1024, 512], [1024, 256], [256, 512]], "Input type": ["float"] * 3},
        )
        gpu = max(gpu, at + 20 * US)
        if beside_us:
            number += 1
            trace.launched((at, US // 2), (gpu, beside_us * US), number, name=POINTWISE, stream=20)
        for place in range(memsets + 2):
            number += 1
            call = at + (2 + 10 * place) * US
            if place == 0:
                trace.copied((call, 5 * US), (gpu, 20 * US), number, size=1024 * 512 * 4, stream=stream)
                gpu += 21 * US
            elif place <= memsets:
                trace.launch("cudaMemsetAsync", call, 5 * US, number)
                trace.memset(gpu, US, number)
                gpu += 2 * US
            else:
                trace.launched((call + 4 * US, 5 * US), (gpu, 100 * US), number, name=kernel)
                gpu += 101 * US
        at = gpu + 20 * US
        trace.step(step, begin, at - begin - US)
    if last:
        trace.op("aten::addmm", at, 20 * US)
        trace.copied((at + 2 * US, 5 * US), (at + 30 * US, 20 * US), number + 1)
        trace.launch("cudaMemsetAsync", at + 10 * US, 5 * US, number + 2)
        trace.memset(at + 60 * US, US, number + 2)
    return of_rule(trace, "hidden-dtod-copy")


@pytest.mark.parametrize("op", ["aten::addmm", "aten::baddbmm", "aten::addmm_"])
def test_copy_before_an_adding_gemm_is_its_bias(op: str) -> None:
    (one,) = adding(op=op)
    assert (one.by, one.count, one.cause) == (op, 3, "seeded-destination")
    assert one.cost_ns == 3 * 20 * US
    assert "2.00 MiB" in one.message
    assert "; shapes " in one.message
    assert (one.evidence["gemm_ns"], one.evidence["moved_bytes"]) == (3 * 100 * US, 3 * 1024 * 512 * 4)


@pytest.mark.parametrize(
    ("how", "count"),
    [
        ({"memsets": 0}, 3),
        ({"memsets": 2}, 3),
        ({"memsets": 3}, 0),
        ({"op": "aten::mm"}, 0),
        ({"op": "mylib::moe_gemm"}, 0),
        ({"op": "aten::cudnn_convolution"}, 0),
        ({"beside_us": 30}, 0),
        ({"op": "aten::mm", "around": "aten::addmm"}, 3),
        ({"kernel": POINTWISE}, 0),
        ({"apart": True}, 0),
        ({"apart": True, "around": "aten::addmm"}, 3),
        ({"stream": 8}, 0),
        ({"last": True}, 3),
    ],
)
def test_other_copies_seed_nothing(how: dict[str, object], count: int) -> None:
    assert sum(one.count for one in adding(**how)) == count  # type: ignore[arg-type]


def test_a_copy_beside_another_streams_work_costs_what_is_left() -> None:
    (one,) = adding(beside_us=8)
    assert one.cost_ns == 3 * 12 * US


@pytest.mark.parametrize(
    ("inside", "expected"), [("aten::baddbmm", []), ("aten::layer_norm", [("strided-copy", "repetition", "high")])]
)
def test_an_expanded_bias_is_no_repetition(inside: str, expected: list[tuple[str, str, str]]) -> None:
    dims, strides = [[8, 4096, 512]] * 2, [[2097152, 512, 1], [512, 0, 1]]
    bias = Op("aten::copy_", MOVED, 2000, dims, [BF16] * 2, inside=inside, strides=strides)
    product = Op(inside, GEMM, 100)
    trace = program([bias, product])
    every = [*found(trace, "hidden-dtod-copy"), *found(trace, "strided-copy")]
    assert [(one.rule, one.cause, one.severity) for one in every] == expected
