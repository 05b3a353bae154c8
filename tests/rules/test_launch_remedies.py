"""Remedies for many launches, and idle time between launches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.rules.hosts import said_by
from tests.rules.launches import GEMM, POINTWISE, US, Shared, loop, of_rule
from tests.rules.loops import Loop, loop_of
from tests.rules.programs import Program, found
from tests.support.cached_reports import selected
from tests.support.kernels_alone import recorded
from tests.support.launching_programs import STACKED, rollout, stepped
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Severity
from traceanalyzer.rules.gpu_idle.launch_bound import between_launches

COMPLEX = POINTWISE.replace("<float>", "<c10::complex<float> >")


class Pieces:
    """Idle pieces of (cause, ns, call that launches what comes next)."""

    def __init__(self, pieces: list[tuple[str, int, str]], stacks: bool = False) -> None:
        self.pieces, self.stacks = pieces, stacks
        causes, durations, calls = zip(*pieces, strict=True) if pieces else ((), (), ())
        self.dur_ns = np.array(durations, np.int64)
        self.total_ns = int(self.dur_ns.sum())
        self.has_next = np.array([bool(call) for call in calls], bool)
        self.events = SimpleNamespace(user_code=SimpleNamespace(recorded=stacks))
        self.cause = SimpleNamespace(one_of=lambda *names: np.array([one in names for one in causes], bool))
        graphs = np.array(["GraphLaunch" in call for call in calls], bool)
        self.launch = SimpleNamespace(name=SimpleNamespace(matches=lambda _: graphs))

    def __getitem__(self, chosen: Any) -> Pieces:
        return Pieces([one for one, kept in zip(self.pieces, chosen, strict=True) if kept], self.stacks)


def chosen(*pieces: tuple[str, int] | tuple[str, int, str], stacks: bool = False) -> list[int]:
    """Durations of what is kept, of pauses of at most 100 ns, if half is inside ops."""
    whole = [(cause, ns, *(call or ["cudaLaunchKernel"])) for cause, ns, *call in pieces]
    idle: Any = Pieces(whole, stacks)
    return list(between_launches(idle, 100, 0.5).dur_ns)


@pytest.mark.parametrize(
    ("pause", "stacks", "kept"),
    [(100, False, [500, 100]), (101, False, [500]), (200, True, [500, 200]), (201, True, [500])],
)
def test_a_short_pause_is_on_the_way_and_stacks_make_it_longer(pause: int, stacks: bool, kept: list[int]) -> None:
    assert chosen(("dispatching", 500), ("python", pause), stacks=stacks) == kept


@pytest.mark.parametrize(("inside", "kept"), [(100, [100, 60, 40]), (99, [99])])
def test_pauses_count_where_half_of_all_is_inside_ops(inside: int, kept: list[int]) -> None:
    assert chosen(("launch-latency", inside), ("engine", 60), ("host-code", 40)) == kept


def test_gaps_before_graphs_are_not_between_launches() -> None:
    pieces = (("dispatching", 50, ""), ("dispatching", 60, "cudaGraphLaunch"), ("dispatching", 70))
    assert chosen(*pieces, ("data-loading", 20), ("python", 30, "hipGraphLaunch"), ("python", 40)) == [70, 40]


def test_copies_are_launched_as_well() -> None:
    """Forty products and four copies."""
    trace, number, at = TraceBuilder(), 0, 0
    for step in range(4):
        begin = at
        for place in range(44):
            number += 1
            trace.op("aten::mm", at, 10 * US)
            trace.launch("cudaLaunchKernel" if place < 40 else "cudaMemcpyAsync", at + 4 * US, 5 * US, number)
            if place < 40:
                trace.kernel(at + 9 * US, 1 * US, number, name=GEMM)
            else:
                trace.memcpy(at + 9 * US, 1 * US, number, name="Memcpy DtoD (Device -> Device)", size=4)
            at += 12 * US
        trace.step(step, begin, at - begin)
    (one,) = of_rule(trace, "launch-bound")
    assert (one.evidence["kernels"], one.evidence["launches"]) == (40, 44)


@pytest.mark.parametrize(("place", "cut"), [(0, False), (1, True), (39, True), (40, False)])
def test_only_a_wait_between_launches_cuts_the_graph(place: int, cut: bool) -> None:
    (one,) = of_rule(stepped(waits=[(step, place) for step in range(5)]), "launch-bound")
    assert one.cause == "graph"
    assert ("capture the step in two graphs" in one.advice) is cut


@pytest.mark.parametrize(("steps", "cause"), [(2, "graph"), (3, "batch")])
def test_waits_of_most_steps_stand_in_the_way_of_a_graph(steps: int, cause: str) -> None:
    waits = [(step, place) for step in range(steps) for place in (10, 20, 30)]
    (one,) = of_rule(stepped(waits=waits), "launch-bound")
    assert one.cause == cause
    assert ("also waits between launches, 3 times a step" in one.advice) is (cause == "batch")


@pytest.mark.parametrize(("trained", "said"), [(-1, False), (0, True), (4, True)])
def test_an_optimizer_within_the_steps_is_captured_with_them(trained: int, said: bool) -> None:
    (one,) = of_rule(stepped(trained=trained), "launch-bound")
    assert ("capturable=True" in one.advice) is said
    assert ("the model's graphs do not contain the optimizer" in one.advice) is said


@pytest.mark.parametrize(
    ("kernel", "cause"),
    [
        (POINTWISE, "compile"),
        ("void at::native::multi_tensor_grid_elementwise_grid_stride_loop<float>", "compile"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)", "compile"),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4>", "compile"),
        ("triton_poi_elementwise_kernel_0", "batch"),
        (COMPLEX, "batch"),
        (GEMM, "batch"),
    ],
)
def test_a_compiler_fuses_pointwise_kernels_of_real_numbers(kernel: str, cause: str) -> None:
    (one,) = of_rule(stepped(kernel=kernel, grows=1), "launch-bound")
    assert one.cause == cause
    assert ("100 % of the launches can be fused" in one.advice) is (cause == "compile")


def test_stacking_repetitions_is_advised_once() -> None:
    (one,) = of_rule(stepped(grows=1), "launch-bound")
    assert (one.cause, one.advice.count(STACKED)) == ("batch", 1)
    (one,) = of_rule(stepped(), "launch-bound")
    assert (one.cause, one.advice.count(STACKED)) == ("graph", 1)


@pytest.mark.parametrize(("first", "where"), [(19, " at decode"), (20, ""), (21, " at encode")])
def test_a_loop_is_placed_where_more_than_half_of_it_launches(first: int, where: str) -> None:
    """Of 40 launches in each step."""
    trace = stepped()
    for step in range(5):
        begin, length = step * 480 * US, 12 * US
        trace.annotation("encode", begin, first * length)
        trace.annotation("decode", begin + first * length, (40 - first) * length - US)
    (one,) = of_rule(trace, "launch-bound")
    assert str(one.evidence["loop"]).endswith(f"aten::mm){where}")


def test_a_single_late_batch_does_not_make_fetching_slow() -> None:
    """100 us for each of the others: the batch was ready."""

    def body(loop: Loop, number: int) -> None:
        dur = 300 * US if number == 3 else 100 * US
        loop.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", loop.now, dur)
        loop.now += dur

    (one,) = (one for one in said_by(loop_of(body), "scheduler-gap") if one.cause == "data-loading")
    assert one.severity is Severity.INFO
    assert one.advice.startswith("Nothing to do")


@pytest.mark.parametrize(("last", "stacked"), [("aten::tanh", True), ("aten::softmax", False), ("aten::conv2d", False)])
def test_repeats_that_look_like_layers_are_not_to_be_stacked(last: str, stacked: bool) -> None:
    (one,) = found(rollout(16, ("aten::mul", "aten::linear", last)).trace, "launch-bound")
    assert "about 16 repetitions of one sequence of ops (a loop or layers; about 3 ops each: " in one.message
    assert (STACKED in one.advice) is stacked


def test_kernels_of_a_graph_are_not_launched_one_by_one() -> None:
    """Forty products, and a graph of twenty."""
    trace, number, at = TraceBuilder(), 0, 0
    for step in range(5):
        begin = at
        for _ in range(40):
            number += 1
            trace.op("aten::mm", at, 10 * US)
            trace.launched((at + 4 * US, 5 * US), (at + 9 * US, 1 * US), number, name=GEMM)
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
    assert one.advice.endswith("Pass the files of all ranks: they show which rank this one waits for.") is told


def test_ops_that_come_in_no_order_are_no_loop() -> None:
    names = tuple(f"aten::op{number}" for number in range(60))
    (one,) = found(rollout(1, names).trace, "launch-bound")
    assert "loop" not in one.evidence
    assert "the CPU launches 6" in one.message


def test_a_cache_that_grows_is_to_be_of_a_fixed_size(shared: Shared) -> None:
    (one,) = selected(shared("slowdown/decode.stack"), "launch-bound").findings
    assert "cache_implementation='static'" in one.advice
