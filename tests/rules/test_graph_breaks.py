"""Ops that torch.compile leaves to eager mode within a compiled region."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.rules.launches import GEMM, POINTWISE, US, of_rule
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose


def broken(
    eager: Sequence[str],
    *,
    kernel: str = POINTWISE,
    called: str = "## Call CompiledFxGraph f7d ##",
    product: bool = False,
    beside: bool = False,
) -> TraceBuilder:
    """Steps of four calls of a region: a compiled kernel, eager ones of 100 us, and a compiled one that resumes.

    Args:
        beside: each of them launches a product on another stream, too.
    """
    trace, at, gpu, number = TraceBuilder(), 0, 0, 0

    def run(op: str, name: str) -> None:
        nonlocal at, gpu, number
        number, gpu = number + 1, max(gpu, at) + 100 * US
        trace.op(op, at, 10 * US)
        trace.launch("cuLaunchKernel", at + 2 * US, 4 * US, number)
        trace.kernel(gpu - 94 * US, 90 * US, number, name=name)
        if beside:
            trace.launch("cuLaunchKernel", at + 7 * US, 2 * US, 10_000 + number)
            trace.kernel(gpu - 50 * US, 9 * US, 10_000 + number, name=GEMM, stream=9)
        at += 12 * US

    for step in range(4):
        begin = at
        for _ in range(4):
            entered, at = at, at + 2 * US
            for part in (0, 1):
                if part:
                    for op in eager:
                        run(op, kernel)
                resumed, at = at, at + 5 * US
                run("triton_poi_fused_add_0", "triton_poi_fused_add_0")
                if product:
                    run("extern_kernels.mm", GEMM)
                trace.op(called, resumed + 2 * US, at - resumed - 3 * US)
                if part:
                    trace.op("Torch-Compiled Region: 1/0", resumed, at - resumed)
            trace.op("Torch-Compiled Region: 0/0", entered, at + 2 * US - entered)
            at += 5 * US
        at = max(at, gpu)
        trace.step(step, begin, at - begin)
    return trace


def test_graph_break_is_one_fault_with_its_neighbours() -> None:
    report = diagnose(broken(["aten::mul", "aten::sub", "aten::mul"]).load())
    (fault, *_) = report.traces[0].faults
    one = report.findings[0]
    assert (one.rule, one.cause, one.count) == ("compile", "eager-ops", 4 * 4 * 5)
    assert "run aten::mul (67 % of this time), aten::sub (33 %) outside their compiled code" in one.message
    assert fault.saving is not None
    assert fault.saving.share == pytest.approx(0.8, abs=0.1)  # of five kernels one is left
    (beside,) = of_rule(broken(["aten::mul"] * 3, product=True), "compile")[:1]
    assert (beside.cause, beside.count) == ("eager-ops", 4 * 4 * 4)  # a product ends what one kernel can do


@pytest.mark.parametrize(
    ("eager", "product", "together"),
    [
        (["aten::mul"], False, 3),
        (["aten::mul"], True, 0),
        (["aten::mul"] * 2, True, 3),
        (["aten::copy_", "aten::mul"], True, 3),
        (["aten::copy_"] * 2, False, 0),
    ],
)
def test_three_fusible_kernels_with_one_eager_are_a_break(eager: list[str], product: bool, together: int) -> None:
    """In each of four calls in four steps; after the eager ops comes a compiled one, before them too or a product."""
    found = [one for one in of_rule(broken(eager, product=product), "compile") if one.cause == "eager-ops"]
    assert [one.count for one in found] == [4 * 4 * together] * bool(together)
    assert all(one.evidence["runs"] == 4 * 4 for one in found)


@pytest.mark.parametrize(
    "trace",
    [
        broken([]),
        broken(["aten::mm"], kernel=GEMM),
        broken(["aten::copy_"]),
        broken(["aten::index"] * 3, kernel="void at::native::index_elementwise_kernel<128, 4>"),
        broken(["aten::mul"] * 3, called="CompiledFunction"),
    ],
    ids=["no-break", "nothing-to-fuse", "copy-to-an-input", "read-by-index", "backend-without-marks"],
)
def test_what_no_compiler_would_fuse_is_left_alone(trace: TraceBuilder) -> None:
    assert "eager-ops" not in {one.cause for one in of_rule(trace, "compile")}


def test_what_runs_on_another_stream_is_not_between_two_kernels() -> None:
    one, *_ = of_rule(broken(["aten::mul"], beside=True), "compile")
    assert (one.cause, one.count, one.evidence["runs"]) == ("eager-ops", 4 * 4 * 3, 4 * 4)


def test_ops_between_graphs_of_one_region_break_it() -> None:
    (one,) = [one for one in of_rule(broken(["aten::mul", "aten::item"]), "compile") if "between" in one.evidence]
    assert set(one.evidence["between"]) == {"aten::mul", "aten::item"}
    assert "; at the graph breaks between them run aten::" in one.message


def asking(*, graph: bool = False, stacks: bool = True, kernels: int = 5) -> TraceBuilder:
    """Four steps of one region with mode='reduce-overhead', and kernels of 10 us, one by one or as a graph."""
    trace, number = TraceBuilder(), 0
    for step in range(4):
        begin = step * 1_000 * US
        trace.step(step, begin, 900 * US)
        trace.op("Torch-Compiled Region: 0/0", begin + 10 * US, 800 * US)
        if stacks:
            frame = "torch/_inductor/cudagraph_trees.py(410): deferred_cudagraphify"
            trace.python(frame, begin + 20 * US, 700 * US, python_id=step + 1)
        number += 1
        for place in range(kernels):
            at = begin + (100 + 100 * place) * US
            if not graph:
                number += 1
            if place == 0 or not graph:
                trace.launch("cudaGraphLaunch" if graph else "cuLaunchKernel", at, 10 * US, number)
            gpu = begin + (120 + 11 * place) * US if graph else at + 15 * US
            trace.kernel(gpu, 10 * US, number, name=f"triton_poi_fused_{place}")
    return trace


def test_a_region_with_reduce_overhead_that_launches_kernels_is_named() -> None:
    (one,) = [one for one in of_rule(asking(), "compile") if one.cause == "not-replayed"]
    assert one.title == "Compiled code asks for CUDA graphs, but launches its 5 kernels one by one"
    assert (one.count, one.evidence["kernels"]) == (4, 5)
    assert one.advice.startswith("TORCH_LOGS=perf_hints prints why no graph is replayed.")
    assert one.saving is not None
    assert one.saving.share > 0.5


@pytest.mark.parametrize("trace", [asking(graph=True), asking(stacks=False), asking(kernels=2)])
def test_replays_and_other_modes_are_not_accused(trace: TraceBuilder) -> None:
    assert [one.cause for one in of_rule(trace, "compile") if one.cause == "not-replayed"] == []


# Recorded on an H200 with torch 2.11. Eight blocks call torch._dynamo.graph_break(), 0.965 ms a step without the
# profiler; and a function with mode='reduce-overhead' adds to an input in place, 0.225 ms a step.
MANY_REGIONS, MUTATED_INPUT = (
    Path(__file__).with_name(f"{name}.json.gz") for name in ("many_regions", "mutated_input")
)


def test_recorded_graph_breaks_are_counted_as_regions() -> None:
    report = diagnose(MANY_REGIONS)
    (one,) = [one for one in report.findings if one.rule == "compile"]
    assert (one.cause, one.evidence["frames"], one.count) == ("tiny-regions", 3, 4 * 17)
    assert "3 compiled regions, called 17 times a step in all, take 1.78 ms of CPU time" in one.message
    assert one.advice.startswith("Remove graph breaks if you can (TORCH_LOGS=graph_breaks names them)")
    first = report.findings[0]
    assert first.rule == "launch-bound"
    assert "if it has this mode already, TORCH_LOGS=perf_hints prints why no graph is replayed" in first.advice


def test_recorded_input_that_is_changed_in_place_prevents_the_graph() -> None:
    report = diagnose(MUTATED_INPUT)
    first = report.findings[0]
    assert (first.rule, first.cause, first.count) == ("compile", "not-replayed", 4)
    assert first.title == "Compiled code asks for CUDA graphs, but launches its 13 kernels one by one"
    step = report.traces[0].step
    assert step is not None
    assert step.unprofiled_ns == pytest.approx(225_000, rel=0.3)
