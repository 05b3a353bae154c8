"""How calls nest, which op the user called, and work beside its launch and its op."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.idle.generated import traces
from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.containment import depths
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.backward_nodes import backward_nodes_of, lines_of
from traceanalyzer.timeline.nesting import CalledOps, Nesting

US = 1_000


def test_work_between_other_devices_stays_on_its_device() -> None:
    trace = TraceBuilder()
    for number, device in enumerate((0, 1, 0), start=1):
        trace.kernel(number * 20 * US, US, number, device=device)
    work = Analysis(trace.load()).index(Work)
    assert [(ordinal, own.entries.tolist()) for ordinal, own in work.by_device()] == [(0, [0, 2]), (1, [1])]


def test_shares_are_of_the_gpu_time_of_the_device() -> None:
    trace = TraceBuilder()
    for number, (device, dur_us) in enumerate(((0, 1), (0, 3), (1, 5), (1, 5)), start=1):
        trace.kernel(number * 20 * US, dur_us * US, number, device=device)
    work = Analysis(trace.load()).index(Work)
    chosen = work[np.array([0, 2])]
    assert [(pieces.entries.tolist(), share) for pieces, share in chosen.device_shares()] == [([0], 0.25), ([2], 0.5)]
    assert [share for _, share in chosen.device_shares(0.5)] == [0.5]
    assert [share for _, share in chosen.device_shares(0.51)] == []


def test_line_within_the_launching_op_is_nearer() -> None:
    trace = TraceBuilder(record_shapes=1, with_stack=1)
    trace.python("net.py(3): forward", 0, 200 * US, python_id=1)
    shapes: dict[str, Any] = {"Input Dims": [[8, 4]], "Input type": ["float"]}
    trace.op("MyFunction", 10 * US, 100 * US, **shapes)
    trace.python("net.py(9): inner", 20 * US, 60 * US, python_id=2, parent=1)
    trace.launched((40 * US, US), (50 * US, US), 1)
    work = Analysis(trace.load()).index(Work)
    assert work.line.values().tolist() == ["net.py(9): inner"]
    assert work.op.line.values().tolist() == ["net.py(3): forward"]
    assert work.dims.values().tolist() == ["[[8,4]]"]


def test_unlaunched_work_has_the_outermost_op_of_its_number() -> None:
    trace = TraceBuilder()
    trace.op("aten::linear", 10 * US, 50 * US, external_id=5)
    trace.op("aten::mm", 20 * US, 30 * US, external_id=6)
    trace.kernel(70 * US, US, 1, external_id=6)
    work = Analysis(trace.load()).index(Work)
    assert work.launch.there.tolist() == [False]
    assert work.op.name.values().tolist() == ["aten::mm"]
    assert work.outer_op.name.values().tolist() == ["aten::linear"]


def test_annotation_or_missing_row_is_no_outermost_op() -> None:
    trace = TraceBuilder()
    trace.annotation("mine", 0, 50 * US)
    trace.op("aten::mm", 10 * US, 20 * US)
    trace.launch("cudaLaunchKernel", 15 * US, US, 1)
    trace.launch("cudaDeviceSynchronize", 60 * US, US, 2)
    calls = Analysis(trace.load()).index(Calls)
    assert calls.is_top_op.tolist() == [False, True, False, False]
    missing = Calls(calls.events, np.array([1, -1]))
    assert (missing.is_op.tolist(), missing.is_top_op.tolist()) == ([True, False], [True, False])


few = examples(200)


# A small range, so that spans tie, touch, cross and last no time.
spans = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=14)


@few
@given(spans)
def test_depth_and_self_time_follow_from_parents(rows: list[tuple[int, int]]) -> None:
    trace = TraceBuilder()
    for start, dur in rows:
        trace.op("aten::mm", start, dur)
    nesting = Analysis(trace.load()).index(Nesting)
    tops = nesting.top_op(np.arange(-1, len(rows)))[1:]
    for row, parent in enumerate(nesting.parent.tolist()):
        above = []
        while parent >= 0:
            above.append(parent)
            parent = int(nesting.parent[parent])
        assert depths(nesting.parent)[row] == len(above)
        children = [i for i, of in enumerate(nesting.parent.tolist()) if of == row]
        assert nesting.self_ns[row] == rows[row][1] - sum(rows[child][1] for child in children)
        assert nesting.op[row] == row
        assert tops[row] == (above[-1] if above else row)


@few
@given(traces(), st.lists(st.tuples(st.integers(0, 25_000), st.integers(0, 2_000)), min_size=1, max_size=8))
def test_around_is_the_innermost_containing_row(trace: TraceBuilder, wanted: list[tuple[int, int]]) -> None:
    nesting = Analysis(trace.load()).index(Nesting)
    starts, ends = np.array([s for s, _ in wanted]), np.array([s + d for s, d in wanted])
    assert (nesting.around(-1, starts, ends) == -1).all()
    depth = depths(nesting.parent)
    for lane in range(int(nesting.thread.max(initial=-1)) + 1):
        for found, start, end in zip(nesting.around(lane, starts, ends), starts, ends, strict=True):
            containing = [
                row
                for row in np.flatnonzero(nesting.thread == lane).tolist()
                if nesting.start_ns[row] <= start and nesting.end_ns[row] >= end
            ]
            if not containing:
                assert found == -1
            else:
                assert found in containing
                # Where rows only overlap, the one that began last is the innermost.
                assert found == max(containing, key=lambda row: (nesting.start_ns[row], depth[row]))


def test_a_row_that_only_overlaps_is_no_child() -> None:
    trace = TraceBuilder()
    trace.op("outer", 0, 100)
    crossing = trace.op("crossing", 50, 100)
    inside_both = trace.op("inside", 60, 10)
    nesting = Analysis(trace.load()).index(Nesting)
    assert nesting.parent.tolist() == [-1, -1, crossing]
    assert nesting.self_ns.tolist() == [100, 90, 10]
    assert depths(nesting.parent)[inside_both] == 1


def test_equal_rows_nest_as_annotation_op_call() -> None:
    trace = TraceBuilder()
    call = trace.launch("cudaLaunchKernel", 0, 10, 1)
    op = trace.op("aten::mm", 0, 10)
    mark = trace.annotation("mine", 0, 10)
    nesting = Analysis(trace.load()).index(Nesting)
    assert nesting.parent[[call, op, mark]].tolist() == [op, mark, -1]
    assert nesting.op[[call, op, mark]].tolist() == [op, op, -1]


def test_threads_and_overhead_rows_do_not_nest_in_one_another() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100)
    other = trace.op("aten::mm", 10, 10, tid=2)
    overhead = trace.overhead("Buffer Flush", 20, 10)
    nesting = Analysis(trace.load()).index(Nesting)
    assert nesting.parent.tolist() == [-1, -1, -1]
    assert nesting.thread[other] >= 0
    assert nesting.thread[overhead] == -1


def test_marks_that_old_exporters_wrote_as_ops_are_annotations() -> None:
    trace = TraceBuilder()
    trace.op("ProfilerStep#3", 0, 100)
    trace.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 50)
    trace.op("aten::mm", 60, 10)
    loaded = trace.load()
    assert Analysis(loaded).index(Nesting).annotation.tolist() == [True, True, False]
    assert Analysis(loaded).index(Nesting).op.tolist() == [-1, -1, 2]


def test_a_thread_is_a_tid_within_a_process() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100, pid=1, tid=10)
    trace.op("aten::add", 10, 10, pid=2, tid=10)
    trace.op("aten::mul", 20, 10, pid=1, tid=11)
    inner = trace.op("aten::view", 30, 10, pid=1, tid=10)
    nesting = Analysis(trace.load()).index(Nesting)
    assert len(set(nesting.thread.tolist())) == 3
    assert nesting.parent.tolist() == [-1, -1, -1, 0]
    assert nesting.thread[inner] == nesting.thread[0]


def test_equal_rows_nest_in_alphabetical_order() -> None:
    for names in (["aten::b", "aten::a"], ["aten::a", "aten::b"]):
        trace = TraceBuilder()
        for name in names:
            trace.op(name, 0, 10)
        nesting = Analysis(trace.load()).index(Nesting)
        assert nesting.parent[names.index("aten::b")] == names.index("aten::a")
        assert nesting.parent[names.index("aten::a")] == -1


def called(*ops: str) -> str | None:
    """Of nested ops around a call, the name of the one that was called."""
    trace = TraceBuilder()
    for depth, op in enumerate(ops):
        trace.op(op, depth * US, (100 - 2 * depth) * US)
    trace.launched((50 * US, 2 * US), (60 * US, 10 * US), 1)
    analysis = Analysis(trace.load())
    row = int(analysis.index(CalledOps).row[len(ops)])
    return str(analysis.trace.cpu["name"].iloc[row]) if row >= 0 else None


@pytest.mark.parametrize(
    ("ops", "name"),
    [
        ((), None),
        (("aten::where", "aten::nonzero_numpy", "aten::nonzero"), "aten::where"),
        (("Torch-Compiled Region: 0/1", "aten::mm"), "aten::mm"),
        (("autograd::engine::evaluate_function: MmBackward0", "MmBackward0", "aten::mm"), "aten::mm"),
        (("mylib::layer", "torch::autograd::AccumulateGrad", "aten::add_"), "aten::add_"),
        (("## Call CompiledFxGraph ##",), "## Call CompiledFxGraph ##"),
    ],
)
def test_wrappers_are_no_called_ops(ops: tuple[str, ...], name: str | None) -> None:
    assert called(*ops) == name


FORWARD, ENGINE = 1000, 2000


def test_each_forward_thread_counts_by_itself() -> None:
    """A gradient that is differentiated: the engine's thread records ops, whose numbers may be those of the other."""
    trace = TraceBuilder()
    ops = [
        ("aten::linear", FORWARD, 7, 0),
        ("aten::tanh", FORWARD, 8, 0),
        ("TanhBackward0", ENGINE, 8, 1),
        ("aten::tanh_backward", ENGINE, 8, 0),
        ("TanhBackwardBackward0", ENGINE, 8, 2),
        ("TanhBackward0", ENGINE, 8, 1),
        ("AddmmBackward0", ENGINE, 7, 1),
    ]
    for at, (name, tid, number, origin) in enumerate(ops):
        args: dict[str, Any] = {"Sequence number": number, "Fwd thread id": origin}
        trace.op(name, at * 10_000, 5_000, tid=tid, **args)
    trace.launched((1_000, 1_000), (3_000, 1_000), 1)
    calls = Analysis(trace.load()).index(Calls)
    calls = calls[calls.is_op]
    nodes, recorder = backward_nodes_of(calls, calls)
    named = zip(nodes.name.values(), (str(calls.name.values()[at]) for at in recorder), strict=True)
    assert sorted(map(tuple, named)) == [
        ("AddmmBackward0", "aten::linear"),
        ("TanhBackward0", "aten::tanh"),
        ("TanhBackward0", "aten::tanh"),
        ("TanhBackwardBackward0", "aten::tanh_backward"),
    ]


