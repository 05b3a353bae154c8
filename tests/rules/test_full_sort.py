"""Sorts of a whole tensor, of which what follows uses all, or only the first elements."""

from typing import Any

import pytest

from tests.rules.kernel_programs import BF16, F32, Op, changed, found, program

SHAPE, LONG = [256, 200_000], "long int"
RADIX = "void cub::detail::radix_sort::DeviceSegmentedRadixSortKernel<float, long>(float const*)"
PRODUCT = Op("aten::mm", "nvjet_tst", 500, [[256, 128], [128, 200_000]], [BF16, BF16])
ALL = "9223372036854775807"


def sort(name: str = "aten::sort", shape: list[int] = SHAPE, dur: int = 4_000, kind: str = F32, dim: int = -1) -> Op:
    scalars = {"aten::msort": [""], "aten::sort": ["", "False", str(dim), "True"]}
    given = scalars.get(name, ["", str(dim), "True"])
    dims, types = [shape, *[[]] * (len(given) - 1)], [kind, *["Scalar"] * (len(given) - 1)]
    return Op(name, RADIX, dur, dims, types, scalars=given)


def view(name: str, kind: str, *scalars: str, shape: list[int] = SHAPE) -> Op:
    """A view of a tensor; what it launches here takes no time to speak of."""
    return use(name, [shape, *[[]] * len(scalars)], [kind, *["Scalar"] * len(scalars)], "", *scalars)


def first(k: int, kind: str = LONG, shape: list[int] = SHAPE, dim: int = 1) -> Op:
    return view("aten::slice", kind, str(dim), "0", str(k), "1", shape=shape)


def use(name: str, dims: list[Any], types: list[str], *scalars: str) -> Op:
    return Op(name, "void some_kernel()", 1, dims, types, scalars=scalars)


VALUES = use("aten::cumsum", [SHAPE, [], []], [F32, "Scalar", ""], "", "1", "")
ORDER = use("aten::gather", [SHAPE, [], SHAPE, []], [F32, "Scalar", LONG, "Scalar"], "", "1", "", "False")
CONCATENATED = use("aten::cat", [[SHAPE, [256, 10]], []], ["TensorList", "Scalar"], "", "1")
MASK = use("aten::scatter_", [SHAPE, [], [256, 200], []], [F32, "Scalar", LONG, "Scalar"], "", "1", "", "1.0")
LAST = view("aten::slice", LONG, "1", "-200", ALL, "1")
EVERYTHING = view("aten::slice", LONG, "0", "0", ALL, "1")


@pytest.mark.parametrize("name", ["aten::sort", "aten::argsort"])
def test_the_first_of_what_is_sorted_could_be_had_by_topk(name: str) -> None:
    (one,) = found(program([PRODUCT, sort(name), first(200), PRODUCT]), "full-sort")
    assert (one.by, one.steps, one.count) == (name, 6, 6)
    assert "sorts whole tensors in 4.00 ms a step, and the next op takes only the first or last" in one.message
    assert "torch.topk" in one.advice
    # twelve times 204.8 MB at 4.8 TB/s, 110 us, and a thousandth of the sort
    assert one.evidence["topk_ns"] == pytest.approx(6 * (512_000 + 110_000 + 4_000), abs=100)
    assert one.cost_ns == pytest.approx(6 * (4_000_000 - 626_000), abs=100)
    assert one.saving is not None
    assert one.saving.share > 0.05


@pytest.mark.parametrize(
    "after",
    [
        [first(200, F32), first(200)],
        [view("aten::select", F32, "-1", "0")],
        [LAST],
        [EVERYTHING, first(100, dim=-1)],
        [first(200), view("aten::as_strided", LONG, "[256, 200]", "[200000, 1]", "0")],
        [first(200), MASK],
        [first(200), use("aten::cumsum", [[256, 200], []], [F32, "Scalar"], "", "1")],
        [view("aten::slice", LONG, "1", "", "200", "1")],
    ],
    ids=["both results", "one", "last", "all rows", "inside", "mask", "of the slice", "no start"],
)
def test_views_of_an_end_read_nothing_else(after: list[Op]) -> None:
    assert len(found(program([PRODUCT, sort(), *after]), "full-sort")) == 1


@pytest.mark.parametrize(
    "after",
    [
        [],
        [EVERYTHING],
        [VALUES],
        [first(200, F32), VALUES],
        [first(200), ORDER],
        [first(200), CONCATENATED],

        [first(200), view("aten::slice", LONG, "1", "200", ALL, "1")],
        [first(200), view("aten::select", F32, "1", "100000")],
        [first(200, dim=0)],
        [first(60_000)],
        [first(200, shape=[128, 200_000])],
        [view("aten::slice", LONG)],
        [first(0)],
    ],
    ids=[
        "nothing", "view", "values", "values, too", "order, too", "in a list", "rest", "middle",
        "other dimension", "much", "other tensor", "no scalars", "none",
    ],
)  # fmt: skip
def test_what_is_used_otherwise_has_to_be_sorted(after: list[Op]) -> None:
    assert found(program([PRODUCT, sort(), *after]), "full-sort") == []


def test_only_the_order_leaves_argsort() -> None:
    after = [first(200), VALUES]  # of the scores, which are no result of it
    assert len(found(program([PRODUCT, sort("aten::argsort"), *after]), "full-sort")) == 1


def test_msort_sorts_along_the_first_dimension() -> None:
    tall = [200_000, 256]
    (one,) = found(program([sort("aten::msort", tall), first(9, F32, tall, 0), PRODUCT]), "full-sort")
    assert one.by == "aten::msort"
    assert found(program([sort("aten::msort", tall), first(9, F32, tall, 1), PRODUCT]), "full-sort") == []


