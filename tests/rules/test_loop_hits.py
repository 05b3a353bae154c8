"""Messages, confidence and savings of repeated-calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.rules.launches import GEMM, POINTWISE, US, loop, of_rule, steps_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Confidence
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, IdleTime, Work
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rules.gpu_idle.repeated_calls import Judge
from traceanalyzer.rules.gpu_idle.repeated_calls.loop_hits import (
    Batching,
    launched_text,
    list_ops,
    loop_advice,
    short_name,
    sums_up_list,
)
from traceanalyzer.rules.gpu_idle.repeated_calls.network_calls import (
    Evaluations,
    Passes,
    evaluation_hits,
    passes_hits,
)
from traceanalyzer.rules.gpu_idle.repeated_calls.time_steps import LoopInputs, inputs_hits, recurrent_hits

OP, EVERY = 10 * US, 20 * US
LIMITS: Any = SimpleNamespace(min_repeats=16, max_layer_ops=12, max_loop_launches=16)
NONE: Any = SimpleNamespace(start_ns=np.empty(0, np.int64))
LOW, MEDIUM = Confidence.LOW, Confidence.MEDIUM


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


def batching(analysis: Analysis) -> Batching:
    """The index views, with kernels of at least 2 us."""
    views = analysis.index(Work), analysis.index(IdleTime), analysis.index(Gpus)
    return Batching(*views, 2 * US)


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
    hits = evaluation_hits(found, batching(analysis))
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
    hits = evaluation_hits(found, batching(analysis))
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
    hits = passes_hits(found, batching(analysis))
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
    twice = passes_hits(found[1:], batching(analysis))
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
    hits = inputs_hits(found, batching(analysis))
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
    told = inputs_hits([taken(with_lines, 0, 2), taken(with_lines, 10, 3)], batching(analysis))
    assert told.named_by == "b.py(2): second"
    assert told.evidence is not None
    assert told.evidence["lines"] == {"b.py(2): second": 6 * OP, "a.py(1): first": 4 * OP}


def stepping(analysis: Analysis, begin: int, count: int, names: tuple[str, ...]) -> Any:
    """A loop of so many repeats of two ops, of two launches each."""
    at = ops_of(analysis, *range(begin, begin + 2 * count, 2))
    ends = at.end_ns + EVERY
    return SimpleNamespace(first_ops=at, ends_ns=ends, count=count, launches=2 * count + 1, names=names)


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
    hits = recurrent_hits(loops, nodes, "aten::lstm_cell", batching(analysis))
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
    hits = recurrent_hits(loops, nodes, "aten::lstm", batching(analysis))
    assert hits.advice.startswith("Call the layer once on the whole sequence")
    assert "what follows" not in hits.advice
    assert "{follows}" not in hits.message
    assert hits.named_by == "a.py(1): first"
    assert hits.evidence is not None
    assert hits.evidence["lines"] == {"a.py(1): first": 3 * 30 * US}


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("a",), "a"),
        (("a", "a"), "a (twice)"),
        (("a", "a", "a"), "a (3 times)"),
        (("a", "b", "c", "d"), "a, b, c, d"),
        (("a", "b", "c", "d", "e"), "a, b, c, d and 1 other op"),
        (("a", "b", "c", "d", "e", "f"), "a, b, c, d and 2 other ops"),
    ],
)
def test_four_ops_are_listed_and_the_others_counted(names: tuple[str, ...], words: str) -> None:
    assert list_ops(names) == words


@pytest.mark.parametrize(
    ("names", "words"),
    [(("a",), "a"), (("a", "a"), "a"), (("a", "b", "a"), "a + 1 op"), (("a", "b", "c"), "a + 2 ops")],
)
def test_a_loop_without_a_line_is_named_by_its_first_op(names: tuple[str, ...], words: str) -> None:
    assert short_name(names) == words


@pytest.mark.parametrize(
    ("kernels", "copies", "words"),
    [
        (1, 0, "{kernels} kernel ({kernel})"),
        (2, 0, "{kernels} kernels ({kernel} per kernel)"),
        (0.5, 0, "{kernels} kernels ({kernel} per kernel)"),
        (0, 1, "{copies} copy ({copy})"),
        (0, 3, "{copies} copies ({copy} per copy)"),
        (1, 2, "{kernels} kernel ({kernel}) and {copies} copies ({copy} per copy)"),
    ],
)
def test_launched_text_of_one_is_singular(kernels: float, copies: float, words: str) -> None:
    assert launched_text(kernels, copies) == words


@pytest.mark.parametrize(
    ("names", "lists"),
    [
        (("aten::pow", "aten::sum"), True),
        (("aten::norm",), True),
        (("aten::mse_loss", "aten::add_"), True),
        (("aten::pow", "aten::add"), False),  # sums nothing up
        (("aten::sum", "aten::relu"), False),  # does something else besides
        (("aten::mul", "aten::sum"), False),  # of a state, step after step
        (("aten::mul", "aten::abs", "aten::sum"), True),
    ],
)
def test_penalty_sums_up_and_does_nothing_else(names: tuple[str, ...], lists: bool) -> None:
    assert sums_up_list(names) is lists


@pytest.mark.parametrize(
    ("names", "how", "advice"),
    [
        (("aten::zero_",), {}, "Set gradients to None"),
        (("aten::zero_", "aten::add_"), {}, "Update all tensors with one call"),
        (("aten::zero_", "aten::add"), {}, "Stack the inputs and use one op"),
        (("aten::linear", "aten::add_"), {}, "Stack the inputs, and call the layer or model once"),
        (("aten::slice",), {}, "Take all slices with one op"),
        (("aten::slice", "aten::relu"), {}, "Stack the inputs and use one op"),
        (("aten::narrow", "aten::embedding"), {}, "Join the tables into one"),
        (("aten::to", "aten::cos"), {"copies": True}, "Collect on the host what each repetition copies"),
        (("aten::to", "aten::cos"), {}, "Stack the inputs and use one op"),
        (("aten::copy_",), {}, "Copy all these tensors with one call"),
        (("aten::copy_",), {"places": ["a.py(1): f"]}, "Copy all these tensors with one call"),
        (
            ("aten::copy_",),
            {"places": ["a.py(1): f", "DistributedDataParallel.forward"]},
            "DistributedDataParallel copies its buffers",
        ),
        (("aten::norm", "aten::item"), {}, "Compute all norms with one call"),
        (("aten::linalg_vector_norm", "aten::item"), {}, "Compute all norms with one call"),
        (("aten::norm",), {}, "Take all tensors at once: torch._foreach_norm"),
        (("aten::pow", "aten::sum"), {"backward": True}, "An L2 penalty on parameters is the optimizer's"),
        (("aten::abs", "aten::sum"), {"backward": True}, "Take all tensors at once: one op on stacked"),
        (("aten::linear", "torchvision::nms"), {}, "Use torchvision.ops.batched_nms"),
        (("aten::linear", "aten::nonzero"), {"sized": True}, "Sort the rows once by the expert"),
    ],
)
def test_one_call_for_all_is_that_of_the_loop_s_ops(
    names: tuple[str, ...], how: dict[str, Any], advice: str
) -> None:
    arguments = {"copies": False, **how}
    assert loop_advice(names, **arguments).startswith(advice)


def repeats(count: int, *names: str, **how: Any) -> Any:
    """A loop of so many repeats that take 10 us each, of one launch for each op."""
    starts = np.arange(count) * 10 * US
    loop: dict[str, Any] = {"names": names, "count": count, "launches": count * len(names)}
    loop |= dict.fromkeys(
        ("shapes_change", "shapes_grow", "collected", "over_parts", "exact", "copies"), False
    )
    one = SimpleNamespace(
        first_ops=SimpleNamespace(start_ns=starts), ends_ns=starts + 10 * US, **{**loop, **how}
    )
    one.has_batch_of_one = lambda ops: how.get("single", False)
    return one


@pytest.mark.parametrize(
    ("one", "sure"),
    [
        # with a layer
        (repeats(16, "aten::linear", "aten::relu"), None),
        (repeats(16, "aten::linear", "aten::select"), LOW),
        (repeats(15, "aten::linear", "aten::select"), None),
        (repeats(15, "aten::linear", "aten::select", shapes_change=True), LOW),
        (repeats(16, "aten::linear", "aten::to"), LOW),
        (repeats(16, "aten::linear", "aten::relu", collected=True), LOW),
        (repeats(16, "aten::linear", "aten::select", *["aten::relu"] * 10), LOW),
        (repeats(16, "aten::linear", "aten::select", *["aten::relu"] * 11), None),
        (repeats(4, "aten::linear", over_parts=True), MEDIUM),
        (repeats(16, "aten::linear", over_parts=True), None),
        # a whole model on a batch, or one that keeps what came before
        (repeats(16, "aten::linear", "aten::select", launches=256), LOW),
        (repeats(16, "aten::linear", "aten::select", launches=257), None),
        (repeats(16, "aten::linear", "aten::select", launches=257, single=True), LOW),
        (repeats(16, "aten::linear", "aten::select", launches=257, single=True, shapes_grow=True), None),
        # one sample after the other, which the first op takes
        (repeats(16, "aten::slice", "aten::linear", exact=True, launches=999), LOW),
        (repeats(16, "aten::relu", "aten::slice", "aten::linear", exact=True, launches=999), None),
        (repeats(16, "aten::slice", "aten::linear", "aten::argmax", exact=True), None),
        (repeats(16, "aten::slice", "aten::linear", launches=999), None),
        # pointwise ops alone
        (repeats(16, "aten::add", "aten::relu"), None),
        (repeats(16, "aten::add", "aten::relu", copies=True), MEDIUM),
        (repeats(16, "aten::add", "aten::relu", collected=True), MEDIUM),
        (repeats(16, "aten::add", "aten::relu", shapes_change=True), MEDIUM),
        (repeats(16, "aten::add", "aten::select"), LOW),
        (repeats(15, "aten::add", "aten::select"), None),
        (repeats(16, "aten::add_", "aten::mul_"), MEDIUM),
        (repeats(16, "aten::add_", "aten::relu"), None),
        (repeats(16, "EmbeddingBackward0", "aten::relu"), LOW),
        (repeats(16, "torch.distributed.ddp.reducer", "aten::select"), None),
        # checks of a distribution's arguments
        (repeats(15, "aten::select", "aten::_is_all_true", shapes_change=True), None),
        (repeats(16, "aten::select", "aten::_is_all_true", shapes_change=True), MEDIUM),
    ],
)
def test_confidence_of_independent_repeats(one: Any, sure: Confidence | None) -> None:
    assert Judge(LIMITS, NONE).confidence(one) is sure


@pytest.mark.parametrize(
    ("count", "members", "sure"), [(16, {16}, LOW), (16, {15}, None), (5, {5}, MEDIUM), (5, {4}, None)]
)
def test_backward_is_a_loop_where_it_repeats_as_often_as_one(
    count: int, members: set[int], sure: Confidence | None
) -> None:
    loop = repeats(count, "AddmmBackward0", "TBackward0")
    assert Judge(LIMITS, NONE, frozenset(members)).confidence(loop) is sure


@pytest.mark.parametrize(
    ("at_us", "change", "sized"),
    [
        ([0, 10, 20, 30], True, True),
        ([0, 10, 20], True, False),  # not each
        ([0, 10, 20, 39], True, True),  # the last within its repeat
        ([0, 10, 20, 40], True, False),  # after them
        ([-1, 10, 20, 30], True, False),  # before them
        ([0, 10, 20, 30], False, False),  # always as many rows
    ],
)
def test_counting_ops_within_the_loop_size_its_repeats(at_us: list[int], change: bool, sized: bool) -> None:
    counting: Any = SimpleNamespace(start_ns=np.array(at_us) * US)
    loop = repeats(4, "aten::linear", shapes_change=change)
    judge = Judge(LIMITS, counting)
    assert judge.sized_by_data(loop) is sized
    assert judge.confidence(loop) is (MEDIUM if sized else None)


def test_copies_and_kernels_of_a_repeat_have_own_times() -> None:
    """Of each repeat a copy of 3 us and three kernels of 1 us."""
    trace, at, number = steps_of([]), 0, 0
    for step in range(3):
        begin = at
        for name in ["aten::to", "aten::select", "aten::mul", "aten::add"] * 20:
            number += 1
            trace.op(name, at, 10 * US)
            trace.launch("cudaLaunchKernel", at + 2 * US, 4 * US, number)
            if name == "aten::to":
                trace.memcpy(at + 7 * US, 3 * US, number, name="Memcpy HtoD (Pinned -> Device)", size=4)
            else:
                trace.kernel(at + 7 * US, US, number, name=POINTWISE)
            at += 11 * US
        trace.step(step, begin, at - begin)
    (one,) = of_rule(trace, "repeated-calls")
    told = {name: one.evidence[name] for name in ("launches", "kernels", "kernel_ns", "copies", "copy_ns")}
    assert told == {"launches": 4.0, "kernels": 3.0, "kernel_ns": US, "copies": 1.0, "copy_ns": 3 * US}
    assert "each run launches 3 kernels (1.00 µs per kernel) and 1 copy (3.00 µs)" in one.message


def test_a_loop_of_more_repeats_tells_how_often_it_runs() -> None:
    """The first step has sixteen repeats, the others twenty."""
    trace = loop(["aten::select", "aten::mul"], 16, steps=1)
    at, number = 40 * 12 * US, 1_000
    for step in (1, 2):
        begin = at
        for name in ["aten::select", "aten::mul"] * 20:
            number += 1
            trace.op(name, at, 10 * US)
            trace.launch("cudaLaunchKernel", at + 4 * US, 5 * US, number)
            trace.kernel(at + 9 * US, 1 * US, number, name=POINTWISE)
            at += 12 * US
        trace.step(step, begin, at - begin)
    (one,) = of_rule(trace, "repeated-calls")
    assert (one.count, one.evidence["repeats"]) == (56, 20)


def test_an_optimizer_s_own_loop_is_not_told_twice() -> None:
    """unfused-optimizer tells of it."""
    trace = loop(["aten::mul_", "aten::add_"], 30, kernel=GEMM)
    (one,) = of_rule(trace, "repeated-calls")
    for step in range(3):
        trace.annotation("Optimizer.step#SGD.step", step * 720 * US, 719 * US)
    assert one.count == 90
    assert of_rule(trace, "repeated-calls") == []


@pytest.mark.parametrize(("grids", "said"), [((132, 132), False), ((132, 66), True)])
def test_decoding_loop_is_no_loop_of_samples(grids: tuple[int, int], said: bool) -> None:
    """Rows of different lengths are other samples."""
    trace, at, number = steps_of([]), 0, 0
    for step in range(3):
        begin = at
        for repeat in range(20):
            for name in ("aten::slice", "aten::linear", "aten::argmax"):
                number += 1
                trace.op(name, at, 10 * US)
                trace.launch("cudaLaunchKernel", at + 2 * US, 4 * US, number)
                trace.kernel(at + 7 * US, US, number, name=GEMM, grid=(grids[repeat % 2], 1, 1))
                at += 11 * US
        trace.step(step, begin, at - begin)
    assert bool(of_rule(trace, "repeated-calls")) is said


def test_loops_of_other_ops_in_one_step_are_each_told() -> None:
    """One of 20 repeats, one of 18, and one of 16."""
    counts = {"mul": 20, "exp": 18, "log": 16}
    ops: list[tuple[str, dict[str, Any]]] = [
        (f"aten::{name}", {}) for op, count in counts.items() for name in ("select", op) * count
    ]
    said = {one.evidence["ops"]: one.count for one in of_rule(steps_of(ops, steps=2), "repeated-calls")}
    assert said == {f"aten::select, aten::{op}": 2 * count for op, count in counts.items()}
