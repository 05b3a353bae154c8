"""What calls need at least, and what devices, their units and links reach."""

from typing import Any

import numpy as np
import pytest

from tests.support.op_calls import BF16, F32, LONG, signature
from traceanalyzer.model.texts import Texts
from traceanalyzer.roofline.gpus import (
    Gpu,
    Peaks,
    _known,
    device_peaks,
    first_of,
    host_link,
    reached_flops_per_ns,
    speedup,
)
from traceanalyzer.roofline.lower_bounds import bound_of, least_ns, reached_ns
from traceanalyzer.roofline.op_rates import call_times
from traceanalyzer.tensors.ops.costs import OpCost
from traceanalyzer.tensors.signatures import Signature, converts, has_float64, mixes_float64, tensors, widens_to_float64


def index_put(rows: list[int], values: list[int], *scalars: str) -> Signature:
    return signature("_index_put_impl_", [rows, [], values, []], [F32, "", F32, "Scalar"], *scalars)


def index_add(rows: list[int], count: int, values: list[int]) -> Signature:
    """With its factor."""
    dims = [rows, [], [count], values, []]
    return signature("index_add_", dims, [F32, "Scalar", LONG, F32, "Scalar"])


def embedding_backward(rows: str) -> Signature:
    return signature("embedding_dense_backward", [[5, 8], [5], []], [F32, LONG, "Scalar"], "", "", rows)


ADDING = ("", "", "", "True")
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
    (index_add([4, 64], 5, [5, 64]), "row scatter", 3 * 1280 + 40),
    (index_put([9, 4], [5, 2, 4], *ADDING), "indexed row sum", 3 * 160 + 10 * 8),
    (index_put([9, 64], [5, 64], *ADDING), "indexed row sum", 3 * 1280 + 5 * 8),
    # So many equal indices that sorting them pays.
    (index_put([3, 4], [250, 4], *ADDING), "sorted sum", 3 * 4000 + 250 * 72),
    (
        signature("_index_put_impl_", [[9, 7], [], [5], []], [BF16, "", BF16, "Scalar"], *ADDING),
        "indexed sum",  # an element for each pair of indices
        3 * 20 + 5 * 8,
    ),
    (signature("scatter_add_", [[4], [], [5], [5]], [F32, "Scalar", LONG, F32]), "scatter", 5 * (12 + 8)),
    # A product with a one-hot matrix, which is written and read.
    (index_add([4, 64], 1024, [1024, 64]), "row scatter", 1024 * 64 * 4 + 1024 * 8 + 2 * 1024 * 4 * 4),
    # A histogram: numbers that meet in few places are added in shared memory first.
    (index_add([4], 1024, [1024]), "histogram", 1024 * (4 + 8)),
    (signature("scatter_add_", [[4], [], [256], [256]], [F32, "Scalar", LONG, F32]), "histogram", 256 * 12),
    (signature("scatter_add_", [[4], [], [255], [255]], [F32, "Scalar", LONG, F32]), "scatter", 255 * 20),
    # Few for each of the rows.
    (index_add([64, 64], 1024, [1024, 64]), "row scatter", 3 * 1024 * 64 * 4 + 1024 * 8),
    (embedding_backward("3"), "scatter", 3 * 160 + 40 + 3 * 8 * 4),
    (embedding_backward("1000"), "elementwise", 3 * 160 + 40 + 1000 * 8 * 4),
    (signature("sub", [[8, 1, 8], [1, 4, 8], []], [F32, F32, "Scalar"]), "elementwise", (64 + 32 + 256) * 4),
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
        index_put([9, 4], [5, 4], "", "", "", "False"),
        index_put([9, 4], [5, 4]),
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
    for _, peaks in _known():
        for arithmetic, peak in peaks.tflops.items():
            products = peaks.reached_tflops("matmul", arithmetic)
            assert products is not None
            for kind in ("matmul", "conv", "attention"):
                reached = peaks.reached_tflops(kind, arithmetic)
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


