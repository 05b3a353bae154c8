"""Bytes and operations of ops by the numbers of their inputs: no two sizes alike, so that each counts in its place."""

import math
from typing import Any

import pytest

from tests.support.op_calls import BF16, COMPLEX, F32, LONG, op, signature, transform
from traceanalyzer.roofline.lower_bounds import bound_of
from traceanalyzer.roofline.op_rates import inputs_once
from traceanalyzer.tensors.ops.costs import OpCost, transposed_flops
from traceanalyzer.tensors.ops.ffts import factors, fft_cost, fft_lengths
from traceanalyzer.tensors.ops.shapes import nth
from traceanalyzer.tensors.ops.table import result_shape
from traceanalyzer.tensors.signatures import Signature

F64 = "double"
IMAGE = [2, 6, 17, 20]


def needs(op: Signature) -> OpCost:
    found = bound_of(op)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "dims", "types", "kind", "moved"),
    [
        # losses give one number; their gradients are as large as what comes first
        ("huber_loss", [[6, 4], [6, 4]], [F32, F32], "reduction", 48 * 4),
        ("mse_loss_backward", [[6, 4], [6, 4], [6, 4]], [BF16, F32, F32], "elementwise", 24 * (2 * 2 + 8)),
        ("l1_loss_backward", [[], [6, 4], [6, 4]], ["Scalar", F32, F32], "elementwise", 3 * 24 * 4),
        ("nll_loss_forward", [[6, 4], [6]], [BF16, LONG], "gather", 6 * (8 + 2)),
        ("nll_loss_backward", [[6], [6, 4], [6]], [F32, BF16, LONG], "elementwise", 24 * 2 + 6 * 8),
        ("native_dropout_backward", [[6, 4], [6, 4]], [BF16, "bool"], "elementwise", 24 * (2 + 1 + 2)),
        ("bernoulli_", [[6, 4], [6, 4]], [F32, F32], "random", 2 * 24 * 4),
        ("_thnn_fused_lstm_cell", [[6, 8], [6, 8], [6, 2]], [F32] * 3, "elementwise", (3 * 48 + 12) * 4),
        ("_thnn_fused_gru_cell", [[6, 9], [6, 9], [6, 3]], [F32] * 3, "elementwise", (54 * 3 + 18) * 4),
        ("reflection_pad2d", [[2, 3, 4, 5]], [BF16], "resampling", 2 * 120 * 2),
        ("im2col", [[2, 3, 4, 5]], [F32], "resampling", 2 * 120 * 4),
        ("bincount", [[50], [50]], [LONG, F32], "count", 50 * 12),
        ("masked_select", [[6, 4], [6, 4]], [F32, "bool"], "count", 24 * 5),
        ("grid_sampler_3d", [[2, 3, 4, 5, 6], [2, 7, 8, 9, 3]], [F32] * 2, "resampling", (720 + 6_048) * 4),
        ("searchsorted", [[100], [50]], [BF16, F32], "search", 200 + 200 + 50 * 8),
        ("bucketize", [[50], [100]], [BF16, F32], "search", 100 + 400 + 50 * 8),
        ("_embedding_bag", [[100, 8], [6], [2]], [BF16, LONG, LONG], "gather", 6 * (16 + 8) + 2 * 16),
        ("mv", [[8, 64], [64]], [F32, BF16], "vector product", 512 * 4 + 64 * 2),
    ],
)
def test_bytes_of_inputs_and_results(name: str, dims: list[Any], types: list[str], kind: str, moved: int) -> None:
    found = needs(signature(name, dims, types))
    assert (found.kind, found.bytes) == (kind, moved)


@pytest.mark.parametrize(
    ("size", "name", "moved"),
    [("[10, 7]", "upsample_bilinear2d", 120 + 6 * 70), ("[9]", "upsample_linear1d", 120 + 6 * 9)],
)
def test_a_resized_image_has_all_its_batches_channels_and_places(size: str, name: str, moved: int) -> None:
    image = [2, 3, 4, 5] if "," in size else [2, 3, 20]
    assert needs(signature(name, [image, []], [BF16, ""], "", size)).bytes == 2 * moved


@pytest.mark.parametrize(
    ("names", "times"),
    [
        ("linalg_cholesky_ex cholesky", 1 / 3),
        ("linalg_lu_factor_ex _linalg_solve_ex linalg_ldl_factor_ex", 2 / 3),
        ("linalg_solve_triangular cholesky_solve triangular_solve", 1),
        ("linalg_inv_ex linalg_qr linalg_householder_product", 2),
        ("_linalg_eigh linalg_eig _linalg_svd", 9),
    ],
)
def test_linear_algebra_takes_so_many_cubes_of_each_matrix(names: str, times: float) -> None:
    """Two matrices of 30 x 30; of 60 x 30 twice as many, whichever side is longer."""
    for name in names.split():
        costs = [needs(signature(name, [[2, *sides]], [F64])) for sides in ((30, 30), (60, 30), (30, 60))]
        whole = times * 2 * 30**3
        assert [one.flops for one in costs] == [int(whole), int(2 * whole), int(2 * whole)]
        assert [(one.kind, one.bytes, one.arithmetic) for one in costs] == [
            ("linear algebra", 2 * 2 * size * 8, "fp64") for size in (900, 1_800, 1_800)
        ]


