"""The part of a step that launches most."""

from __future__ import annotations

import pytest

from tests.replay.test_alone import recorded
from tests.rules.launches import GEMM, US, Shared, loop, of_rule
from tests.rules.programs import Program, found
from tests.support.cached_reports import selected
from tests.support.launching_programs import STACKED, rollout
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose


@pytest.mark.parametrize(
    ("last", "stacked"), [("aten::tanh", True), ("aten::softmax", False), ("aten::conv2d", False)]
)
def test_repeats_that_look_like_layers_are_not_to_be_stacked(last: str, stacked: bool) -> None:
    (one,) = found(rollout(16, ("aten::mul", "aten::linear", last)).trace, "launch-bound")
    assert "about 16 repetitions" in one.message
    assert (STACKED in one.advice) is stacked


def test_kernels_of_a_graph_are_not_launched_one_by_one() -> None:
    """Forty products, and a graph of twenty."""
    trace, number, at = TraceBuilder(), 0, 0
    for step in range(5):
        begin = at
        for _ in range(40):
            number += 1
            trace.op("aten::mm", at, 10 * US)
            trace.launch("cudaLaunchKernel", at + 4 * US, 5 * US, number)
            trace.kernel(at + 9 * US, 1 * US, number, name=GEMM)
            at += 12 * US
        number += 1
        trace.launch("cudaGraphLaunch", at, 5 * US, number)
        for node in range(20):
            trace.kernel(at + (6 + node) * US, 1 * US, number, name=GEMM)
        at += 30 * US
        trace.step(step, begin, at - begin)
    (one,) = of_rule(trace, "launch-bound")
    assert (one.evidence["kernels"], one.evidence["launches"]) == (40, 40)


@pytest.mark.parametrize(("layer", "said"), [("gru_cell", False), ("rnn_tanh_cell", False), ("linear", True)])
def test_a_cell_takes_the_state_of_the_repeat_before(layer: str, said: bool) -> None:
    trace = loop(["aten::select", f"aten::{layer}"], 20, kernel=GEMM)
    assert bool(of_rule(trace, "repeated-calls")) is said


def test_a_repeat_s_ops_are_those_of_half_of_the_repeats() -> None:
    """Sixteen products a step, and after eight of them another op."""
    made = Program()
    for step in range(4):
        made.step(step)
        for number in range(16):
            made.kernel("aten::mul", dur=2 * US)
            if number % 8 < 4:
                made.kernel("aten::where", dur=2 * US)
    (one,) = found(made.trace, "launch-bound")
    assert str(one.evidence["loop"]).endswith("about 2 ops each: aten::mul, aten::where)")


@pytest.mark.parametrize(("least", "told"), [("0.12", True), ("0.14", False)])
def test_waiting_for_ranks_is_reported_above_a_share(least: str, told: bool) -> None:
    """13 % of it."""
    trace = recorded(op_us=20, waits_us=(0, 800, 800, 0, 800))
    report = diagnose(trace, select=["launch-bound"], settings={"launch-bound.min_window_share": least})
    (one,) = report.findings
    assert one.evidence["awaited_share"] == pytest.approx(0.13, abs=0.005)
    assert ("probably waits for other ranks that launch as slowly" in one.message) is told
    assert "the GPU waits for the launches of aten::add" in one.message  # longer than within collectives
    assert "within collectives" not in one.message
    assert one.advice.endswith("Pass the files of all ranks: they show whom this one waits for.") is told


def test_a_loop_with_branches_is_named_by_its_repeats_and_ops() -> None:
    made = rollout(16, ("aten::mul", "aten::linear", "aten::tanh"))
    (one,) = found(made.trace, "launch-bound")
    assert "about 16 repetitions of one sequence of ops (a loop or layers; about 3 ops each: " in one.message
    assert one.evidence["loop_launches"] >= 48
    assert "stack their inputs and run them as one batch." in one.advice


def test_ops_that_come_in_no_order_are_no_loop() -> None:
    names = tuple(f"aten::op{number}" for number in range(60))
    (one,) = found(rollout(1, names).trace, "launch-bound")
    assert "loop" not in one.evidence
    assert "the CPU launches 6" in one.message


def test_ops_that_are_not_in_each_repeat_are_no_loop(shared: Shared) -> None:
    """Two convolutions between ten gradients that are stored: what comes ten times launches nothing."""
    (one,) = selected(shared("real/cnn_lab.eager"), "launch-bound").findings
    assert "loop" not in one.evidence


def test_line_with_few_launches_does_not_name_the_loop(shared: Shared) -> None:
    (one,) = selected(shared("slowdown/decode.stack"), "launch-bound").findings
    assert one.evidence["loop"].endswith(")")
    (one,) = selected(shared("pairs4/small_h2d.bad"), "launch-bound").findings
    assert one.evidence["loop"].endswith("at corpus4.py(36): step")


def test_a_cache_that_grows_is_to_be_of_a_fixed_size(shared: Shared) -> None:
    (one,) = selected(shared("slowdown/decode.stack"), "launch-bound").findings
    assert "cache_implementation='static'" in one.advice
