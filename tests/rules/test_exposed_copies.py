"""Copies between host and device: what is told of their size and cause, and who works on the data."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rules.programs import (
    PINNED_TO_DEVICE,
    TO_DEVICE,
    TO_HOST,
    US,
    Program,
    found,
)
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Status
from traceanalyzer.replay.edits import MoveToSideStream
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.rule.registry import find_rule

SLUG = "exposed-copy"
TO = ("aten::to", "aten::copy_")


def copying(name: str, *sizes: int, dur: int = 200 * US) -> Program:
    """Five steps, each with copies of these sizes before its kernels."""
    made = Program()
    for number in range(5):
        made.step(number)
        for size in sizes:
            made.copy(name, size, dur, TO)
        for _ in range(4):
            made.kernel()
    return made


@pytest.mark.parametrize(("dur_us", "left_us"), [(100, 100), (200, (8 << 20) / (0.88 * 63) / US)])
def test_pinned_memory_makes_no_copy_slower(dur_us: int, left_us: float) -> None:
    """151 us at what is reached of the link's 63 GB/s."""
    trace = copying(TO_DEVICE, 8 << 20, dur=dur_us * US).trace.load()
    (hits,) = find_rule(SLUG).hits(Analysis(trace))
    (aside,) = [edit for edit in hits.edits() if isinstance(edit, MoveToSideStream)]
    assert np.asarray(aside.dur_ns).tolist() == [pytest.approx(left_us * US)] * 5


def test_the_size_of_copies_is_that_of_most() -> None:
    (one,) = found(copying(TO_DEVICE, 1 << 20, 1 << 20, 8 << 20).trace, SLUG)
    assert (one.evidence["copy_bytes"], one.evidence["moved_bytes"]) == (1 << 20, 5 * (10 << 20))


def test_copies_without_a_direction_cannot_be_judged() -> None:
    (outcome,) = diagnose(copying("Memcpy", 8 << 20).trace.load(), select=[SLUG]).outcomes
    assert outcome.status is Status.NOT_APPLICABLE
    assert "direction" in str(outcome.why)


@pytest.mark.parametrize(("device", "cause"), [(0, "on-compute-stream"), (1, "not-ahead")])
def test_streams_of_two_devices_have_the_same_numbers(device: int, cause: str) -> None:
    """The second one computes on another stream than the copy's."""
    made = Program()
    for number in range(5):
        made.step(number)
        made.copy(PINNED_TO_DEVICE, 8 << 20, 200 * US, TO, sync=False)
        made.trace.events[-1]["args"]["device"] = made.trace.events[-1]["pid"] = device
        made.kernel()
        made.kernel(stream=9)
        made.trace.events[-1]["args"]["device"] = made.trace.events[-1]["pid"] = 1
    (one,) = found(made.trace, SLUG)
    assert one.cause == cause


@pytest.mark.parametrize(("computes", "replaced"), [(False, True), (True, False)])
def test_an_op_that_also_computes_does_more_than_to_send_back(computes: bool, replaced: bool) -> None:
    made = Program()
    for number in range(5):
        made.step(number)
        made.kernel(dur=200 * US)
        made.copy(TO_HOST, 8 << 20, 700 * US, TO)
        made.trace.op("aten::argmax", made.now, 300 * US)
        made.now += 310 * US
        begin = made.now
        made.copy(TO_DEVICE, 8, 2 * US, TO)
        if computes:
            made.kernel()
        made.trace.op("aten::index", begin - US, made.now - begin + US)
        made.now += 5 * US
        made.kernel(dur=200 * US)
    (hits,) = find_rule(SLUG).hits(Analysis(made.trace.load()))
    assert any(isinstance(edit, Replace) for edit in hits.edits()) is replaced


@pytest.mark.parametrize(("tid", "by"), [(1_000, "aten::clamp"), (77, None)])
def test_other_threads_compute_is_no_part_of_the_trip(tid: int, by: str | None) -> None:
    made = Program()
    for number in range(4):
        made.step(number)
        made.kernel()
        made.copy(TO_HOST, 1 << 20, 100 * US, TO)
        made.trace.op("aten::clamp", made.now + 5 * US, 380 * US, tid=tid)
        made.now += 400 * US
        made.copy(TO_DEVICE, 1 << 20, 100 * US, TO)
        made.kernel()
    (trip,) = found(made.trace, "host-round-trip")
    assert (trip.by, trip.cause) == (by, "host-op" if by else "host-code")
