"""What is said of repeats of a step in several steps: whose each is, and what of them goes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.rules.launches import GEMM, US
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, IdleTime, Work
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rules.gpu_idle.repeated_calls.network_calls import (
    Evaluations,
    Passes,
    evaluation_hits,
    passes_hits,
)
from traceanalyzer.rules.gpu_idle.repeated_calls.time_steps import LoopInputs, inputs_hits, recurrent_hits

OP, EVERY = 10 * US, 20 * US


def built(lines: tuple[str, ...] = ()) -> Analysis:
    """Two steps of ten ops of 10 us, one each 20 us, with a kernel of 2 us 9 us after the op; a line for each step."""
    trace = TraceBuilder()
    for number in range(20):
        at = number * EVERY
        trace.op(f"aten::op{number % 10}", at, OP)
        trace.launch("cudaLaunchKernel", at + 4 * US, 4 * US, number + 1)
        trace.kernel(at + 9 * US, 2 * US, number + 1, name=GEMM, grid=(1, 1, 1))
    for step in range(2):
        trace.step(step, 10 * step * EVERY, 10 * EVERY)
        if lines:
            trace.python(lines[step], 10 * step * EVERY, 10 * EVERY, python_id=step + 1)
    return Analysis(trace.load())


def ops_of(analysis: Analysis, *numbers: int) -> Calls:
    """The ops with these numbers, in time."""
    calls = analysis.index(Calls)
    tops = calls[calls.is_top_op]
    tops = tops[np.argsort(tops.start_ns)]
    return tops[np.array(numbers, np.int64)]


def evaluated(analysis: Analysis, begin: int, passes: int) -> Evaluations:
    """So many evaluations of two ops from the one with this number on; a node of each but the first comes last."""
    at = ops_of(analysis, *range(begin, begin + 2 * passes, 2))
    nodes = ops_of(analysis, *range(begin + 2 * passes, begin + 3 * passes - 1))
    owner = np.arange(passes - 1, 0, -1)
    names = ("aten::linear", "aten::tanh")
    return Evaluations(at, at.end_ns + EVERY, names, nodes, owner, (2_000, 3))


def spans(hits: Hits) -> list[tuple[int, int]]:
    fix: Any = hits.fix
    return [(start // US, end // US) for start, end in zip(fix.starts_ns, fix.ends_ns, strict=True)]


def test_the_first_evaluation_of_each_step_stays() -> None:
    """Three in the first step and two in the second, of 30 us each from one op to the end of the next."""
    analysis = built()
    found = [evaluated(analysis, 0, 3), evaluated(analysis, 10, 2)]
    hits = evaluation_hits(found, analysis.index(Work), analysis.index(IdleTime))
    assert (hits.occurrences.start_ns // US).tolist() == [40, 80, 240]
    assert spans(hits) == [(40, 70), (80, 110), (240, 270), (120, 130), (140, 150), (280, 290)]
    assert hits.evidence is not None
    told = {name: hits.evidence[name] for name in ("members", "passes", "given", "nodes", "lines")}
    assert told == {"members": 2, "passes": 3, "given": "2000x3", "nodes": 1, "lines": {}}
    assert "at {lines}" not in hits.message
    # Kernels of 2 us, gaps of 18 us before them, of which what is before an evaluation is not its own. The node at
    # 120 us is of the third evaluation, that at 140 us of the second, and that at 280 us of the last.
    assert lost_us(hits) == [2 * 3 + 9 + 2 * 18, 2 * 3 + 3 * 18, 2 * 3 + 9 + 2 * 18]


def lost_us(hits: Hits) -> list[int]:
    """By occurrence."""
    assert hits.lost is not None
    took = np.bincount(hits.lost.owner, hits.lost.end_ns - hits.lost.start_ns, len(hits.occurrences))
    return [round(ns / US) for ns in took]


def test_evaluations_are_told_with_the_line_that_takes_longest() -> None:
    """Two evaluations more of 30 us in the first step, one in the second."""
    analysis = built(("a.py(1): first", "b.py(2): second"))
    found = [evaluated(analysis, 0, 3), evaluated(analysis, 10, 2)]
    hits = evaluation_hits(found, analysis.index(Work), analysis.index(IdleTime))
    assert hits.evidence is not None
    assert hits.evidence["lines"] == {"a.py(1): first": 60 * US, "b.py(2): second": 30 * US}
    assert hits.message.endswith(", at {lines}")


def passed(analysis: Analysis, begin: int, passes: int) -> Passes:
    """So many passes of two ops from the one with this number on."""
    at, ops = ops_of(analysis, *range(begin, begin + 2 * passes, 2)), range(begin, begin + 2 * passes)
    names = ("aten::linear", "aten::tanh")
    return Passes(at, ops_of(analysis, *ops), at.end_ns + EVERY, names, 43 + begin, "aten::sub")


def test_each_step_s_passes_become_one() -> None:
    """Three in the first step and two in the second."""
    analysis = built(("a.py(1): first", "b.py(2): second"))
    found = [passed(analysis, 0, 3), passed(analysis, 11, 2)]
    views = analysis.index(Work), analysis.index(IdleTime), analysis.index(Gpus)
    hits = passes_hits(found, *views, 2 * US)
    assert (hits.occurrences.start_ns // US).tolist() == [0, 40, 80, 220, 260]
    fix: Any = hits.fix
    assert (fix[1].starts_ns // US).tolist() == [0, 40, 80, 220, 260]
    assert (fix[1].ends_ns // US).tolist() == [30, 70, 110, 250, 290]
    assert fix[1].group.tolist() == [0, 0, 0, 1, 1]
    assert len(fix[0].work) == 2 * 5
    assert hits.evidence is not None
    assert {name: hits.evidence[name] for name in ("members", "passes", "launches", "taker", "lines")} == {
        "members": 2,
        "passes": 3,
        "launches": 43,
        "taker": "aten::sub",
        "lines": {"a.py(1): first": 6 * OP, "b.py(2): second": 4 * OP},
    }
    assert hits.message.startswith("the same {members} ops run {passes} times in a row")
    assert lost_us(hits) == [2 * 18 - 9, 2 * 18, 2 * 18, 18 + 9, 2 * 18]
    twice = passes_hits(found[1:], *views, 2 * US)
    assert twice.message.startswith("the same {members} ops run twice in a row")


def taken(analysis: Analysis, begin: int, chains: int) -> LoopInputs:
    """So many chains of two ops from the one with this number on, and one op of backward for each, the last first."""
    at = ops_of(analysis, *range(begin, begin + 2 * chains, 2))
    back = ops_of(analysis, *range(begin + 2 * chains, begin + 3 * chains))
    ends, group = np.append(at.end_ns + EVERY, back.end_ns), np.repeat((0, 1), chains)
    names = ("aten::conv2d", "aten::silu")
    return LoopInputs(at.joined([at, back]), ends, group, chains, names, (10, 16, 3), (16, 3))


def test_chains_of_each_step_and_their_backward_become_one_each() -> None:
    """Two chains in the first step and three in the second."""
    analysis = built()
    found = [taken(analysis, 0, 2), taken(analysis, 10, 3)]
    views = analysis.index(Work), analysis.index(IdleTime), analysis.index(Gpus)
    hits = inputs_hits(found, *views, 2 * US)
    starts = [0, 40, 80, 100, 200, 240, 280, 320, 340, 360]
    assert (hits.occurrences.start_ns // US).tolist() == starts
    fix: Any = hits.fix
    assert (fix[1].starts_ns // US).tolist() == starts
    assert (fix[1].ends_ns // US).tolist() == [30, 70, 90, 110, 230, 270, 310, 330, 350, 370]
    assert fix[1].group.tolist() == [0, 0, 1, 1, 2, 2, 2, 3, 3, 3]
    assert hits.named_by == "aten::conv2d + 1 op"
    assert hits.evidence == {
        "ops": "aten::conv2d, aten::silu",
        "members": 2,
        "repeats": 2,
        "part": "16x3",
        "whole": "10x16x3",
        "lines": {},
    }
    assert "at {lines}" not in hits.message
    with_lines = built(("a.py(1): first", "b.py(2): second"))
    told = inputs_hits([taken(with_lines, 0, 2), taken(with_lines, 10, 3)], *views, 2 * US)
    assert told.named_by == "b.py(2): second"
    assert told.evidence is not None
    assert told.evidence["lines"] == {"b.py(2): second": 6 * OP, "a.py(1): first": 4 * OP}


def stepping(analysis: Analysis, begin: int, count: int, names: tuple[str, ...]) -> Any:
    """A loop of so many repeats of two ops, of two launches each."""
    at = ops_of(analysis, *range(begin, begin + 2 * count, 2))
    ends = at.end_ns + EVERY
    return SimpleNamespace(at=at, ends_ns=ends, count=count, launches=2 * count + 1, names=names)


def recorded(analysis: Analysis, numbers: list[int], repeat: list[int], place: list[int]) -> Any:
    """Nodes that the repeats of a loop recorded."""
    return SimpleNamespace(
        nodes=ops_of(analysis, *numbers), repeat=np.array(repeat, np.int64), place=np.array(place, np.int64)
    )


def test_time_steps_and_their_backward_become_one_each() -> None:
    """Two time steps in the first step, with two nodes each, and three in the second, of which one has a node."""
    analysis = built()
    names = ("aten::select", "aten::lstm_cell", "aten::linear")
    loops = [stepping(analysis, 0, 2, names), stepping(analysis, 10, 3, names)]
    nodes = [recorded(analysis, [4, 5, 6, 7], [1, 1, 0, 0], [0, 1, 0, 1]), recorded(analysis, [16], [2], [0])]
    views = analysis.index(Work), analysis.index(IdleTime), analysis.index(Gpus)
    hits = recurrent_hits(loops, nodes, "aten::lstm_cell", *views, 2 * US)
    fix: Any = hits.fix
    assert (fix[1].starts_ns // US).tolist() == [0, 40, 200, 240, 280, 80, 100, 120, 140, 320]
    assert fix[1].group.tolist() == [0, 0, 1, 1, 1, 2, 3, 2, 3, 4]
    # The nodes at 80 and 100 us are of the second time step, those at 120 and 140 us of the first.
    assert lost_us(hits) == [18 + 9 + 36, 36 + 36, 9 + 18, 36, 36 + 18]
    assert hits.named_by == "aten::lstm_cell"
    assert hits.advice.startswith("Use nn.LSTM or nn.GRU with the weights of the cell once")
    assert "and then what follows (head, loss) once" in hits.advice
    assert hits.evidence == {
        "layer": "aten::lstm_cell",
        "repeats": 3,
        "launches": 2.3,
        "nodes": 1.0,
        "follows": "aten::linear",
        "lines": {},
    }


def test_a_layer_that_nothing_follows_is_called_once() -> None:
    """With the line of the time steps, not of their backward."""
    analysis = built(("a.py(1): first", "b.py(2): second"))
    loops = [stepping(analysis, 0, 3, ("aten::select", "aten::lstm"))]
    nodes = [recorded(analysis, [], [], [])]
    views = analysis.index(Work), analysis.index(IdleTime), analysis.index(Gpus)
    hits = recurrent_hits(loops, nodes, "aten::lstm", *views, 2 * US)
    assert hits.advice.startswith("Call the layer once on the whole sequence")
    assert "what follows" not in hits.advice
    assert "{follows}" not in hits.message
    assert hits.named_by == "a.py(1): first"
    assert hits.evidence is not None
    assert hits.evidence["lines"] == {"a.py(1): first": 3 * 30 * US}
