"""The first steps, and what happens in them alone."""

import pytest

from tests.rules.hosts import MS, said_by
from tests.rules.loops import Loop, loop_of
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Severity


def _cold(loop: Loop, number: int) -> None:
    if number == 0:
        loop.overhead("Lazy Function Loading", loop.now + 3_000, 2 * MS)
        loop.launched(launch_ns=50 * MS)
        loop.pause(8 * MS)


def test_a_cold_first_step_is_told_once_and_as_info() -> None:
    (built,) = said_by(loop_of(_cold), "cold-start")
    assert built.severity is Severity.INFO
    assert built.evidence["kinds"] == {
        "first use of a library": 48 * MS,
        "Python before the first op": 8_003_000,
        "loading kernels": 2 * MS,
    }


def test_step_delayed_by_the_profiler_is_not_cold() -> None:
    def body(loop: Loop, number: int) -> None:
        if number == 0:
            loop.overhead("Activity Buffer Request", loop.now + 3_000, 20 * MS)
            loop.launched(launch_ns=20 * MS)
        loop.pause(2 * MS)

    assert said_by(loop_of(body), "cold-start") == []


@pytest.mark.parametrize(("slow", "cold"), [(1, True), (2, True), (3, False)])
def test_at_most_a_third_of_the_steps_are_the_first(slow: int, cold: bool) -> None:
    """Of six."""
    found = said_by(loop_of(lambda loop, number: loop.pause(8 * MS if number < slow else 0)), "cold-start")
    assert [one.count for one in found] == [slow] * cold
    for one in found:
        assert one.message.startswith("the first recorded step takes 8.09 ms on the CPU, later steps take 90.0 µs each")


def test_a_library_that_times_its_kernels_is_tuning() -> None:
    def body(loop: Loop, number: int) -> None:
        start = loop.now
        for _ in range(8 if number == 0 else 0):
            loop.launched("aten::empty")
            loop.launch("cudaEventSynchronize", loop.now, MS, 0)
            loop.now += MS
        loop.op("aten::cudnn_convolution", start - 1_000, loop.now - start + 2_000)

    (found,) = said_by(loop_of(body), "cold-start")
    assert next(iter(found.evidence["kinds"])) == "tuning"


def test_a_window_without_usual_steps_is_cold_as_a_whole() -> None:
    (found,) = said_by(loop_of(_cold, steps=1), "cold-start")
    assert found.severity is Severity.HIGH


@pytest.mark.parametrize(("start_ms", "end_ms"), [(0, 20), (10, 30), (30, 50)])
def test_of_a_stall_only_what_lies_in_the_window_counts(start_ms: int, end_ms: int) -> None:
    """It lasts from 0.06 ms to 50.06 ms."""
    window = start_ms * MS, end_ms * MS
    (found,) = diagnose(loop_of(_cold, steps=1), select=["cold-start"], window=window).findings
    length = (end_ms - max(start_ms, 0.06)) * MS
    assert found.evidence["stall_ns"] == pytest.approx(length, rel=0.01)
    assert sum(found.evidence["kinds"].values()) == found.evidence["stall_ns"]


def test_what_recurs_is_no_cold_start() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launch("cudaMalloc", loop.now, 2 * MS, 0)
        loop.now += 2 * MS

    assert said_by(loop_of(body), "cold-start") == []


@pytest.mark.parametrize(
    ("later_ms", "info", "said"),
    [
        (3, False, "most of the window is a cold start"),
        (5, False, "a cold start takes"),
        (70, False, "a cold start takes"),
        (90, True, "a cold start takes"),
    ],
)
def test_a_window_of_one_step_is_judged_by_the_cold_starts_share(later_ms: int, info: bool, said: str) -> None:
    """A stall of 4 ms, and kernels of so many ms after it."""

    def body(loop: Loop, _: int) -> None:
        loop.overhead("Lazy Function Loading", loop.now + 3_000, 4 * MS)
        loop.launched(launch_ns=4 * MS + 5_000)
        loop.launched(kernel_ns=later_ms * MS)
        loop.now += later_ms * MS

    (found,) = said_by(loop_of(body, steps=1), "cold-start")
    assert (found.severity is Severity.INFO) is info
    assert found.message.startswith(said)
    assert (": this window says little about a normal step" in found.advice) is said.startswith("most")


@pytest.mark.parametrize(("stall_ns", "said"), [(980_000, False), (1_000_000, True)])
def test_stalls_of_less_than_a_millisecond_are_chance(stall_ns: int, said: bool) -> None:
    def body(loop: Loop, number: int) -> None:
        if number == 0:
            loop.overhead("Lazy Function Loading", loop.now + 3_000, stall_ns)
            loop.launched(launch_ns=stall_ns + 5_000)

    assert bool(said_by(loop_of(body), "cold-start")) is said
