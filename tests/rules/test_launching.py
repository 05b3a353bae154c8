"""Launch-bound steps, compiled code and the hotspot, on recorded and on built traces."""

from collections.abc import Sequence

import pytest

from tests.rules.launches import GEMM, US, Shared, found, of_rule
from tests.rules.loops import Loop, loop_of
from tests.support.launching_programs import compiling, layers
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Confidence, Severity

# -- launch-bound --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("copies", "repeated"), [(0, "5 calls of app.py(10): pull"), (90, None)])
def test_a_function_launches_no_more_than_all_kernels(copies: int, repeated: str | None) -> None:
    """What it copies is no kernel."""
    trace, number, at = TraceBuilder(), 0, 0
    for step in range(3):
        begin = at
        for call in range(5):
            entered = at
            for index in range(12 + copies // 5):
                number, work = number + 1, trace.memcpy if index >= 12 else trace.kernel
                trace.op("aten::copy_", at, 10 * US)
                trace.launch("cudaLaunchKernel", at + 4 * US, 5 * US, number)
                work(at + 9 * US, 1 * US, number)
                at += 12 * US
            trace.python("app.py(10): pull", entered, at - entered, python_id=100 * step + call)
        trace.step(step, begin, at - begin)
    (one,) = of_rule(trace, "launch-bound")
    assert one.evidence["kernels"] == 60
    assert one.evidence.get("repeated") == repeated


def test_a_loop_that_no_graph_takes_is_to_be_one_batch(shared: Shared) -> None:
    one = next(hit for hit in found(shared("pairs4/moe_loop.bad")) if hit.rule == "launch-bound")
    assert one.cause == "batch"
    assert one.advice.startswith("If the repetitions are independent")
    assert "need a grouped product or bmm. Do more with each launch" in one.advice


def barely_busy(loop: Loop, _: int) -> None:
    """Kernels a little shorter than their launches are without the profiler."""
    for _ in range(60):
        loop.launched(kernel_ns=5 * US)


def test_a_device_that_may_idle_is_not_called_busy() -> None:
    report = diagnose(loop_of(barely_busy), select=["launch-bound"])
    (one,) = report.findings
    assert (one.cause, one.severity) == ("unsure", Severity.INFO)
    assert "without the profiler the GPU may be busy" in one.message
    assert one.advice.startswith("Measure the step without the profiler in milliseconds")
    assert report.traces[0].summary.limit.startswith("undecided, the GPU or the CPU: ")


@pytest.mark.parametrize(
    ("step_ms", "cause", "bound"), [(0.8, "graph", "the CPU: "), (0.467, "profiled-only", "CPU and GPU equally: ")]
)
def test_a_measured_step_settles_it(step_ms: float, cause: str, bound: str) -> None:
    """Rules know the step that the user gave, as savings do."""
    report = diagnose(loop_of(barely_busy), select=["launch-bound"], step_ms=step_ms)
    (one,) = report.findings
    assert one.cause == cause
    assert "--step-ms" not in one.advice
    assert (one.severity is Severity.HIGH) == (cause == "graph")
    assert (one.saving is not None) == (cause == "graph")
    assert report.traces[0].summary.limit.startswith(bound)


def test_steps_that_differ_are_not_captured() -> None:
    (one,) = of_rule(layers(20, 21, 22, 23), "launch-bound")
    assert (one.cause, one.confidence, one.saving) == ("batch", Confidence.MEDIUM, None)
    assert "all steps launch the same kernels and grids" in one.advice


@pytest.mark.parametrize("images", [1, 64])
def test_preparing_images_on_the_host_is_not_a_graphs_matter(images: int) -> None:
    """246 ms of NumPy before 200 small ops, in one piece or image by image with a copy to the device after each."""
    trace, at, number = TraceBuilder(), 0, 0
    for step in range(4):
        begin = at
        for _ in range(images):
            at, number = at + 246_000 * US // images, number + 1
            trace.op("aten::to", at, 40 * US)
            trace.launch("cudaMemcpyAsync", at + 5 * US, 30 * US, number)
            trace.memcpy(at + 10 * US, 20 * US, number, name="Memcpy HtoD (Pageable -> Device)", size=600_000)
            at += 50 * US
        for _ in range(200):
            number += 1
            trace.op("aten::linear", at, 20 * US)
            trace.launched((at + 8 * US, 6 * US), (at + 16 * US, 5 * US), number, name=GEMM)
            at += 24 * US
        trace.step(step, begin, at - begin)
    report = diagnose(trace.load())
    first = report.findings[0]
    assert (first.rule, first.severity) == ("host-gap", Severity.HIGH)
    assert all("graph" not in one.advice for one in report.findings if one.severity is not Severity.INFO)


# -- compiled code -------------------------------------------------------------------------------------------


# -- hotspot -------------------------------------------------------------------------------------------------


TWO = ("0/0", "1/0")


def entering(
    regions: Sequence[str], *, steps: int = 4, kernel_us: int = 10, graph_us: int = 0, looks_up: bool = False
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
def test_regions_that_are_entered_once_each_are_set_up_then(regions: Sequence[str], steps: int, said: int) -> None:
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


def test_ops_between_regions_are_named_as_graph_breaks() -> None:
    trace = entering(("0/0", "1/0", "2/0"))
    for step in range(4):
        trace.op("aten::item", (300 * step + 70) * US, 9 * US)
        trace.op("aten::mul", (300 * step + 170) * US, 3 * US)
        trace.op("aten::zero_", (300 * step + 270) * US, 20 * US)
    (one,) = of_rule(trace, "compile")
    assert one.cause == "tiny-regions"
    assert one.message.endswith(
        "; at the graph breaks between them run aten::item (75 % of the time there), aten::mul (25 %)"
    )
    assert one.evidence["between"] == {"aten::item": 36 * US, "aten::mul": 12 * US}


def test_regions_in_different_steps_have_no_graph_break() -> None:
    trace = entering(("0/0",))
    trace.op("aten::item", 70 * US, 9 * US)
    (one,) = of_rule(trace, "compile")
    assert one.evidence["between"] == {}
    assert "graph breaks" not in one.message


@pytest.mark.parametrize(("graph_us", "wrapper_us"), [(20, 2 * 40), (0, 0)])
def test_times_of_regions_are_those_of_a_step(graph_us: int, wrapper_us: int) -> None:
    found = of_rule(entering(TWO, graph_us=graph_us, looks_up=True), "compile")
    (one,) = (finding for finding in found if finding.cause != "guards")
    assert {name: one.evidence[name] for name in ("cpu_ns", "lookup_ns", "wrapper_ns", "gpu_ns")} == {
        "cpu_ns": 2 * 60 * US,
        "lookup_ns": 2 * 10 * US,
        "wrapper_ns": wrapper_us * US,
        "gpu_ns": 2 * 10 * US,
    }
    assert one.evidence["launches"] == 2


def test_compilation_of_the_first_step_alone_is_a_cold_start() -> None:
    assert of_rule(compiling([0]), "compile") == []


@pytest.mark.parametrize(
    ("steps", "confidence", "count"),
    [([2], Confidence.MEDIUM, 1), ([0, 1], Confidence.HIGH, 2), ([1, 2, 3], Confidence.HIGH, 3)],
)
def test_compilation_in_one_step_may_not_recur(steps: list[int], confidence: Confidence, count: int) -> None:
    (one,) = of_rule(compiling(steps), "compile")
    assert (one.cause, one.confidence, one.count) == ("recompilation", confidence, count)
    assert one.evidence["in_a_step_ns"] == 105 * US
    assert "has been compiled" not in one.message


@pytest.mark.parametrize(("newest", "said"), [(0, None), (1, "twice"), (6, "7 times"), (8, "9 times")])
def test_frame_with_most_versions_is_reported(newest: int, said: str | None) -> None:
    trace = compiling([1, 2])
    for region in ("3/0", f"2/{newest}", f"1/{max(newest - 1, 0)}"):
        trace.op(f"Torch-Compiled Region: {region}", 400 * US, 20 * US, tid=9)
    (one, *_) = of_rule(trace, "compile")
    assert ("has been compiled" in one.message) is bool(said)
    if said:
        assert f"frame 2 has been compiled {said}" in one.message
        assert one.evidence["over_limit"] is (newest >= 8)


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
    assert (one.evidence["cpu_ns"], one.evidence["gpu_ns"]) == (120 * US, 20 * US)
    assert one.evidence["launches"] == 2
