"""What else gets shorter when edits drop nodes of autograd's graph, or tensors of an optimizer."""

from __future__ import annotations

import numpy as np
import pytest

from tests.replay.programs import Loop, program
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.edits import Drop, ShrinkSpans

NODE = "autograd::engine::evaluate_function: MulBackward0"
NODES, PAUSE_NS = 20, 60_000


def training(pause_ns: int = PAUSE_NS) -> Loop:
    """Steps of a loss, a pause, nodes with 2 us between them, and a pause of the same length."""
    loop = Loop(step_ns=150_000 + 22_000 * NODES + 2 * pause_ns)
    loop.op("aten::ones_like", 10_000, 1_000)
    for at in range(NODES):
        loop.op(NODE, 30_000 + pause_ns + at * 22_000, 1_000)
    loop.op("aten::add_", 28_000 + 2 * pause_ns + NODES * 22_000, 1_000)
    return loop


@pytest.mark.parametrize(
    ("pause_ns", "before_ns", "after_ns"), [(PAUSE_NS, 5_000, 10_000), (7_000, 2_500, 2_500)]
)
def test_autograd_counts_and_frees_fewer_nodes(pause_ns: int, before_ns: int, after_ns: int) -> None:
    """The gaps before the first node and after the last shrink with the graph, by the share of its nodes at most."""
    trace = training(pause_ns).load()
    built = program(trace)
    edited = EditedProgram(built)
    mine = np.flatnonzero((trace.cpu["name"] == NODE).to_numpy())
    number = np.argsort(np.argsort(trace.cpu["start_ns"].to_numpy()[mine])) % NODES
    Drop(mine[(number >= 5) & (number < 15)]).apply(edited)
    start, segments = built.timeline.start_ns, built.segments
    pauses = segments.gap & (built.timeline.end_ns - start == pause_ns)
    cut = (segments.cpu_ns - edited.cpu_ns)[pauses]
    assert cut.reshape(-1, 2).tolist() == [[before_ns, after_ns]] * 3


def test_python_and_ops_of_a_span_shrink_and_launches_stay() -> None:
    built = program(training().load())
    edited = EditedProgram(built)
    bounds = built.timeline.start_ns[:1], built.timeline.end_ns[-1:]
    ShrinkSpans(*bounds, 0.25).apply(edited)
    call = built.segments.call >= 0
    assert np.array_equal(edited.cpu_ns[call], built.segments.cpu_ns[call])
    assert np.array_equal(edited.cpu_ns[~call], 0.25 * built.segments.cpu_ns[~call])
