"""Rows of views: what is missing, around them, and how they are grouped and chosen."""

from pathlib import Path

import numpy as np
import pytest

from tests.rules.loops import Loop, loop_of
from tests.support.built_findings import traced
from tests.support.cached_reports import analysed
from tests.support.fixtures import TRACES, name_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.texts import Texts
from traceanalyzer.report.diagnosis import restricted
from traceanalyzer.rule import IdleTime, LostTime
from traceanalyzer.rule.cpu_gaps import CpuGaps, HostTime
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.selection import bounds_of, lanes_of, positions, repeats
from traceanalyzer.timeline.steps import Steps

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


def test_ties_sort_by_name_nulls_last(nested: Analysis) -> None:
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


def pauses(loop: Loop, number: int) -> None:
    loop.pause(50_000 * number)


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return Analysis(loop_of(pauses))


@pytest.mark.parametrize("view", [Calls, Work, IdleTime])
def test_a_mask_of_another_length_is_refused(analysis: Analysis, view: type) -> None:
    rows = analysis.index(view)
    for length in (len(rows) - 1, len(rows) + 1, 1):
        with pytest.raises(IndexError, match=rf"a mask of {length:,} rows cannot choose of {len(rows):,}"):
            rows[np.ones(length, bool)]
    assert len(rows[np.ones(len(rows), bool)]) == len(rows)


def test_rows_are_chosen_as_of_an_array(analysis: Analysis) -> None:
    work = analysis.index(Work)
    starts = work.start_ns.tolist()
    assert work[1].start_ns.tolist() == starts[1:2]
    assert work[-1].start_ns.tolist() == starts[-1:]
    assert work[0:2].start_ns.tolist() == starts[:2]
    assert work[[1, 0]].start_ns.tolist() == [starts[1], starts[0]]
    assert len(work[[]]) == 0
    with pytest.raises(IndexError, match="positions from 99 to 99 cannot choose of"):
        work[99]


def test_kinds_of_work_that_there_are_not_are_refused() -> None:
    work = traced((1_000, 5_000)).index(Work)
    assert len(work.of_kind("compute", "memset")) == len(work)
    with pytest.raises(ValueError, match="none is called copy_dtoh; there are compute, communication, copy_h2d"):
        work.of_kind("copy_dtoh", "compute")
    with pytest.raises(ValueError, match="none is called kernel; there are compute"):
        work.kind.one_of("kernel")


def test_texts_of_none_are_refused() -> None:
    """-1 is no position from the end."""
    name = traced((1_000, 5_000)).index(Work).name
    assert name[-1] == name[0]
    assert len(name[np.array([0, 0])]) == 2
    with pytest.raises(IndexError, match="texts at positions below 0: -1 stands for none, leave it out"):
        name[np.array([0, -1])]


def test_negative_positions_are_refused() -> None:
    work = traced((1_000, 5_000)).index(Work)
    with pytest.raises(IndexError, match=r"from -1 to 0 cannot choose.*-1 stands for none, leave it out"):
        work[np.array([0, -1])]


def test_views_of_another_trace_raise(analysis: Analysis) -> None:
    calls, foreign = analysis.index(Calls), traced((1_000, 5_000)).index(Calls)
    for combine in (
        lambda: calls.inside(foreign),
        lambda: calls.index_of_enclosing(foreign),
        lambda: calls.joined([foreign]),
        lambda: LostTime.launched_by(analysis.index(IdleTime), foreign),
    ):
        with pytest.raises(ValueError, match="of another trace, or of another window"):
            combine()


LEAST_NS = 20_000


@pytest.mark.parametrize("path", TRACES, ids=name_of)
def test_stretches_lie_in_the_steps_apart_and_hold_no_op(path: Path) -> None:
    analysis = analysed(path)
    try:
        steps, gaps, host = (analysis.index(one) for one in (Steps, CpuGaps, HostTime))
    except Unavailable:
        return
    nesting, rows = analysis.index(Nesting), analysis.index(Activity).rows["dispatching"]
    for found in (gaps, host):
        assert (found.end_ns - found.start_ns >= LEAST_NS).all()
        assert (found.start_ns[1:] >= found.end_ns[:-1]).all()
        assert (found.start_ns >= max(steps.cpu_start_ns[0], steps.window_start_ns)).all()
        assert (found.end_ns <= min(steps.cpu_end_ns[-1], steps.window_end_ns)).all()
        assert (nesting.end_ns[found.before] <= found.start_ns).all()
        assert (nesting.start_ns[found.after] >= found.end_ns).all()
    for start, end in zip(gaps.start_ns, gaps.end_ns, strict=True):
        assert not ((nesting.start_ns[rows] < end) & (nesting.end_ns[rows] > start)).any()


@pytest.mark.parametrize(("ops", "stretches"), [(1, 0), (2, 1), (3, 2)])
def test_between_two_ops_is_one_stretch(ops: int, stretches: int) -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 1_000_000)
    for number in range(ops):
        trace.op("aten::mm", 100_000 * number, 10_000)
        trace.launched((100_000 * number + 1_000, 5_000), (100_000 * number + 8_000, 1_000), number + 1)
    gaps = Analysis(trace.load()).index(CpuGaps)
    assert (gaps.end_ns - gaps.start_ns).tolist() == [90_000] * stretches


def test_stretches_of_20_us_count_and_queries_are_host_time() -> None:
    """From 10 to 30 us and from 40 to 59.999 us; then from 70 to 90 us with an op in which an event is queried."""
    trace = TraceBuilder()
    trace.step(0, 0, 1_000_000)
    for number, start in enumerate((0, 30_000, 59_999, 90_000)):
        trace.op("aten::mm", start, 10_000)
        trace.launched((start + 1_000, 5_000), (start + 8_000, 1_000), number + 1)
    trace.op("c10d::test", 75_000, 10_000)
    trace.launch("cudaStreamIsCapturing", 76_000, 2_000, 99)
    analysis = Analysis(trace.load())
    origin = analysis.index(Steps).cpu_start_ns[0]
    gaps, host = ((one.start_ns - origin, one.end_ns - origin) for one in map(analysis.index, (CpuGaps, HostTime)))
    assert [side.tolist() for side in gaps] == [[10_000], [30_000]]
    assert [side.tolist() for side in host] == [[10_000, 69_999], [30_000, 90_000]]


@pytest.mark.parametrize(("until_ns", "length_ns"), [(None, 390_000), (150_000, 140_000)])
def test_stretches_end_with_the_requested_window(until_ns: int | None, length_ns: int) -> None:
    """Two ops at 0 and 0.4 ms of one step, of which a part may be asked for that ends between them."""
    trace = TraceBuilder()
    trace.step(0, 0, 1_000_000)
    for number in range(2):
        trace.op("aten::mm", 400_000 * number, 10_000)
        trace.launched((400_000 * number + 1_000, 5_000), (400_000 * number + 8_000, 1_000), number + 1)
    analysis = restricted(trace.load(), None if until_ns is None else (0, until_ns))
    for gaps in map(analysis.index, (CpuGaps, HostTime)):
        assert (gaps.end_ns - gaps.start_ns).tolist() == [length_ns]
