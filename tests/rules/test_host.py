"""What keeps the CPU from launching: python between ops, a cold start, ops that compute on the host."""

import pytest

from tests.rules.hosts import ENGINE, MS, alarms, said_by
from tests.rules.loops import Loop, annotated, loop_of
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Confidence, Severity

# -- host-gap ---------------------------------------------------------------------------------------------------------


def test_function_with_largest_total_is_named() -> None:
    def body(loop: Loop, number: int) -> None:
        loop.pause(3 * MS, "train.py(12): metrics")
        loop.launched()
        if number == 3:
            loop.pause(9 * MS, "torch/profiler/profiler.py(7): start_trace")

    found = alarms(loop_of(body), "host-gap")
    assert [one.by for one in found] == ["train.py(12): metrics"]
    assert found[0].count == 6


def test_functions_within_the_named_one_are_told() -> None:
    def body(loop: Loop, _: int) -> None:
        for call in range(10):
            loop.python("data.py(9): clean", loop.now + call * 300_000, 270_000, python_id=100 + call)
        loop.pause(3 * MS, "data.py(5): encode")

    (found,) = alarms(loop_of(body), "host-gap")
    assert found.by == "data.py(5): encode"
    assert found.evidence["functions"]["data.py(9): clean"] == pytest.approx(6 * 2.7 * MS, rel=0.1)


def test_what_does_not_come_back_is_info() -> None:
    found = said_by(loop_of(lambda loop, number: loop.pause(9 * MS if number == 3 else 0)), "host-gap")
    assert [(one.cause, one.severity) for one in found] == [("once", Severity.INFO)]


def test_a_stretch_is_not_the_function_that_it_lies_in() -> None:
    """The way into a model's forward: its caller's part of it, and the model's; forward itself takes long after it."""

    def body(loop: Loop, _: int) -> None:
        begin = loop.now
        loop.python("run.py(28): run", begin, 2 * MS, python_id=900)
        loop.python("model.py(13): forward", begin + 400_000, 1_600_000, python_id=901)
        loop.pause(MS)
        for _ in range(76):
            loop.launched(kernel_ns=2_000)
        loop.now = begin + 2 * MS

    (found,) = alarms(loop_of(body), "host-gap")
    assert found.message.startswith(
        "long pauses without ops (once a step) take 1.00 ms a step, at most 1.00 ms each; more than half of this "
        "time is within model.py(13): forward"
    )
    assert found.confidence is Confidence.MEDIUM


def test_a_function_is_told_with_its_own_times_and_calls() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.pause(50_000)
        loop.pause(MS, "train.py(12): metrics")
        loop.launched()

    (found,) = alarms(loop_of(body), "host-gap")
    assert found.message.startswith("train.py(12): metrics() runs once a step and takes 1.00 ms each time")
    assert found.advice.startswith("Keep the results of metrics() if equal arguments give equal ones")


@pytest.mark.parametrize("calls", [2, 3])
def test_several_calls_in_a_stretch_are_not_one(calls: int) -> None:
    def body(loop: Loop, _: int) -> None:
        for _ in range(calls):
            loop.launches += 1
            loop.pause(MS, "train.py(12): metrics")
        loop.launched()

    (found,) = alarms(loop_of(body), "host-gap")
    assert "metrics runs" not in found.message


def test_what_no_function_has_most_of_is_not_told_to_move() -> None:
    def body(loop: Loop, _: int) -> None:
        begin = loop.now
        loop.python("run.py(28): run", begin, 5 * MS, python_id=900)
        for part in range(3):
            loop.python(f"part.py({part}): part{part}", begin + part * MS, 900_000, python_id=901 + part)
        loop.now += 3 * MS
        for _ in range(153):
            loop.launched(kernel_ns=2_000)

    (found,) = alarms(loop_of(body), "host-gap")
    assert "within run.py(28): run(): part.py(" in found.message
    assert found.advice.startswith("The time is spread over many calls")


