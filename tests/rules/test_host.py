"""What keeps the CPU from launching: data loading, python between ops, a cold start, ops that compute on the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.loaded import selected
from tests.rules.loops import Loop, loop_of
from traceanalyzer import Finding, Trace, diagnose, load
from traceanalyzer.model.finding import Confidence, Severity

Shared = Callable[[str], Path]
MS = 1_000_000
ENGINE = 2000  # thread of the autograd engine


def _found(trace: Trace | Path, rule: str) -> list[Finding]:
    report = selected(trace, rule) if isinstance(trace, Path) else diagnose(trace, select=[rule])
    assert [outcome.why for outcome in report.outcomes if outcome.why] == []
    return list(report.findings)


def _alarms(trace: Trace | Path, rule: str) -> list[Finding]:
    return [found for found in _found(trace, rule) if found.severity is not Severity.INFO]


# -- dataloader-stall -----------------------------------------------------------------------------------------------

SINGLE, MULTI = (
    f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__" for kind in ("SingleProcess", "MultiProcessing")
)


@pytest.mark.parametrize("name", ["pairs/dataloader.bad", "public/kineto_bare_array_old"])
def test_a_loader_without_workers_stalls_each_step(name: str, shared: Shared) -> None:
    (found,) = _alarms(shared(name), "dataloader-stall")
    assert (found.by, found.steps) == (SINGLE, found.count)
    assert "num_workers" in found.advice


def test_a_loader_that_only_the_profiler_makes_slow_enough_is_info(shared: Shared) -> None:
    """Its step is bound by the GPU without the profiler, at the slowdown that its events suggest."""
    (found,) = _found(shared("public/kineto_v100_resnet50_nw0"), "dataloader-stall")
    assert (found.by, found.count, found.severity) == (SINGLE, 6, Severity.INFO)
    assert found.saving is not None
    assert found.saving.high_share > 0.15


def test_the_saving_of_loading_elsewhere_is_near_the_truth(shared: Shared) -> None:
    (found,) = _alarms(shared("pairs/dataloader.bad"), "dataloader-stall")
    assert found.saving is not None
    assert found.saving.share == pytest.approx(0.96, abs=0.03)


@pytest.mark.parametrize(
    "name", ["pairs/dataloader.fixed", "public/kineto_v100_resnet50_nw4", "pairs/clean_train.fixed"]
)
def test_workers_that_keep_up_raise_no_alarm(name: str, shared: Shared) -> None:
    assert _alarms(shared(name), "dataloader-stall") == []


def _annotated(name: str, ns: int) -> Callable[[Loop, int], None]:
    def body(loop: Loop, _: int) -> None:
        loop.annotation(name, loop.now, ns)
        loop.now += ns

    return body


@pytest.mark.parametrize("name", ["load_batch", "next_batch", "## data_loading ##", MULTI])
def test_the_advice_fits_the_iterator(name: str) -> None:
    (found,) = _alarms(loop_of(_annotated(name, 5 * MS)), "dataloader-stall")
    assert found.by == name
    assert ("workers are not quick enough" in found.advice) == (name == MULTI)
    assert "num_workers=0" not in found.advice


def test_workers_that_fell_back_once_are_info_and_those_that_do_again_and_again_are_not() -> None:
    def stalled(which: set[int]) -> Trace:
        return loop_of(lambda loop, n: _annotated(MULTI, 5 * MS if n in which else 50_000)(loop, n), steps=12)

    assert _alarms(stalled({5, 6}), "dataloader-stall") == []
    assert len(_alarms(stalled({3, 7, 11}), "dataloader-stall")) == 1


# -- host-gap ---------------------------------------------------------------------------------------------------------


def test_python_between_ops_is_named_by_the_users_function(shared: Shared) -> None:
    (found,) = _alarms(shared("pairs/python_between.bad"), "host-gap")
    assert str(found.by).endswith(": busy")
    assert found.saving is not None
    assert found.saving.share == pytest.approx(0.92, abs=0.04)


def test_without_stacks_garbage_collection_cannot_be_told_from_python(shared: Shared) -> None:
    (found,) = _alarms(shared("pairs/gc_pause.bad"), "host-gap")
    assert found.by is None
    assert "garbage collection" in found.message
    assert found.confidence is Confidence.MEDIUM
    assert found.saving is not None
    assert found.saving.share > 0.98


QUIET = [
    "clean_gemm.fixed",
    "clean_train.fixed",
    "python_between.fixed",
    "gc_pause.fixed",
    "malloc_thrash.fixed",
]


@pytest.mark.parametrize("name", QUIET)
@pytest.mark.parametrize("rule", ["host-gap", "host-hotspot", "cold-start", "dataloader-stall"])
def test_healthy_programs_raise_no_alarm(name: str, rule: str, shared: Shared) -> None:
    assert _alarms(shared(f"pairs/{name}"), rule) == []


def test_the_function_with_the_largest_total_is_named_not_the_longest_once() -> None:
    def body(loop: Loop, number: int) -> None:
        loop.pause(3 * MS, "train.py(12): metrics")
        loop.launched()
        if number == 3:
            loop.pause(9 * MS, "torch/profiler/profiler.py(7): start_trace")

    found = _alarms(loop_of(body), "host-gap")
    assert [one.by for one in found] == ["train.py(12): metrics"]
    assert found[0].count == 6


def test_functions_within_the_named_one_are_told() -> None:
    def body(loop: Loop, _: int) -> None:
        for call in range(10):
            loop.python("data.py(9): clean", loop.now + call * 300_000, 270_000, python_id=100 + call)
        loop.pause(3 * MS, "data.py(5): encode")

    (found,) = _alarms(loop_of(body), "host-gap")
    assert found.by == "data.py(5): encode"
    assert found.evidence["functions"]["data.py(9): clean"] == pytest.approx(6 * 2.7 * MS, rel=0.1)


def test_what_does_not_come_back_is_info() -> None:
    found = _found(loop_of(lambda loop, number: loop.pause(9 * MS if number == 3 else 0)), "host-gap")
    assert [(one.cause, one.severity) for one in found] == [("once", Severity.INFO)]


def test_pauses_in_several_steps_recur_wherever_they_fall() -> None:
    def body(loop: Loop, number: int) -> None:
        loop.launched(f"aten::op{number}")
        loop.pause(9 * MS if number % 3 == 1 else 0)
        loop.launched(f"aten::other{number}")

    (found,) = _alarms(loop_of(body, steps=9), "host-gap")
    assert (found.count, found.steps) == (3, 3)


def test_the_autograd_engines_own_time_is_not_the_users() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.now += 400_000  # the way into the engine
        for _ in range(2):
            loop.launched("autograd::engine::evaluate_function: MmBackward0", tid=ENGINE)
            loop.now += 2 * MS
        loop.launched("autograd::engine::evaluate_function: AccumulateGrad", tid=ENGINE)
        loop.now += 400_000  # the way out of it

    assert _found(loop_of(body), "host-gap") == []


def test_an_optimizers_python_is_torchs() -> None:
    assert _found(loop_of(_annotated("Optimizer.step#Adam.step", 2 * MS)), "host-gap") == []


# -- host-hotspot -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["aten::normal_", "aten::index", "aten::sort"])
def test_an_op_that_computes_on_the_cpu_is_named(op: str) -> None:
    (found,) = _alarms(loop_of(lambda loop, _: loop.host_op(op, 3 * MS)), "host-hotspot")
    assert (found.by, found.count, found.confidence) == (op, 6, Confidence.HIGH)
    assert found.evidence["host_ns"] == 18 * MS


def test_many_small_ops_on_the_cpu_are_named_by_the_line() -> None:
    def body(loop: Loop, number: int) -> None:
        start = loop.now
        for _ in range(100):
            loop.host_op("aten::add", 8_000)
            loop.now += 12_000
        loop.python("data.py(3): augment", start, loop.now - start, python_id=number + 1)

    (found,) = _alarms(loop_of(body), "host-hotspot")
    assert found.by == "data.py(3): augment"


def test_host_work_beside_a_busy_device_is_no_loss() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launched(kernel_ns=4 * MS)
        loop.host_op("aten::sort", 3 * MS)
        loop.now += 2 * MS

    assert [one.by for one in _alarms(loop_of(body), "host-hotspot") if one.by == "aten::sort"] == []


def test_a_rule_that_knows_more_keeps_the_time(shared: Shared) -> None:
    trace = load(shared("pairs/dataloader.bad"))
    assert isinstance(trace, Trace)
    report = diagnose(trace, select=["dataloader-stall", "host-gap", "host-hotspot"])
    assert [one.rule for one in report.findings if one.severity is not Severity.INFO] == ["dataloader-stall"]


# -- cold-start -------------------------------------------------------------------------------------------------------


def _cold(loop: Loop, number: int) -> None:
    if number == 0:
        loop.overhead("Lazy Function Loading", loop.now + 3_000, 2 * MS)
        loop.launched(launch_ns=50 * MS)
        loop.pause(8 * MS)


def test_a_cold_first_step_is_told_once_and_as_info(shared: Shared) -> None:
    (found,) = _found(shared("seeds/2048_bf16_cold_eager_w0u0a10"), "cold-start")
    assert found.severity is Severity.INFO
    assert {"first calls", "allocating", "loading kernels"} <= found.evidence["kinds"].keys()
    (built,) = _found(loop_of(_cold), "cold-start")
    assert built.severity is Severity.INFO
    assert built.evidence["kinds"] == {
        "first calls": 48 * MS,
        "python before the first op": 8_003_000,
        "loading kernels": 2 * MS,
    }


def test_a_library_that_times_its_kernels_is_tuning() -> None:
    def body(loop: Loop, number: int) -> None:
        start = loop.now
        for _ in range(8 if number == 0 else 0):
            loop.launched("aten::empty")
            loop.launch("cudaEventSynchronize", loop.now, MS, 0)
            loop.now += MS
        loop.op("aten::cudnn_convolution", start - 1_000, loop.now - start + 2_000)

    (found,) = _found(loop_of(body), "cold-start")
    assert next(iter(found.evidence["kinds"])) == "tuning"


def test_a_window_without_usual_steps_is_cold_as_a_whole(shared: Shared) -> None:
    (found,) = _found(loop_of(_cold, steps=1), "cold-start")
    assert found.severity is Severity.HIGH
    (public,) = _found(shared("public/hta_a100_alexnet"), "cold-start")
    assert public.severity is Severity.HIGH
    assert public.evidence["kinds"]["allocating"] > 8_000 * MS


def test_what_recurs_is_no_cold_start(shared: Shared) -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launch("cudaMalloc", loop.now, 2 * MS, 0)
        loop.now += 2 * MS

    assert _found(loop_of(body), "cold-start") == []
    assert _found(shared("pairs/malloc_thrash.bad"), "cold-start") == []
    assert _found(shared("pairs/recompile.bad"), "cold-start") == []


def test_warm_recordings_hold_no_cold_start(shared: Shared) -> None:
    for name in ("pairs/clean_train.fixed", "real/resnet50.eager", "noise/resnet.a1"):
        assert _found(shared(name), "cold-start") == []
