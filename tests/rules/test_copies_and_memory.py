"""Copies between host and device, and explicit synchronisation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.rules.programs import (
    PINNED_TO_DEVICE,
    PINNED_TO_HOST,
    TO_DEVICE,
    TO_HOST,
    US,
    Program,
    found,
)
from tests.support.cached_reports import selected
from tests.support.fixtures import FIXTURES
from traceanalyzer import Report, Severity, diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Confidence, Status
from traceanalyzer.replay.edits import DropSpans, MoveToSideStream
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.rule.registry import find_rule

SLUG = "exposed-copy"
TO = ("aten::to", "aten::copy_")
Shared = Callable[[str], Path]
RULES = ["implicit-sync", "host-round-trip", "exposed-copy", "allocator-thrash"]


def copying_sizes(name: str, *sizes: int, dur: int = 200 * US) -> Program:
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
    trace = copying_sizes(TO_DEVICE, 8 << 20, dur=dur_us * US).trace.load()
    (hits,) = find_rule(SLUG).hits(Analysis(trace))
    (aside,) = [edit for edit in hits.edits() if isinstance(edit, MoveToSideStream)]
    assert np.asarray(aside.dur_ns).tolist() == [pytest.approx(left_us * US)] * 5


@pytest.mark.parametrize(
    ("name", "first_us", "gbps"),
    [(TO_DEVICE, 2_000, "15"), (TO_HOST, 1_200, "21"), (TO_DEVICE, 200, "41.9")],
)
def test_a_copy_has_one_rate_however_slow_the_first(name: str, first_us: int, gbps: str) -> None:
    """Five steps copy 8 MiB, in 200 us but for the first; the op's fact and the finding divide the same bytes."""
    made = Program()
    for number in range(5):
        made.step(number)
        made.copy(name, 8 << 20, (200 if number else first_us) * US, TO)
        made.kernel(dur=20 * US)
    report = diagnose(made.trace.load(), select=[SLUG, "hotspot"])
    rates = {
        one.rule: one.message.partition("it reaches ")[2].partition(" GB/s")[0] for one in report.findings
    }
    assert rates == {SLUG: gbps, "hotspot": gbps}


def test_the_size_of_copies_is_that_of_most() -> None:
    (one,) = found(copying_sizes(TO_DEVICE, 1 << 20, 1 << 20, 8 << 20).trace, SLUG)
    assert (one.evidence["copy_bytes"], one.evidence["moved_bytes"]) == (1 << 20, 5 * (10 << 20))


def test_copies_without_a_direction_cannot_be_judged() -> None:
    (outcome,) = diagnose(copying_sizes("Memcpy", 8 << 20).trace.load(), select=[SLUG]).outcomes
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
    assert any(isinstance(edit, DropSpans) and len(edit.starts_ns) for edit in hits.edits()) is replaced


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


@cache
def _report(path: Path) -> Report:
    return selected(path, *RULES)


# -- host-round-trip ----------------------------------------------------------------------------------------


def test_a_clamp_on_the_host_is_a_round_trip_and_nothing_else(shared: Shared) -> None:
    (trip,) = _report(shared("pairs/cpu_roundtrip.bad")).findings
    assert (trip.rule, trip.by, trip.cause) == ("host-round-trip", "aten::clamp", "host-op")
    assert trip.saving is not None
    assert trip.saving.share == pytest.approx(0.998, abs=0.01)
    assert trip.evidence["moved_bytes"] == 2 * 24 * 2**24


def trips(*, worked_ns: int = 400 * US, leads: bool = False, factor: int = 1) -> Program:
    """Four steps: a megabyte to the host and `factor` of it back, after one up if `leads`."""
    program = Program()
    for number in range(4):
        program.step(number)
        if leads:
            program.copy(TO_DEVICE, factor << 20, 100 * US, ("aten::to", "aten::copy_"))
        program.kernel()
        program.copy(TO_HOST, 1 << 20, 100 * US, ("aten::to", "aten::copy_"))
        program.now += worked_ns
        program.copy(TO_DEVICE, factor << 20, 100 * US, ("aten::to", "aten::copy_"))
        program.kernel()
    return program


@pytest.mark.parametrize("factor", [1, 2, 8])  # float32 to float32, float64; bool to float64
def test_numpy_leaves_no_op_and_the_trip_is_told_by_its_elements(factor: int) -> None:
    (trip,) = found(trips(factor=factor).trace, "host-round-trip")
    assert (trip.by, trip.cause, trip.confidence) == (None, "host-code", Confidence.MEDIUM)
    assert trip.count == 4
    assert trip.cost_ns > 4 * 400 * US


def converting() -> Program:
    """Trips to the host, for two sorts and for one conversion."""
    program = Program()
    for number in range(4):
        program.step(number)
        for size, op in ((1 << 20, "aten::sort"), (1 << 21, "aten::sort"), (1 << 22, "aten::to")):
            program.kernel()
            program.copy(TO_HOST, size, 100 * US, ("aten::to", "aten::copy_"))
            program.trace.op(op, program.now, 190 * US)
            program.now += 200 * US
            program.copy(TO_DEVICE, size, 100 * US, ("aten::to", "aten::copy_"))
    return program