LINKED_BY = {
    "NVLink-C2C": ["NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA GB300"],
    "PCIe 5 x16": [
        *("NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA H20", "NVIDIA B200", "NVIDIA GeForce RTX 5090"),
        *("NVIDIA RTX PRO 6000 Blackwell", "AMD Instinct MI300X", "AMD Instinct MI355X"),
    ],
    "PCIe 4 x16": [
        *("NVIDIA A100-SXM4-80GB", "NVIDIA A800-SXM4-80GB", "NVIDIA A10", "NVIDIA A10G", "NVIDIA A30"),
        *("NVIDIA A40", "NVIDIA L4", "NVIDIA L40S", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3090"),
        *("NVIDIA RTX A6000", "AMD Instinct MI210", "AMD Instinct MI100"),
    ],
    "PCIe 3 x16": [
        *("Tesla V100-DGXS-32GB", "Tesla T4", "Tesla P100-PCIE-16GB", "Tesla P40", "NVIDIA TITAN V"),
        *("NVIDIA GeForce RTX 2080 Ti", "AMD Instinct MI60"),
    ],
}


@pytest.mark.parametrize(("link", "devices"), LINKED_BY.items())
def test_link_of_a_device(link: str, devices: list[str]) -> None:
    found = {device: host_link(device) for device in devices}
    assert {device: one and one.name for device, one in found.items()} == dict.fromkeys(devices, link)


@pytest.mark.parametrize("device", [None, "AMD Radeon Graphics", "Some GPU"])
def test_an_unknown_device_has_no_link(device: str | None) -> None:
    assert host_link(device) is None


def test_rates_are_those_of_one_direction() -> None:
    devices = ("Tesla T4", "NVIDIA L4", "NVIDIA H200", "NVIDIA GB200")
    assert [link.gbps for link in map(host_link, devices) if link] == [15.8, 31.5, 63.0, 450.0]


F64 = "double"
RATES = {"fp64": 10.0, "fp32": 20.0, "tf32": 100.0, "bf16": 200.0}


def gpu(capability: tuple[int, int] | None = (9, 0), **rates: float) -> Gpu:
    return Gpu("x", 132, capability, Peaks("x", {**RATES, **rates}, 1_000.0, ""))


@pytest.mark.parametrize(
    ("device", "kind", "now", "then", "times"),
    [
        (gpu(), "matmul", "fp64", "fp32", 20 * 0.76 / (10 * 0.90)),
        (gpu(), "matmul", "fp32", "tf32", 100 * 0.72 / (20 * 0.76)),
        (gpu(fp64=20.0), "matmul", "fp64", "fp32", 1.0),  # no slower than it is
        (gpu(), "convolution", "fp32", "tf32", 100 * 0.43 / (20 * 0.41)),
        (gpu((8, 9)), "convolution", "fp32", "tf32", 100 * 0.43 / (20 * 0.76)),  # as its products
        (gpu(None), "convolution", "fp32", "tf32", 100 * 0.43 / (20 * 0.76)),
        (gpu(), "attention", "fp32", "bf16", 200 * 0.40 / (20 * 0.50)),
        (gpu(), "matmul", "fp32", "fp8", None),
        (gpu(), "attention", "fp64", "bf16", None),
        (Gpu("new", 1, (9, 0), None), "matmul", "fp32", "tf32", None),
    ],
)
def test_speedup_by_arithmetic(device: Gpu, kind: str, now: str, then: str, times: float | None) -> None:
    assert speedup(device, kind, now, then) == (None if times is None else pytest.approx(times))


def test_the_first_arithmetic_that_the_device_has_counts() -> None:
    assert first_of(gpu(), "fp8", "bf16", "fp32") == "bf16"
    assert first_of(gpu(), "fp8") is None
    assert reached_flops_per_ns(gpu(), "matmul", "fp8", "bf16", "fp32") == pytest.approx(200 * 0.75 * 1e3)
    assert reached_flops_per_ns(gpu(), "matmul", "fp8") is None
    nothing = Gpu("new", 1, None, None)
    assert (first_of(nothing, "fp32"), reached_flops_per_ns(nothing, "matmul", "fp32")) == (None, None)


@pytest.mark.parametrize(
    ("name", "dims", "types", "told"),
    [
        ("mul", [[4], [4]], [F64, F64], (True, False, False)),
        ("mul", [[4], [4]], [F32, F64], (True, True, False)),
        ("mul", [[4], []], [F32, F64], (False, False, False)),  # a number of Python's
        ("mul", [[4], [1]], [F32, F64], (False, False, False)),
        ("mul", [[4], [2]], [F32, F64], (True, True, False)),
        ("mul", [[4], [4]], [LONG, F64], (True, False, False)),
        ("copy_", [[4], [4]], [F64, F32], (True, True, True)),
        ("copy_", [[4], [4]], [F32, F64], (True, True, False)),  # narrows
        ("copy_", [[4], [4]], [F64, LONG], (True, False, False)),
        ("mul", [[4]], ["c10::complex<double>"], (True, False, False)),
    ],
)
def test_doubles_count_if_a_tensor_of_several_has_them(
    name: str, dims: list[Any], types: list[str], told: tuple[bool, bool, bool]
) -> None:
    op = signature(name, dims, types)
    assert (has_float64(op), mixes_float64(op), widens_to_float64(op)) == told


@pytest.mark.parametrize(
    ("name", "types", "told"),
    [
        ("copy_", [F32, BF16], True),
        ("copy_", [F32, F32], False),
        ("copy_", [F32, F64], False),
        ("copy_", [F32, LONG], False),
        ("copy_", [F32, "QInt8"], False),
        ("copy_", ["QInt8", "QInt8"], None),
        ("to", [F32, BF16], None),
    ],
)
def test_copies_convert_between_floating_types(name: str, types: list[str], told: bool | None) -> None:
    assert converts(signature(name, [[4], [4]], types)) is told


def test_tensors_are_those_with_shapes_and_those_in_lists() -> None:
    listed = signature("cat", [[[2, 3], [4, 3]], [], [5]], ["TensorList", "Scalar", F32])
    assert tensors(listed) == [(5,), (2, 3), (4, 3)]
    assert tensors(signature("index", [[2, 3], [[], [4]], ["x", 2]], [F32, "", F32])) == [(2, 3), (4,)]


@pytest.mark.parametrize(
    ("strides", "elements"),
    [
        *(([[3, 1]], 6), ([[0, 1]], 3), ([[0, 0]], 1)),  # expanded: one row or one number in memory
        *(([[1]], 6), ([["a", 0]], 6), ([], 6), ([7], 6)),  # of another shape: not believed
    ],
)
def test_what_is_expanded_is_in_memory_once(strides: list[Any], elements: int) -> None:
    op = signature("sum", [[2, 3]], [BF16], strides=strides)
    assert (op.elements(0), op.bytes(0)) == (elements, 2 * elements)
