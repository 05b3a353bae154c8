"""Work on a large tensor that no step changes, in every step."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.rules.kernel_programs import Op, found, program
from tests.support.op_calls import signature
from traceanalyzer.rules.tensors.repeated_preparation import may_write
from traceanalyzer.tensors.signatures import Signature

F32, LONG = "float", "long int"
MOVE = "void at::native::vectorized_gather_kernel<16, long>(char*)"
SUM = "void at::native::indexFuncLargeIndex<float>(float)"
GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3"


def searched(*more: Op, rows: int = 3_000_000) -> list[Op]:
    """Queries compared with a table that is normalised first."""
    table = [rows, 256]
    return [
        *more,
        Op("aten::linear", GEMM, 30, [[32, 512], [256, 512]], ["c10::BFloat16"] * 2),
        Op("aten::linalg_vector_norm", SUM, 880, [table, [], []], ["c10::BFloat16", "Scalar", "ScalarList"]),
        Op("aten::clamp_min", MOVE, 4, [[rows, 1], []], ["c10::BFloat16", "Scalar"]),
        Op("aten::div", MOVE, 2_000, [table, table], ["c10::BFloat16"] * 2),
        Op("aten::mm", GEMM, 415, [[32, 256], [256, rows]], ["c10::BFloat16"] * 2),
        Op("aten::topk", SUM, 760, [[32, rows], []], ["c10::BFloat16", "Scalar"]),
    ]


def test_an_unwritten_table_is_normalized_once() -> None:
    (one,) = found(program(searched()), "repeated-preparation")
    assert one.by == "3000000x256"
    assert "no other kernel of a step runs long enough to have written it" in one.message
    assert one.cost_ns == 6 * (880 + 4 + 2_000) * 1_000


@pytest.mark.parametrize("norms", [[3_000_000, 1], [3_000_000], [1, 256], [256]])
def test_scaling_by_norms_of_rows_or_columns_is_repeated(norms: list[int]) -> None:
    linear, norm, clamp, scale, *rest = searched()
    clamp = replace(clamp, dims=[norms, []])
    scale = replace(scale, dims=[[3_000_000, 256], norms])
    (one,) = found(program([linear, norm, clamp, scale, *rest]), "repeated-preparation")
    assert one.cost_ns == 6 * (880 + 4 + 2_000) * 1_000


def test_a_table_that_may_have_changed_is_normalised_again() -> None:
    table = [3_000_000, 256]
    long = Op("aten::op_of_a_library", MOVE, 400, [[7, 7]], ["c10::BFloat16"])
    rows = Op(
        "aten::index_copy_",
        MOVE,
        3,
        [table, [], [8], [8, 256]],
        ["c10::BFloat16", "Scalar", LONG, "c10::BFloat16"],
    )
    part = Op("aten::slice", MOVE, 3, [table, [], []], ["c10::BFloat16", "Scalar", "Scalar"])
    for more in (long, rows, part):
        assert found(program(searched(more)), "repeated-preparation") == []
    assert found(program(searched(rows=200_000)), "repeated-preparation") == []


def filtered(*more: Op, known: int = 12_000_000, name: str = "aten::isin") -> list[Op]:
    """Triples that are looked up among all known ones, or the known ones sorted, beside a layer."""
    inputs = [[1_024, 128], [known], [], []] if name == "aten::isin" else [[known], [], []]
    types = [LONG, LONG, "Scalar", "Scalar"] if name == "aten::isin" else [LONG, "Scalar", "Scalar"]
    return [
        *more,
        Op("aten::linear", GEMM, 5_000, [[1_024, 512], [256, 512]], [F32] * 2),
        Op(name, SUM, 2_000, inputs, types),
    ]


def test_isin_on_a_constant_list_becomes_a_search() -> None:
    (one,) = found(program(filtered()), "repeated-preparation")
    assert (one.by, one.cause) == ("12000000", "sorted-or-counted")
    assert "goes through aten::isin in every step, which makes it unique and sorts it" in one.message
    assert "torch.searchsorted" in one.advice
    search_us = 1_024 * 128 * math.log2(12e6) * 32 / 4.8e6
    assert one.cost_ns == pytest.approx(6e3 * (2_000 - search_us), rel=1e-5)


@pytest.mark.parametrize("name", ["aten::_unique2", "aten::sort", "aten::bincount", "aten::cumsum"])
def test_sorting_a_constant_tensor_keeps_its_result(name: str) -> None:
    (one,) = found(program(filtered(name=name)), "repeated-preparation")
    assert one.cost_ns == 6 * 2_000 * 1_000
    assert "keep the result" in one.advice


def test_sorts_per_step_are_reported_if_several() -> None:
    ops = filtered(name="aten::sort")
    (once,), (twice,) = (found(program(one), "repeated-preparation") for one in (ops, [*ops, ops[-1]]))
    assert "in every step, and no op" in once.message
    assert "in every step, 2 times, and no op" in twice.message
    assert twice.cost_ns == 2 * once.cost_ns


def test_a_list_possibly_made_in_the_step_is_sorted_again() -> None:
    whole, part, types = [12_000_000], [1_000], [LONG, LONG, "Scalar"]
    bounds = ["", "0", "5000", "6000", "1"]
    sliced = Op("aten::slice", MOVE, 1, [whole, [], [], [], []], [LONG, *["Scalar"] * 4], scalars=bounds)
    made = (
        [Op("aten::add", MOVE, 60, [whole, [], []], [LONG, "Scalar", "Scalar"])],
        [Op("aten::mm", GEMM, 60, [[3_000, 8], [8, 4_000]], [F32, F32])],
        [Op("aten::index_put_", MOVE, 3, [whole, [], part], [LONG, "TensorList", LONG])],
        [Op("aten::copy_", MOVE, 60, [[12, 1_000_000], [12, 1_000_000], []], types)],
        [sliced, Op("aten::copy_", MOVE, 3, [part, part, []], types)],
        [
            Op(
                "aten::sum",
                SUM,
                60,
                [[12_000_000, 3], [], []],
                [F32, "ScalarList", "Scalar"],
                scalars=["", "[1]"],
            )
        ],
        [Op("aten::hypot", MOVE, 60, [[3_000, 1], [1, 4_000]], [F32, F32])],
        [Op("aten::op_of_a_library", MOVE, 20, [[7, 7]], [F32])],
        [Op("aten::randint", MOVE, 20, [[], []], ["Scalar", "ScalarList"])],
    )
    for more in made:
        assert found(program(filtered(*more)), "repeated-preparation") == []
    for unlike in (filtered(known=8_000_000), filtered()[:1]):
        assert found(program(unlike), "repeated-preparation") == []
    assert len(found(program(filtered(sliced)), "repeated-preparation")) == 1  # a part that nothing writes to


CONV = ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "False"]
IMAGE, FILTERS = [32, 64, 64, 64], [128, 64, 3, 3]


@pytest.mark.parametrize(
    ("op", "elements", "may"),
    [
        (signature("mul", [[3_000, 1], [1, 4_000]], [F32, F32]), 12_000_000, True),
        (signature("fill_", [[3_000, 4_000], []], [F32, "Scalar"]), 12_000_000, True),
        (signature("fill_", [[3_000, 4_001], []], [F32, "Scalar"]), 12_000_000, False),
        (signature("sum", [[12_000, 3], []], [F32, "ScalarList"]), 12_000, True),
        (signature("sum", [[12_000, 3], []], [F32, "ScalarList"]), 11_000, False),
        (signature("topk", [[64, 100], []], [F32, "Scalar"]), 6_401, False),
        (signature("topk", [[64, 100], []], [F32, "Scalar"]), 640, None),
        (signature("index_select", [[100, 8], [], [50]], [F32, "Scalar", LONG], "", "0"), 400, True),
        (signature("embedding", [[100, 8], [50]], [F32, LONG]), 400, True),
        (signature("embedding", [[100, 8], [50]], [F32, LONG]), 800, False),
        (
            signature("cudnn_convolution", [IMAGE, FILTERS, *([[]] * 7)], [F32] * 2, *CONV),
            32 * 128 * 64 * 64,
            True,
        ),
        (
            signature("cudnn_convolution", [IMAGE, FILTERS, *([[]] * 7)], [F32] * 2, *CONV),
            32 * 64 * 64 * 64,
            False,
        ),
        (signature("nonzero", [[12_000]], [LONG]), 12_000, None),
        (signature("index", [[100, 8], []], [F32, ""]), 800, None),
    ],
)
def test_what_an_op_may_have_written(op: Signature, elements: int, may: bool | None) -> None:
    assert may_write(op, elements) is may


SLUG = "repeated-preparation"
KNOWN = 12_000_000


def test_each_op_that_sorts_or_counts_has_a_finding_of_its_own() -> None:
    counted = Op("aten::bincount", SUM, 1_000, [[KNOWN], [], []], [LONG, "Scalar", "Scalar"])
    facts = found(program([*filtered(name="aten::sort"), counted]), SLUG)
    assert {one.evidence["sorter"]: one.cost_ns for one in facts} == {
        "aten::sort": 6 * 2_000_000,
        "aten::bincount": 6 * 1_000_000,
    }
    assert {one.evidence["calls_a_step"] for one in facts} == {1.0}
    assert all("times" not in one.message for one in facts)


def test_an_op_that_runs_twice_a_step_says_so() -> None:
    again = filtered(name="aten::sort")[-1]
    (one,) = found(program([*filtered(name="aten::sort"), again]), SLUG)
    assert "goes through aten::sort in every step, 2 times" in one.message
    assert one.cost_ns == 6 * 2 * 2_000_000


@pytest.mark.parametrize(("known", "said"), [(1 << 23, True), ((1 << 23) - 1, False)])
def test_a_sorted_tensor_of_64_mb_does_not_fit_into_a_cache(known: int, said: bool) -> None:
    assert bool(found(program(filtered(known=known, name="aten::sort")), SLUG)) is said


@pytest.mark.parametrize(("rows", "said"), [(1 << 18, True), ((1 << 18) - 1, False)])
def test_a_normalised_tensor_of_128_mb_does_not_fit_into_a_cache(rows: int, said: bool) -> None:
    """Rows of 256 numbers of two bytes; the layer before is too short to have written them."""
    layer, *rest = searched(rows=rows)
    assert bool(found(program([replace(layer, dur=10), *rest]), SLUG)) is said


@pytest.mark.parametrize(("steps", "said"), [(3, True), (2, False)])
def test_three_steps_show_that_nothing_changes(steps: int, said: bool) -> None:
    assert bool(found(program(searched(), steps=steps), SLUG)) is said
    assert bool(found(program(filtered(), steps=steps), SLUG)) is said


def test_a_search_takes_five_us_at_least() -> None:
    ops = filtered()
    few = Op("aten::isin", SUM, 2_000, [[4], [KNOWN], [], []], [LONG, LONG, "Scalar", "Scalar"])
    (one,) = found(program([*ops[:-1], few]), SLUG)
    assert one.cost_ns == 6 * (2_000 - 5) * 1_000
