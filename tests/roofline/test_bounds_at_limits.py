"""What calls need at least, just below and just above each limit of its models, against counts made by hand."""

import math
from typing import Any

import numpy as np
import pytest

from tests.support.op_calls import signature
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.texts import Texts
from traceanalyzer.roofline.gpus import Gpu, Gpus, Peaks
from traceanalyzer.roofline.lower_bounds import bound_of
from traceanalyzer.roofline.op_rates import call_times
from traceanalyzer.tensors.launch_inputs import Indexed
from traceanalyzer.tensors.ops.costs import OpCost
from traceanalyzer.tensors.signatures import Signature

BF16, F32, F64, LONG = "c10::BFloat16", "float", "double", "long int"


def needs(op: Signature) -> OpCost:
    found = bound_of(op)
    assert found is not None
    return found


FLOPS = [
    (signature("_scaled_mm", [[4, 6], [6, 5]], ["c10::Float8_e4m3fn"] * 2), "matmul", 240, 24 + 30 + 2 * 20, "fp8"),
    (signature("mv", [[64, 8], [8]], [BF16, BF16]), "vector product", 2 * 512, 520 * 2, "bf16"),
    (signature("dot", [[64], [64]], [F64, F64]), "vector product", 2 * 64, 128 * 8, "fp64"),
    (signature("addmv", [[64], [64, 8], [8]], [F32] * 3), "vector product", 2 * 512, 520 * 4, "fp32"),
    # half as many operations for each number of the larger side of what is not square
    (signature("linalg_qr", [[2, 8, 4]], [F32]), "linear algebra", 2 * 2 * 8 * 4**2, 2 * 64 * 4, "fp32"),
    (signature("linalg_qr", [[2, 4, 8]], [F32]), "linear algebra", 2 * 2 * 8 * 4**2, 2 * 64 * 4, "fp32"),
    (
        signature("_cdist_forward", [[2, 5, 3], [2, 7, 3]], [F32, F32]),
        "distances",
        3 * 2 * 5 * 7 * 3,
        (30 + 42 + 70) * 4,
        "fp32",
    ),
    (signature("bucketize", [[50], [100]], [F32, F32]), "search", None, 150 * 4 + 50 * 8, None),
    (
        signature("_fused_adam_", [[[4, 8], [8]]] * 4, ["TensorList"] * 4),
        "lists",
        None,
        4 * (4 * 40 + 3 * 40),  # parameters, gradients and both means are read, and all but gradients written
        None,
    ),
    (signature("_foreach_mul", [[[4, 8]], [[4, 8]]], ["TensorList"] * 2), "lists", None, 4 * 96, None),
]


@pytest.mark.parametrize(
    ("op", "kind", "flops", "moved", "arithmetic"), FLOPS, ids=[f"{one[0].name}-{at}" for at, one in enumerate(FLOPS)]
)
def test_operations_and_bytes_by_hand(
    op: Signature, kind: str, flops: int | None, moved: int, arithmetic: str | None
) -> None:
    found = needs(op)
    assert (found.kind, found.flops, found.bytes, found.arithmetic) == (kind, flops, moved, arithmetic)


def test_unaligned_eight_bit_gemm_has_no_bound() -> None:
    assert bound_of(signature("_scaled_mm", [[4, 6], [5, 6]], ["c10::Float8_e4m3fn"] * 2)) is None


@pytest.mark.parametrize(
    ("mode", "gates", "name", "first", "passes"),
    [(2, 4, "_cudnn_rnn", 6, 1), (3, 3, "_cudnn_rnn", 6, 1), (0, 1, "_cudnn_rnn_backward", 10, 2)],
)
@pytest.mark.parametrize("ways", [1, 2])
def test_bidirectional_layers_count_both_as_input(
    mode: int, gates: int, name: str, first: int, passes: int, ways: int
) -> None:
    scalars = [*([""] * first), str(mode), "64", "0", "2", "False", "0.", "True", str(ways == 2)]
    op = signature(name, [[10, 8, 32], *([[]] * (first + 7))], [BF16, *([""] * (first + 7))], *scalars)
    weights = ways * gates * 64 * (32 + 64) + ways * gates * 64 * (64 * ways + 64)
    found = needs(op)
    assert found.flops == 2 * passes * 80 * weights
    assert found.bytes == passes * 2 * (10 * 8 * 32 + weights + 80 * 64 * ways)