@pytest.mark.parametrize(("kind", "arithmetic", "item"), [(F32, "fp32", 4), (F64, None, 8), (BF16, None, 2)])
def test_distances_are_of_all_pairs_of_rows(kind: str, arithmetic: str | None, item: int) -> None:
    found = needs(signature("_euclidean_dist", [[2, 5, 3], [2, 7, 3]], [kind, kind]))
    assert (found.flops, found.arithmetic) == (3 * 2 * 5 * 7 * 3, arithmetic)
    assert found.bytes == (30 + 42 + 70) * item


def test_matrix_vector_flops_are_those_of_the_matrix() -> None:
    found = needs(signature("addmv", [[64], [64, 8], [8]], [F32, BF16, BF16]))
    assert (found.flops, found.bytes, found.arithmetic) == (2 * 512, 520 * 2, "bf16")


@pytest.mark.parametrize("mode", ["0", "1"])
@pytest.mark.parametrize("layers", [1, 3])
def test_plain_recurrent_layer_has_one_gate(mode: str, layers: int) -> None:
    """Hidden states of 6 over 32 numbers; after the mode come the hidden size, a projection's and the layers."""
    scalars = [*[""] * 6, mode, "6", "0", str(layers), "True", "0.", "True", "False"]
    found = needs(signature("_cudnn_rnn", [[10, 8, 32], *[[]] * 13], [F32, *[""] * 13], *scalars))
    weights = 6 * (32 + 6) + (layers - 1) * 6 * (6 + 6)
    assert (found.flops, found.arithmetic) == (2 * 80 * weights, "fp32")
    assert found.bytes == (10 * 8 * 32 + weights + 80 * 6) * 4


@pytest.mark.parametrize(
    ("name", "lists", "numbers"),
    [
        ("_foreach_add_", [[[4, 8], [8]], [[4, 8], [8]]], 2 * 40 + 40),
        ("_foreach_sqrt", [[[4, 8]]], 2 * 32),
        ("_foreach_mul_", [[[4, 8], ["cut"]], [[8]]], 32 + 8 + 32),  # one that was not recorded whole
        ("_fused_sgd_", [[[6]], [[6]], [[6]]], 3 * 6 + 2 * 6),  # the gradients are read alone
        ("_fused_adam_", [[[6]], [[6]], [[6]], [[6]], [[1]]], 4 * 6 + 1 + 3 * 6),
        ("_foreach_add_", [[["cut"]], [[4]]], None),
        ("_foreach_add_", [[]], None),
    ],
)
def test_lists_are_read_whole_and_written_where_they_are_results(
    name: str, lists: list[Any], numbers: int | None
) -> None:
    found = bound_of(signature(name, lists, ["TensorList"] * len(lists)))
    assert (found and found.bytes) == (numbers and 4 * numbers)


@pytest.mark.parametrize(
    ("dims", "fits"),
    [([[4, 6], [6, 5]], True), ([[4, 6], [5, 6]], False), ([[2, 6, 4], [6, 5]], False), ([[6, 6], [6]], False)],
)
def test_a_product_of_eight_bits_is_of_two_matrices(dims: list[Any], fits: bool) -> None:
    assert (bound_of(signature("_scaled_mm", dims, ["c10::Float8_e4m3fn"] * 2)) is not None) is fits


def test_a_tensor_of_one_number_is_none_that_an_unknown_op_reads() -> None:
    found = inputs_once(signature("new_op", [[], [6, 4], [5]], [F64, BF16, F32]))
    assert found is not None
    assert (found.bytes, found.arithmetic) == (24 * 2 + 5 * 4, "bf16")
    assert inputs_once(signature("new_op", [[]], [F32])) is None


def test_transposed_convolution_has_sizes_per_dimension() -> None:
    """(5 - 1) x 2 - 2 x 1 + 1 x 3 + 1 + 1 = 11, and (7 - 1) x 3 - 0 + 2 x 1 + 0 + 1 = 21."""
    found = transposed_flops([2, 8, 5, 7], [8, 3, 4, 2], [1, 0], [2, 3], [1, 2], [1, 0], 4)
    assert found == (2 * 2 * 8 * 35 * 3 * 8, 2 * 3 * 4 * 11 * 21)


@pytest.mark.parametrize(("values", "found"), [(3, [3, 3]), ([4], [4, 4]), ([5, 6], [5, 6])])
def test_a_number_is_for_all_dimensions_or_for_each(values: Any, found: list[int]) -> None:
    assert [nth(values, at) for at in range(2)] == found


