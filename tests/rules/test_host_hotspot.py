"""Ops and functions that compute on the host while the device waits."""

from collections.abc import Callable

import pytest

from tests.rules.hosts import MS, alarms
from tests.rules.loops import Loop, loop_of
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Confidence, Severity


@pytest.mark.parametrize("op", ["aten::normal_", "aten::index", "aten::sort"])
def test_an_op_that_computes_on_the_cpu_is_named(op: str) -> None:
    (found,) = alarms(loop_of(lambda loop, _: loop.host_op(op, 3 * MS)), "host-hotspot")
    assert (found.by, found.count, found.confidence) == (op, 6, Confidence.HIGH)
    assert found.evidence["host_ns"] == 18 * MS


def test_many_small_ops_on_the_cpu_are_named_by_the_line() -> None:
    def body(loop: Loop, number: int) -> None:
        start = loop.now
        for _ in range(100):
            loop.host_op("aten::add", 8_000)
            loop.now += 12_000
        loop.python("data.py(3): augment", start, loop.now - start, python_id=number + 1)

    (found,) = alarms(loop_of(body), "host-hotspot")
    assert found.by == "data.py(3): augment"


def _ranking(sort_ns: Callable[[int], int]) -> Callable[[Loop, int], None]:
    def body(loop: Loop, number: int) -> None:
        start = loop.now
        loop.host_op("aten::argsort", 3 * MS)
        loop.host_op("aten::sort", sort_ns(number))
        loop.python("metric.py(3): ndcg", start, loop.now - start, python_id=number + 1)

    return body


def test_several_ops_of_one_function_are_one_finding() -> None:
    (found,) = alarms(loop_of(_ranking(lambda _: 2 * MS)), "host-hotspot")
    assert (found.by, found.count, found.confidence) == ("metric.py(3): ndcg", 6, Confidence.HIGH)
    assert list(found.evidence["ops"]) == ["aten::argsort", "aten::sort"]
    assert found.message.startswith("metric.py(3): ndcg() computes on the CPU, with aten::argsort")
    assert "at most" not in found.message


