"""Each check of findings, with a finding that fails it and one that passes."""

from dataclasses import replace
from typing import Any

import pytest

from tests.report import report_samples as samples
from tests.rules.kernel_programs import BF16, F32, NVJET, Op, program
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Severity, Trace
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule import Calls, Hits, Work
from traceanalyzer.rule.consistency import Claim, failures_of, most_rates, passed
from traceanalyzer.tensors.launch_inputs import WorkInputs

US = 1_000


def claim(of: dict[str, Any] | None = None, **changes: Any) -> Claim:
    """A claim of a finding with these changes."""
    return Claim(samples.finding(0, **{"message": "", **changes}), **(of or {}))


def failed(one: Claim) -> list[str]:
    return [failure.check for failure in failures_of(one)]


def work_of(trace: Trace) -> dict[str, Any]:
    """All GPU work of a trace as what a finding is about."""
    analysis = Analysis(trace)
    hits = Hits(analysis.index(Work), "message", "advice")
    return {"hits": hits, "inputs": analysis.index(WorkInputs)}


@pytest.mark.parametrize(
    ("message", "checks"),
    [
        ("it reaches 4,900 GB/s", ["rate-above-peak"]),
        ("it reaches 4,800 GB/s", []),
        ("it reaches 1,527 TFLOP/s", ["rate-above-peak"]),
        ("it reaches 58.3 GB/s over the link", []),
        ("a cold start takes 0 ns of the window", ["empty-number"]),
        ("kernels take 1 times as long as the rest", ["empty-number"]),
        ("kernels take 1.1 times as long, 10 ns more, 11 times", []),
    ],
)
def test_rates_and_numbers_in_a_message_are_possible(message: str, checks: list[str]) -> None:
    peaks = {"GB/s": 4_800.0, "TFLOP/s": 990.0}
    assert failed(claim({"peaks": peaks}, message=message)) == checks
    assert failed(claim(message="it reaches 14,822 GB/s")) == []


def test_highest_rates_need_all_devices_in_the_table() -> None:
    assert most_rates(["NVIDIA H200"]) == {"GB/s": 4_800.0, "TFLOP/s": pytest.approx(1_979, rel=0.01)}
    assert most_rates(["NVIDIA H200", "Unknown 9000"]) is None
    assert most_rates([]) is None


@pytest.mark.parametrize(("saved", "checks"), [(0.1, ["worthless-and-saving"]), (-0.1, [])])
def test_what_saves_time_is_worth_it(saved: float, checks: list[str]) -> None:
    saving = replace(samples.saving(), share=saved)
    one = claim(saving=saving, advice="Not worth it here: the predicted step gets 121 µs longer. Elsewhere: graph")
    assert failed(one) == checks


@pytest.mark.parametrize(("most", "checks"), [(0.49, ["saving-above-its-time"]), (0.5, []), (None, [])])
def test_a_saving_is_within_the_time_that_its_fix_takes(most: float | None, checks: list[str]) -> None:
    saving = samples.saving()
    most_ns = None if most is None else most * saving.step_ns
    assert failed(claim({"most_ns": most_ns}, saving=saving)) == checks


@pytest.mark.parametrize(("step_ns", "checks"), [(990, ["idle-above-step"]), (991, []), (None, [])])
def test_idle_time_of_a_step_is_no_longer_than_the_step(step_ns: int | None, checks: list[str]) -> None:
    trace = TraceBuilder()
    trace.op("aten::add", 0, 100)
    hits = Hits(Analysis(trace.load()).index(Calls), "message", "advice")
    assert failed(claim({"hits": hits, "step_ns": step_ns}, cost_per_step_ns=1_000)) == checks
    assert failed(claim({"step_ns": step_ns}, cost_per_step_ns=1_000)) == []  # work may run together


def test_a_cost_is_within_the_time_of_the_op_in_its_title() -> None:
    """Of six steps: 100 us of the op, 701 or 700 us of another one."""
    for other_us, checks in ((701, ["cost-above-its-op"]), (700, [])):
        of = work_of(program([Op("aten::mul", NVJET, 100), Op("aten::layer_norm", NVJET, other_us)]))
        assert failed(claim(of, by="aten::mul")) == checks
    assert failed(claim(of, by="aten::mm")) == []
    assert failed(claim(work_of(program([Op("aten::mul", NVJET, 100)])), by="aten::mul")) == []


@pytest.mark.parametrize(
    ("shapes", "checks"),
    [
        ("2048x2048, 2048x4096", ["padding-of-aligned"]),
        ("2048x2047, 2047x4096", []),
        ("9" * 5_000, []),
        ("9" * 5_000 + "000", ["padding-of-aligned"]),
        (None, []),
    ],
    ids=["aligned", "odd", "5000-odd-digits", "5000-digits", "unknown"],
)
def test_only_an_odd_dimension_may_be_padded(shapes: str | None, checks: list[str]) -> None:
    advice = "Pad the dimension that is not a multiple of 8."
    assert failed(claim(advice=advice, evidence={"shapes": shapes})) == checks


@pytest.mark.parametrize(("kind", "checks"), [(BF16, ["float32-of-halves"]), (F32, [])])
def test_recorded_types_decide_what_is_float32(kind: str, checks: list[str]) -> None:
    of = work_of(program([Op("aten::mm", NVJET, 100, [[64, 64]] * 2, [kind] * 2)]))
    assert failed(claim(of, message="float32 matmul runs without tensor cores", cost_ns=0)) == checks


@pytest.mark.parametrize(
    ("of", "changes", "check", "doubted"),
    [
        (
            {"dialect": "torch 2.8 to 2.11 on XPU"},
            {"advice": "Capture it with torch.cuda.graph."},
            "cuda-graph-on-xpu",
            False,
        ),
        (
            {"step_basis": "1 step; what collectives wait for is taken for other ranks' launching"},
            {"saving": samples.saving()},
            "ranks-assumed",
            True,
        ),
        ({}, {"evidence": {"guessed_rate": True}}, "peak-guessed", False),
    ],
)
def test_what_rests_on_an_assumption_is_low_at_most(
    of: dict[str, Any], changes: dict[str, Any], check: str, doubted: bool
) -> None:
    one = claim(of, severity=Severity.HIGH, **changes)
    finding, failures = passed(one)
    assert [failure.check for failure in failures] == [check]
    assert finding is not None
    assert (finding.severity, finding.doubtful) == (Severity.LOW, doubted)
    assert "demoted" in str(failures[0])


def test_a_false_finding_is_left_out() -> None:
    finding, (failure,) = passed(claim(message="a cold start takes 0 ns"))
    assert finding is None
    assert str(failure) == 'scheduler-gap (late) left out, empty-number: "0 ns" is no finding'
