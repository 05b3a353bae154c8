"""Tokens that get to their experts by products with a tensor of ones and zeros."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rules.kernel_programs import BF16, F32, Op, changed, found, program
from tests.support.spectra_and_experts import experts

ADD = "void at::native::elementwise_kernel<128, 2, at::native::add>(int)"
SUM = "void at::native::reduce_kernel<512, 1, at::native::sum>(float)"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"


def slots(width: int = 1_024, soft: bool = False) -> list[Op]:
    """4,096 tokens dispatched to 16 experts of 640 slots by a dense tensor, and the experts' product."""
    gate = Op("aten::topk", SUM, 20, [[4096, 16], [], []], [F32, "Scalar", "Scalar"], scalars=["", "2", "1"])
    dense = Op("aten::mul", ADD, 400, [[2, 4096, 16, 640], [2, 4096, 1, 1]], [BF16, BF16])
    dispatch = Op("aten::bmm", GEMM, 100, [[1, 10_240, 4_096], [1, 4_096, 1_024]], [BF16, BF16])
    expert = Op("aten::bmm", GEMM, 300, [[16, 640, width], [16, width, 1_024]], [BF16, BF16])
    return [dense, dispatch, expert] if soft else [gate, dense, dispatch, expert]


def test_a_dense_dispatch_tensor_is_reported() -> None:
    (one,) = found(program(slots()), "dense-dispatch")
    assert "4,096 tokens to 16 experts of 640 slots" in one.message
    assert one.cost_ns == pytest.approx(
        6 * (400_000 + 100_000 - 20_000)
    )  # moving 10,240 rows takes 20 us at least


def test_expert_products_and_soft_dispatch_are_not_reported() -> None:
    assert found(program(slots(soft=True)), "dense-dispatch") == []
    assert found(program(slots()[::3]), "dense-dispatch") == []


def test_a_width_that_equals_the_number_of_tokens_is_no_row() -> None:
    assert found(program(slots(width=4_096)), "idle-experts") == []


def einsums(dispatch_us: int = 400, width: int = 2_048, expert_slots: int = 640) -> list[Op]:
    """The tensor is the product of two masks, and only its copy in another order has all three sizes."""
    gate = Op("aten::topk", SUM, 20, [[4096, 16], [], []], [F32, "Scalar", "Scalar"], scalars=["", "2", "1"])
    rows = 16 * expert_slots
    dense = Op("aten::bmm", GEMM, 200, [[4096, 16, 2], [4096, 2, expert_slots]], [BF16, BF16])
    dispatch = Op("aten::bmm", GEMM, dispatch_us, [[1, rows, 4_096], [1, 4_096, width]], [BF16, BF16])
    expert = Op("aten::bmm", GEMM, 300, [[16, expert_slots, width], [16, width, width]], [BF16, BF16])
    turned = [4_096, expert_slots, 16, 1]
    copy = Op("aten::copy_", ADD, 150, [turned, turned, []], [BF16, BF16, "Scalar"])
    combine = Op("aten::bmm", GEMM, dispatch_us, [[1, 4_096, rows], [1, rows, width]], [BF16, BF16])
    return [gate, dense, dispatch, expert, copy, combine]


def test_saving_replaces_the_tensor_by_moved_rows() -> None:
    (one,) = found(program(einsums()), "dense-dispatch")
    there, back = 4 * 10_240 * 2_048 * 2 / 4_800, 20_000  # four passes at 4.8 TB/s, and the least, ns
    assert one.cost_ns == pytest.approx(6 * (200_000 + 150_000 + 800_000 - there - back), rel=1e-4)


def test_moving_rows_is_never_taken_for_slower_than_the_products() -> None:
    (one,) = found(program(einsums(dispatch_us=30)), "dense-dispatch")
    assert one.cost_ns == pytest.approx(6 * (200_000 + 150_000 + 3_000 + 10_000), rel=1e-4)


def test_attention_over_as_many_tokens_is_no_dispatch() -> None:
    """Its products sum over all tokens, and no tensor has a number for each token, expert and slot."""
    gate = einsums()[0]
    heads = Op("aten::bmm", GEMM, 400, [[16, 4_096, 4_096], [16, 4_096, 64]], [BF16, BF16])
    assert found(program([gate, heads, heads]), "dense-dispatch") == []


@pytest.mark.parametrize(
    ("inside", "said"), [(None, 1), ("autograd::engine::evaluate_function: BmmBackward0", 0)]
)
def test_a_product_over_all_tokens_counts_in_forward(inside: str | None, said: int) -> None:
    """The gradient of what gathers results by index sums over tokens, too."""
    gate, dense, dispatch, _, copy, _ = einsums()
    ops = [gate, dense, copy, replace(dispatch, inside=inside)]
    assert len(found(program(ops), "dense-dispatch")) == said


@pytest.mark.parametrize(("slots", "said"), [(2, 1), (1, 0), (4_095, 1), (4_096, 0)])
def test_slots_per_expert_are_between_one_and_all_tokens(slots: int, said: int) -> None:
    assert len(found(program(einsums(expert_slots=slots)), "dense-dispatch")) == said