@pytest.mark.parametrize("factor", [1, 2, 8])
def test_trip_replacement_reads_and_writes_both_copies(factor: int) -> None:
    """At 0.75 of an H200's 4,800 GB/s, which are bytes in a ns."""
    (hits,) = find_rule("host-round-trip").hits(Analysis(trips(factor=factor).trace.load()))
    (fix,) = hits.edits()
    assert isinstance(fix, Replace)
    passes_ns = ((1 << 20) + (factor << 20)) / (0.75 * 4_800)
    assert np.asarray(fix.work_ns).tolist() == [[pytest.approx(passes_ns)]] * 4
    assert sum(hits.evidence[name] for name in ("moved_bytes",)) == 4 * ((1 << 20) + (factor << 20))


def test_a_conversion_on_the_way_is_not_what_the_host_does() -> None:
    assert {one.by: one.count for one in found(converting().trace, "host-round-trip")} == {
        "aten::sort": 8,
        None: 4,
    }


def test_copies_of_a_trip_are_nobody_elses() -> None:
    assert found(trips().trace, "exposed-copy") == []
    assert found(trips().trace, "implicit-sync") == []


def test_batches_and_results_of_one_size_are_no_trip() -> None:
    assert found(trips(leads=True).trace, "host-round-trip") == []
    assert found(trips(factor=3).trace, "host-round-trip") == []


# -- exposed-copy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cause", "true"),
    [
        ("pairs/pageable_h2d.bad", "pageable", 0.454),
        ("pairs/h2d_in_compute.bad", "on-compute-stream", 0.295),
        ("real/vit_infer.eager", "pageable", 0.27),
    ],
)
def test_exposed_uploads_are_named_with_their_saving(
    shared: Shared, name: str, cause: str, true: float
) -> None:
    (copy,) = [one for one in _report(shared(name)).findings if one.rule == "exposed-copy"]
    assert (copy.by, copy.cause, copy.severity) == ("host to device", cause, Severity.HIGH)
    assert copy.evidence["link"] == "PCIe 5 x16"
    assert copy.saving is not None
    assert abs(copy.saving.share - true) < 0.1


def copying(name: str, **how: int | bool) -> Program:
    """Five steps, each with a copy of 8 MiB before its kernels."""
    program = Program()
    for number in range(5):
        program.step(number)
        program.copy(name, 8 << 20, 200 * US, ("aten::to", "aten::copy_"), **how)  # type: ignore[arg-type]
        for _ in range(4):
            program.kernel()
    return program


@pytest.mark.parametrize(
    ("name", "how", "cause", "by"),
    [
        (TO_DEVICE, {}, "pageable", "host to device"),
        (PINNED_TO_DEVICE, {}, "blocking", "host to device"),
        (PINNED_TO_DEVICE, {"sync": False}, "on-compute-stream", "host to device"),
        ("Memcpy HtoD (Host -> Device)", {}, "blocking", "host to device"),  # ROCm
        (PINNED_TO_HOST, {}, "blocking", "device to host"),
        ("Memcpy PtoP (Device -> Device)", {"sync": False}, "on-compute-stream", "device to device"),
    ],
)
def test_cause_of_an_exposed_copy(name: str, how: dict[str, bool], cause: str, by: str) -> None:
    program = copying(name, **how)
    (copy,) = found(program.trace, "exposed-copy")
    assert (copy.cause, copy.by, copy.count) == (cause, by, 5)
    assert copy.cost_ns >= 5 * 200 * US
    # Pinning makes a pageable copy as fast as the link (0.88 of 63 GB/s); no other copy becomes faster.
    (hits,) = find_rule("exposed-copy").hits(Analysis(program.trace.load()))
    (aside,) = [edit for edit in hits.edits() if isinstance(edit, MoveToSideStream)]
    takes_ns = (8 << 20) / (0.88 * 63) if cause == "pageable" else 200 * US
    assert np.asarray(aside.dur_ns).tolist() == [pytest.approx(takes_ns)] * 5


@pytest.mark.parametrize(
    ("call", "in_steps", "count"),
    [
        ("cudaDeviceSynchronize", range(5), 5),
        ("cudaStreamSynchronize", range(5), 5),
        ("cudaMemcpy", range(5), 0),  # a copy that waits is no synchronisation
        ("cudaDeviceSynchronize", range(5, 6), 0),  # the profiler's own, after everything
    ],
)
def test_user_synchronisations_leave_the_device_idle(call: str, in_steps: range, count: int) -> None:
    program = Program()
    for number in range(6):
        if number < 5:
            program.step(number)
            for _ in range(3):
                program.kernel()
        if number in in_steps:
            program.now = max(program.now, program.device - 50 * US)
            program.trace.launch(call, program.now, 100 * US, 7_000 + number)
            if call == "cudaMemcpy":
                program.trace.memcpy(program.device, 40 * US, 7_000 + number, name=TO_HOST)
            program.now += 100 * US
        if number < 5:
            program.kernel()
    assert sum(one.count for one in found(program.trace, "long-device-sync")) == count