def test_work_of_backward_has_the_line_of_its_forward_op() -> None:
    """Nodes run without a frame of Python; of a number that no op has the line is not known."""
    trace = TraceBuilder()
    trace.python("net.py(21): forward", 0, 9_000, python_id=1, tid=FORWARD)
    for at, (name, number) in enumerate([("aten::conv1d", 7), ("ConvBackward0", 7), ("MulBackward0", 8)]):
        begin, tid = at * 10_000, ENGINE if at else FORWARD
        trace.op(name, begin, 5_000, tid=tid, **{"Sequence number": number})
        trace.launched((begin + 1_000, 1_000), (begin + 3_000, 1_000), tid=tid)
    work = Analysis(trace.load()).index(Work)
    line = "net.py(21): forward"
    assert list(work.line) == [line, None, None]
    assert lines_of(work).sums(work.dur_ns) == {line: 2_000}


Row = tuple[str, int, int, int, int]  # name, thread, start in us, number, thread of forward


def recorded(*rows: Row) -> dict[int, int]:
    """Start of each node -> start of the op that recorded it, in us; without those of which that is not known."""
    trace = TraceBuilder()
    for name, tid, start, number, origin in rows:
        args: dict[str, Any] = {"Sequence number": number, "Fwd thread id": origin}
        trace.op(name, start * 1_000, 500, tid=tid, **args)
    trace.op("aten::unnumbered", 990_000, 500)
    calls = Analysis(trace.load()).index(Calls)
    ops = calls[calls.is_op & ~calls.name.matches("Backward")][::-1]
    nodes, recorder = backward_nodes_of(calls, ops)
    known = recorder >= 0
    first = int(calls.start_ns.min()) - min(row[2] for row in rows) * 1_000
    starts = (nodes[known].start_ns - first) // 1_000, (ops[recorder[known]].start_ns - first) // 1_000
    return dict(zip(*(side.tolist() for side in starts), strict=True))


