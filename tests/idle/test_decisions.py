"""Gaps of several devices on one axis, and which call a chain of gaps goes back to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from traceanalyzer.idle.cause_conditions import refill
from traceanalyzer.idle.gap_evidence import _DEFAULT_DELAY_NS, _MAX_DELAY_NS, Evidence, _chained
from traceanalyzer.idle.gap_segments import Cutter, Proof
from traceanalyzer.idle.gaps import longest_row


def test_gaps_never_touch_on_the_axis_that_they_are_cut_on() -> None:
    start, length = np.array([100, 100, 130]), np.array([20, 30, 5])
    gaps: Any = SimpleNamespace(
        dur_ns=length, start_ns=start, end_ns=start + length, returned_ns=start, call=np.array([-1, -1, -1])
    )
    assert Cutter(gaps).axis.tolist() == [0, 21, 52]


@pytest.mark.parametrize(
    ("before", "in_time", "calls"),
    [
        ([0, 1, 2], [False, True, True], [7, 7, 7]),  # each begins after the work of the one before
        ([0, 1, 2], [False, True, False], [7, 7, 9]),  # the third was launched late: its own call
        ([0, 5, 2], [False, True, True], [7, 8, 8]),  # the second follows other work
    ],
)
def test_a_gap_goes_back_to_the_call_that_its_chain_began_with(
    before: list[int], in_time: list[bool], calls: list[int]
) -> None:
    gaps: Any = SimpleNamespace(
        previous_work=np.array(before), next_work=np.array([1, 2, 3]), in_time=np.array(in_time)
    )
    chained = _chained(np.array([7, 8, 9]), gaps)
    assert [
        call if back < 0 else back for call, back in zip([7, 8, 9], chained.tolist(), strict=True)
    ] == calls


def test_of_rows_that_begin_together_the_outermost_counts() -> None:
    nesting: Any = SimpleNamespace(start_ns=np.array([0, 0, 50, 60]), end_ns=np.array([10, 40, 90, 70]))
    starts, ends = np.array([20, 30, 45, 95]), np.array([45, 80, 48, 99])
    for order in ([0, 1, 2, 3], [3, 1, 2, 0]):
        found = longest_row(nesting, np.array(order), starts, ends)
        assert found.tolist() == [1, 2, -1, -1]


@pytest.mark.parametrize(("ns", "whole", "taken"), [(10_000, True, 1), (9_999, True, 0), (10_000, False, 0)])
def test_real_part_is_a_tenth_or_whole_gap_without_launch(ns: int, whole: bool, taken: int) -> None:
    start, end, none = np.array([0]), np.array([100_000]), np.array([-1])
    gaps: Any = SimpleNamespace(dur_ns=end - start, start_ns=start, end_ns=end, returned_ns=none, call=none)
    gaps = type("Gaps", (SimpleNamespace,), {"__len__": lambda self: 1})(**vars(gaps))
    found = Cutter(gaps).take(Proof((start, np.array([ns])), none, np.array([True]), whole))
    assert [one.tolist() for one in found] == [[0] * taken, [0] * taken, [ns] * taken]


class _Gaps(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.device)


def test_delay_is_usual_unless_disagreeing_clocks_explain_it() -> None:
    device = np.array([0, 0, 1, 2, 3])
    launched = np.array([10, 20, 30, 40, 5])
    delay = np.array([7_000, 7_000, _MAX_DELAY_NS, _MAX_DELAY_NS + 1, 9_000])
    gaps = _Gaps(device=device, launched_ns=launched, start_ns=np.full(5, 5), end_ns=launched + delay)
    usual = Evidence.usual_delay_ns.func(SimpleNamespace(gaps=gaps))  # type: ignore[attr-defined, arg-type]
    assert usual.tolist() == [7_000, 7_000, _MAX_DELAY_NS, _DEFAULT_DELAY_NS, _DEFAULT_DELAY_NS]


def test_a_gap_may_wait_for_the_call_in_the_first_row() -> None:
    evidence: Any = SimpleNamespace(waits=(None, np.array([0, -1, 4])))
    assert refill(evidence)[0].tolist() == [True, False, True]
