"""What calls need at least, against counts made by hand, and what devices reach of their peaks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.op_calls import BF16, F32, LONG, signature
from traceanalyzer.model.texts import Texts
from traceanalyzer.roofline.lower_bounds import bound_of, least_ns, reached_ns
from traceanalyzer.roofline.op_rates import call_times
from traceanalyzer.roofline.peaks import Peaks, device_peaks, known_devices
from traceanalyzer.tensors.ops.costs import OpCost
from traceanalyzer.tensors.signatures import Signature

CASES = [
    (signature("sum", [[64, 32], [1]], [F32, "ScalarList"]), "reduction", 64 * 32 * 4),
    (signature("cumsum", [[64, 32], []], [F32, "Scalar"]), "scan", 2 * 64 * 32 * 4),
    (signature("_softmax", [[64, 32], [], []], [BF16, "Scalar", "Scalar"]), "softmax", 2 * 64 * 32 * 2),
    (signature("sort", [[64, 32], []], [F32, "Scalar"]), "sort", 64 * 32 * (4 + 4 + 8)),
    (signature("topk", [[64, 32], []], [F32, "Scalar"]), "select", 64 * 32 * 4),
    (signature("index_select", [[100, 8], [], [5]], [F32, "Scalar", LONG]), "gather", 5 * (2 * 32 + 8)),
    (signature("embedding", [[100, 8], [5, 2]], [BF16, LONG]), "gather", 10 * (2 * 16 + 8)),
    (signature("gather", [[9, 8], [], [9, 2]], [F32, "Scalar", LONG]), "gather", 18 * (2 * 4 + 8)),
    (signature("index_add_", [[4, 8], [], [5], [5, 8]], [F32, "Scalar", LONG, F32]), "scatter", 3 * 160 + 40),
    (
        signature("index_add_", [[4, 64], [], [5], [5, 64]], [F32, "Scalar", LONG, F32]),
        "row scatter",
        3 * 1280 + 40,
    ),
    (
        signature(
            "_index_put_impl_", [[9, 4], [], [5, 2, 4], []], [F32, "", F32, "Scalar"], "", "", "", "True"
        ),
        "indexed row sum",
        3 * 160 + 10 * 8,
    ),
    (
        signature(
            "_index_put_impl_", [[9, 64], [], [5, 64], []], [F32, "", F32, "Scalar"], "", "", "", "True"
        ),
        "indexed row sum",
        3 * 1280 + 5 * 8,
    ),
    (  # so many equal indices that sorting them pays
        signature(
            "_index_put_impl_", [[3, 4], [], [250, 4], []], [F32, "", F32, "Scalar"], "", "", "", "True"
        ),
        "sorted sum",
        3 * 4000 + 250 * 72,
    ),
    (
        signature("_index_put_impl_", [[9, 7], [], [5], []], [BF16, "", BF16, "Scalar"], "", "", "", "True"),
        "indexed sum",  # an element for each pair of indices
        3 * 20 + 5 * 8,
    ),
    (signature("scatter_add_", [[4], [], [5], [5]], [F32, "Scalar", LONG, F32]), "scatter", 5 * (12 + 8)),
    (  # a product with a one-hot matrix, which is written and read
        signature("index_add_", [[4, 64], [], [1024], [1024, 64], []], [F32, "Scalar", LONG, F32, "Scalar"]),
        "row scatter",
        1024 * 64 * 4 + 1024 * 8 + 2 * 1024 * 4 * 4,
    ),
    (  # a histogram: numbers that meet in few places are added in shared memory first
        signature("index_add_", [[4], [], [1024], [1024], []], [F32, "Scalar", LONG, F32, "Scalar"]),
        "histogram",
        1024 * (4 + 8),
    ),
    (signature("scatter_add_", [[4], [], [256], [256]], [F32, "Scalar", LONG, F32]), "histogram", 256 * 12),
    (signature("scatter_add_", [[4], [], [255], [255]], [F32, "Scalar", LONG, F32]), "scatter", 255 * 20),
    (  # few for each of the rows
        signature("index_add_", [[64, 64], [], [1024], [1024, 64], []], [F32, "Scalar", LONG, F32, "Scalar"]),
        "row scatter",
        3 * 1024 * 64 * 4 + 1024 * 8,
    ),
    (
        signature("embedding_dense_backward", [[5, 8], [5], []], [F32, LONG, "Scalar"], "", "", "3"),
        "scatter",
        3 * 160 + 40 + 3 * 8 * 4,
    ),
    (
        signature("embedding_dense_backward", [[5, 8], [5], []], [F32, LONG, "Scalar"], "", "", "1000"),
        "elementwise",
        3 * 160 + 40 + 1000 * 8 * 4,
    ),
    (
        signature("sub", [[64, 1, 8], [1, 32, 8], []], [F32, F32, "Scalar"]),
        "elementwise",
        (512 + 256 + 16384) * 4,
    ),
    (signature("eq", [[64, 1], [32]], [LONG, LONG]), "elementwise", 96 * 8 + 2048),
    (signature("add_", [[64, 8], [8], []], [F32, F32, "Scalar"]), "elementwise", (512 + 8 + 512) * 4),
    (signature("max_pool2d_with_indices", [[2, 3, 4, 4]], [F32]), "pool", 96 * 4),
    (signature("cat", [[[4, 8], [2, 8]], []], ["TensorList", "Scalar"]), "concatenation", 48 * 4),
    (signature("mm", [[4, 6], [6, 5]], [BF16, BF16]), "matmul", (24 + 30 + 20) * 2),
]


@pytest.mark.parametrize(("op", "kind", "moved"), CASES, ids=[f"{op.name}-{kind}" for op, kind, _ in CASES])
def test_bytes_by_hand(op: Signature, kind: str, moved: int) -> None:
    needed = bound_of(op)
    assert needed is not None
    assert (needed.kind, needed.bytes) == (kind, moved)


def test_convolutions_of_few_channels_are_a_kind_of_their_own() -> None:
    dims = [[8, 3, 32, 32], [64, 3, 5, 5], [], [], [], [], [], [], []]
    scalars = ("", "", "[2, 2]", "[2, 2]", "[1, 1]", "1")
    op = Signature("aten::cudnn_convolution", tuple(dims), (BF16, BF16), scalars)
    needed = bound_of(op)
    assert needed is not None
    assert needed.kind == "thin conv"


def depthwise(taps: int, length: int = 48_000) -> Signature:
    dims = [[1, 32, 1, length + taps - 1], [32, 1, 1, taps], [], [], [], [], []]
    return signature("_conv_depthwise2d", dims, [F32, F32], "", "", "", "", "[1, 1]", "[0, 0]", "[1, 1]")


def test_a_convolution_of_very_many_taps_needs_what_ffts_need() -> None:
    peaks, needed = device_peaks("NVIDIA H200"), bound_of(depthwise(16_000))
    assert peaks is not None
    assert needed is not None
    assert (needed.kind, needed.flops < 0.1 * 2 * 32 * 48_000 * 16_000) == ("long conv", True)  # type: ignore[operator]
    assert reached_ns(needed, peaks, None) == pytest.approx(
        81_000, rel=0.05
    )  # measured: rfft, rfft, product, irfft


def test_a_convolution_of_few_taps_stays_a_direct_one() -> None:
    needed = bound_of(depthwise(31))
    assert needed is not None
    assert (needed.kind, needed.flops) == ("depthwise conv", 2 * 32 * 48_000 * 31)


@pytest.mark.parametrize(
    "op",
    [
        signature("sum", [], []),
        signature("sub", [[3], [4]], [F32, F32]),
        signature("embedding_dense_backward", [[5, 8], [5]], [F32, LONG]),
        signature("nobody_knows", [[4]], [F32]),
        signature("sort", [3], [F32]),
        signature(
            "_index_put_impl_", [[9, 4], [], [5, 4], []], [F32, "", F32, "Scalar"], "", "", "", "False"
        ),
        signature("_index_put_impl_", [[9, 4], [], [5, 4], []], [F32, "", F32, "Scalar"]),
    ],
)
def test_what_the_inputs_do_not_say_has_no_bound(op: Signature) -> None:
    assert bound_of(op) is None


def test_a_device_needs_and_reaches() -> None:
    peaks = device_peaks("NVIDIA H200")
    needed = bound_of(signature("cumsum", [[8192, 8192], []], [F32, "Scalar"]))
    assert peaks is not None
    assert needed is not None
    assert least_ns(needed, peaks, None) == pytest.approx(2 * 8192**2 * 4 / 4800)
    assert reached_ns(needed, peaks, None) == pytest.approx(409_500, rel=0.02)  # measured


def test_what_work_reaches_stays_below_the_peak() -> None:
    for peaks in known_devices():
        for arithmetic, peak in peaks.tflops.items():
            products = peaks.reached_tflops("matmul", arithmetic)
            assert products is not None
            for reached in (
                products,
                *(peaks.reached_tflops(kind, arithmetic) for kind in ("conv", "attention")),
            ):
                assert reached is None or 0 < reached < peak
            if peaks.best_bf16 is not None and arithmetic in ("bf16", "fp16"):
                assert products <= peaks.best_bf16  # what nobody has measured is not said to be usual
        assert peaks.reached_tflops("matmul", "fp4") is None
        assert peaks.best_bf16 is None or peaks.best_bf16 < peaks.tflops["bf16"]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GH200 480GB", "GH200 96 GB"),
        ("NVIDIA GH200 144G HBM3e", "GH200 144 GB"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A800-SXM4-80GB", "A800 SXM4 80 GB"),
        ("NVIDIA RTX A5000", "RTX A5000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("NVIDIA GeForce RTX 3060", "RTX 3060"),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", None),
        ("NVIDIA GeForce RTX 4090 D", "RTX 4090 D"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA GB300", "GB300"),
        ("AMD Instinct MI308X", "MI308X"),
        ("AMD Instinct MI325X", "MI325X"),
        ("AMD Instinct MI355X", "MI355X"),
    ],
)
def test_newer_devices_by_name(name: str, known: str | None) -> None:
    peaks = device_peaks(name)
    assert (peaks.name if peaks else None) == known


@pytest.mark.parametrize("name", ["max_pool2d_with_indices_backward", "avg_pool2d_backward"])
def test_pool_backward_reads_gradient_and_writes_input_size(name: str) -> None:
    needed = bound_of(signature(name, [[2, 3, 4, 4], [2, 3, 8, 8]], [F32, F32]))
    assert needed is not None
    assert (needed.kind, needed.bytes) == ("pool backward", (96 + 384) * 4)


def test_kernels_tell_the_arithmetic_that_an_op_needs() -> None:
    peaks = Peaks("x", {"fp32": 10.0, "tf32": 100.0}, 1_000.0, "")
    work = OpCost("matmul", 10**9, 1_000, "fp32")
    assert [least_ns(work, peaks, kind) for kind in ("fp32", "tf32", None)] == [1e5, 1e4, 1e5]
    product = signature("mm", [[64, 1_024], [1_024, 64]], [F32, F32])
    kernels = Texts(np.array([0, 1]), np.array(["splitKreduce", "cutlass_80_tensorop_s1688gemm"], object))
    slow = Peaks("x", {"fp32": 0.1, "tf32": 0.2}, 1_000.0, "")
    reached, least = call_times(np.array([0, 0]), kernels, [product], slow)
    assert least.tolist() == [pytest.approx(2 * 64 * 64 * 1_024 / 200)]
    assert reached.tolist() == [pytest.approx(2 * 64 * 64 * 1_024 / 200 / 0.65)]