@pytest.mark.parametrize("rule", ["host-gap", "host-hotspot"])
def test_time_in_which_launched_work_waits_is_not_the_hosts(rule: str) -> None:
    """A server's GPU is busy with what was launched before the recording: the first copy waits for that."""
    trace = TraceBuilder(with_stack=True)
    trace.op("aten::copy_", 10_000, 20_000)
    trace.launch("cudaMemcpyAsync", 15_000, 10_000, 1)
    trace.python("serve.py(9): prepare", 40_000, 900_000, python_id=5)
    for number in range(2, 12):
        trace.op("aten::mm", MS + 20_000 * number, 15_000)
        trace.launched((MS + 20_000 * number + 2_000, 5_000), ((7 + number) * MS, 999_000), number)
    trace.kernel(8 * MS, 999_000, 1)
    trace.step(0, 0, 2 * MS)
    report = diagnose(trace.load())
    assert rule not in {one.rule for one in report.findings}
    assert report.findings[0].rule == "hotspot"


def test_pauses_in_several_steps_recur_wherever_they_fall() -> None:
    def body(loop: Loop, number: int) -> None:
        loop.launched(f"aten::op{number}")
        loop.pause(9 * MS if number % 3 == 1 else 0)
        loop.launched(f"aten::other{number}")

    (found,) = alarms(loop_of(body, steps=9), "host-gap")
    assert (found.count, found.steps) == (3, 3)


def test_launch_after_a_pause_is_no_second_finding() -> None:
    """The GPU waits 4 µs longer than the pause: for the op after it, which no line of Python explains."""

    def body(loop: Loop, _: int) -> None:
        for _ in range(20):
            loop.pause(300_000)
            loop.launched()

    report = diagnose(loop_of(body), select=["host-gap", "scheduler-gap"])
    assert [(one.rule, one.cause) for one in report.findings if one.severity is not Severity.INFO] == [("host-gap", "")]
    assert report.findings[0].cost_ns > 6 * 20 * 300_000 - 6 * 20 * 20_000


def test_the_autograd_engines_own_time_is_not_the_users() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.now += 400_000  # the way into the engine
        for _ in range(2):
            loop.launched("autograd::engine::evaluate_function: MmBackward0", tid=ENGINE)
            loop.now += 2 * MS
        loop.launched("autograd::engine::evaluate_function: AccumulateGrad", tid=ENGINE)
        loop.now += 400_000  # the way out of it

    assert said_by(loop_of(body), "host-gap") == []


def test_an_optimizers_python_is_torchs() -> None:
    assert said_by(loop_of(annotated("Optimizer.step#Adam.step", 2 * MS)), "host-gap") == []


# -- scheduler-gap ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before_ns", "by"), [(0, "AdamW.step"), (900_000, None)])
def test_optimizer_idle_time_is_advised_a_graph(before_ns: int, by: str | None) -> None:
    """A fused optimizer groups its tensors in Python before it launches; a pause before its step is the user's."""

    def body(loop: Loop, _: int) -> None:
        loop.pause(before_ns)
        begin = loop.now
        loop.pause(600_000)
        loop.launched("aten::_fused_adamw_")
        loop.annotation("Optimizer.step#AdamW.step", begin, loop.now - begin)

    one = max(alarms(loop_of(body), "scheduler-gap"), key=lambda found: found.cost_ns)
    assert (one.cause, one.by) == ("host-code", by)
    assert ("CUDA graph" in one.advice, "with_stack" in one.advice) == (by is not None, by is None)
    assert ("torch's own Python ran in AdamW.step()" in one.message) == (by is not None)


def test_fetching_a_batch_that_is_ready_is_no_fault() -> None:
    """Workers load; the main thread takes 25 to 60 µs for each batch."""
    found = {one.cause: one for one in said_by(FIXTURES / "dataloader-stall/good.json.gz", "scheduler-gap")}
    assert found["data-loading"].severity is Severity.INFO
    assert found["data-loading"].advice.startswith("Nothing to do")