@pytest.mark.parametrize(
    ("shape", "dur"), [([1, 1_000_000], 98), ([64, 8_400], 60), ([32_768, 256], 775), (SHAPE, 700)]
)
def test_sorts_that_take_about_as_long_as_topk_stay(shape: list[int], dur: int) -> None:
    small = Op("aten::mm", "nvjet_tst", 20)
    assert found(program([small, sort(shape=shape, dur=dur), first(8, shape=shape)]), "full-sort") == []


def test_what_costs_next_to_nothing_is_not_said() -> None:
    shape, long = [64, 32_000], Op("aten::mm", "nvjet_tst", 100_000)
    assert found(program([long, sort(shape=shape, dur=221), first(8, shape=shape)]), "full-sort") == []
    assert len(found(program([PRODUCT, sort(shape=shape, dur=221), first(8, shape=shape)]), "full-sort")) == 1


@pytest.mark.parametrize(("k", "said"), [(50_000, 1), (50_001, 0)])
def test_up_to_a_quarter_of_a_row_is_its_beginning(k: int, said: int) -> None:
    assert len(found(program([PRODUCT, sort(), first(k)]), "full-sort")) == said


def test_an_op_that_picks_some_of_the_order_may_pick_any_of_it() -> None:
    """order.gather(1, index) reads the sorted indices wherever it is told; of values that are not sorted it may."""
    picks = [
        use("aten::gather", [SHAPE, [], [256, 10], []], [kind, "Scalar", LONG, "Scalar"], "", "1", "", "False")
        for kind in (LONG, F32)
    ]
    assert [len(found(program([PRODUCT, sort(), first(200), one]), "full-sort")) for one in picks] == [0, 1]


@pytest.mark.parametrize(("dur", "reported"), [(600, 1), (100, 0)])
def test_without_shapes_a_slice_after_a_long_sort_is_reported(dur: int, reported: int) -> None:
    """topk is assumed to take 0.3 of the sort, and at least 110 us."""
    ops = [Op("aten::sort", RADIX, dur), Op("aten::slice", ""), Op("aten::mm", "nvjet_tst", 20)]
    said = found(program(ops), "full-sort")
    assert [(one.confidence.value, one.cost_ns) for one in said] == [("low", 6 * 420_000)] * reported
    assert found(program([ops[0], ops[2]]), "full-sort") == []


def test_a_trace_without_ops_has_no_sorts() -> None:
    trace = program([PRODUCT])
    cpu = changed(trace, lambda event: event.update(cat="cuda_runtime") if event.get("cat") == "cpu_op" else None)
    assert found(cpu, "full-sort") == []


TWO_SORTS = [sort("aten::argsort", dim=1), sort("aten::argsort", kind=LONG, dim=1)]
OWN_RANK = use("aten::gather", [SHAPE, [], [256, 1], []], [LONG, "Scalar", LONG, "Scalar"], "", "1", "", "False")
TO_FLOAT = use("aten::to", [SHAPE], [LONG])


def test_a_single_rank_of_each_row_is_counted() -> None:
    (one,) = found(program([PRODUCT, *TWO_SORTS, OWN_RANK]), "full-sort")
    assert one.cause == "rank"
    # Both sorts of 4 ms in six steps, and sixteen times 204.8 MB at 4.8 TB/s.
    assert one.evidence["sort_ns"] == 6 * 8_000_000
    assert one.evidence["instead_ns"] == pytest.approx(6 * 682_700, abs=600)
    assert "Count the elements before it" in one.advice
    assert one.confidence.value == "medium"


def test_all_ranks_are_written_by_a_scatter() -> None:
    (one,) = found(program([PRODUCT, *TWO_SORTS, TO_FLOAT]), "full-sort")
    # The second sort of 4 ms in six steps, and sixteen times 409.6 MB at 4.8 TB/s.
    assert one.evidence["sort_ns"] == 6 * 4_000_000
    assert one.evidence["instead_ns"] == pytest.approx(6 * 1_365_300, abs=600)
    assert "scatter_" in one.advice


@pytest.mark.parametrize(
    "ops",
    [
        [TWO_SORTS[0], PRODUCT, TWO_SORTS[1]],
        [TWO_SORTS[0], sort("aten::argsort", dim=1)],
        [TWO_SORTS[0], sort("aten::argsort", kind=LONG, dim=0)],
        [TWO_SORTS[0], sort("aten::argsort", [256, 100_000], kind=LONG, dim=1)],
        [sort("aten::argsort", [256, 4_000], dim=1), sort("aten::argsort", [256, 4_000], kind=LONG, dim=1)],
    ],
    ids=["another op between", "values", "other dimension", "other tensor", "short rows"],
)
def test_two_sorts_of_different_things_make_no_ranks(ops: list[Op]) -> None:
    assert found(program([PRODUCT, *ops, TO_FLOAT]), "full-sort") == []


def test_sort_without_stable_has_its_dimension_first() -> None:
    plain = Op("aten::sort", RADIX, 4_000, [SHAPE, [], []], [F32, "Scalar", "Scalar"], scalars=["", "0", "True"])
    assert found(program([PRODUCT, plain, first(200)]), "full-sort") == []
    assert len(found(program([PRODUCT, plain, first(20, dim=0)]), "full-sort")) == 0
    along_rows = Op("aten::sort", RADIX, 4_000, plain.dims, plain.types, scalars=["", "-1", "False"])
    assert len(found(program([PRODUCT, along_rows, first(200)]), "full-sort")) == 1