def test_a_node_is_of_the_last_op_with_its_number() -> None:
    """In order of time, whatever the order in the file; of a number that no op has none is known."""
    rows: list[Row] = [
        ("MmBackward0", ENGINE, 50, 5, 1),
        ("AddBackward0", ENGINE, 60, 4, 1),
        ("MulBackward0", ENGINE, 40, 8, 1),
        ("aten::mm", FORWARD, 12, 5, 0),
        ("aten::t", FORWARD, 10, 5, 0),
        ("aten::mul", FORWARD, 14, 7, 0),
        ("aten::add", FORWARD, 16, 9, 0),
    ]
    assert recorded(*rows) == {50: 12}
    assert recorded(*rows, ("aten::first", FORWARD, 8, 4, 0)) == {50: 12, 60: 8}
    assert recorded(*rows[:3]) == {}
    assert recorded(*rows[3:]) == {}


TWO: tuple[Row, ...] = (
    *[("aten::mm", 2_000, at, number, 0) for at, number in ((0, 5), (1, 6))],
    *[("aten::mm", 1_000, at, number, 0) for at, number in ((10, 5), (11, 6))],
)


def test_first_forward_thread_belongs_to_the_first_nodes() -> None:
    """Whatever they are called; a thread is of one origin only."""
    nodes: list[Row] = [("MmBackward0", 3_000, 50 + at, number, origin)
                        for at, (number, origin) in enumerate(((6, 1), (5, 1), (6, 2), (5, 2)))]  # fmt: skip
    assert recorded(*TWO, *nodes) == {50: 1, 51: 0, 52: 11, 53: 10}
    unknown: list[Row] = [("MmBackward0", 3_000, 60, 5, 0)]
    assert recorded(*TWO, *nodes, *unknown) == {50: 1, 51: 0, 52: 11, 53: 10}


def test_thread_without_numbers_is_skipped() -> None:
    more: Row = ("aten::mm", 1_000, 12, 7, 0)
    nodes: list[Row] = [("MmBackward0", 3_000, 50 + at, 5 + at, 1) for at in range(3)]
    assert recorded(*TWO, more, *nodes) == {50: 10, 51: 11, 52: 12}
    assert recorded(*TWO, *nodes) == {}
    later: list[Row] = [("aten::mm", 4_000, at, number, 0) for at, number in ((-9, 99), (80, 5), (81, 6), (82, 7))]
    shifted = [(name, tid, at + 10, number, origin) for name, tid, at, number, origin in (*TWO, more, *nodes, *later)]
    assert recorded(*shifted) == {60: 20, 61: 21, 62: 22}
