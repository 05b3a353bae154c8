"""Fills of new memory and sorts in place of additions: deterministic algorithms left on."""

import pytest

from tests.rules.programs import US, found
from tests.support.trace_builder import TraceBuilder


def training(*, allocates: str = "aten::empty", adds: str = "aten::index_add_", steps: int = 4) -> TraceBuilder:
    """Steps of a product, a tensor that is allocated and filled, and rows that are added by four kernels."""
    trace, at = TraceBuilder(), 0

    def kernels(begin: int, *durs: int) -> int:
        for dur in durs:
            trace.launched((begin, 5 * US), (begin + 8 * US, dur))
            begin += 15 * US
        return begin

    for step in range(steps):
        begin = at
        trace.op("aten::mm", at, 20 * US)
        kernels(at + 2 * US, 10 * US)
        at += 30 * US
        trace.op(allocates, at, 30 * US)
        trace.op("aten::fill_", at + 5 * US, 22 * US)
        kernels(at + 8 * US, 6 * US)
        at += 40 * US
        trace.op(adds, at, 100 * US)
        trace.op("aten::index_put_", at + 2 * US, 96 * US)
        trace.op("aten::_index_put_impl_", at + 3 * US, 94 * US)
        kernels(at + 5 * US, 2 * US, 2 * US, 2 * US, 9 * US)
        at += 110 * US
        trace.step(step, begin, at - begin)
        at += 10 * US
    return trace


def test_cost_is_fills_of_allocations_and_sorts() -> None:
    (one,) = found(training(), "deterministic-algorithms")
    assert (one.steps, one.cost_ns) == (4, 4 * 6 * US)
    assert (one.evidence["filling_ns"], one.evidence["sorting_ns"]) == (4 * 6 * US, 4 * 15 * US)
    assert "aten::index_add_ sort their indices and add in 4 kernels instead of one" in one.message
    assert "fill_uninitialized_memory" in one.advice
    assert one.saving is not None
    assert one.saving.share > 0.05


@pytest.mark.parametrize("allocates", ["aten::empty_like", "aten::empty_strided", "aten::resize_"])
def test_whatever_allocates_may_be_filled(allocates: str) -> None:
    (one,) = found(training(allocates=allocates, adds="aten::where"), "deterministic-algorithms")
    assert (one.count, one.evidence["replaced"]) == (4, {})


def test_requested_zeros_and_put_rows_are_not_costs() -> None:
    assert found(training(allocates="aten::zeros", adds="aten::where"), "deterministic-algorithms") == []


@pytest.mark.parametrize(
    "adds", ["aten::index_copy_", "aten::index_reduce", "aten::scatter", "aten::scatter_reduce_", "aten::put_"]
)
def test_whatever_writes_where_indices_say_may_sort_them(adds: str) -> None:
    (one,) = found(training(adds=adds), "deterministic-algorithms")
    assert list(one.evidence["replaced"]) == [adds]
    assert f"{adds} sort their indices and add in 4 kernels instead of one" in one.message


def test_of_fills_alone_no_sorts_are_told() -> None:
    (fills,) = found(training(adds="aten::where"), "deterministic-algorithms")
    assert fills.message.startswith("deterministic algorithms are on: filling newly allocated memory takes 6.00 ")
    assert fills.message.endswith(" a step, for aten::empty")


@pytest.mark.parametrize("compared", [[40_960, 21], [40_960, 22]])
def test_comparison_with_every_bin_replaces_bincount(compared: list[int]) -> None:
    """Bins are repeated for each value, compared with all, and summed; another shape is another tensor."""
    trace, whole = TraceBuilder(), [40_960, 21]
    for step in range(4):
        begin = step * 1000 * US
        trace.step(step, begin, 900 * US)
        for place, (name, dims) in enumerate(
            {"aten::repeat": [[21]], "aten::eq": [[40_960, 1], whole], "aten::sum": [compared]}.items()
        ):
            at, number = begin + place * 50 * US, 10 * step + 2 * place + 1
            trace.op(name, at, 40 * US, **{"Input Dims": dims, "Input type": ["long"] * len(dims)})
            trace.launched((at + 20 * US, 5 * US), (begin + (100 + 200 * place) * US, 190 * US), number)
            if name == "aten::repeat":
                trace.op("aten::empty", at + US, 15 * US)
                trace.op("aten::fill_", at + 2 * US, 13 * US)
                trace.launched((at + 5 * US, 5 * US), (begin + 60 * US, 30 * US), number + 1)
    (one,) = found(trace, "deterministic-algorithms")
    assert one.count == 4 + 4 * (3 if compared == whole else 0)
    assert one.cost_ns == 4 * (30 + (570 if compared == whole else 0)) * US
    assert ("instead of bincount, takes 570 µs a step" in one.message) is (compared == whole)


@pytest.mark.parametrize(("rows", "lost_us"), [(1_380, [20]), (13_800, [])])
def test_sorted_additions_lose_what_additions_do_not_take(rows: int, lost_us: list[int]) -> None:
    """138 elements are added in a nanosecond: 10 us of the 15 that each of four sorts takes, or more than those."""
    trace = training(allocates="aten::zeros")
    shapes = {"Input Dims": [[100, 1_000], [], [rows], [rows, 1_000]], "Input type": ["float"] * 4}
    for event in trace.events:
        if event["name"] == "aten::index_add_":
            event["args"] |= shapes
    every = found(trace, "deterministic-algorithms")
    assert [round(one.cost_ns / US) for one in every] == lost_us
    assert all("which takes 5.00 µs a step more" in one.message for one in every)
