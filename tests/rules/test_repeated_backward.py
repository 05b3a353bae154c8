"""Backward passes over the same graph."""

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


def test_numbers_are_of_the_steps_that_repeat() -> None:
    trace = backward([3, 2, 1], [3, 2, 1])
    nodes = [one for one in trace.events if one["name"] == "AddmmBackward0"]
    for at, node in enumerate(nodes):
        if at >= 12 and at % 6 >= 3:
            node["args"]["Sequence number"] += 50
    (one,) = found(trace.load(), "repeated-backward")
    assert (one.evidence["again"], one.evidence["spent_ns"], one.count) == (3, 3 * 55 * US, 12)
