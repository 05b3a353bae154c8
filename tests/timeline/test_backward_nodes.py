"""Which op recorded a node of backward, where several threads record."""

from __future__ import annotations

from typing import Any

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Analysis
from traceanalyzer.rule.views import Calls
from traceanalyzer.timeline.backward_nodes import backward_nodes_of

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
    later: list[Row] = [
        ("aten::mm", 4_000, at, number, 0) for at, number in ((-9, 99), (80, 5), (81, 6), (82, 7))
    ]
    shifted = [
        (name, tid, at + 10, number, origin) for name, tid, at, number, origin in (*TWO, more, *nodes, *later)
    ]
    assert recorded(*shifted) == {60: 20, 61: 21, 62: 22}
