"""Texts and limits of pauses, loaders and cold starts."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.rules.hosts import MS, said_by
from tests.rules.loops import Loop, loop_of
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Confidence, Severity
from traceanalyzer.rule.cpu_gaps import CallsAfterCpuGaps
from traceanalyzer.rules.host.cold_start import Limits, cold_steps, longest_rows
from traceanalyzer.rules.host.dataloader_stall import with_rest
from traceanalyzer.rules.host.host_gap import pause_advice, place_text

US = 1_000


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"a": 60, "b": 40}, {"a": 60, "b": 40}),
        ({"a": 20, "b": 30}, {"rest": 50, "b": 30, "a": 20}),
        ({"a": 99}, {"a": 99, "rest": 1}),
        ({"a": 99.1}, {"a": 99.1}),  # less than a hundredth is left out
    ],
)
def test_rest_is_listed_from_one_percent_on(parts: dict[str, int], told: dict[str, int]) -> None:
    found = with_rest(parts, 100, "rest")
    assert list(found.items()) == list(told.items())


@pytest.mark.parametrize(
    ("functions", "alone", "words"),
    [
        ({"g": 9}, True, ", with most of that time in {functions}"),
        ({"f": 9, "g": 1}, True, ""),
        ({"g": 9}, False, ", within {by}: {functions}"),
        ({"f": 9, "g": 1}, False, ", within {by}"),
    ],
)
def test_inner_functions_are_listed_if_they_differ(functions: dict[str, int], alone: bool, words: str) -> None:
    assert place_text({"functions": functions, "places": {}, "lines": {"f": 9}}, "f", single=alone) == words


@pytest.mark.parametrize(
    ("lines", "functions", "alone", "words"),
    [
        ({}, {}, False, "Pass with_stack=True"),
        ({"f": 1}, {}, True, "Move this code out of the loop"),
        ({"f": 1}, {"g": 5, "h": 5}, False, "Move this code out of the loop"),  # one of them has half
        ({"f": 1}, {"g": 4, "h": 3, "i": 3}, False, "The time is spread over many calls"),
        ({"f": 1}, {"g": 4, "h": 3, "i": 3}, True, "Move this code out of the loop"),
    ],
)
def test_function_with_half_of_the_time_gets_the_advice(
    lines: dict[str, int], functions: dict[str, int], alone: bool, words: str
) -> None:
    pauses = Analysis(loop_of(lambda loop, _: loop.pause(MS))).index(CallsAfterCpuGaps)
    evidence = {"functions": functions, "lines": lines}
    assert pause_advice(pauses, evidence, single=alone).startswith(words)


def cold(ends_us: list[int], held_us: int = 0) -> list[int]:
    """Which of steps that take so long on the CPU are cold; the profiler holds the first one up."""
    dur = np.array(ends_us) * US
    starts = np.append(0, np.cumsum(dur)[:-1])
    steps = type("Steps", (SimpleNamespace,), {"__len__": lambda self: len(dur)})(
        cpu_start_ns=starts, cpu_end_ns=starts + dur
    )
    held = (np.array([0]), np.array([held_us * US])) if held_us else (np.empty(0, int), np.empty(0, int))
    activity: Any = SimpleNamespace(sets={"profiler": held})
    return cold_steps(steps, activity, Limits()).tolist()


@pytest.mark.parametrize(
    ("ends_us", "held_us", "steps"),
    [
        ([9_000, 1_000, 1_000], 0, [0]),
        ([9_000, 1_000], 0, []),  # nobody knows what is usual
        ([2_000, 1_000, 1_000], 0, []),  # not more than twice
        ([2_001, 1_000, 1_000], 0, [0]),
        ([1_099, 100, 100], 0, []),  # less than a millisecond more
        ([1_100, 100, 100], 0, [0]),
        ([9_000, 9_000, 1_000, 1_000, 1_000, 1_000], 0, [0, 1]),
        ([9_000, 9_000, 9_000, 1_000, 1_000, 1_000, 1_000], 0, []),  # more than a third
        ([1_000, 9_000, 1_000, 1_000, 1_000, 1_000], 0, []),  # not the first
        ([9_000, 1_000, 9_000, 1_000, 1_000, 1_000], 0, [0]),
        ([9_000, 1_000, 1_000], 7_500, []),  # the profiler's time is not the step's
        ([9_000, 1_000, 1_000], 6_500, [0]),
        ([9_000, 9_000, 9_000], 0, []),
    ],
)
def test_first_steps_above_twice_usual_are_cold(ends_us: list[int], held_us: int, steps: list[int]) -> None:
    assert cold(ends_us, held_us) == steps


def test_stretch_is_named_by_its_longest_call() -> None:
    start, end = np.array([0, 10, 60, 100, 105]), np.array([20, 50, 62, 110, 140])
    spans = np.array([0, 60, 100]), np.array([50, 62, 140])
    assert longest_rows(np.array([7, 8, 9, 3, 4]), start, end, spans).tolist() == [8, 9, 4]


@pytest.mark.parametrize(("steps", "said"), [(2, True), (3, False), (6, False)])
def test_python_before_first_calls_is_a_cold_start(steps: int, said: bool) -> None:
    """A pause of 5 ms before the first call of a scripted function, which comes again without one."""

    def body(loop: Loop, number: int) -> None:
        if number == 0:
            loop.pause(5 * MS)
        for _ in range(4):
            loop.launched("scripted_encode")

    found = said_by(loop_of(body, steps=steps), "cold-start")
    kinds = [list(one.evidence["kinds"]) for one in found]
    assert (["Python before the first op"] in kinds) is (said or steps > 2)
    for one in found:
        assert (one.severity is Severity.INFO) is (steps > 2)
        assert one.confidence is (Confidence.HIGH if steps > 2 else Confidence.MEDIUM)
        assert ("first recorded step takes" in one.message) is (steps > 2)
        assert one.advice.startswith("Warm up before measuring") is (steps > 2)


def test_a_usual_step_is_told_without_the_cold_ones() -> None:
    """Two cold steps of six: the others take 90 us each, and of the six the median would be more."""

    def body(loop: Loop, number: int) -> None:
        loop.pause((20 * MS, 9 * MS, 0, 2 * US, 4 * US, 6 * US)[number])

    (found,) = said_by(loop_of(body), "cold-start")
    assert found.evidence["first_ns"] > 20 * MS
    assert found.evidence["usual_ns"] == pytest.approx(90 * US + 3 * US + 20 * US, abs=25 * US)
