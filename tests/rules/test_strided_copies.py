"""Layout copies, dimension orders and concatenations of strided-copy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.rules.kernel_programs import BF16, NVJET, US, Op, begun_later, found, program
from traceanalyzer.rules.copies.strided_copy.lost_layout import (
    dimension_order,
    dimension_orders,
    is_whole,
    keeps_order,
    layout_of,
    shape_and_strides,
)
from traceanalyzer.tensors.signatures import Signature

CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4, 64, 64>(int)"
PRODUCT = Op("aten::mm", NVJET, 100)
ROWS, COLUMNS = ([8, 16], [16, 1]), ([8, 16], [1, 8])
UNKNOWN: Any = ([8, 16], None)
MOVED = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}> >(int, int)"
)
ADDED = "void at::native::elementwise_kernel<128, 4, at::native::CUDAFunctor_add<c10::BFloat16> >(int)"
IMAGE = [64, 128, 56, 56]
SLICED = [802816, 1, 14336, 256]
FIRST, LAST = [401408, 3136, 56, 1], [401408, 1, 7168, 128]


def cat(*shapes: list[int]) -> Op:
    """A concatenation of tensors of these shapes."""
    return Op("aten::cat", CAT, 30, [list(shapes), []], ["TensorList", "Scalar"])


def test_growing_cache_differs_from_other_cats() -> None:
    grows = [cat([32, 16, rows, 128], [32, 16, 1, 128]) for rows in (500, 501)]
    (one,) = found(program([*grows, PRODUCT]), "strided-copy")
    assert (one.cause, one.evidence["new"]) == ("growing-buffer", "32x16x1x128")


@pytest.mark.parametrize(
    "shapes",
    [
        ([32, 64], [32, 64]),
        ([32768, 1024], [32768, 8]),  # a column more for the next product: nobody appends to the result
        ([32, 1024], [1024]),
        ([32, 1024], [1, 32]),
    ],
    ids=str,
)
def test_what_nobody_appends_to_does_not_grow(shapes: tuple[list[int], ...]) -> None:
    (one,) = found(program([cat(*shapes), PRODUCT]), "strided-copy")
    assert one.cause == "concatenation"


def test_writing_in_place_takes_cpu_time_that_a_cat_does_not() -> None:
    """Where the CPU sets the pace, less work on the device makes the step no shorter."""
    quick = replace(cat([32, 64], [32, 64]), dur=5)
    (one,) = found(program([quick]), "strided-copy")
    assert one.saving is not None
    assert -4 * US < one.saving.step_ns < -1 * US


def test_what_was_appended_last_is_told() -> None:
    grows = [cat([32, 16, rows, 128], [32, 16, more, 128]) for rows, more in ((500, 1), (501, 2), (503, 3))]
    (one,) = found(program([*grows, PRODUCT]), "strided-copy")
    assert (one.cause, one.evidence["new"]) == ("growing-buffer", "32x16x3x128")


def test_cats_before_the_recording_may_be_of_the_cache() -> None:
    grows = [cat([32, 16, rows, 128], [32, 16, 1, 128]) for rows in (500, 501)]
    (one,) = found(begun_later(program([*grows, PRODUCT], steps=2)), "strided-copy")
    assert (one.cause, one.count) == ("growing-buffer", 2)


def test_a_small_write_stays_of_what_is_written_in_place() -> None:
    """At most 3 us, and no more than the concatenation took."""
    short, long = (replace(cat([32, 64], [32, 64]), dur=dur) for dur in (2, 10))
    (one,) = found(program([short, long]), "strided-copy")
    assert one.cost_ns == 6 * 7 * US


def listed(*parts: tuple[Any, Any]) -> Signature:
    """An op on a list of (shape, strides)."""
    shapes, strides = [one for one, _ in parts], [one for _, one in parts]
    return Signature("aten::cat", (shapes, []), ("TensorList",), (), (strides,))


@pytest.mark.parametrize(
    ("parts", "orders"),
    [
        ((ROWS, ROWS), {(0, 1)}),
        ((COLUMNS, COLUMNS), {(1, 0)}),
        ((ROWS, COLUMNS), {(0, 1), (1, 0)}),
        ((ROWS, ([8, 1], [16, 1])), {(0, 1), (0,)}),  # of one element there is no order
        ((ROWS, ([8, 16], [16])), set()),
        ((ROWS, ([8, 16], None)), set()),
        ((ROWS, ([8, "x"], [16, 1])), set()),
        ((), set()),
    ],
)
def test_parts_lie_in_one_order_or_in_several(parts: Any, orders: set[tuple[int, ...]]) -> None:
    assert dimension_orders(listed(*parts)) == orders


def test_the_largest_stride_comes_first() -> None:
    """Channels last."""
    assert dimension_order([2, 3, 4, 5], [60, 1, 15, 3]) == (0, 2, 3, 1)


def test_an_input_is_known_by_its_shape_and_strides() -> None:
    one = Signature("aten::add", ([8, 16], [8, 16], []), ("float",) * 3, (), ([16, 1], [1, 8]))
    assert shape_and_strides(one, 0) == ((8, 16), (16, 1))
    assert shape_and_strides(one, 1) == ((8, 16), (1, 8))
    assert shape_and_strides(one, 4) is None
    assert shape_and_strides(Signature("aten::add", ([8, 16],), ("float",), ()), 0) is None


class Copies:
    """Copies by (outermost op, ns, number of its inputs)."""

    def __init__(self, rows: list[tuple[str, int, int]]) -> None:
        self.rows = rows
        self.total_ns = sum(ns for _, ns, _ in rows)
        self.entries = np.array([number for *_, number in rows], np.int64)
        names = [name for name, *_ in rows]
        found = SimpleNamespace(
            matches=lambda pattern: np.array([bool(re.search(pattern, one)) for one in names])
        )
        self.outer_op = SimpleNamespace(name=found)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: Any) -> Copies:
        return Copies([row for row, kept in zip(self.rows, chosen, strict=True) if kept])


def of_two(name: str, *inputs: tuple[Any, Any]) -> Signature:
    shapes, strides = tuple(one for one, _ in inputs), tuple(one for _, one in inputs)
    return Signature(name, shapes, ("float",) * len(inputs), (), strides)


@pytest.mark.parametrize(
    ("added", "copied", "norm_ns", "keeps"),
    [
        ((COLUMNS, ROWS), COLUMNS, 50, True),
        ((COLUMNS, ROWS), COLUMNS, 49, False),  # less than half of the time
        ((ROWS, COLUMNS), COLUMNS, 50, False),  # only the first input's order is handed on
        ((UNKNOWN, ROWS), UNKNOWN, 50, False),  # no strides are recorded
    ],
)
def test_norms_copy_what_additions_hand_on(added: Any, copied: Any, norm_ns: int, keeps: bool) -> None:
    signatures = [of_two("aten::add", *added), of_two("aten::copy_", ROWS, copied)]
    copies: Any = Copies([("aten::layer_norm", norm_ns, 1), ("aten::cat", 100 - norm_ns, 0)])
    inputs: Any = SimpleNamespace(signatures=signatures, number=np.array([0, 1]))
    assert keeps_order(copies, inputs, 0.5) is keeps


@pytest.mark.parametrize(
    ("dims", "strides", "whole"),
    [
        ("[[8, 16], [8, 16]]", "[[16, 1], [16, 1]]", True),
        ("[[8, 16], [8, 16]]", "[[1, 8], [16, 1]]", True),
        ("[[8, 16], [8, 16]]", "[[32, 1], [16, 1]]", False),  # every other row
        ("[[8, 16], [8, 16]]", "[[0, 1], [16, 1]]", False),  # a row eight times
        ("[[0, 16], [0, 16]]", "[[16, 1], [16, 1]]", False),  # nothing
        ("[[8, 16], [8, 16]]", None, False),
        (None, None, False),
    ],
)
def test_what_is_written_as_a_whole_lies_in_one_piece(
    dims: str | None, strides: str | None, whole: bool
) -> None:
    assert is_whole(dims, strides) is whole


def copy(written: Sequence[int], read: Sequence[int], inside: str, shape: Sequence[int] = IMAGE) -> Op:
    dims = [list(shape), list(shape), []]
    return Op(
        "aten::copy_",
        MOVED,
        40,
        dims,
        [BF16, BF16, "Scalar"],
        inside=inside,
        strides=[list(written), list(read), []],
    )


def convolution(steps: Sequence[int], shape: Sequence[int] = IMAGE) -> Op:
    dims, strides = [list(shape), [128, 128, 3, 3]], [list(steps), [1152, 1, 384, 128]]
    return Op(
        "aten::cudnn_convolution", NVJET, 100, dims, [BF16, BF16], inside="aten::conv2d", strides=strides
    )


def added(left: Sequence[int], right: Sequence[int]) -> Op:
    dims, strides = [IMAGE, IMAGE, []], [list(left), list(right), []]
    return Op("aten::add", ADDED, 90, dims, [BF16, BF16, "Scalar"], strides=strides)


def broken() -> list[Op]:
    """A copy to channels first, a sum of both layouts, and a convolution that converts back."""
    return [
        copy(FIRST, LAST, "aten::contiguous"),
        added(LAST, FIRST),
        copy(LAST, FIRST, "aten::conv2d"),
        convolution(LAST),
    ]


def test_layout_breaking_op_is_named_with_followers() -> None:
    (one,) = found(program(broken()), "strided-copy")
    assert one.cause == "lost-layout"
    assert one.evidence["breaker"] == "aten::contiguous"
    assert set(one.evidence["ops"]) == {"aten::contiguous", "aten::add", "aten::conv2d"}
    assert "memory_format=torch.channels_last" in one.advice
    whole = 6 * (40 + 90 + 40) * 1_000
    assert whole - 6 * 90_000 < one.cost_ns < whole  # the sum remains, by the bytes that it passes over


def test_op_without_channels_last_kernel_gets_other_advice() -> None:
    ops = [copy(FIRST, LAST, "aten::group_norm"), copy(LAST, FIRST, "aten::conv2d"), convolution(LAST)]
    (one,) = found(program(ops), "strided-copy")
    assert (one.cause, one.evidence["breaker"]) == ("lost-layout", "aten::group_norm")
    assert one.advice.startswith("Replace this op")


def test_channels_in_groups_are_channels_as_well() -> None:
    groups, last, first = [64, 2, 64, 56, 56], [401408, 64, 1, 7168, 128], [401408, 200704, 3136, 56, 1]
    shuffled = copy(first, last, "aten::reshape", groups)
    (one,) = found(program([shuffled, convolution(LAST)]), "strided-copy")
    assert (one.cause, one.evidence["breaker"]) == ("lost-layout", "aten::reshape")


@pytest.mark.parametrize(
    "ops",
    [
        # no convolution takes channels last: the model is channels first
        [copy(FIRST, LAST, "aten::contiguous"), convolution(FIRST)],
        # no convolution takes or gives a tensor of that size: heads and rows of an attention
        [copy(FIRST, LAST, "aten::contiguous"), convolution([200704, 1, 3584, 64], [64, 64, 56, 56])],
        # images come channels first, and the first convolution converts them
        [copy(LAST, FIRST, "aten::conv2d"), convolution(LAST)],
        # both in one layout, once a slice of more channels
        [copy(LAST, SLICED, "aten::contiguous"), convolution(LAST)],
        # a convolution whose weights are channels first, and backward, take what they need
        [copy(FIRST, LAST, "aten::conv2d"), convolution(LAST)],
        [copy(FIRST, LAST, "autograd::engine::evaluate_function: AddBackward0"), convolution(LAST)],
    ],
    ids=["channels-first", "other-tensors", "first-layer", "slices", "convolution", "backward"],
)
def test_other_copies_break_no_layout(ops: list[Op]) -> None:
    causes = [one.cause for one in found(program(ops), "strided-copy")]
    assert causes == (["slices"] if ops[0].strides[1] == SLICED else ["transposition"])


@pytest.mark.parametrize(
    ("inside", "strides", "severity"),
    [
        ("aten::layer_norm", [[128, 1], [1, 64]], "high"),
        ("aten::layer_norm", None, "low"),
        ("aten::contiguous", None, "high"),
    ],
)
def test_inner_copies_without_strides_are_low_at_most(
    inside: str, strides: list[list[int]] | None, severity: str
) -> None:
    shapes = {"dims": [[64, 128]] * 2, "types": [BF16] * 2, "strides": strides} if strides else {}
    moved = Op("aten::copy_", MOVED, 2000, inside=inside, **shapes)
    (one,) = found(program([moved, PRODUCT]), "strided-copy")
    assert (one.cause, one.severity) == ("transposition", severity)


def test_copies_before_the_recording_may_be_of_the_layout() -> None:
    assert [one.cause for one in found(begun_later(program(broken(), steps=2)), "strided-copy")] == [
        "lost-layout"
    ]


@pytest.mark.parametrize(
    ("shape", "steps", "layout"),
    [
        ([2, 8, 4, 6], [192, 1, 48, 8], "last"),
        ([2, 8, 4, 6], [192, 24, 6, 1], "first"),
        ([2, 8, 4, 6], [192, 1, 8, 32], ""),  # columns before rows
        ([2, 8, 4, 6], [192, 6, 48, 1], ""),  # the channels of each row
        ([2, 1, 4, 6], [24, 24, 6, 1], ""),  # one channel lies anywhere
        ([2, 8, 1, 6], [48, 1, 48, 8], ""),  # a row is no image
        ([2, 2, 4, 4, 6], [192, 4, 1, 48, 8], "last"),  # groups of channels
        ([8, 4, 6], [1, 48, 8], ""),
    ],
)
def test_channels_lie_first_or_last_by_the_strides_of_an_image(
    shape: list[int], steps: list[int], layout: str
) -> None:
    assert layout_of(Signature("aten::copy_", (shape,), (BF16,), (), (steps,)), 0) == layout


@pytest.mark.parametrize(
    ("name", "mixed"), [("aten::add", True), ("aten::mul", True), ("aten::convolution_backward", False)]
)
def test_only_a_pointwise_op_could_do_without_the_other_layout(name: str, mixed: bool) -> None:
    """The backward of a convolution computes as much in one layout."""
    dims, strides = [IMAGE, IMAGE, [128, 128, 3, 3]], [LAST, FIRST, [1152, 1, 384, 128]]
    scalars = ["", "", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"]
    if mixed:
        dims, strides, scalars = dims[:2], strides[:2], []
    both = Op(name, ADDED, 90, dims, [BF16] * len(dims), strides=strides, scalars=scalars)
    (one,) = found(program([copy(FIRST, LAST, "aten::contiguous"), both, convolution(LAST)]), "strided-copy")
    assert set(one.evidence["ops"]) == {"aten::contiguous", *([name] if mixed else [])}
