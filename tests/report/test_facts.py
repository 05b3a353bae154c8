"""Facts, the largest costs of a step, and the sentence that says them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builder import TraceBuilder
from traceanalyzer import Finding, diagnose, load
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Severity
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.report.costs import Cost, largest_costs, short_name
from traceanalyzer.report.fact import Fact
from traceanalyzer.report.facts import facts_of
from traceanalyzer.report.sentence import listed, verdict

US = 1_000
Shared = Callable[[str], Path]


def analysis(path: Path) -> Analysis:
    return Analysis(load(path))


def named(facts: tuple[Fact, ...], name: str) -> list[Fact]:
    return [fact for fact in facts if fact.name == name]


# -- facts ---------------------------------------------------------------------------------------------------


def test_the_chain_goes_from_the_step_to_the_kernel(shared: Shared) -> None:
    one = analysis(shared("seeds/4096_bf16_warm_eager"))
    chain = named(facts_of(one), "dispatch-chain")[0]
    parts = [part.split(" ")[0] for part in chain.text.split(" > ")]
    assert parts[:2] == ["ProfilerStep#3", "matmul_add"] or parts[0].startswith("ProfilerStep#")
    assert parts[-2].startswith("cu")
    assert len(chain.event_ids) == len(parts)


def test_matmul_becomes_mm_or_bmm(shared: Shared) -> None:
    facts = facts_of(analysis(shared("seeds/4096_bf16_warm_eager")))
    (one,) = named(facts, "matmul-resolved")
    assert one.text.startswith("aten::matmul becomes aten::mm")


def test_addmm_is_fused_at_the_dispatcher_only_where_it_copies(shared: Shared) -> None:
    (copied,) = named(facts_of(analysis(shared("pairs/addmm_copy.bad"))), "addmm-fusion")
    (fused,) = named(facts_of(analysis(shared("pairs/addmm_copy.fixed"))), "addmm-fusion")
    assert "at the dispatcher only" in copied.text
    assert copied.values["copies"] == copied.values["calls"]
    assert "in the kernel, too" in fused.text


def test_launches_that_ask_for_the_occupancy_are_adaptive() -> None:
    trace = TraceBuilder()
    trace.op("aten::cumsum", 0, 100 * US)
    trace.op(
        "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", 5 * US, 2 * US, category="cuda_runtime"
    )
    for number, at in ((1, 10), (2, 30)):
        trace.launch("cudaLaunchKernel", at * US, 5 * US, number)
        trace.kernel((at + 8) * US, 5 * US, number)
    (one,) = named(facts_of(Analysis(trace.load())), "adaptive-launches")
    assert (one.values["launches"], one.values["adaptive"]) == (2, 1)
    assert "aten::cumsum" in one.text


@pytest.mark.parametrize(
    ("name", "bound"), [("pairs/launch_bound.bad", "cpu"), ("pairs/clean_gemm.fixed", "gpu")]
)
def test_what_bounds_the_step(shared: Shared, name: str, bound: str) -> None:
    (one,) = named(facts_of(analysis(shared(name))), "bound")
    assert one.values["bound"] == bound


def test_rates_are_compared_with_the_peak_and_what_is_achievable(shared: Shared) -> None:
    rates = named(facts_of(analysis(shared("real/gpt2_train.eager"))), "rate")
    matmul = next(fact for fact in rates if fact.values["kind"] == "matmul")
    assert (matmul.values["peak_tflops"], matmul.values["achievable_tflops"]) == (989.5, 794.0)
    assert 0 < float(matmul.values["tflops"] or 0) < 989.5


def test_compiled_regions_have_a_hash_and_a_prologue(shared: Shared) -> None:
    (one,) = named(facts_of(analysis(shared("pairs/graph_break.fixed"))), "compiled-region")
    assert str(one.values["hash"]).startswith("f6q4qece4m2x")
    assert one.values["calls"] == 6
    assert 0 < int(one.values["prologue_ns"] or 0) < int(one.values["total_ns"] or 0)


def test_the_profiler_synchronises_at_the_end(shared: Shared) -> None:
    (one,) = named(facts_of(analysis(shared("pairs/clean_gemm.fixed"))), "profiler-synchronisation")
    assert one.text.startswith("cudaDeviceSynchronize")


def test_steps_of_servers_are_told_apart_by_phase_and_batch() -> None:
    trace = TraceBuilder()
    for number, mark in enumerate(["step[DECODE bs=8]", "step[EXTEND bs=2]", "step[DECODE bs=8]"]):
        at = 100 * US * number
        trace.annotation(mark, at, 80 * US)
        trace.launch("cudaLaunchKernel", at + 5 * US, 5 * US, number + 1)
        trace.kernel(at + 12 * US, 30 * US, number + 1)
    facts = named(facts_of(Analysis(trace.load())), "serving-steps")
    assert [(fact.values["phase"], fact.values["batch"], fact.values["steps"]) for fact in facts] == [
        ("decode", 8, 2),
        ("prefill", 2, 1),
    ]
    assert {fact.values["gpu_ns"] for fact in facts} == {30 * US}


def test_a_trace_of_the_cpu_alone_has_few_facts(shared: Shared) -> None:
    facts = facts_of(analysis(shared("public/hta_cpu_only")))
    assert named(facts, "hotspot") == []


# -- costs ---------------------------------------------------------------------------------------------------


def test_the_largest_costs_of_the_unprofiled_step(shared: Shared) -> None:
    (first, *_) = largest_costs(analysis(shared("pairs/clean_gemm.fixed")))
    assert (first.name, first.kind) == ("aten::matmul", "gpu")
    (first, *_) = largest_costs(analysis(shared("pairs/dataloader.bad")))
    assert (first.name, first.kind) == ("while data is loaded", "idle")
    assert first.share > 0.8


def test_idle_time_that_only_the_profiler_made_is_no_cost(shared: Shared) -> None:
    costs = largest_costs(analysis(shared("pairs/unfused_pointwise.fixed")))
    assert [cost.kind for cost in costs if cost.share > 0.05] == ["gpu"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("autograd::engine::evaluate_function: MmBackward0", "MmBackward0"),
        ("aten::mm", "aten::mm"),
        ("void at::native::reduce_kernel<512, 1, x>(x)", "at::native::reduce_kernel"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32>(Params)", "cutlass_80_simt_sgemm_128x32"),
        ("void at::native::(anonymous namespace)::distribution<x>(y)", "at::native::distribution"),
    ],
)  # fmt: skip
def test_names_are_short(name: str, short: str) -> None:
    assert short_name(name) == short


# -- the sentence --------------------------------------------------------------------------------------------

COSTS = (
    Cost("aten::mm", "gpu", 12e6, 0.6),
    Cost("while data is loaded", "idle", 4e6, 0.2),
    Cost("aten::add", "gpu", 1e6, 0.05),
)


class Step:
    unprofiled_ns, low_ns, high_ns = 18.3e6, 17.6e6, 19.4e6

    def __init__(self, bound: str = "gpu") -> None:
        self.bound = bound


@pytest.fixture(scope="module")
def some() -> Finding:
    trace = TraceBuilder()
    for number in range(1, 5):
        trace.op("aten::add", 100 * US * number, 20 * US)
        trace.launch("cudaLaunchKernel", 100 * US * number, 5 * US, number)
        trace.kernel(100 * US * number + 9 * US, 5 * US, number)
    return diagnose(trace.load(), select=["hotspot"]).findings[0]


def findings(some: Finding, *severities: Severity) -> list[Finding]:
    return [replace(some, severity=severity) for severity in severities]


HIGH, INFO = Severity.HIGH, Severity.INFO


def test_the_verdict_says_pace_bound_and_gain(some: Finding) -> None:
    said = verdict(Step(), findings(some, HIGH, HIGH, HIGH, INFO), 9.1e6, COSTS)
    assert said == (
        "18.3 ms a step (17.6 ms to 19.4 ms without the profiler), bound by the GPU: 60 % of it is aten::mm; "
        "fixing 1 to 3 gives about 9.10 ms"
    )


def test_a_step_bound_by_the_cpu_shows_what_the_gpu_waits_for(some: Finding) -> None:
    said = verdict(Step("cpu"), findings(some, HIGH), 18.2e6, COSTS)
    assert said.endswith("bound by the CPU: 20 % of it is idle while data is loaded; fixing 1 changes little")


def test_nothing_found_names_the_largest_costs(some: Finding) -> None:
    said = verdict(Step(), findings(some, INFO), None, COSTS)
    assert said.endswith(
        "bound by the GPU: nothing to fix was found, and most of it goes to aten::mm 60 %, "
        "idle while data is loaded 20 %, aten::add 5 %"
    )


def test_a_verdict_without_a_replay(some: Finding) -> None:
    said = verdict(None, findings(some, HIGH, INFO, HIGH), None, COSTS)
    assert said == "60 % of it is aten::mm; findings 1 and 3 say what to fix"
    assert verdict(None, [], None, ()) == "nothing to fix was found"


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([1], "1"),
        ([1, 2], "1 and 2"),
        ([1, 2, 3], "1 to 3"),
        ([1, 2, 3, 5], "1 to 3 and 5"),
        ([1, 3, 4], "1, 3 and 4"),
    ],
)
def test_numbers_are_listed(numbers: list[int], text: str) -> None:
    assert listed(numbers) == text


@pytest.mark.parametrize("name", ["pairs/launch_bound.bad", "pairs/clean_train.fixed", "real/gcn.eager"])
def test_recorded_traces_get_a_sentence(shared: Shared, name: str) -> None:
    one = analysis(shared(name))
    said = verdict(one.index(Forecast).step, [], None, largest_costs(one))
    assert "a step (" in said
    assert "most of it goes to" in said
