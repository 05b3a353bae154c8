"""Bytes and operations of the less common ops, against counts made by hand."""

from typing import Any

import pytest

from tests.support.op_calls import BF16, F32, LONG, signature
from traceanalyzer.roofline.gpus import device_peaks
from traceanalyzer.roofline.lower_bounds import bound_of, reached_ns
from traceanalyzer.roofline.op_rates import inputs_once
from traceanalyzer.tensors.signatures import Signature

CASES = [
    (signature("nll_loss_forward", [[32, 512], [32]], [F32, LONG]), "gather", 32 * (8 + 4)),
    (signature("nll_loss_backward", [[], [32, 512], [32]], [F32, F32, LONG]), "elementwise", 32 * 512 * 4 + 32 * 8),
    (signature("mse_loss", [[64, 8], [64, 8], []], [F32, F32, "Scalar"]), "reduction", 2 * 512 * 4),
    (signature("native_dropout", [[64, 8]], [BF16]), "elementwise", 512 * (2 + 2 + 1)),
    (signature("grid_sampler_2d", [[2, 3, 8, 8], [2, 4, 4, 2]], [F32, F32]), "resampling", (384 + 160) * 4),
    (signature("upsample_nearest2d", [[2, 3, 4, 4], []], [F32, ""], "", "[8, 8]"), "resampling", 480 * 4),
    (signature("_embedding_bag", [[100, 8], [6], [2]], [F32, LONG, LONG]), "gather", 6 * (32 + 8) + 2 * 32),
    (signature("searchsorted", [[100], [50]], [F32, F32]), "search", 150 * 4 + 50 * 8),
    (signature("_foreach_add_", [[[4, 8], [8]], []], ["TensorList", "Scalar"]), "lists", 2 * 40 * 4),
    (signature("uniform_", [[64, 8]], [F32]), "random", 512 * 4),
    (signature("leaky_relu", [[64, 8]], [F32]), "elementwise", 2 * 512 * 4),
    (signature("mv", [[64, 8], [8]], [F32, F32]), "vector product", 520 * 4),
    (signature("multinomial", [[64, 8]], [F32], strides=[[0, 1]]), "count", 512 * 4),
]


@pytest.mark.parametrize(("op", "kind", "moved"), CASES, ids=[op.name for op, _, _ in CASES])
def test_bytes_by_hand(op: Signature, kind: str, moved: int) -> None:
    needed = bound_of(op)
    assert needed is not None
    assert (needed.kind, needed.bytes) == (kind, moved)


def test_a_recurrent_layer_multiplies_by_all_gates_at_every_step() -> None:
    scalars = ["", "", "4", "", "", "", "2", "64", "0", "2", "False", "0.", "True", "True"]
    op = signature("_cudnn_rnn", [[10, 8, 32], *([[]] * 13)], [F32, *([""] * 13)], *scalars)
    needed = bound_of(op)
    assert needed is not None
    weights = 2 * 4 * 64 * (32 + 64) + 2 * 4 * 64 * (128 + 64)
    assert (needed.kind, needed.flops) == ("recurrent", 2 * 80 * weights)


def test_sequential_kinds_have_no_usual_time() -> None:
    peaks = device_peaks("NVIDIA H200")
    needed = bound_of(signature("linalg_cholesky_ex", [[512, 512]], [F32]))
    assert peaks is not None
    assert needed is not None
    assert (needed.flops, reached_ns(needed, peaks, "fp32")) == (512**3 // 3, 0.0)


@pytest.mark.parametrize(
    ("op", "dims", "kinds", "strides", "bytes_"),
    [
        # An index of one number for each row.
        ("gather", [[64, 8], [], [64, 8]], [F32, "", "long int"], [[8, 1], [], [1, 0]], 2 * 512 * 4 + 64 * 8),
        ("bmm", [[16, 4, 8], [16, 8, 2]], [F32, F32], [[32, 8, 1], [0, 2, 1]], (512 + 16 + 128) * 4),
        # 100 windows of 10 numbers that overlap, of a signal of 109.
        ("abs", [[100, 10]], [F32], [[1, 1]], (109 + 1000) * 4),
        ("abs", [[100, 10]], [F32], [[10, 1]], (1000 + 1000) * 4),
    ],
)
def test_bytes_count_each_element_in_memory_once(
    op: str, dims: list[Any], kinds: list[str], strides: list[Any], bytes_: int
) -> None:
    bound = bound_of(signature(op, dims, kinds, strides=strides))
    assert bound is not None
    assert bound.bytes == bytes_


def test_what_is_expanded_is_read_once() -> None:
    whole = signature("add", [[64, 8], [64, 8]], [F32, F32], strides=[[8, 1], [8, 1]])
    expanded = signature("add", [[64, 8], [64, 8]], [F32, F32], strides=[[8, 1], [0, 1]])
    assert bound_of(whole).bytes == 3 * 512 * 4  # type: ignore[union-attr]
    assert bound_of(expanded).bytes == (512 + 8 + 512) * 4  # type: ignore[union-attr]


def test_unmodelled_ops_read_inputs_but_no_lookup_tables() -> None:
    unknown = inputs_once(signature("some_new_op", [[64, 8], []], [F32, "Scalar"]))
    assert unknown is not None
    assert (unknown.kind, unknown.bytes) == ("inputs", 512 * 4)
    assert inputs_once(signature("index", [[64, 8], []], [F32, ""])) is None
    assert inputs_once(Signature("mylib::op", ([64],), (F32,), ("",))) is None


@pytest.mark.parametrize(
    ("name", "moved"),
    [
        ("_foreach_mul_", 2 * 12 * 4),
        ("_fused_sgd_", 2 * 12 * 4),
        ("_fused_rms_norm_backward", None),
        ("_fused_moving_avg_obs_fq_helper", None),
        ("_fused_sdp_choice", None),
    ],
)
def test_fused_ops_of_one_tensor_are_none_of_lists(name: str, moved: int | None) -> None:
    """Of a list of 8 and 4 numbers: each is read and written."""
    cost = bound_of(signature(name, [[[8], [4]]], ["TensorList"]))
    assert (cost and cost.bytes) == moved