def test_several_ops_without_stacks_are_named_by_the_longest() -> None:
    def body(loop: Loop, _: int) -> None:
        for op, ns in (("aten::index_select", 2 * MS), ("aten::copy_", 3 * MS // 2), ("aten::div_", MS)):
            loop.host_op(op, ns)

    (found,) = alarms(loop_of(body), "host-hotspot")
    assert (found.by, found.count, found.confidence) == ("aten::index_select", 6, Confidence.HIGH)
    assert list(found.evidence["ops"]) == ["aten::index_select", "aten::copy_", "aten::div_"]
    assert found.evidence["host_ns"] >= 6 * 4.5 * MS
    assert found.message.startswith("aten::index_select")
    assert " compute on the CPU for 4.5" in found.message


def test_one_op_that_is_most_of_its_function_keeps_its_name() -> None:
    (found,) = alarms(loop_of(_ranking(lambda _: MS // 5)), "host-hotspot")
    assert found.by == "aten::argsort"


def test_host_work_beside_a_busy_device_is_no_loss() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launched(kernel_ns=4 * MS)
        loop.host_op("aten::sort", 3 * MS)
        loop.now += 2 * MS

    assert [one.by for one in alarms(loop_of(body), "host-hotspot") if one.by == "aten::sort"] == []


def _averaging(loop: Loop, number: int) -> None:
    """A function of many views between which python runs, in a step of short kernels."""
    start = loop.now
    for _ in range(60):
        loop.host_op("aten::detach", 3_000)
        loop.now += 20_000
    loop.python("train.py(30): ema", start, loop.now - start, python_id=number + 1)
    for _ in range(400):
        loop.launched(kernel_ns=2_000)


@pytest.mark.parametrize(("steps", "severe"), [(6, True), (1, False)], ids=["in every step", "in the only step"])
def test_a_function_keeps_its_time_from_the_launches_around_it(steps: int, severe: bool) -> None:
    report = diagnose(loop_of(_averaging, steps), select=["launch-bound", "host-gap", "host-hotspot"])
    (found,) = [one for one in report.findings if one.by == "train.py(30): ema"]
    assert (found.rule, found.count, found.severity is not Severity.INFO) == ("host-hotspot", steps, severe)
    assert "; between ops, the Python code of train.py(30): ema() takes 1.50 ms" in found.message
    assert found.message.startswith("28.3 % of the predicted step is in train.py(30): ema();")


def test_launches_are_worth_what_is_left_when_the_host_is_quick() -> None:
    def body(loop: Loop, _: int) -> None:
        for _ in range(200):
            loop.launched(kernel_ns=2_000)
        loop.host_op("aten::sort", 4 * MS)

    trace = loop_of(body)
    host, launches = diagnose(trace).findings[:2]
    assert [host.rule, launches.rule] == ["host-hotspot", "launch-bound"]
    (alone,) = diagnose(trace, select=["launch-bound"]).findings
    assert host.saving is not None
    assert launches.saving is not None
    assert alone.saving is not None
    assert launches.saving.beyond
    assert not alone.saving.beyond
    assert launches.saving.share + host.saving.share <= 1 < alone.saving.share + host.saving.share


@pytest.mark.parametrize(("kernel_us", "whole"), [(20, True), (150, True), (400, False)])
def test_gpu_busy_at_the_start_is_idle_in_part(kernel_us: int, whole: bool) -> None:
    """Work of 3 ms on the CPU after a kernel that may run on for some of it."""

    def body(loop: Loop, _: int) -> None:
        loop.launched(kernel_ns=kernel_us * 1_000)
        loop.host_op("aten::sort", 3 * MS)

    (found,) = alarms(loop_of(body), "host-hotspot")
    assert ("the GPU is idle all this time" in found.message) is whole
    assert ("of each step" in found.message.rpartition("the GPU is idle")[2]) is not whole


@pytest.mark.parametrize(("steps", "said"), [(range(2), False), (range(4), True)])
def test_work_recurs_that_most_of_six_steps_have(steps: range, said: bool) -> None:
    trace = loop_of(lambda loop, number: loop.host_op("aten::sort", 3 * MS if number in steps else 0))
    assert [one.count for one in alarms(trace, "host-hotspot")] == [len(steps)] * said


@pytest.mark.parametrize(
    ("ns", "stacks", "said"),
    [(90_000, False, False), (110_000, False, True), (190_000, True, False), (210_000, True, True)],
)
def test_recorded_stacks_make_short_pauses_longer(ns: int, stacks: bool, said: bool) -> None:
    def body(loop: Loop, number: int) -> None:
        start = loop.now
        loop.host_op("aten::sort", ns)
        if stacks:
            loop.python("data.py(3): rank", start - 500, loop.now - start, python_id=number + 1)

    assert bool(alarms(loop_of(body), "host-hotspot")) is said


@pytest.mark.parametrize(
    ("path", "advice", "sure"),
    [
        ("/env/site-packages/tokens/fast.py", "This code is in the package tokens", Confidence.MEDIUM),
        ("/home/me/data.py", "Take it out of the loop", Confidence.MEDIUM),
        ("torch/nn/utils/clip_grad.py", "", Confidence.LOW),
    ],
)
def test_advice_differs_for_library_and_user_code(path: str, advice: str, sure: Confidence) -> None:
    def body(loop: Loop, number: int) -> None:
        start = loop.now
        loop.pause(MS)
        loop.host_op("aten::empty", 50_000)
        loop.pause(2 * MS)
        frame = {"python_id": 10 * number + 1}
        loop.python("/home/me/train.py(7): step", start - 500, loop.now - start + 1_000, **frame)
        loop.python(f"{path}(3): encode", start, loop.now - start, python_id=10 * number + 2)

    (found,) = alarms(loop_of(body), "host-hotspot")
    own = sure is Confidence.MEDIUM
    assert found.by == (f"{path}(3): encode" if own else "/home/me/train.py(7): step")
    assert found.advice.startswith(advice)
    assert ("record without it first" in found.advice) is not own
    assert found.confidence is sure


def test_many_short_calls_of_one_op_add_up() -> None:
    """Only short views are launch-bound's: an op that computes on the CPU is named, however short its calls are."""

    def body(loop: Loop, number: int) -> None:
        for _ in range(100):
            loop.host_op("aten::normal_", 20_000)

    (found,) = alarms(loop_of(body), "host-hotspot")
    assert (found.by, found.count) == ("aten::normal_", 600)
    assert found.evidence["host_ns"] == 600 * 20_000
