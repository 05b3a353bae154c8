"""Cases in which a rule is easily wrong: each a small trace of its own."""

from typing import Any

import pytest

from tests.rules.programs import found
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Confidence, Severity

US = 1_000
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_badd_coopA_NNT"


def loop(pauses: dict[int, int], name: str | None = None, steps: int = 9) -> TraceBuilder:
    """Steps of 1 ms of kernels, queued well ahead, but for pauses (step -> ns) before the first launch."""
    trace, at, number = TraceBuilder(), 0, 0
    for step in range(steps):
        pause = pauses.get(step, 0)
        trace.step(step, at, 1_000 * US + pause)
        if pause and name:
            trace.annotation(name, at, pause)
        for kernel in range(10):
            number += 1
            trace.op("aten::mm", at + pause + kernel * 5 * US, 5 * US)
            trace.launch("cudaLaunchKernel", at + pause + kernel * 5 * US + 1 * US, 3 * US, number)
            trace.kernel(at + pause + 6 * US + kernel * 99 * US, 99 * US, number)
        at += 1_000 * US + pause
    return trace


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.mark.parametrize("step", [0, 2, 5])
def test_named_stall_is_measured_in_any_step(step: int) -> None:
    (stall,) = found(loop({step: 50_000 * US}, LOADER), "dataloader-stall")
    assert (stall.severity, stall.step, stall.count) == (Severity.INFO, step, 1)
    assert stall.cost_ns == pytest.approx(50_000 * US, rel=0.01)
    assert "in 1 of 9 steps" in stall.message


@pytest.mark.parametrize("rule", ["host-gap", "scheduler-gap"])
def test_a_pause_without_a_name_in_one_step_is_a_hiccup(rule: str) -> None:
    (gap,) = found(loop({5: 50_000 * US}), rule)
    assert gap.severity is Severity.INFO
    assert gap.cost_ns == pytest.approx(50_000 * US, rel=0.05)


def test_pauses_in_every_step_are_the_codes() -> None:
    gaps = {gap.cause: gap for gap in found(loop(dict.fromkeys(range(9), 500 * US)), "scheduler-gap")}
    assert gaps["host-code"].severity is Severity.HIGH
    assert "in every step" in gaps["host-code"].message


def test_a_window_of_the_user_has_no_start_of_recording() -> None:
    trace = loop(dict.fromkeys(range(9), 500 * US)).load()
    report = diagnose(trace, window=(1_700 * US, 4_700 * US))
    causes = {(one.rule, one.cause) for one in report.findings}
    assert ("host-gap", "") in causes
    assert ("scheduler-gap", "start") not in causes


def test_waiting_for_a_busy_device_is_no_waste() -> None:
    trace = loop({})
    trace.launch("cudaDeviceSynchronize", 8_100 * US, 850 * US, 900)
    assert found(trace, "long-device-sync") == []


def kernels(durations: list[list[int]], *, shapes: bool = False, first: int = 0) -> TraceBuilder:
    """Steps of kernels of one name, with these durations in us, numbered from the first on."""
    trace, at = TraceBuilder(), 0
    for step, row in enumerate(durations, first):
        trace.step(step, at, sum(row) * US + 100 * US)
        for dur in row:
            dims = {"Input Dims": [[dur, dur]]} if shapes else {}
            trace.op("aten::mm", at, 10 * US, **dims)
            trace.launched((at + 2 * US, 5 * US), (at + 10 * US, dur * US), name=GEMM)
            at += dur * US + 12 * US
        at += 100 * US
    return trace


def test_an_execution_that_stands_out_is_found() -> None:
    (variance,) = found(kernels([[100] * 10] * 5 + [[100] * 9 + [900]]), "kernel-variance")
    assert (variance.cause, variance.confidence) == ("outliers", Confidence.HIGH)
    assert (variance.evidence["slow"], variance.evidence["slow_steps"]) == (1, [5])
    (later,) = found(kernels([[100] * 10] * 5 + [[100] * 9 + [900]], first=20), "kernel-variance")
    assert "in the steps with the numbers 25 in the trace" in later.message


def test_other_shapes_under_one_name_are_no_variance() -> None:
    assert found(kernels([[100, 900], [900, 100]] * 4, shapes=True), "kernel-variance") == []


def test_uniformly_slow_steps_without_shapes_may_differ() -> None:
    (variance,) = found(kernels([[500] * 4, [900] * 4] * 4), "kernel-variance")
    assert variance.confidence is Confidence.LOW


@pytest.mark.parametrize(("slow", "whole", "fine"), [(7, 0, 1), (8, 1, 1)])
def test_microsecond_clock_noise_is_no_variance(slow: int, whole: int, fine: int) -> None:
    """A start and an end are each off by up to one: 5 and 7 us may have been the same."""
    trace = kernels([[5] * 10, [slow] * 10] * 4)
    assert len(found(trace, "kernel-variance")) == whole
    assert len(found(trace.shifted(500), "kernel-variance")) == fine


@pytest.mark.parametrize(("slow", "said"), [(1_500, False), (1_800, True)])
def test_variance_below_a_hundredth_is_not_reported(slow: int, said: bool) -> None:
    trace = kernels([[1_000] * 10] * 5 + [[1_000] * 9 + [slow]])
    assert bool(found(trace, "kernel-variance")) is said


def test_a_buffer_request_beside_a_waiting_thread_stalls_nothing() -> None:
    trace = loop({4: 5_000 * US}, LOADER)
    trace.overhead("Activity Buffer Request", 4_500 * US, 2_000 * US)
    assert found(trace, "activity-buffer-request") == []


@pytest.mark.parametrize(("steps", "said"), [(3, ["outliers"]), (2, [])])
def test_three_steps_can_tell_which_one_is_unusual(steps: int, said: list[str]) -> None:
    trace = kernels([[100] * 10] * (steps - 1) + [[100] * 9 + [900]])
    assert [one.cause for one in found(trace, "kernel-variance")] == said


@pytest.mark.parametrize(("slow", "cause"), [(3, "outliers"), (4, "comes-and-goes")])
def test_up_to_15_percent_of_the_executions_are_outliers(slow: int, cause: str) -> None:
    """Of four steps of five executions each; those that stand out are of the third."""
    rows = [[100] * 5 for _ in range(4)]
    rows[2][:slow] = [200] * slow
    (one,) = found(kernels(rows), "kernel-variance")
    assert (one.cause, one.evidence["slow"], one.evidence["slow_steps"]) == (cause, slow, [2])
    assert one.cost_ns == slow * 100_000


@pytest.mark.parametrize(("shapes", "confidence"), [({}, Confidence.LOW), ({"Input Dims": [[5, 5]]}, Confidence.HIGH)])
def test_shapes_show_that_a_slow_step_did_the_same_work(shapes: dict[str, Any], confidence: Confidence) -> None:
    trace = kernels([[100] * 4] * 9 + [[200] * 4])
    for event in trace.events:
        if event["name"] == "aten::mm":
            event["args"] |= shapes
    (one,) = found(trace, "kernel-variance")
    assert (one.cause, one.confidence, one.cost_ns) == ("outliers", confidence, 4 * 100_000)
