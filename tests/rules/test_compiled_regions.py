"""What entering compiled regions costs, and code that is compiled again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.rules.launches import US, of_rule
from tests.support.launching_programs import compiling
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.finding import Confidence, Severity

TWO = ("0/0", "1/0")


def entering(
    regions: Sequence[str],
    *,
    steps: int = 4,
    kernel_us: int = 10,
    graph_us: int = 0,
    looks_up: bool = False,
) -> TraceBuilder:
    """Steps in which these regions are entered for 60 us each and launch a kernel."""
    trace, number, at = TraceBuilder(), 0, 0
    for step in range(steps):
        begin = at
        for region in regions:
            number += 1
            trace.op(f"Torch-Compiled Region: {region}", at, 60 * US)
            if looks_up:
                trace.op("TorchDynamo Cache Lookup", at - 12 * US, 10 * US)
            if graph_us:
                trace.op("## Call CompiledFxGraph f7d ##", at + 5 * US, graph_us * US)
            trace.op("triton_poi_fused_add_0", at + 6 * US, 10 * US)
            trace.launch("cuLaunchKernel", at + 8 * US, 4 * US, number)
            trace.kernel(at + 20 * US, kernel_us * US, number, name="triton_poi_fused_add_0")
            at += 100 * US
        trace.step(step, begin - 15 * US, at - begin)
    return trace


@pytest.mark.parametrize(
    ("regions", "steps", "said"), [(TWO, 1, 0), (TWO, 2, 1), (("0/0", "0/0", "1/0"), 1, 1), (("0/0",), 1, 0)]
)
def test_regions_that_are_entered_once_each_are_set_up_then(
    regions: Sequence[str], steps: int, said: int
) -> None:
    found = of_rule(entering(regions, steps=steps), "compile")
    assert [one.count for one in found] == [steps * len(regions)] * said


@pytest.mark.parametrize(
    ("regions", "kernel_us", "cause"),
    [
        (("0/0",), 30, "tiny-regions"),
        (("0/0",), 31, None),
        (TWO, 30, "tiny-regions"),
        (TWO, 31, "graph-breaks"),
        (("0/0", "0/1"), 31, None),  # two versions of one frame
    ],
)
def test_region_is_tiny_if_entering_takes_twice_its_kernels(
    regions: Sequence[str], kernel_us: int, cause: str | None
) -> None:
    found = of_rule(entering(regions, kernel_us=kernel_us), "compile")
    assert [one.cause for one in found] == [cause] * bool(cause)
    for one in found:
        assert one.severity is Severity.INFO
        assert one.message.startswith("2 compiled" if len(regions) > 1 else "a compiled region")
        assert ("TORCH_LOGS=graph_breaks" in one.advice) is (len(regions) > 1)


@pytest.mark.parametrize(("graph_us", "wrapper_us"), [(20, 2 * 40), (0, 0)])
def test_times_of_regions_are_those_of_a_step(graph_us: int, wrapper_us: int) -> None:
    (one,) = of_rule(entering(TWO, graph_us=graph_us, looks_up=True), "compile")
    assert {name: one.evidence[name] for name in ("cpu_ns", "lookup_ns", "wrapper_ns", "gpu_ns")} == {
        "cpu_ns": 2 * 60 * US,
        "lookup_ns": 2 * 10 * US,
        "wrapper_ns": wrapper_us * US,
        "gpu_ns": 2 * 10 * US,
    }
    assert one.evidence["launches"] == 2


@pytest.mark.parametrize(
    ("steps", "confidence", "count"), [([2], Confidence.MEDIUM, 1), ([0, 1], Confidence.HIGH, 2)]
)
def test_compilation_in_one_step_may_not_recur(steps: list[int], confidence: Confidence, count: int) -> None:
    (one,) = of_rule(compiling(steps), "compile")
    assert (one.cause, one.confidence, one.count) == ("recompilation", confidence, count)
    assert one.evidence["in_a_step_ns"] == 105 * US
    assert "has been compiled" not in one.message


@pytest.mark.parametrize(("newest", "said"), [(0, None), (1, 2), (6, 7), (8, 9)])
def test_frame_with_most_versions_is_reported(newest: int, said: int | None) -> None:
    trace = compiling([1, 2])
    for region in ("3/0", f"2/{newest}", f"1/{max(newest - 1, 0)}"):
        trace.op(f"Torch-Compiled Region: {region}", 400 * US, 20 * US, tid=9)
    (one, *_) = of_rule(trace, "compile")
    assert ("has been compiled" in one.message) is bool(said)
    if said:
        assert f"frame 2 has been compiled {said} times" in one.message
        assert one.evidence["over_limit"] is (said > 8)


def test_compilation_before_the_first_step_does_not_count() -> None:
    trace = compiling([2]).shifted(1_000 * US)
    trace.op("dynamo", 100 * US, 105 * US, tid=7)
    (one,) = of_rule(trace, "compile")
    assert (one.count, one.confidence) == (1, Confidence.MEDIUM)
    entered = entering(("0/0",), kernel_us=31).shifted(1_000 * US)
    entered.op("Torch-Compiled Region: 1/0", 100 * US, 60 * US)
    assert of_rule(entered, "compile") == []


def test_two_compilations_in_one_step_are_both_of_it() -> None:
    trace = compiling([1, 2])
    trace.op("dynamo", (2 * 360 + 150) * US, 45 * US, tid=7)
    (one,) = of_rule(trace, "compile")
    assert one.count == 3
    assert one.evidence["compiling_ns"] == (2 * 105 + 45) * US
    assert one.evidence["in_a_step_ns"] == (2 * 105 + 45) * US // 2


def test_steps_without_regions_do_not_lower_the_mean() -> None:
    trace = entering(TWO)
    for number in (4, 5):
        trace.step(number, number * 1_000 * US, 500 * US)
    (one,) = of_rule(trace, "compile")
    assert (one.evidence["cpu_ns"], one.evidence["gpu_ns"], one.evidence["launches"]) == (
        120 * US,
        20 * US,
        2,
    )
