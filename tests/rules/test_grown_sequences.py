"""Which sequences grow, by which ops that is seen, and what of their work is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.rules.kernel_programs import F32, Op, by_step, found, program
from tests.support.reordered_work import GEMM, MOVE, decoded, forecast

SLUG = "recomputed-prefix"


def rows(sizes: Sequence[int], width: int = 512, joined: int | None = None) -> list[Op]:
    """A linear layer over so many positions in turn, the first `joined` of which cat makes one longer."""
    ops = []
    for at, size in enumerate(sizes):
        grows = joined is None or at < joined
        parts = [[4, size], [4, 1]] if grows else [[4, 7], [4, 7]]
        ops.append(Op("aten::cat", MOVE, 2, [parts, []], ["TensorList", "Scalar"], scalars=["", "1"]))
        ops.append(Op("aten::linear", GEMM, 100, [[4, size, width], [width, width]], [F32, F32]))
    return ops


@pytest.mark.parametrize(("lengths", "said"), [(5, 0), (6, 1)])
def test_six_lengths_are_a_sequence_that_grows(lengths: int, said: int) -> None:
    assert len(found(program(rows(range(300, 300 + lengths))), SLUG)) == said


@pytest.mark.parametrize(("joined", "said"), [(5, 0), (6, 1)])
def test_half_of_the_lengths_are_seen_to_be_extended(joined: int, said: int) -> None:
    assert len(found(program(rows(range(300, 312), joined=joined)), SLUG)) == said


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([[4, 1], [4, 1]], 0),  # twice as long
        ([[4, 600], [4, 1]], 0),  # another sequence
        ([[4, 300], [4, 1, 1]], 0),
        ([[4, 300, 8], [4, 1, 8]], 1),
        ([[4, 600], [4, 2]], 1),  # of two numbers for each position
    ],
)
def test_cat_joins_one_new_position_to_those_that_are_known(parts: list[list[int]], said: int) -> None:
    ops = rows(range(300, 308))
    for at, size in enumerate(range(300, 308)):
        own = [[{300: size, 600: 2 * size}.get(one, one) for one in part] for part in parts]
        ops[2 * at] = replace(ops[2 * at], dims=[own, []])
    assert len(found(program(ops), SLUG)) == said


@pytest.mark.parametrize(("joined", "reported"), [(6, 0), (7, 1)])
def test_two_equal_parts_extend_no_sequence(joined: int, reported: int) -> None:
    """Lengths 1 to 12, of which 2 to 6 or 7 are extended; cat of [64, 1] and [64, 1] or [64, 7] twice is no growth."""
    ops = []
    for place, size in enumerate(range(1, 13)):
        parts = [[64, size], [64, 1]] if place < joined else [[64, 7], [64, 7]]
        ops.append(Op("aten::cat", MOVE, 2, [parts, []], ["TensorList", "Scalar"], scalars=["", "1"]))
        ops.append(Op("aten::linear", GEMM, 100, [[64, size, 512], [512, 512]], [F32, F32]))
    assert len(found(program(ops), SLUG)) == reported


@pytest.mark.parametrize(("name", "said"), [("aten::slice", 1), ("aten::narrow", 0)])
def test_a_slice_may_end_one_position_later_each_time(name: str, said: int) -> None:
    ops = rows(range(300, 308))
    for at, size in enumerate(range(300, 308)):
        scalars = ["", "1", "0", str(size), "1"]
        ops[2 * at] = Op(name, "", 0, [[4, 900, 512], [], [], [], []], [F32], scalars=scalars)
    assert len(found(program(ops), SLUG)) == said


def test_lengths_that_shrink_as_well_are_batches_of_any_length() -> None:
    """Two longer, one shorter, and so on; then once longer and once shorter in each step."""
    assert found(program(rows([90, 91, 92, 91, 92, 93, 92, 93, 94, 93, 94, 95])), SLUG) == []
    assert found(program(rows(range(90, 102))), SLUG)


def test_restarted_lstm_needs_only_its_first_call() -> None:
    (one,) = found(program(forecast(lengths=6)), SLUG)
    assert one.count % 6 == 0
    saved = sum(15 * length - 300 for length in range(97, 102))
    assert one.cost_ns == pytest.approx(6e3 * saved, rel=0.01)


def test_a_sequence_may_grow_by_one_position_a_step() -> None:
    """Then no step computes the whole for the first time."""

    def grow(event: dict[str, Any], step: int) -> None:
        args = event.get("args", {})
        if "Input Dims" in args and step >= 0:
            args["Input Dims"] = [
                [
                    [one + step if one == 300 else one for one in part] if isinstance(part, list) else part
                    for part in dims
                ]
                if dims and isinstance(dims[0], list)
                else [one + step if one == 300 else one for one in dims]
                for dims in args["Input Dims"]
            ]

    (one,) = found(by_step(program(rows([300]), steps=8), grow), SLUG)
    assert (one.evidence["shortest"], one.evidence["longest"], one.evidence["new"]) == (300, 307, 1)
    expected = sum(100 - max(100 / size, 2) for size in range(300, 308))
    assert one.cost_ns == pytest.approx(1e3 * expected, rel=0.01)


def test_named_layer_is_recurrent_or_has_most_lengths() -> None:
    (one,) = found(program([*rows(range(50, 62)), *forecast(lengths=8)]), SLUG)
    told = one.evidence
    assert (told["layer"], told["shortest"], told["longest"]) == ("aten::lstm", 96, 103)
    assert one.confidence.value == "medium"
    (one,) = found(program([*rows(range(400, 406), width=64), *rows(range(300, 312))]), SLUG)
    assert (one.evidence["shortest"], one.evidence["longest"]) == (300, 311)


def test_advice_is_to_keep_what_the_layer_reaches() -> None:
    ops = []
    for size in range(4_000, 4_010):
        ops.append(Op("aten::cat", MOVE, 2, [[[8, 1, size], [8, 1, 1]], []], ["TensorList", "Scalar"]))
        ops.append(Op("aten::conv1d", GEMM, 400, [[8, 32, size], [32, 32, 2], [32]], [F32, F32, F32]))
    (signal,) = found(program(ops), SLUG)
    assert "the last elements that the convolution kernels reach" in signal.advice
    assert signal.confidence.value == "medium"
    (attention,), (recurrent,) = found(program(decoded()), SLUG), found(program(forecast()), SLUG)
    assert "Keep the keys and values of earlier positions" in attention.advice
    assert "Keep the state" in recurrent.advice


@pytest.mark.parametrize(("other_us", "said"), [(310_000, 1), (330_000, 0)])
def test_a_twentieth_of_the_time_is_worth_it(other_us: int, said: int) -> None:
    """The calls after the first of a step take 16,830 us, and what joins 22."""
    other = Op("aten::mm", GEMM, other_us, [[4_096, 4_096], [4_096, 4_096]], [F32, F32])
    assert len(found(program([*forecast(), other], steps=3), SLUG)) == said


@pytest.mark.parametrize(("calls", "counted"), [(5, False), (6, True)])
def test_other_work_counts_from_half_of_the_lengths(calls: int, counted: bool) -> None:
    """Twelve lengths; a normalisation of some of the last ones."""
    ops = rows(range(300, 312))
    for at in range(12 - calls, 12):
        ops.append(Op("aten::layer_norm", MOVE, 500, [[4, 300 + at, 512], [512]], [F32, F32]))
    (plain,), (one,) = found(program(rows(range(300, 312))), SLUG), found(program(ops), SLUG)
    assert (one.cost_ns - plain.cost_ns > 1e3 * 500 * calls) is counted


def test_call_of_several_kernels_is_not_a_shorter_one() -> None:
    """Three kernels of 300 us in each call: of 900 us 300 are left."""
    ops, around = [], {}
    for size in range(96, 104):
        called = forecast(first=size, lengths=1)[0]
        inputs = {"Input Dims": called.dims, "Input type": called.types, "Concrete Inputs": called.scalars}
        around[len(ops)] = ("aten::lstm", 3, inputs)
        ops += [Op("aten::_thnn_fused_lstm_cell", GEMM, 300)] * 3
        parts = [[1_024, size], [1_024, 1]]
        ops.append(Op("aten::cat", MOVE, 2, [parts, []], ["TensorList", "Scalar"], scalars=["", "1"]))
    (one,) = found(program(ops, around=around), SLUG)
    assert one.cost_ns == pytest.approx(6e3 * 7 * 600, rel=0.01)
