"""Backward passes over the same graph."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.kernel_programs import NVJET, US, found
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Status

EVALUATION = "autograd::engine::evaluate_function: "


def backward(*passes: list[int | None], records: bool = False) -> TraceBuilder:
    """Four steps of these backward passes: nodes with these sequence numbers of the step, a kernel and a sum each."""
    trace, number = TraceBuilder(), 0
    for step in range(4):
        begin = step * 2_000 * US
        trace.step(step, begin, 1_999 * US)
        at = begin
        for node in (node for one in passes for node in one):
            number += 1
            told = {} if node is None else {"Sequence number": 100 * step + node, "Fwd thread id": 1}
            trace.op(f"{EVALUATION}AddmmBackward0", at, 40 * US)
            trace.op("AddmmBackward0", at + 1 * US, 38 * US, **told)
            inner = {"Sequence number": 1_000_000 + number} if records else {}
            trace.op("aten::mm", at + 2 * US, 30 * US, **inner)
            trace.launch("cudaLaunchKernel", at + 3 * US, 3 * US, number)
            trace.kernel(begin + 100 * US + 60 * US * (number % 20), 50 * US, number, name=NVJET)
            number += 1
            trace.op(f"{EVALUATION}torch::autograd::AccumulateGrad", at + 41 * US, 9 * US)
            trace.op("aten::add_", at + 42 * US, 7 * US)
            trace.launch("cudaLaunchKernel", at + 43 * US, 3 * US, number)
            trace.kernel(begin + 100 * US + 60 * US * (number % 20), 5 * US, number, name="add_kernel")
            at += 60 * US
    return trace


def test_repeated_nodes_count_with_their_sums() -> None:
    (one,) = found(backward([3, 2, 1], [5, 2, 1]).load(), "repeated-backward")
    assert (one.evidence["again"], one.evidence["nodes"], one.steps) == (2, 6, 4)
    assert one.count == 16  # two nodes and the two sums behind them in each step
    assert one.evidence["spent_ns"] == 2 * 55 * US


def test_other_steps_and_graphs_are_not_repeats() -> None:
    assert found(backward([3, 2, 1], [6, 5, 4]).load(), "repeated-backward") == []


def test_gradients_of_gradients_need_both_passes() -> None:
    assert found(backward([3, 2, 1], [3, 2, 1], records=True).load(), "repeated-backward") == []


def test_without_sequence_numbers_nothing_is_known() -> None:
    report = diagnose(backward([None, None]).load(), select=["repeated-backward"])
    assert [outcome.status for outcome in report.outcomes] == [Status.NOT_APPLICABLE]


ENGINE = 2000


def derivatives(
    *seeds: str, roots: tuple[int, ...] = (), first_inputs: tuple[str, ...] = (), sums: bool = False
) -> TraceBuilder:
    """Four steps: after each seed a pass over three nodes that records three more, then one pass over all of these.

    Args:
        sums: each pass begins at a sum of its own over the output.
    """
    trace, at, number, recorded = TraceBuilder(), 0, 0, 500
    for step in range(4):
        begin = at
        graphs: list[int] = []
        for one, seed in enumerate(seeds):
            trace.op(seed, at, 10 * US, **{"Input Dims": [[64, 1]]})
            at += 20 * US
            graphs.append(recorded)
            if sums:
                told = {"Sequence number": 100 * step + 70 + one, "Fwd thread id": 1}
                at, number = _node(trace, at, number, None, told, "SumBackward0")
            for node in range(3):
                root = roots[one] if roots else 30
                kind = first_inputs[one] if first_inputs else "float"
                told = {"Sequence number": 100 * step + root - node, "Fwd thread id": 1, "Input type": [kind]}
                at, number = _node(trace, at, number, recorded + node, told)
            recorded += 3
        trace.op("aten::mul", at, 10 * US)
        at += 20 * US
        for one in reversed(range(3 * len(seeds))):
            told = {"Sequence number": graphs[0] + one, "Fwd thread id": 2, "Input type": ["float"]}
            at, number = _node(trace, at, number, None, told)
        trace.step(step, begin, at - begin)
        at += 50 * US
    return trace


def _node(
    trace: TraceBuilder,
    at: int,
    number: int,
    recorded: int | None,
    told: dict[str, Any],
    name: str = "MmBackward0",
) -> tuple[int, int]:
    """One node with a kernel, on the engine's thread; (when the next begins, launches)."""
    trace.op(f"{EVALUATION}{name}", at, 40 * US, tid=ENGINE)
    trace.op(name, at + 1 * US, 38 * US, tid=ENGINE, **told)
    own: dict[str, Any] = {} if recorded is None else {"Sequence number": recorded, "Fwd thread id": 0}
    trace.op("aten::mm", at + 2 * US, 30 * US, tid=ENGINE, **own)
    trace.launch("cudaLaunchKernel", at + 3 * US, 3 * US, number + 1, tid=ENGINE)
    trace.kernel(at + 10 * US, 20 * US, number + 1, name=NVJET)
    return at + 50 * US, number + 1


ONES = "aten::ones_like"


def test_a_pass_for_each_input_is_found_with_what_it_recorded() -> None:
    (one,) = found(derivatives(ONES, ONES, ONES).load(), "repeated-backward")
    assert (one.cause, one.evidence["passes"], one.evidence["nodes"]) == ("inputs", 2, 9 + 9)
    assert one.evidence["again"] == 2 * 3 + 2 * 3  # two passes, and their copies in the last one
    assert one.evidence["spent_ns"] == 12 * 20 * US
    assert one.saving is not None


