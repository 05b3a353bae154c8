"""What a rule may yield and what not, just at the edge; and how an error of its own is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rule.careless import hit
from tests.rule.grouped import LENGTH, MS, traced
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.replay.edits import DropWork
from traceanalyzer.rule import Calls, LostTime, Work
from traceanalyzer.rule.checks import check, place_of, told


@pytest.fixture(scope="module")
def two_devices() -> Analysis:
    """A thread and two streams within 100 ms."""
    return traced((1 * MS, 2 * MS), (30 * MS, 3 * MS), (30 * MS, 3 * MS, 1), (80 * MS, 2 * MS, 1))


def lost(owner: int, start: int, end: int, device: int = 0) -> LostTime:
    return LostTime(*(np.array([value]) for value in (owner, device, start, end)))


def test_what_loses_nothing_is_said_with_a_fix_as_info_or_for_the_job(two_devices: Analysis) -> None:
    work = two_devices.index(Work)
    given: list[dict[str, Any]] = [{"of_job": True}, {"info": True}, {"fix": DropWork(work.entries)}]
    for one in given:
        check(hit(work, lost=LostTime.none(), **one))
    with pytest.raises(ValueError, match="occurrences without lost time, a fix or info=True are never said"):
        check(hit(work, lost=LostTime.none()))
    calls = two_devices.index(Calls)
    with pytest.raises(ValueError, match="are never said"):
        check(hit(calls[calls.is_call]))
    check(hit(calls[calls.is_call], of_job=True))


@pytest.mark.parametrize("place", [0, 1])
def test_each_of_the_related_is_a_view_of_this_trace(two_devices: Analysis, place: int) -> None:
    work = two_devices.index(Work)
    given: list[Any] = [work.launch, work.op]
    check(hit(work, related=given))
    other = traced((1 * MS, MS), (3 * MS, MS), (5 * MS, MS), (7 * MS, MS)).index(Work)
    for wrong, why in (
        (3, rf"related\[{place}\] is a view, not int"),
        (other, "related are of another trace"),
    ):
        with pytest.raises((TypeError, ValueError), match=why):
            check(hit(work, related=[*given[:place], wrong, *given[place + 1 :]]))


def test_times_are_no_more_than_all_threads_and_streams_have_together(two_devices: Analysis) -> None:
    """Three lanes of 100 ms."""
    work = two_devices.index(Work)
    for most in (3 * LENGTH, {"mm": 5, "add": 3 * LENGTH}):
        check(hit(work, evidence={"wait_ns": most, "moved_bytes": 10**15, "waits": 10**15}))
    for more in (3 * LENGTH + 1, {"mm": 5, "add": 3 * LENGTH + 1}):
        with pytest.raises(
            ValueError, match=r"evidence wait_ns is 3e\+08: all threads and streams have 3e\+08 together"
        ):
            check(hit(work, evidence={"wait_ns": more}))


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (lost(1, 30 * MS + 500, 31 * MS), None),
        (lost(2, 30 * MS + 500, 31 * MS), "lost has an owner of 2 with 2 occurrences"),
        (lost(1, 30 * MS + 500, 31 * MS, device=1), "all that work lost is the time of other work"),
        (lost(0, 81 * MS, 82 * MS, device=1), "all that work lost is the time of other work"),
        (lost(0, 30 * MS + 500, 33 * MS), "all that work lost is the time of other work"),
        (lost(0, 30 * MS + 500, 33 * MS + 501), None),
        (lost(0, 29 * MS, 31 * MS, device=1), None),
        (lost(0, -1, 2 * MS), "lost stretches lie outside of the trace"),
        (lost(0, 0, 2 * MS), None),
        (lost(1, 90 * MS, LENGTH), None),
        (lost(1, 90 * MS, LENGTH + 1), "lost stretches lie outside of the trace"),
    ],
)
def test_what_work_loses_is_its_own_time_or_idle_time_of_its_trace(
    two_devices: Analysis, one: LostTime, why: str | None
) -> None:
    """Two kernels on one device; while the second runs, the other device works as well."""
    work = two_devices.index(Work)
    first = work[work.device == 0]
    assert first.start_ns.tolist() == [MS + 500, 30 * MS + 500]
    if why is None:
        check(hit(first, lost=one))
        return
    with pytest.raises(ValueError, match=why):
        check(hit(first, lost=one))


def test_what_loses_time_of_other_work_in_part_only_passes(two_devices: Analysis) -> None:
    """One of two stretches is beside its owner: what work waits for may be other work."""
    work = two_devices.index(Work)
    first = work[work.device == 0]
    check(hit(first, lost=LostTime.joined([lost(0, MS + 500, 2 * MS), lost(0, 30 * MS + 500, 31 * MS)])))


def test_a_pattern_that_is_nowhere_is_no_finding_whatever_is_said_of_it(two_devices: Analysis) -> None:
    work = two_devices.index(Work)
    check(hit(work[:0], repeated_rows=True))
    with pytest.raises(ValueError, match="repeated_rows is of calls and idle time"):
        check(hit(work, repeated_rows=True))


class _Untold(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError(), "KeyError"),
        (OSError("read-only file system"), "OSError: read-only file system"),
        (
            ValueError("assignment destination is read-only"),
            "ValueError: what views, indexes and a yielded finding have is shared, so copy it first "
            "(assignment destination is read-only)",
        ),
        (_Untold(), "_Untold: its text cannot be made"),
    ],
)
def test_an_error_is_told_by_its_kind_and_text(error: BaseException, text: str) -> None:
    assert told(error) == text


def _helper() -> int:
    return 1 // 0


def _rule() -> int:
    return _helper()


def test_an_error_is_where_the_rules_file_was_last_whatever_it_called() -> None:
    """In a helper of the same file; of what another file raises, at the call."""
    with pytest.raises(ZeroDivisionError) as within:
        _rule()
    line = _helper.__code__.co_firstlineno + 1
    assert place_of(within.value, _rule) == f"rule/test_what_may_be_yielded.py, line {line}"
    with pytest.raises(TypeError) as elsewhere:
        LostTime.joined(3)  # type: ignore[arg-type]
    line = test_an_error_is_where_the_rules_file_was_last_whatever_it_called.__code__.co_firstlineno + 7
    assert place_of(elsewhere.value, _rule) == f"rule/test_what_may_be_yielded.py, line {line}"
    line = _rule.__code__.co_firstlineno
    assert place_of(ValueError(), _rule) == f"rule/test_what_may_be_yielded.py, line {line}"