@pytest.mark.parametrize(
    ("number", "found"), [(1, ()), (2, (2,)), (9, (3, 3)), (49, (7, 7)), (97, (97,)), (60, (2, 2, 3, 5))]
)
def test_prime_factors_come_in_order(number: int, found: tuple[int, ...]) -> None:
    assert factors(number) == found


@pytest.mark.parametrize(
    ("op", "whole", "item", "kind", "arithmetic"),
    [
        # of half a spectrum along the last of the dimensions that are named, wherever that lies
        (transform("_fft_c2r", [17, 30, 2], COMPLEX, "[1, 0]", "32"), 32 * 60, 4, "real fft", "fp32"),
        (transform("_fft_r2c", [3, 64], "c10::Half", "[1]"), 192, 2, "real fft", "fp32"),
        (transform("_fft_c2c", [3, 64], "c10::complex<c10::Half>", "[1]"), 192, 4, "fft", "fp32"),
        (transform("_fft_c2c", [3, 64], "c10::complex<double>", "[1]"), 192, 16, "fft", "fp64"),
        (transform("_fft_c2r", [3, 33], "c10::complex<double>", "[1]", "64"), 192, 8, "real fft", "fp64"),
        (transform("_fft_r2c", [3, 9_000], "double", "[1]"), 27_000, 8, "real long fft", "fp64"),
    ],
)
def test_transforms_of_each_type_pass_over_their_numbers_twice(
    op: Signature, whole: int, item: int, kind: str, arithmetic: str
) -> None:
    work, lengths = fft_cost(op), fft_lengths(op)
    assert (work.kind, work.arithmetic) == (kind, arithmetic)
    assert work.bytes == 2 * whole * item * len(lengths)
    operations = (5 if op.name.endswith("c2c") else 2.5) * whole * sum(math.log2(one) for one in lengths)
    assert work.flops == int(operations)


@pytest.mark.parametrize(
    ("name", "dims", "types", "kind", "moved"),
    [
        # what is looked up or changed is counted by the index, not by table or source
        ("index_select", [[9, 3, 2], [], [5]], [BF16, "Scalar", LONG], "gather", 5 * (2 * 6 * 2 + 8)),
        ("embedding", [[9, 3, 2], [5]], [BF16, LONG], "gather", 5 * (2 * 6 * 2 + 8)),
        ("gather", [[9, 8], [], [7, 2]], [BF16, "Scalar", LONG], "gather", 14 * (2 * 2 + 8)),
        ("scatter_add_", [[9, 8], [], [5, 2], [6, 3]], [BF16, "Scalar", LONG, BF16], "scatter", 10 * 14),
        ("scatter_add_", [[2], [], [128], [200]], [BF16, "Scalar", LONG, BF16], "histogram", 128 * 10),
        ("scatter_add_", [[2], [], [127], [200]], [BF16, "Scalar", LONG, BF16], "scatter", 127 * 14),
        ("index_add_", [[9, 40], [], [5], [5, 40]], [F64, "Scalar", LONG, BF16], "row scatter", 3 * 400 + 40),
        ("max_pool2d_with_indices", [[2, 3, 4, 4]], [BF16], "pool", 96 * 2),
        ("topk", [[6, 4]], [BF16], "select", 24 * 2),
        ("argsort", [[6, 4]], [BF16], "sort", 24 * (2 + 2 + 8)),
        ("native_layer_norm", [[6, 4], [], [4], [4]], [BF16, "", F32, F32], "norm", 24 * 2 + 32 + 24 * 2),
        ("amax", [[6, 4], []], [BF16, F32], "reduction", 24 * 2),
    ],
)
def test_bytes_of_what_is_looked_up_added_and_read(
    name: str, dims: list[Any], types: list[str], kind: str, moved: int
) -> None:
    found = needs(signature(name, dims, types))
    assert (found.kind, found.bytes) == (kind, moved)


def test_added_rows_collide_as_often_as_rows_per_target() -> None:
    """Where target and source have the same sizes, each row has a place of its own."""
    op = signature("index_add_", [[100, 64], [], [100], [100, 64]], [F32, "Scalar", LONG, F32])
    assert (needs(op).kind, needs(op).flops) == ("row scatter", None)


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (op("unfold", [4, 20], "1", "7", "3"), (4, 5, 7)),
        (op("upsample_nearest2d", IMAGE, "", "[1.5, 2.0]"), (2, 6, 25, 40)),
        (op("adaptive_avg_pool2d", IMAGE, "[7, 5, 3]"), None),
    ],
)
def test_windows_and_images_have_as_many_places_as_fit(call: Signature, shape: tuple[int, ...] | None) -> None:
    assert result_shape(call) == shape


@pytest.mark.parametrize(("dim", "shape"), [("-1", (2, 12)), ("-2", (8, 3)), ("1", (2, 12))])
def test_dimensions_may_be_counted_from_the_last(dim: str, shape: tuple[int, ...]) -> None:
    assert result_shape(op("repeat_interleave", [2, 3], "4", dim, "")) == shape
