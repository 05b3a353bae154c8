"""Finders of repeated-calls on single ops and numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from traceanalyzer.model.texts import Texts
from traceanalyzer.rules.gpu_idle.repeated_calls.network_calls import (
    LAYERS,
    count_equal_ops,
    largest_network,
    most_equal_shapes,
    repeats_block,
    result_elements,
    weight_sizes,
)
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import only_grow
from traceanalyzer.rules.gpu_idle.repeated_calls.time_steps import (
    Taken,
    item_wise_chain,
    item_wise_input,
    makes_whole,
    part_taken,
    reads_part,
    writes_part,
)
from traceanalyzer.tensors.signatures import Signature

Shape = list[int]


def op(name: str, *dims: Shape, scalars: tuple[str, ...] = (), strides: tuple[Any, ...] = ()) -> Signature:
    return Signature(f"aten::{name}", dims, ("float",) * len(dims), scalars, strides)


def takes(name: str, *scalars: int, whole: Shape | None = None, strides: Shape | None = None) -> Signature:
    """An op that takes a part of 8 x 16 x 32."""
    shape = whole or [8, 16, 32]
    texts = ("", *map(str, scalars))
    steps = (strides,) if strides else ()
    return Signature(f"aten::{name}", (shape, *([] for _ in scalars)), ("float",), texts, steps)


# -- parts of a tensor ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "dim", "index", "part"),
    [
        (takes("select", 0, 3), 0, 3, (16, 32)),
        (takes("select", 1, 5), 1, 5, (8, 32)),
        (takes("select", -1, 2), 2, 2, (8, 16)),
        (takes("slice", 1, 4, 5, 1), 1, 4, (8, 1, 32)),
        (takes("narrow", 1, 4, 1), 1, 4, (8, 1, 32)),
    ],
)
def test_a_part_is_of_one_place_along_a_dimension(
    one: Signature, dim: int, index: int, part: tuple[int, ...]
) -> None:
    found = part_taken(one)
    assert found is not None
    assert (found.whole, found.dim, found.index, found.part) == ((8, 16, 32), dim, index, part)


@pytest.mark.parametrize(
    "one",
    [
        takes("slice", 1, 4, 6, 1),  # two places
        takes("narrow", 1, 4, 2),
        takes("index_select", 0, 3),
        takes("select", 0),  # no index
        takes("select", 0, 3, whole=[8, 16]),  # a part of one dimension
        Signature("aten::select", ([8, 16, 32],), ("float",), ("", "", "")),
    ],
)
def test_other_parts_are_none(one: Signature) -> None:
    assert part_taken(one) is None


def test_parts_of_one_dimension_on_request() -> None:
    found = part_taken(takes("select", 0, 3, whole=[8, 16]), 1)
    assert found is not None
    assert found.part == (16,)


def test_strides_of_a_part_are_those_of_the_dimensions_that_stay() -> None:
    selected = part_taken(takes("select", 1, 3, strides=[512, 32, 1]))
    sliced = part_taken(takes("slice", 1, 3, 4, 1, strides=[512, 32, 1]))
    assert selected is not None
    assert sliced is not None
    assert (selected.part_strides, sliced.part_strides) == ((512, 1), (512, 32, 1))
    assert reads_part(op("linear", [8, 32], strides=([512, 1],)), selected)
    assert not reads_part(op("linear", [8, 32], strides=([32, 1],)), selected)  # another of that shape
    assert reads_part(op("linear", [8, 32]), selected)  # no strides are recorded
    assert reads_part(op("linear", [9, 9], strides=([9, 1],)), selected)  # takes no such tensor


PART = Taken((8, 16, 32), (), 1, 3, (8, 32), ())


@pytest.mark.parametrize(
    ("one", "written", "remade"),
    [
        (op("copy_", [8, 16, 32]), True, True),
        (op("add_", [8, 32]), True, False),
        (op("add_", [8, 33]), False, False),
        (op("add", [8, 32]), False, False),  # in no place
        (op("add", [8, 16, 32], [32]), False, True),
        (op("linear", [8, 16, 5], [32, 5]), False, True),
        (op("linear", [8, 16, 32], [31, 32]), False, False),
        (op("transpose", [8, 16, 32]), False, False),  # a view
        (op("add_", [32], [8, 32]), False, False),  # is only read
    ],
)
def test_loop_that_writes_the_tensor_needs_earlier_repeats(
    one: Signature, written: bool, remade: bool
) -> None:
    ops = [op("relu", [1]), one]
    assert writes_part(PART, ops) is written
    assert makes_whole(PART, ops) is remade
    assert not writes_part(PART, ops[:1])


@pytest.mark.parametrize(
    ("one", "data"),
    [
        (op("linear", [8, 32], [64, 32], [64]), (8, 32)),
        (op("linear", [32], [64, 32]), None),  # no batch
        (op("addmm", [64], [8, 32], [32, 64]), (8, 32)),
        (op("embedding", [1000, 64], [8, 5]), (8, 5)),
        (op("matmul", [8, 32], [32, 64]), (8, 32)),
        (op("matmul", [8, 5, 32], [8, 32, 5]), None),  # no weight
        (op("conv2d", [8, 3, 9, 9], [4, 3, 3, 3]), (8, 3, 9, 9)),
        (op("add", [8, 32], []), (8, 32)),
        (op("add", [8, 32], [32]), (8, 32)),
        (op("add", [8, 32], [8, 32]), None),  # another tensor
        (op("batch_norm", [8, 32], [32]), None),  # over the batch
        (op("relu", [32]), None),
        (op("relu"), None),
    ],
)
def test_an_op_works_on_one_tensor_item_by_item(one: Signature, data: tuple[int, ...] | None) -> None:
    assert item_wise_input(one) == data


LAYER, RELU = op("linear", [8, 32], [64, 32], [64]), op("relu", [8, 64])


@pytest.mark.parametrize(
    ("following", "chain"),
    [
        ([LAYER, RELU, op("cumsum", [8, 64])], (0, 2)),
        ([op("add", [5]), LAYER, RELU], (1, 3)),
        ([op("relu", [8, 32]), LAYER], (0, 2)),
        ([op("relu", [8, 32]), op("relu", [8, 32])], None),  # no layer
        ([op("add", [5])] * 7 + [LAYER], (7, 8)),
        ([op("add", [5])] * 8 + [LAYER], None),  # too far away
        ([LAYER, op("relu", [8, 63])], (0, 1)),  # of something else
        ([LAYER, RELU, op("linear", [8, 64], [9, 64]), op("view", [8, 9]), op("relu", [2, 36])], (0, 5)),
        ([LAYER, RELU, op("add", [8, 64], [8, 64])], (0, 1)),  # the layer's result may be taken again
        ([], None),
    ],
)
def test_a_chain_goes_from_a_layer_to_the_last_op_on_its_part(
    following: list[Signature], chain: tuple[int, int] | None
) -> None:
    assert item_wise_chain(PART, following) == chain


def test_a_chain_begins_with_a_layer_on_the_part_itself() -> None:
    """Not on another tensor of its shape."""
    part = replace(PART, part_strides=(512, 1))
    own, other = (
        op("linear", [8, 32], [64, 32], strides=(strides, [32, 1])) for strides in ([512, 1], [32, 1])
    )
    assert item_wise_chain(part, [own, RELU]) == (0, 2)
    assert item_wise_chain(part, [other, RELU]) is None


# -- passes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "taken", "elements"),
    [
        ("linear", [(8, 5, 32), (64, 32), (64,)], 8 * 5 * 64),
        ("mm", [(8, 32), (32, 64)], 8 * 64),
        ("addmm", [(8, 32)], None),
        ("conv2d", [(2, 3, 9, 9), (4, 3, 3, 3)], 2 * 4 * 9 * 9),
        ("relu", [(8, 64), (9, 9)], 8 * 64),
        ("relu", [], None),
    ],
)
def test_a_layer_s_result_has_its_weight_s_channels(
    name: str, taken: list[tuple[int, ...]], elements: int | None
) -> None:
    assert result_elements(taken, LAYERS.search(f"aten::{name}")) == elements


def test_results_are_alike_in_shape_and_number_of_elements() -> None:
    assert most_equal_shapes([(4, 6), (6, 4), (24,), (4, 6)], 24) == 2
    assert most_equal_shapes([(4, 6), (4, 6)], 25) == 0
    assert most_equal_shapes([], 24) == 0


@pytest.mark.parametrize(
    ("kind", "repeats"),
    [([1, 2, 1, 2], True), ([1, 1, 1], True), ([1, 2, 1], False), ([1, 2, 2, 1], False), ([1], False)],
)
def test_layers_are_the_same_few_ops_again_and_again(kind: list[int], repeats: bool) -> None:
    assert repeats_block(np.array(kind)) is repeats


# -- evaluations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begins", "by", "most", "far"),
    [
        ([1, 5], 1, None, 3),  # 1 2 3 and then 9, 8
        ([1, 5], -1, 9, 1),  # 7 and 9 before
        ([2, 6], -1, 9, 2),
        ([2, 6], -1, 1, 1),
        ([0], 1, 3, 3),
        ([3, 7], 1, None, 1),  # the second ends
        ([0, 4], 1, 0, 0),
    ],
)
def test_ops_are_alike_up_to_the_first_that_differs(
    begins: list[int], by: int, most: int | None, far: int
) -> None:
    kind = np.array([7, 1, 2, 3, 9, 1, 2, 3])
    assert count_equal_ops(kind, np.array(begins), by, most) == far


@pytest.mark.parametrize(
    ("kind", "layers", "found"),
    [
        ("abcabc", "abc", ([0, 3], 3)),
        ("xabcyabc", "abc", ([1, 5], 3)),
        ("xabcxabc", "abc", ([0, 4], 4)),  # what comes before the first layer, too
        ("abab", "ab", None),  # two layers
        ("abcdefg", "abcdefg", None),
        ("abcabcpqrstpqrst", "abcpqrst", ([6, 11], 5)),  # that covers more
        ("pqrstpqrstabcabc", "abcpqrst", ([0, 5], 5)),
        ("abc" * 8, "abc", ([3 * at for at in range(8)], 3)),
        ("abc" * 9, "abc", None),  # a loop over time
    ],
)
def test_the_network_that_covers_most_ops_is_evaluated(
    kind: str, layers: str, found: tuple[list[int], int] | None
) -> None:
    made = largest_network(np.array([ord(one) for one in kind]), np.array([one in layers for one in kind]))
    assert (made and (made[0].tolist(), made[1])) == found


def test_a_weight_is_known_whichever_way_round_it_lies() -> None:
    assert weight_sizes(op("linear", [8, 32], [64, 32], [64])) == (32, 64)
    assert weight_sizes(op("mm", [8, 64], [32, 64])) == (32, 64)
    assert weight_sizes(op("addmm", [64], [64, 8], [32, 64])) == (8, 64)
    assert weight_sizes(op("linear", [8, 32], [64])) == ()
    assert weight_sizes(op("add", [8, 32], [64, 32])) == ()


# -- what grows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "grow"),
    [
        ([1, 2, 3], True),
        ([1, 2, 3, 3, 3], True),  # a cache that is full
        ([1, 1, 2], True),
        ([2, 2, 2], False),
        ([1, 2, 1], False),
        ([3, 2, 1], False),
    ],
)
def test_inputs_grow_where_they_never_become_smaller(sizes: list[int], grow: bool) -> None:
    """One of two ops gets them, and the other one always the same."""
    names = np.array([f"[[1, {size}, 8]]" for size in range(5)], object)
    codes = np.array([[size, 4] for size in sizes])
    assert only_grow(codes, Texts(codes.ravel(), names)) is grow


def test_inputs_do_not_grow_of_which_one_becomes_smaller() -> None:
    codes = np.array([[1, 3], [2, 2], [3, 1]])
    names = np.array([f"[[1, {size}, 8]]" for size in range(5)], object)
    assert not only_grow(codes, Texts(codes.ravel(), names))
