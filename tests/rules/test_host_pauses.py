"""Pauses between ops, even and uneven."""

from collections.abc import Sequence

import pytest

from tests.rules.hosts import MS, alarms, said_by
from tests.rules.loops import Loop, loop_of
from traceanalyzer.model.finding import Confidence

SLUG = "host-gap"
US = 1_000


def test_pauses_report_their_sum_and_the_longest() -> None:
    """Two of 9 ms and one of 1 ms a step."""

    def body(loop: Loop, number: int) -> None:
        for pause_ms in (9, 1, 9):
            loop.launched("aten::mul")
            loop.pause(pause_ms * MS)
        loop.launched("aten::mul")

    (found,) = alarms(loop_of(body), "host-gap")
    assert found.message.startswith(
        "long pauses without ops (3 times a step) take 19.0 ms a step, at most 9.00 ms each"
    )


def test_uneven_function_reports_median_and_longest() -> None:
    """Three runs of 1 ms and one of 20 ms a step: 4 ms is far from what they take, but each is a run of its own."""

    def body(loop: Loop, number: int) -> None:
        for pause_ms in (1, 1, 1, 20):
            loop.launched("aten::mul")
            loop.pause(pause_ms * MS, "train.py(12): metrics")
        loop.launched("aten::mul")

    (found,) = alarms(loop_of(body), "host-gap")
    assert found.by == "train.py(12): metrics"
    assert found.message.startswith(
        "train.py(12): metrics() runs 4 times a step and takes 1.00 ms each time (median; at most 20.0 ms)"
    )


@pytest.mark.parametrize(
    ("pause_us", "stacks", "said"), [(90, False, False), (110, False, True), (190, True, False), (210, True, True)]
)
def test_recorded_stacks_make_pauses_twice_as_long(pause_us: int, stacks: bool, said: bool) -> None:
    def body(loop: Loop, _: int) -> None:
        for _ in range(100):
            loop.launched(kernel_ns=2_000)
        loop.pause(pause_us * US, "train.py(12): metrics" if stacks else None)

    assert bool(alarms(loop_of(body), SLUG)) is said


@pytest.mark.parametrize(
    ("functions", "by"), [(("a", "a", "b"), "train.py(1): a"), (("a", "b"), None), (("a", "b", "c"), None)]
)
def test_short_pauses_are_named_by_the_main_function(functions: Sequence[str], by: str | None) -> None:
    def body(loop: Loop, _: int) -> None:
        for function in functions:
            loop.pause(150 * US, f"train.py({'abc'.index(function) + 1}): {function}")
            loop.launched()

    (one,) = alarms(loop_of(body), SLUG)
    assert one.by == by


@pytest.mark.parametrize(("steps", "sure"), [(1, Confidence.MEDIUM), (3, Confidence.HIGH)])
def test_a_single_step_shows_no_pause_for_sure(steps: int, sure: Confidence) -> None:
    (one,) = said_by(loop_of(lambda loop, _: loop.pause(3 * MS, "train.py(12): metrics"), steps), SLUG)
    assert (one.by, one.confidence) == ("train.py(12): metrics", sure)


def test_pause_in_a_launching_function_is_reported() -> None:
    def body(loop: Loop, number: int) -> None:
        begin = loop.now
        loop.launched()
        loop.pause(3 * MS)
        for _ in range(100):
            loop.launched()
        loop.python("train.py(5): step", begin, loop.now - begin, python_id=500 + number)

    (one,) = alarms(loop_of(body), SLUG)
    assert one.by == "train.py(5): step"
    assert one.message.startswith("long pauses without ops")
    assert one.advice.startswith("Keep the results of step() if equal arguments give equal ones")


def test_pause_in_tensor_of_a_list_has_the_remedy_of_that_call() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.python("server.py(5): collate", loop.now, 3 * MS, python_id=700 + loop.launches)
        loop.pause(3 * MS, "<built-in method tensor of type object at 0x7fc81573e180>")

    (one,) = alarms(loop_of(body), SLUG)
    assert one.title == "The CPU pauses for 3.00 ms in tensor(), once a step, in collate() (server.py:5)"
    assert one.advice.startswith("Make this tensor once, on the device, or of one numpy array")
    assert "out of the loop" not in one.advice


def test_pause_in_a_package_is_named_with_the_function_that_calls_it() -> None:
    def body(loop: Loop, number: int) -> None:
        start, first = loop.now, 900 + 10 * loop.launches
        loop.python("serve.py(9): stops", start, 3 * MS, python_id=first)
        loop.python(
            "transformers/tokenization_utils_base.py(2853): decode", start, 3 * MS, python_id=first + 1, parent=first
        )
        loop.pause(3 * MS)

    (one,) = alarms(loop_of(body), SLUG)
    assert (
        one.title
        == "The CPU is outside PyTorch ops for 3.00 ms, once a step, in decode() called by stops() (serve.py:9)"
    )
    assert one.advice.startswith("Compare token ids instead of decoding after each token")
    assert one.advice.endswith("This code is in the package transformers, which your code calls in serve.py(9): stops.")


def sampling(loop: Loop, _: int) -> None:
    """A function of 10 ms, 6 ms of which convert a list; the step without it takes well below 1 ms."""
    start, number = loop.now, 100 * loop.launches
    loop.python("replay.py(5): sample", start, 10 * MS, python_id=number)
    loop.python("<built-in function asarray>", start + MS, 6 * MS, python_id=number + 1, parent=number)
    loop.pause(10 * MS)


def test_the_time_of_the_call_is_a_median_as_that_of_its_function() -> None:
    """One of them takes ten times as long."""

    def body(loop: Loop, number: int) -> None:
        times, start = 10 if number == 1 else 1, loop.now
        loop.python("replay.py(5): sample", start, 4 * times * MS, python_id=900 + loop.launches)
        loop.pause(4 * times * MS, "<built-in function asarray>")

    (one,) = alarms(loop_of(body), SLUG)
    assert "takes 4.00 ms each time (median; at most 40.0 ms); asarray() takes 4.00 ms of it" in one.message


def test_saving_is_of_the_call_that_the_remedy_replaces() -> None:
    (one,) = alarms(loop_of(sampling), SLUG)
    assert one.title == "The CPU pauses for 6.00 ms in asarray(), once a step, in sample() (replay.py:5)"
    assert "sample() runs once a step and takes 10.0 ms each time; asarray() takes 6.00 ms of it" in one.message
    assert one.advice.startswith("If this converts a Python list, keep its values in a numpy array")
    assert one.saving is not None
    assert 0.5 < one.saving.share < 0.65
    assert one.saving.high_share > 0.95