def added(target: list[int], source: list[int]) -> Signature:
    index = [source[0]]
    return signature("index_add_", [target, [], index, source, []], [F32, "Scalar", LONG, F32, "Scalar"])


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        (added([9, 31], [5, 31]), "scatter"),
        (added([9, 32], [5, 32]), "row scatter"),
        (added([4], [255]), "scatter"),
        (added([4], [256]), "histogram"),  # 64 into each place
    ],
)
def test_rows_of_an_addition_are_wide_from_32_and_meet_from_64(op: Signature, kind: str) -> None:
    assert needs(op).kind == kind


def test_into_few_rows_a_one_hot_matrix_is_multiplied() -> None:
    assert needs(added([4, 64], [1_024, 64])).flops == 2 * 1_024 * 64 * 4
    assert needs(added([64, 64], [1_024, 64])).flops is None
    # of narrow rows the additions move less, but reach less of the device's peak
    assert needs(added([16, 4], [1_024, 4])).flops == 2 * 1_024 * 4 * 16
    # blocks add single numbers in their own memory, and no rows
    assert needs(added([4, 2], [1_024, 2])).flops == 2 * 1_024 * 2 * 4


def put(target: list[int], values: list[int]) -> Signature:
    types = [F32, "", F32, "Scalar"]
    return signature("_index_put_impl_", [target, [], values, []], types, "", "", "", "True")


@pytest.mark.parametrize(
    ("target", "values", "kind", "moved"),
    [
        ([5], [5], "indexed sum", 3 * 5 * 4 + 5 * 8),
        ([99, 2], [5, 2], "indexed sum", 3 * 10 * 4 + 5 * 8),
        ([99, 3], [5, 3], "indexed row sum", 3 * 15 * 4 + 5 * 8),
        ([5, 4], [5, 4], "indexed row sum", 3 * 20 * 4 + 5 * 8),  # as many values as places: five rows
        ([3, 4], [191, 4], "indexed row sum", 3 * 764 * 4 + 191 * 8),
        ([3, 4], [192, 4], "sorted sum", 3 * 768 * 4 + 192 * 72),
        ([3, 31], [192, 31], "sorted sum", 3 * 192 * 31 * 4 + 192 * 72),
        ([3, 32], [192, 32], "sorted row sum", 3 * 192 * 32 * 4 + 192 * 72),
        ([99, 3, 8, 4], [5, 3, 7, 4], "indexed row sum", 3 * 420 * 4 + 105 * 8),  # rows of 4: 7 are no 8
    ],
)
def test_index_sums_count_common_parts(target: list[int], values: list[int], kind: str, moved: int) -> None:
    found = needs(put(target, values))
    assert (found.kind, found.bytes) == (kind, moved)


@pytest.mark.parametrize(("channels", "kind"), [(7, "thin conv"), (8, "conv")])
def test_convolutions_are_thin_below_eight_channels(channels: int, kind: str) -> None:
    dims = [[8, channels, 32, 32], [64, channels, 3, 3], [], [], [], [], [], [], []]
    op = signature("cudnn_convolution", dims, [BF16, BF16], "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1")
    assert needs(op).kind == kind


@pytest.mark.parametrize(
    ("kind", "arithmetic", "best", "reached"),
    [
        ("matmul", "bf16", 60.0, 60.0),  # what nobody has measured is not said
        ("matmul", "fp16", 60.0, 60.0),
        ("matmul", "bf16", 90.0, 75.0),
        ("matmul", "bf16", None, 75.0),
        ("matmul", "fp8", 60.0, 150.0),
        ("matmul", "tf32", 20.0, 36.0),
        ("conv", "bf16", 20.0, 50.0),
        ("attention", "fp16", 20.0, 40.0),
        ("matmul", "fp64", 60.0, None),
    ],
)
def test_gemm_limits_16_bit(kind: str, arithmetic: str, best: float | None, reached: float | None) -> None:
    rates = {"bf16": 100.0, "fp16": 100.0, "fp8": 200.0, "tf32": 50.0}
    found = Peaks("x", rates, 1.0, "", best).reached_tflops(kind, arithmetic)
    assert found == (None if reached is None else pytest.approx(reached))


