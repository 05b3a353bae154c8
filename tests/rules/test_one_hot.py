"""One-hot tensors: what makes and converts them, and the product that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.rules.programs import US, found
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.finding import Confidence

LONG, F32, BF16 = "long int", "float", "c10::BFloat16"
ROWS, CLASSES = 1024 * 1024, 100
MASK, SEEN = [16, 256, 256, CLASSES], [16, CLASSES, 256, 256]  # as made, and permuted
Piece = tuple[str, int, Sequence[Any], Sequence[str]]  # name, us on the device, shapes, types

CONVERTED: Piece = ("aten::copy_", 700, (SEEN, SEEN, []), (F32, LONG, "Scalar"))
PRODUCT: Piece = ("aten::mul", 2_000, (SEEN, SEEN), (F32, F32))
HALF: Piece = ("aten::copy_", 300, ([ROWS, CLASSES], [ROWS, CLASSES], []), (BF16, F32, "Scalar"))
TABLE: Piece = ("aten::copy_", 9, ([CLASSES, 64], [CLASSES, 64], []), (BF16, F32, "Scalar"))
LOOKUP: Piece = ("aten::mm", 900, ([ROWS, CLASSES], [CLASSES, 64]), (BF16, BF16))


def training(
    *after: Piece,
    shapes: bool = True,
    own_thread: bool = True,
    steps: int = 4,
    masks: int = 1,
    kernels: int = 1,
    numbers: Sequence[str] = (),
) -> TraceBuilder:
    """Steps of a mask that is filled and scattered, 400 and 30 us, and what follows it.

    Args:
        masks: how many; only the first piece follows all but the last.
        kernels: of each piece that follows.
        numbers: arguments of what follows that are no tensors.
    """
    trace, at, number, gpu = TraceBuilder(), 0, 0, 0

    def call(
        name: str,
        dur: int,
        dims: Sequence[Any] = (),
        types: Sequence[str] = (),
        tid: int = 1000,
        count: int = 1,
        scalars: Sequence[str] = (),
    ) -> None:
        nonlocal at, number, gpu
        recorded = {"Input Dims": list(dims), "Input type": list(types)} if shapes else {}
        recorded |= {"Concrete Inputs": list(scalars)} if scalars else {}
        trace.op(name, at, 20 * US, tid=tid, **recorded)
        for place in range(count):
            number += 1
            trace.launch("cudaLaunchKernel", at + (5 + 6 * place) * US, 5 * US, number, tid=tid)
            gpu = max(gpu, at + 15 * US)
            trace.kernel(gpu, dur * US, number)
            gpu += dur * US
        at += 22 * US

    for step in range(steps):
        begin = at
        call("aten::randn", 3_000)
        for left in range(masks, 0, -1):
            trace.op("aten::one_hot", at, 60 * US)
            at += 2 * US
            call("aten::fill_", 400, (MASK, []), (LONG, "Scalar"))
            call("aten::scatter_", 30, (MASK, [], [*MASK[:-1], 1], []), (LONG, "Scalar", LONG, "Scalar"))
            at += 20 * US
            for piece in after if left == 1 else after[:1]:
                call(*piece, tid=1000 if own_thread else 1001, count=kernels, scalars=numbers)
        call("aten::sum", 500, (SEEN, []), (F32, "ScalarList"))
        at = max(at, gpu)
        trace.step(step, begin, at - begin)
        at += 10 * US
    return trace


def test_a_product_with_one_hot_becomes_a_gather() -> None:
    (one,) = found(training(CONVERTED, PRODUCT), "one-hot")
    gather_us = 25  # 16 bytes for each of a million values at 4.8 TB/s, of which gather reaches 0.14
    assert one.cost_ns == pytest.approx(4 * (430 + 700 + 2_000 - gather_us) * US, rel=0.001)
    assert one.evidence["making_ns"] == 4 * 430 * US
    assert one.evidence["converting_ns"] == 4 * 700 * US
    assert one.evidence["readers"] == {"aten::mul": 4 * 2_000 * US}
    assert one.confidence is Confidence.MEDIUM
    assert "to compute with them, in aten::mul" in one.message
    assert one.saving is not None


def test_a_product_with_a_table_becomes_an_embedding() -> None:
    flat: Piece = ("aten::copy_", 700, (MASK, MASK, []), (F32, LONG, "Scalar"))
    (one,) = found(training(flat, HALF, TABLE, LOOKUP), "one-hot")
    assert one.evidence["converting_ns"] == 4 * (700 + 300) * US  # not the table
    assert one.evidence["reading_ns"] == 4 * 900 * US
    rows_us = ROWS * (2 * 64 * 2 + 8) / 4_800e3 / 0.14  # of the embedding, each read and written
    assert one.cost_ns == pytest.approx(4 * (430 + 1_000 + 900 - rows_us) * US, rel=0.001)


def test_sums_count_classes_left_products_sum_rows() -> None:
    flat: Piece = ("aten::copy_", 700, ([ROWS, CLASSES], [ROWS, CLASSES], []), (F32, LONG, "Scalar"))
    counts: Piece = ("aten::sum", 300, ([ROWS, CLASSES], [], []), (F32, "ScalarList", "Scalar"))
    sums: Piece = ("aten::mm", 3_000, ([CLASSES, ROWS], [ROWS, 64]), (F32, F32))
    (one,) = found(training(flat, counts, sums, numbers=("", "[0]")), "one-hot")
    assert one.evidence["readers"] == {"aten::mm": 4 * 3_000 * US, "aten::sum": 4 * 300 * US}
    rows_us = (3 * ROWS * 64 * 4 + ROWS * 8) / 4_800e3 / 0.25  # added by their index
    counts_us = ROWS * (4 + 8) / 4_800e3 / 0.20  # in shared memory
    spent_us = 430 + 700 + 300 + 3_000
    assert one.cost_ns == pytest.approx(4 * (spent_us - rows_us - counts_us) * US, rel=0.001)
    (later,) = found(training(flat, sums, counts, numbers=("", "[0]")), "one-hot")
    assert later.evidence["readers"] == one.evidence["readers"]
    (other,) = found(training(flat, counts, sums, numbers=("", "[1]")), "one-hot")
    assert other.evidence["readers"] == {"aten::mm": 4 * 3_000 * US}  # a sum over classes is of ones


@pytest.mark.parametrize(
    "after",
    [
        (),
        (PRODUCT,),  # of floats: not of the mask, which is int64
        (
            ("aten::copy_", 700, (SEEN, SEEN, []), (F32, BF16, "Scalar")),
            PRODUCT,
        ),  # another tensor's conversion
        (("aten::add", 700, (SEEN, SEEN), (F32, F32)), CONVERTED),  # what comes in between
    ],
)
def test_what_is_not_surely_of_the_mask_is_not_counted(after: tuple[Piece, ...]) -> None:
    (one,) = found(training(*after), "one-hot")
    assert (one.cost_ns, one.evidence["converting_ns"], one.evidence["reading_ns"]) == (4 * 430 * US, 0, 0)
    assert one.confidence is Confidence.HIGH


def test_a_product_of_two_one_hots_counts_pairs() -> None:
    flat: Piece = ("aten::copy_", 700, ([ROWS, CLASSES], [ROWS, CLASSES], []), (F32, LONG, "Scalar"))
    counts: Piece = ("aten::mm", 3_000, ([CLASSES, ROWS], [ROWS, CLASSES]), (F32, F32))
    (alone,) = found(training(flat, counts), "one-hot")
    assert (
        alone.cost_ns < 4 * (430 + 700 + 3_000 - 500) * US
    )  # whatever the other factor is: sums of its rows stay
    (one,) = found(training(flat, counts, masks=2, kernels=2), "one-hot")
    assert one.evidence["reading_ns"] == 4 * 2 * 3_000 * US  # both kernels of each op
    assert one.evidence["converting_ns"] == 4 * 2 * 2 * 700 * US
    assert one.cost_ns == pytest.approx(4 * (2 * 430 + 2 * 1_400 + 6_000) * US, rel=0.01)


@pytest.mark.parametrize(
    "read",
    [
        ("aten::mul", 2_000, (SEEN, []), (F32, "Scalar")),
        ("aten::mul", 2_000, (SEEN, [16, 1, 256, 256]), (F32, F32)),
        ("aten::mm", 900, ([64, ROWS], [ROWS, CLASSES]), (F32, F32)),
        ("aten::sum", 900, (SEEN, []), (F32, "ScalarList")),
    ],
)
def test_only_a_product_that_picks_by_the_mask_has_another_way(read: Piece) -> None:
    (one,) = found(training(CONVERTED, read), "one-hot")
    assert one.evidence["reading_ns"] == 0
    assert one.evidence["converting_ns"] == 4 * 700 * US


def test_without_shapes_only_one_hot_itself_counts() -> None:
    for trace in (training(CONVERTED, PRODUCT, shapes=False), training(CONVERTED, own_thread=False)):
        (one,) = found(trace, "one-hot")
        assert one.cost_ns == 4 * 430 * US


def test_a_mask_that_costs_next_to_nothing_is_not_said() -> None:
    trace = TraceBuilder()
    trace.op("aten::one_hot", 0, 20 * US)  # on the CPU
    trace.op("aten::mm", 30 * US, 20 * US)
    trace.launch("cudaLaunchKernel", 35 * US, 5 * US, 1)
    trace.kernel(50 * US, 100 * US, 1)
    trace.step(0, 0, 160 * US)
    assert found(trace, "one-hot") == []


def test_on_unknown_devices_products_save_nothing() -> None:
    trace = training(CONVERTED, PRODUCT)
    trace.header["deviceProperties"][0]["name"] = "Another GPU"
    (one,) = found(trace, "one-hot")
    assert one.evidence["reading_ns"] == 4 * 2_000 * US
    assert one.cost_ns == 4 * (430 + 700) * US


@pytest.mark.parametrize(("later", "converting_us"), [(False, 700), (True, 0)])
def test_what_the_next_step_begins_with_is_of_another_tensor(*, later: bool, converting_us: int) -> None:
    trace = training(CONVERTED, steps=1)
    (step,) = (one for one in trace.events if one["name"] == "ProfilerStep#0")
    (copy,) = (one for one in trace.events if one["name"] == "aten::copy_")
    if later:
        end, step["dur"] = step["ts"] + step["dur"], copy["ts"] - 1 - step["ts"]
        trace.step(1, round((copy["ts"] - 1) * US), round((end - copy["ts"] + 1) * US))
    (one,) = found(trace, "one-hot")
    assert one.evidence["making_ns"] == 430 * US
    assert one.evidence["converting_ns"] == converting_us * US


def test_a_mask_of_one_index_for_each_row_is_followed_too() -> None:
    """F.one_hot(index, 100).float() @ table, where the index has one dimension."""
    mask = [ROWS, CLASSES]
    flat: Piece = ("aten::copy_", 700, (mask, mask, []), (F32, LONG, "Scalar"))
    lookup: Piece = ("aten::mm", 900, (mask, [CLASSES, 64]), (F32, F32))
    trace = training(flat, lookup)
    for event in trace.events:
        if event["name"] == "aten::fill_":
            event["args"]["Input Dims"] = [mask, []]
        elif event["name"] == "aten::scatter_":
            event["args"]["Input Dims"] = [mask, [], [ROWS, 1], []]
    (one,) = found(trace, "one-hot")
    assert one.evidence["making_ns"] == 4 * 430 * US
    assert one.evidence["converting_ns"] == 4 * 700 * US
    assert one.evidence["readers"] == {"aten::mm": 4 * 900 * US}


def trained(name: str, shape: list[int], kinds: tuple[str, ...], behind: int) -> TraceBuilder:
    """After the product an op of 900 us in a node of autograd, whose number lies so far before the product's."""
    trace = training(CONVERTED, PRODUCT, (name, 900, (shape, shape), kinds))
    ops = [one for one in trace.events if one["name"] in ("aten::mul", "aten::copy_")]
    for number, place in enumerate(range(0, len(ops), 3), 1):
        _, product, again = ops[place : place + 3]
        product["args"]["Sequence number"] = 10 * number
        sequence: dict[str, Any] = {"Sequence number": 10 * number - behind}
        trace.op("MulBackward0", round(again["ts"] * US) - US // 2, 21 * US, **sequence)
    return trace


@pytest.mark.parametrize(
    ("name", "shape", "kinds", "behind", "saved_us"),
    [
        pytest.param("aten::mul", SEEN, (F32, F32), 0, 600, id="its own: a third is written"),
        pytest.param("aten::mul", SEEN, (F32, F32), 1, 0, id="another product's"),
        pytest.param("aten::mul", [16, 256], (F32, F32), 0, 0, id="of another size"),
        pytest.param("aten::copy_", SEEN, (F32, F32), 1, 900, id="a change of layout"),
        pytest.param("aten::copy_", SEEN, (F32, F32), 2, 900, id="behind a view"),
        pytest.param("aten::copy_", SEEN, (F32, F32), 3, 0, id="far behind"),
        pytest.param("aten::copy_", SEEN, (F32, F32), 0, 0, id="its own copy"),
        pytest.param("aten::copy_", SEEN, (F32, BF16), 1, 0, id="a conversion"),
    ],
)
def test_backward_of_the_product_is_saved_too(
    name: str, shape: list[int], kinds: tuple[str, ...], behind: int, saved_us: int
) -> None:
    (plain,) = found(training(CONVERTED, PRODUCT), "one-hot")
    (one,) = found(trained(name, shape, kinds, behind), "one-hot")
    assert one.cost_ns == pytest.approx(plain.cost_ns + 4 * saved_us * US, rel=1e-5)
    assert one.evidence["reading_ns"] == 4 * (2_000 + 900 * bool(saved_us)) * US
