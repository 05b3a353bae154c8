"""What one kernel in place of a chain takes, how chains are cut into parts, and how their ops are told."""

import numpy as np
import pytest

from tests.rules.kernel_programs import Op, program
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.views import Work
from traceanalyzer.rules.kernels.unfused_pointwise import closing_reductions, first_ops, fused_ns, sequences, shown

BROADCAST = "void at::native::elementwise_kernel<128, 2, at::native::add>(int)"
PLAIN = "void at::native::vectorized_elementwise_kernel<4, at::native::exp>(int)"
SUM = "void at::native::reduce_kernel<512, 1, at::native::sum>(float)"


def work_of(*ops: Op) -> Work:
    """What these ops launch, one after the other."""
    return Analysis(program(ops, steps=1)).index(Work)


def test_a_fused_softmax_takes_as_long_as_the_softmax() -> None:
    """A cast of 40 ns, a softmax of 90 ns and a logarithm of 60 ns over the same elements."""
    by_row = np.array([False, True, False])
    found = fused_ns(np.array([40, 90, 60]), np.zeros(3, np.int64), np.ones(3, bool), by_row, 0.25)
    assert found.tolist() == [90.0]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["add", "mul"], "add > mul"),
        (["mul"] * 12, " > ".join(["mul"] * 12)),
        (["mul"] * 13, " > ".join(["mul"] * 12) + " > ..."),
        (["x" * 200] * 3, "x" * 200 + " (3 in a row)"),
        (["x" * 200, "mul"], "x" * 200 + " > ..."),
        (["x" * 200], "x" * 200),
        (["x" * 57] * 3, "x" * 57 + " (3 in a row)"),  # of two names and what is between them 120 letters
        (["x" * 56] * 3, f"{'x' * 56} > {'x' * 56} > ..."),
    ],
)
def test_a_sequence_is_told_as_far_as_a_reader_takes_it_in(names: list[str], text: str) -> None:
    assert shown(names) == text


@pytest.mark.parametrize(("count", "told"), [(6, 6), (7, 7), (8, 6)])
def test_a_sentence_has_six_ops_unless_one_is_left(count: int, told: int) -> None:
    names = [f"op{number}" for number in range(count)]
    more = ["..."] if told < count else []
    assert first_ops(" > ".join(names)) == " > ".join([*names[:told], *more])


@pytest.mark.parametrize(
    ("kernels", "durations", "whole", "closing"),
    [
        ([BROADCAST, PLAIN, SUM], [40, 40, 40], [1, 1, 0], [2]),
        ([PLAIN, BROADCAST, SUM], [40, 40, 40], [1, 1, 0], []),  # begins with what comes in as large
        ([BROADCAST, PLAIN, PLAIN, SUM], [40] * 4, [1, 1, 1, 0], []),
        ([BROADCAST, SUM, PLAIN], [40, 40, 40], [1, 0, 1], []),
        ([BROADCAST, PLAIN, SUM], [40, 32, 10], [1, 1, 0], [2]),  # just a quarter of the longest
        ([BROADCAST, PLAIN, SUM], [40, 32, 9], [1, 1, 0], []),
        ([BROADCAST, PLAIN, SUM], [40, 40, 40], [1, 1, 1], []),
    ],
)
def test_a_reduction_closes_a_pair_that_begins_with_a_broadcast(
    kernels: list[str], durations: list[int], whole: list[int], closing: list[int]
) -> None:
    """Before another chain of two, which nothing closes."""
    ops = [Op("aten::op", name, us) for name, us in zip(kernels, durations, strict=True)]
    work = work_of(*ops, Op("aten::op", BROADCAST, 90), Op("aten::op", PLAIN, 90))
    chain = np.array([0] * len(ops) + [1, 1])
    found = closing_reductions(work, chain, np.array([*whole, 1, 1], bool), 0.25)
    assert np.flatnonzero(found).tolist() == closing


def test_sequences_with_equal_begin_merge_longest_first() -> None:
    """Two of thirteen ops differ in the last one, which is not shown."""
    twelve = [Op("aten::exp", PLAIN, 10)] * 12
    first = [Op("aten::neg", PLAIN, 50)] * 2
    ops = [*first, *twelve, Op("aten::log", PLAIN, 7), *twelve, Op("aten::neg", PLAIN, 5)]
    chain = np.array([0] * 2 + [1] * 13 + [2] * 13)
    found, of_first = sequences(work_of(*ops), chain)
    shown_ = " > ".join(["exp"] * 12) + " > ..."
    assert list(found.items()) == [(shown_, 252_000), ("neg > neg", 100_000)]
    assert of_first.tolist() == [False] * 2 + [True] * 13 + [False] * 13