def test_indexed_writes_follow_the_largest_grid() -> None:
    """Blocks of 128 threads with 4 elements each; of rows a block for each."""
    trace = TraceBuilder()
    names = (
        "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index>",
        "at::native::vectorized_gather_kernel<16>",
    )
    for number, (name, grid) in enumerate(
        ((names[0], (3, 2, 1)), (names[0], (5, 1, 1)), (names[1], (7, 9, 1)), ("other<128, 4>", (99, 1, 1))), 1
    ):
        trace.launched((number * 9_000, 3_000), (number * 9_000 + 4_000, 1_000), number, name=name, grid=grid)
    found = Indexed.of(trace.load(), np.arange(4), np.array([1, 1, 2, 0]), 4)
    assert found.elements.tolist() == [0, 6 * 512, 0, 0]
    assert found.rows.tolist() == [0, 0, 7, 0]


def test_indexing_reads_and_writes_elements_and_row_indices() -> None:
    told = Indexed(np.array([0, 100, 0]), np.array([0, 0, 5]))
    op = signature("index", [[50, 2, 4], []], [F32, ""])
    found: list[Any] = [told.work(op, which) for which in range(3)]
    assert found[0] is None
    assert [(one.kind, one.bytes) for one in found[1:]] == [
        ("gather", 2 * 100 * 4 + 100 // 8 * 8),
        ("gather", 2 * 5 * 8 * 4 + 5 * 8),
    ]
    assert told.work(signature("index_fill", [[50, 2, 4], []], [F32, ""]), 1) is None
    assert told.work(signature("index", [[50, 2, 4], []], ["QInt8", ""]), 1) is None


@pytest.mark.parametrize(("rows", "kind"), [(64, "scatter"), (65, "elementwise")])
def test_a_table_larger_than_what_is_added_is_written_in_order(rows: int, kind: str) -> None:
    """20 rows of 8 numbers: 3 x 640 bytes and their numbers of 160: 65 rows of 32 bytes are as many."""
    grad = [20, 8]
    op = signature("embedding_dense_backward", [grad, [16], []], [F32, LONG, "Scalar"], "", "", str(rows))
    assert math.prod(grad) * 4 * 3 + 16 * 8 == 64 * 32
    assert (needs(op).kind, needs(op).bytes) == (kind, 64 * 32 + rows * 32)


def test_calls_cost_their_inputs_or_what_kernels_index() -> None:
    """At 100 GB/s: bytes over 100 are ns."""
    calls = [
        signature("add", [[64, 8], [64, 8]], [F32, F32]),
        signature("index", [[50, 8], []], [F32, ""]),
        signature("nobody_knows", [[64, 8]], [F32]),
        signature("mul", [[64, 8], [64, 8]], [F32, F32]),  # runs no kernel
    ]
    told = Indexed(np.array([7, 80, 9, 9]), np.zeros(4, np.int64))
    kernels = Texts(np.array([0, 0, 0]), np.array(["k"], object))
    peaks = Peaks("x", {"fp32": 1.0}, 100.0, "")
    reached, least = call_times(np.array([0, 1, 2]), kernels, calls, peaks, told.work)
    assert least.tolist() == [3 * 512 * 4 / 100, (2 * 80 * 4 + 10 * 8) / 100, 0.0, 0.0]
    assert (reached[0] / least[0], reached[1] / least[1]) == (pytest.approx(1 / 0.60), pytest.approx(1 / 0.14))
    assert call_times(np.array([1]), kernels[:1], calls, peaks)[1].tolist() == [0.0] * 4


def test_unknown_device_has_slow_memory_and_a_name() -> None:
    peaks = Peaks("x", {}, 5_000.0, "")
    gpus = Gpus({0: Gpu("x", 132, (9, 0), peaks), 1: Gpu("new", 1, None, None)})
    assert gpus.memory_gbps(np.array([0, 1, 7, 0])).tolist() == [5_000.0, 300.0, 300.0, 5_000.0]
    assert [gpus[at].shown for at in (0, 1, 7)] == ["x", "new", "this device"]
