"""How calls nest, and which op the user called, below compilers and autograd."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.idle.generated import traces
from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.containment import depths
from traceanalyzer.timeline.nesting import CalledOps, Nesting

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
def test_around_is_the_innermost_row_that_contains(
    trace: TraceBuilder, wanted: list[tuple[int, int]]
) -> None:
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


US = 1_000


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