def test_separate_dimension_of_chosen_experts_has_its_slots() -> None:
    """Of each token, two masks: tokens x 2 x experts x slots; the dispatch sums over the tokens."""
    gate, _, dispatch, *_ = einsums()
    apart = Op("aten::mul", ADD, 300, [[4_096, 2, 16, 640], [4_096, 2, 16, 1]], [BF16, BF16])
    (one,) = found(program([gate, apart, dispatch]), "dense-dispatch")
    assert "16 experts of 640 slots" in one.message
    assert one.cost_ns == pytest.approx(6 * (300_000 + 400_000 - 4 * 10_240 * 2_048 * 2 / 4_800), rel=1e-4)


def test_fills_and_copies_go_uploads_stay() -> None:
    dense = [4_096, 16, 640]
    ops = [
        *einsums(),
        Op("aten::zero_", "cleared", 70, [dense], [BF16]),
        Op("aten::copy_", "copied", 50, [dense, dense, []], [BF16, BF16, "Scalar"]),
    ]

    def costs(copy: str) -> int:
        def change(event: dict[str, Any]) -> None:
            if event.get("name") == "cleared":
                event |= {"cat": "gpu_memset", "name": "Memset (Device)"}
                event["args"]["bytes"] = 1 << 26
            elif event.get("name") == "copied":
                event |= {"cat": "gpu_memcpy", "name": copy}
                event["args"]["bytes"] = 1 << 26

        (one,) = found(changed(program(ops), change), "dense-dispatch")
        return one.cost_ns

    there, back = 4 * 10_240 * 2_048 * 2 / 4_800, 20_000
    least = 6 * (200_000 + 150_000 + 800_000 - there - back)
    assert costs("Memcpy HtoD (Pinned -> Device)") == pytest.approx(least + 6 * 70_000, rel=1e-4)
    assert costs("Memcpy DtoD (Device -> Device)") == pytest.approx(least + 6 * 120_000, rel=1e-4)


def test_moving_float32_rows_takes_twice_as_long() -> None:
    gate, dense, dispatch, _, copy, _ = einsums()
    (one,) = found(program([gate, dense, copy, replace(dispatch, types=[F32, F32])]), "dense-dispatch")
    assert one.cost_ns == pytest.approx(
        6 * (200_000 + 150_000 + 400_000 - 4 * 10_240 * 2_048 * 4 / 4_800), rel=1e-4
    )


def test_a_product_that_makes_the_tensor_is_not_needed_at_all() -> None:
    """Its gradient, of rows as wide as there are tokens: that sum, too, is over 4,096."""
    node = "autograd::engine::evaluate_function: BmmBackward0"
    makes = Op("aten::bmm", GEMM, 250, [[1, 4_096, 4_096], [1, 4_096, 10_240]], [BF16, BF16], inside=node)
    (one,) = found(program([*einsums(), makes]), "dense-dispatch")
    there, back = 4 * 10_240 * 2_048 * 2 / 4_800, 20_000
    assert one.cost_ns == pytest.approx(6 * (200_000 + 150_000 + 800_000 + 250_000 - there - back), rel=1e-4)


@pytest.mark.parametrize(
    ("shape", "counts"),
    [
        pytest.param([4_096, 10_240], True, id="slots of all experts in a row"),
        pytest.param([8_192, 16, 640], True, id="a row for each expert that a token keeps"),
        pytest.param([4_096, 16, 320], False, id="half of the slots"),
        pytest.param([2_048, 2, 16, 640], False, id="no dimension of the tokens"),
        pytest.param([4_096, 640, 8, 2], False, id="no dimension of the experts"),
        pytest.param([4_096, 16, 320, 2], False, id="no dimension of the slots"),
    ],
)
def test_dispatch_tensors_are_known_by_their_sizes(shape: list[int], counts: bool) -> None:
    other = Op("aten::relu", ADD, 90, [shape], [BF16])
    (without,), (one,) = (found(program([*einsums(), *more]), "dense-dispatch") for more in ([], [other]))
    assert one.cost_ns - without.cost_ns == 6 * 90_000 * counts


def test_scores_are_not_the_dispatch_tensor() -> None:
    """16 experts of 16 slots: the scores of 4,096 tokens have both sizes, and a sixteenth of the numbers."""
    scores = Op("aten::softmax", SUM, 90, [[4_096, 16]], [F32])
    (without,), (one,) = (
        found(program([*einsums(expert_slots=16), *more]), "dense-dispatch") for more in ([], [scores])
    )
    assert (one.cost_ns, one.count) == (without.cost_ns, without.count)


@pytest.mark.parametrize(
    ("shape", "counts"),
    [
        pytest.param([16, 4_096, 64], True, id="rows of each expert"),
        pytest.param([16, 64, 4_096], True, id="columns of each expert"),
        pytest.param([4_096, 16, 64], False, id="experts of each row"),
        pytest.param([16, 2_048, 64], False, id="half of the rows"),
        pytest.param([16, 4_096], False, id="a score of each"),
        pytest.param([16, 4_096, 8, 8], False, id="four dimensions"),
    ],
)
def test_idle_experts_work_on_tensors_of_all_rows(shape: list[int], counts: bool) -> None:
    other = Op("aten::relu", ADD, 80, [shape], [BF16])
    (without,), (one,) = (found(program([*experts(2), *more]), "idle-experts") for more in ([], [other]))
    part = 1 - 1.25 * 2 / 16
    assert one.cost_ns - without.cost_ns == pytest.approx(6 * 80_000 * part * counts, abs=10)
