"""Rows of views: what is missing, what is around them, what they are grouped and chosen by."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.texts import Texts
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.selection import bounds_of, lanes_of, meant, positions, repeats

US = 1_000


@pytest.fixture(scope="module")
def nested() -> Analysis:
    """A step with an annotation, an op in an op, and two kernels; another thread; a kernel without a launch."""
    trace = TraceBuilder(record_shapes=1)
    trace.step(0, 0, 100 * US)
    trace.annotation("mine", 1 * US, 50 * US)
    trace.op("aten::linear", 2 * US, 40 * US, **{"Input Dims": [[8, 4]], "Call stack": "net.py(3): forward"})
    trace.op("aten::mm", 3 * US, 30 * US, **{"Call stack": "lib.py(9): mm"})
    trace.launch("cudaLaunchKernel", 4 * US, US, 1)
    trace.launch("cudaMemcpyAsync", 10 * US, US, 2)
    trace.op("aten::add", 60 * US, 5 * US)
    trace.op("aten::add", 70 * US, 5 * US, tid=17)
    trace.kernel(6 * US, 10 * US, 1, grid=(2, 3, 4), block=(32, 2, 1))
    trace.memcpy(20 * US, 10 * US, 2, size=4096)
    trace.kernel(40 * US, 5 * US, 3, device=1)
    return Analysis(trace.load())


def test_rows_that_are_missing_are_in_nothing_and_hold_nothing(nested: Analysis) -> None:
    calls = nested.index(Calls)
    some = Calls(calls.events, np.array([3, -1, 2, 3]))
    assert some.there.tolist() == [True, False, True, True]
    assert some.name.values().tolist() == ["aten::mm", None, "aten::linear", "aten::mm"]
    assert some.step.tolist() == [0, -1, 0, 0]
    assert (some.is_op.tolist(), some.is_call.tolist()) == ([True, False, True, True], [False] * 4)
    assert some.distinct().rows.tolist() == [2, 3]
    assert some.repeated() == 1
    launch = calls[calls.name.one_of("cudaLaunchKernel")]
    assert launch.index_of_enclosing(Calls(calls.events, np.array([-1, -1, 2]))).tolist() == [2]
    assert launch.index_of_enclosing(Calls(calls.events, np.array([-1]))).tolist() == [-1]
    assert some.index_of_enclosing(launch).tolist() == [-1] * 4


def test_what_is_around_a_call_is_the_innermost_of_its_kind(nested: Analysis) -> None:
    """The step's mark is no annotation of the user's."""
    calls = nested.index(Calls)
    launch = calls[calls.name.one_of("cudaLaunchKernel")]
    assert [str(one.name[0]) for one in (launch.op, launch.outer_op, launch.parent)] == [
        "aten::mm",
        "aten::linear",
        "aten::mm",
    ]
    assert calls.annotation.values().tolist() == [None, *["mine"] * 5, None, None]
    assert calls.is_annotation.tolist() == [True, True, *[False] * 6]
    assert calls.is_top_op.tolist() == [False, False, True, False, False, False, True, True]
    assert calls.is_op.tolist() == [False, False, True, True, False, False, True, True]
    assert calls.is_call.tolist() == [False] * 4 + [True, True, False, False]
    ops = calls[calls.is_op]
    assert ops.outermost().rows.tolist() == [2, 6, 7]
    assert ops[:1].contents().rows.tolist() == [2, 3, 4, 5]
    work, owner = ops.launched()
    assert (work.name.code.size, owner.tolist()) == (2, [1, 1])
    assert ops[:1].launched()[1].tolist() == [0, 0]
    assert calls.thread.tolist() == [1000] * 7 + [17]
    assert (ops.self_ns // US).tolist() == [10, 28, 5, 5]
    assert ops[:1].joined([ops[2:], ops[:1]]).rows.tolist() == [6, 7, 2]


def test_work_has_what_its_row_its_launch_and_its_op_say(nested: Analysis) -> None:
    work = nested.index(Work)
    assert work.bytes.tolist() == [0, 4096, 0]
    assert work.blocks.tolist() == [24, 0, 132]
    assert work.threads.tolist() == [64, 0, 256]
    assert work.kind.values().tolist() == ["compute", "copy_d2d", "compute"]
    assert work.op.name.values().tolist() == ["aten::mm", "aten::mm", None]
    assert work.outer_op.name.values().tolist() == ["aten::linear", "aten::linear", None]
    assert work.launch.name.values().tolist() == ["cudaLaunchKernel", "cudaMemcpyAsync", None]
    assert work.step.tolist()[:2] == [0, 0]
    assert (work.delay_ns[:2] // US).tolist() == [2, 10]
    assert work.op.text("input_dims").values().tolist() == [None, None, None]
    assert [(ordinal, len(own)) for ordinal, own in work.by_device()] == [(0, 2), (1, 1)]
    assert [(ordinal, len(own)) for ordinal, own in work[2:].by_device()] == [(1, 1)]
    assert list(work[:0].by_device()) == []


def test_trace_spans_first_to_last_event_of_both_lanes(nested: Analysis) -> None:
    """Two threads, and a stream of each of two devices, of one number; a kernel that ends last of all."""
    events = nested.index(Work).events
    first, last = bounds_of(events)
    assert (last - first, lanes_of(events)) == (100 * US, 4)
    trace = TraceBuilder()
    trace.op("aten::mm", 50 * US, US)
    trace.kernel(10 * US, 70 * US, 1)
    first, last = bounds_of(Analysis(trace.load()).index(Work).events)
    assert last - first == 70 * US
    trace = TraceBuilder()
    trace.op("aten::mm", 50 * US, US)
    events = Analysis(trace.load()).index(Calls).events
    assert (bounds_of(events)[1] - bounds_of(events)[0], lanes_of(events)) == (US, 1)


def test_ties_sort_by_name_nulls_last(
    nested: Analysis,
) -> None:
    work = nested.index(Work)[np.array([0, 1, 1])]
    key = Texts(np.array([1, 0, -1]), np.array(["a", "b"], object))
    assert [(name, own.total_ns // US) for name, own in work.by(key)] == [("a", 10), ("b", 10), (None, 10)]
    masked = [(name, len(own)) for name, own in work.by(np.array([True, False, True]))]
    assert masked == [(1, 2), (0, 1)]
    pairs = [name for name, _ in work.by(key, np.array([5, 5, 5]))]
    assert pairs == [("a", 5), ("b", 5), (None, 5)]
    assert list(work[:0].by(key[np.array([], np.int64)])) == []


def test_rows_are_chosen_by_positions_that_there_are() -> None:
    assert positions(np.array([0, 2]), 3).tolist() == [0, 2]
    assert [positions(one, 3).tolist() for one in (-1, -3, 2)] == [[-1], [-3], [2]]
    assert positions(slice(1, None), 3).tolist() == [1, 2]
    assert positions(np.array([True, False, True]), 3).tolist() == [0, 2]
    for wrong, hint in ((np.array([3]), False), (3, False), (-4, False), (np.array([-1, 1]), True)):
        with pytest.raises(IndexError, match="cannot choose of 3 rows") as error:
            positions(wrong, 3)
        assert ("-1 stands for none" in str(error.value)) is hint
    with pytest.raises(IndexError, match=r"from -2 to 0 cannot choose of 3 rows$"):
        positions(np.array([-2, 0]), 3)


def test_names_that_may_be_meant_are_public() -> None:
    assert meant("dur", ["_dur", "dur_ns"]) == "; did you mean dur_ns?"
    assert meant("dur_n", ["_dur_ns"]) == ""


@pytest.mark.parametrize(
    ("rows", "there_already"), [([1, 2, 5], 0), ([1, 1, 2], 1), ([2, 1, 2, 2], 2), ([5, 2, 1], 0), ([], 0)]
)
def test_rows_are_repeated_where_they_are_there_already(rows: list[int], there_already: int) -> None:
    assert repeats(np.array(rows, np.int64)) == there_already


def test_streams_of_one_number_are_others_on_each_device() -> None:
    """Beside the first on its device runs the third, beside the second nothing; in order each device comes alone."""
    trace = TraceBuilder()
    places = ((0, 10, 0, 7), (1, 10, 1, 7), (2, 4, 0, 9), (20, 10, 0, 7), (30, 10, 1, 7))
    for number, (start, dur, device, stream) in enumerate(places, start=1):
        trace.kernel(start * US, dur * US, number, device=device, stream=stream)
    work = Analysis(trace.load()).index(Work)
    assert (work.beside_ns() // US).tolist() == [4, 0, 4, 0, 0]
    same = work[work.stream == 7]
    assert (same.in_order().start_ns // US).tolist() == [0, 20, 1, 30]
    assert (same[::-1].in_order().start_ns // US).tolist() == [0, 20, 1, 30]


def test_a_total_counts_each_row_once(nested: Analysis) -> None:
    """Two kernels of 10 us and one of 5; both have the op around them, of 40 us, or none."""
    work = nested.index(Work)
    assert work.total_ns == 25 * US
    assert work[[0, 1, 1, 0]].total_ns == work[[1, 0]].total_ns == 20 * US
    assert work.outer_op.there.tolist() == [True, True, False]
    assert work.outer_op.total_ns == 40 * US
    assert work[:0].total_ns == work[2:].outer_op.total_ns == 0
