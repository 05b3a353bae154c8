"""Top-level ops in order, and the error where no shapes were recorded."""

from typing import Any

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.tensors.top_ops import require_shapes, top_ops, without_views
from traceanalyzer.timeline.calls_and_work import Calls

US = 1_000


def calls_of(*, shapes: bool = True) -> Calls:
    """Two steps; in the first mm with a nested op on thread 1, a view and an add on thread 2; before them an exp."""
    trace = TraceBuilder()
    known: dict[str, Any] = {"Input Dims": [[4, 4], [4, 4]]} if shapes else {}
    trace.op("aten::exp", 0, US, tid=1, **known)
    trace.step(0, 10 * US, 20 * US)
    trace.op("aten::add", 12 * US, US, tid=2, **known)
    trace.op("aten::view", 11 * US, US, tid=2, **known)
    trace.op("aten::mm", 14 * US, 4 * US, tid=1, **known)
    trace.op("aten::copy_", 15 * US, US, tid=1, **known)
    trace.step(1, 30 * US, 20 * US)
    trace.op("aten::mm", 31 * US, US, tid=1, **known)
    return Analysis(trace.load()).index(Calls)


def names(ops: Calls) -> list[str]:
    return [str(name).removeprefix("aten::") for name in ops.name.values()]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["mm", "mm", "view", "add"]),
        ({"views": False}, ["mm", "mm", "add"]),
        ({"in_steps": False}, ["exp", "mm", "mm", "view", "add"]),
    ],
)
def test_top_ops_are_sorted_by_thread_and_start(options: dict[str, bool], expected: list[str]) -> None:
    ops, number, signatures = top_ops(calls_of(), "shows sizes", **options)
    assert names(ops) == expected
    assert [signatures[which].name.removeprefix("aten::") for which in number.tolist()] == expected


def test_equal_inputs_share_a_signature() -> None:
    _, number, signatures = top_ops(calls_of(), "shows sizes", views=False)
    assert (len(signatures), number[0]) == (2, number[1])


def test_views_are_left_out() -> None:
    calls = calls_of()
    assert "view" not in names(without_views(calls[calls.is_top_op]))


def test_missing_shapes_are_an_error_that_says_what_they_show() -> None:
    with pytest.raises(Unavailable, match="no shapes recorded: record_shapes=True shows sizes"):
        top_ops(calls_of(shapes=False), "shows sizes")
    with pytest.raises(Unavailable):
        require_shapes([], "shows sizes")