def test_sums_of_one_output_are_one_beginning() -> None:
    (one,) = found(derivatives(ONES, ONES, ONES, sums=True).load(), "repeated-backward")
    assert (one.cause, one.evidence["passes"], one.evidence["nodes"]) == ("inputs", 2, 9 + 3 + 9)
    assert one.evidence["again"] == 2 * (3 + 1) + 2 * 3
    assert found(derivatives(ONES, ONES, roots=(30, 60), sums=True).load(), "repeated-backward") == []
    assert (
        found(derivatives(ONES, ONES, first_inputs=("float", ""), sums=True).load(), "repeated-backward")
        == []
    )


def test_other_outputs_and_roots_need_their_own_pass() -> None:
    assert found(derivatives("aten::select", "aten::select").load(), "repeated-backward") == []
    assert found(derivatives(ONES, ONES, first_inputs=("float", "")).load(), "repeated-backward") == []
    assert found(derivatives(ONES, ONES, roots=(30, 60)).load(), "repeated-backward") == []


def test_nested_nodes_are_not_recorded_by_the_pass() -> None:
    trace = derivatives(ONES, ONES, ONES)
    for event in list(trace.events):
        told = event["args"]
        if event["name"] == "MmBackward0" and told["Fwd thread id"] == 1:
            at = round(event["ts"] * 1_000) + 32 * US
            trace.op(f"{EVALUATION}ViewBackward0", at, 4 * US, tid=ENGINE)
            own = {name: told[name] for name in ("Sequence number", "Fwd thread id", "Input type")}
            trace.op("ViewBackward0", at + 1 * US, 2 * US, tid=ENGINE, **own)
    (one,) = found(trace.load(), "repeated-backward")
    assert (one.evidence["again"], one.evidence["nodes"]) == (2 * (3 + 3) + 2 * 3, 3 * (3 + 3) + 9)


@pytest.mark.parametrize(("nodes", "said"), [(38, 0), (37, 1)])
def test_one_shared_layer_of_twenty_is_no_second_pass(nodes: int, said: int) -> None:
    """Two of 40 nodes run again, and two of 39."""
    first = list(range(nodes, 0, -1))
    assert len(found(backward(first, [2, 1]).load(), "repeated-backward")) == said


def test_nodes_of_other_threads_and_other_names_are_other_nodes() -> None:
    for key, value in (("name", "MulBackward0"), ("thread", 3)):
        trace = backward([3, 2, 1], [3, 2, 1])
        seen: set[int] = set()
        for event in trace.events:
            number = event["args"].get("Sequence number")
            if number in seen and key == "name":
                event["name"] = value
            elif number in seen:
                event["args"]["Fwd thread id"] = value
            if number is not None:
                seen.add(number)
        assert found(trace.load(), "repeated-backward") == []


def test_nodes_without_numbers_are_not_each_other() -> None:
    (one,) = found(backward([3, 2, None, None], [3, 2, None]).load(), "repeated-backward")
    assert (one.evidence["again"], one.evidence["nodes"]) == (2, 7)


@pytest.mark.parametrize("seed", ["aten::ones_like", "aten::ones"])
def test_a_gradient_of_ones_is_made_by_either_op(seed: str) -> None:
    (one,) = found(derivatives(seed, seed).load(), "repeated-backward")
    assert (one.cause, one.evidence["passes"], one.evidence["again"]) == ("inputs", 1, 3 + 3)


def nodes_of(trace: TraceBuilder, within: int, name: str = "MmBackward0") -> list[dict[str, Any]]:
    """The nodes of one of the passes from ones, in each step."""
    nodes = [
        one for one in trace.events if one["name"] == name and one["args"].get("Fwd thread id") in (1, None)
    ]
    return [one for at, one in enumerate(nodes) if at % 9 // 3 == within]


def test_a_pass_with_a_new_node_is_needed() -> None:
    trace = derivatives(ONES, ONES, ONES)
    for at, node in enumerate(nodes_of(trace, 2)):
        if at % 3 == 2:
            node["args"]["Sequence number"] += 50
    (one,) = found(trace.load(), "repeated-backward")
    assert (one.evidence["passes"], one.evidence["again"]) == (1, 3 + 2 + 3 + 3)


def test_what_another_thread_recorded_is_another_output() -> None:
    trace = derivatives(ONES, ONES, ONES)
    for node in [*nodes_of(trace, 2), *nodes_of(trace, 1)]:
        node["args"]["Fwd thread id"] = 5
    (one,) = found(trace.load(), "repeated-backward")
    assert one.evidence["passes"] == 1


def test_a_mean_and_a_sum_of_one_output_are_two_beginnings() -> None:
    trace = derivatives(ONES, ONES, sums=True)
    sums = [one for one in trace.events if one["name"].endswith("SumBackward0")]
    for at, event in enumerate(sums):
        if at % 4 >= 2:
            event["name"] = event["name"].replace("SumBackward0", "MeanBackward1")
    assert found(trace.load(), "repeated-backward") == []


def test_numbers_are_of_the_steps_that_repeat() -> None:
    trace = backward([3, 2, 1], [3, 2, 1])
    nodes = [one for one in trace.events if one["name"] == "AddmmBackward0"]
    for at, node in enumerate(nodes):
        if at >= 12 and at % 6 >= 3:
            node["args"]["Sequence number"] += 50
    (one,) = found(trace.load(), "repeated-backward")
    assert (one.evidence["again"], one.evidence["spent_ns"], one.count) == (3, 3 * 55 * US, 12)