@pytest.mark.parametrize(("own_us", "reader"), [(199, "aten::index"), (201, None)])
def test_op_with_most_copy_time_is_named(own_us: int, reader: str | None) -> None:
    program = Program()
    for number in range(5):
        program.step(number)
        program.copy(TO_DEVICE, 1 << 20, 200 * US, ("aten::index", "aten::to", "aten::copy_"))
        program.copy(TO_DEVICE, 1 << 20, own_us * US, ("aten::to", "aten::copy_"))
        for _ in range(4):
            program.kernel()
    (copy,) = found(program.trace, "exposed-copy")
    assert copy.evidence.get("reader") == reader
    assert ("Keep the inputs of aten::index on the device" in copy.advice) is (reader is not None)


def test_a_copy_beside_kernels_is_not_exposed() -> None:
    program = Program()
    for number in range(5):
        program.step(number)
        for _ in range(4):
            program.kernel(dur=400 * US)
        program.now += 30 * US
        program.copy(PINNED_TO_DEVICE, 8 << 20, 200 * US, ("aten::to",), sync=False, stream=13)
    assert found(program.trace, "exposed-copy") == []


# -- allocator-thrash ---------------------------------------------------------------------------------------


def test_an_emptied_cache_is_named_with_its_saving(shared: Shared) -> None:
    (thrash,) = _report(shared("pairs/malloc_thrash.bad")).findings
    assert (thrash.rule, thrash.cause, thrash.count) == ("allocator-thrash", "emptied", 180)
    assert thrash.saving is not None
    assert thrash.saving.share == pytest.approx(0.72, abs=0.1)


def allocating(names: tuple[str, ...], steps: range, *, in_op: bool = True) -> Program:
    """Six steps; in some of them each of the calls takes 200 us. Most tensors come from the cache."""
    program = Program()
    for number in range(6):
        program.step(number)
        for _ in range(3 * len(names)):
            program.trace.op("aten::empty", program.now, US)
            program.now += 2 * US
        for name in names if number in steps else ():
            if in_op:
                program.trace.op("aten::empty", program.now, 210 * US)
            program.trace.launch(name, program.now + US, 200 * US, 50_000 + program.now // US)
            program.now += 220 * US
        program.kernel()
    return program


@pytest.mark.parametrize(
    ("names", "in_op", "cause"),
    [
        (("cudaMalloc",), True, "growing"),
        (("cudaMalloc", "cudaFree"), True, "full"),
        (("hipFree", "hipMalloc"), False, "emptied"),
        (("cudaHostAlloc",), True, "pinned"),
        (("cuMemCreate", "cuMemMap"), True, "growing"),
    ],
)
def test_cause_of_recurring_allocation(names: tuple[str, ...], in_op: bool, cause: str) -> None:
    (thrash,) = found(allocating(names, range(6), in_op=in_op).trace, "allocator-thrash")
    assert (thrash.cause, thrash.count) == (cause, 6 * len(names))
    assert thrash.cost_ns > 4 * len(names) * 150 * US


@pytest.mark.parametrize(("steps", "count"), [(range(1, 4), 0), (range(1, 5), 4)])
def test_calls_recur_that_more_than_half_of_six_steps_have(steps: range, count: int) -> None:
    thrash = found(allocating(("cudaMalloc",), steps).trace, "allocator-thrash")
    assert [one.count for one in thrash] == [count] * bool(count)


def test_first_use_is_no_thrash() -> None:
    assert found(allocating(("cudaMalloc", "cudaFree"), range(1)).trace, "allocator-thrash") == []
    assert found(allocating(("cudaMalloc",), range(3)).trace, "allocator-thrash") == []
    several = allocating(("cudaMalloc",) * 4, range(1, 4)).trace  # many calls in as few steps
    assert found(several, "allocator-thrash") == []
    assert found(allocating(("cudaMallocAsync",), range(6)).trace, "allocator-thrash") == []


def test_a_single_step_cannot_tell() -> None:
    program = Program()
    program.step(0)
    program.trace.launch("cudaMalloc", program.now, 900 * US, 77)
    program.now += 900 * US
    program.kernel()
    (outcome,) = diagnose(program.trace.load(), select=["allocator-thrash"]).outcomes
    assert outcome.status is Status.NOT_APPLICABLE


def test_copies_of_the_asked_window_alone_are_counted() -> None:
    report = diagnose(FIXTURES / "exposed-copy/bad.json.gz", window=(6_292_000, 11_128_000))
    found = next(found for found in report.findings if found.rule == "exposed-copy")
    assert (found.count, found.steps) == (2, 2)
    assert "once a step" in found.message
    window = report.traces[0].window
    assert all(
        at.start_ns < window.end_ns and at.end_ns > window.start_ns for at in (found, *found.occurrences)
    )


def test_work_queued_before_the_recording_has_no_op(shared: Shared) -> None:
    """15 kernels of a warm-up step: those of the recorded steps belong to aten::to."""
    (one,) = selected(shared("third/attention_math.bad"), "data-movement").findings
    assert (one.by, one.count) == ("aten::to", 48)
