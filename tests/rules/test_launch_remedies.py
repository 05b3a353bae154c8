"""Remedies for many launches, and idle time between launches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.rules.hosts import said_by
from tests.rules.launches import GEMM, POINTWISE, US, of_rule
from tests.rules.loops import Loop, loop_of
from tests.support.launching_programs import STACKED, stepped
from tests.support.trace_builder import TraceBuilder
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
def test_a_short_pause_is_on_the_way_and_stacks_make_it_longer(
    pause: int, stacks: bool, kept: list[int]
) -> None:
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
    assert ("Adam.step" in one.advice or "capturable=True" in one.advice) is said


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


@pytest.mark.parametrize(("op", "said"), [("vllm::gemm", True), ("my_vllm::gemm", False)])
def test_of_vllm_it_is_said_what_captures_graphs_there(op: str, said: bool) -> None:
    """Its ops tell that it runs, without any stacks."""
    trace = stepped(grows=1)
    for event in trace.events:
        if event["name"] == "aten::mm":
            event["name"] = op
    (one,) = of_rule(trace, "launch-bound")
    assert one.cause == "batch"
    assert one.advice.startswith("In vLLM, remove enforce_eager=True") is said


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
