"""Copies between host and device, and explicit synchronisation."""

import numpy as np
import pytest

from tests.rules.programs import PINNED_TO_DEVICE, PINNED_TO_HOST, TO_DEVICE, TO_HOST, US, Program, found
from tests.support.fixtures import FIXTURES
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Confidence, Finding, Status
from traceanalyzer.replay.edits import DropSpans, MoveToSideStream
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.rule.registry import find_rule

SLUG = "exposed-copy"
TO = ("aten::to", "aten::copy_")


def copying(name: str, *sizes: int, dur: int = 200 * US, sync: bool = True) -> Program:
    """Five steps, each with copies of these sizes, or of 8 MiB, before its kernels."""
    program = Program()
    for number in range(5):
        program.step(number)
        for size in sizes or (8 << 20,):
            program.copy(name, size, dur, TO, sync=sync)
        for _ in range(4):
            program.kernel()
    return program


@pytest.mark.parametrize(
    ("name", "dur_us", "left_us"),
    [(TO_DEVICE, 100, 100), (TO_DEVICE, 200, (8 << 20) / (0.88 * 63) / US), (PINNED_TO_DEVICE, 200, 200)],
)
def test_pinning_makes_a_copy_as_fast_as_the_link(name: str, dur_us: int, left_us: float) -> None:
    """151 us at what is reached of the link's 63 GB/s."""
    (hits,) = find_rule(SLUG).hits(Analysis(copying(name, dur=dur_us * US).trace.load()))
    (aside,) = [edit for edit in hits.edits() if isinstance(edit, MoveToSideStream)]
    assert np.asarray(aside.dur_ns).tolist() == [pytest.approx(left_us * US)] * 5


@pytest.mark.parametrize(
    ("name", "first_us", "gbps"), [(TO_DEVICE, 2_000, "15"), (TO_HOST, 1_200, "21"), (TO_DEVICE, 200, "41.9")]
)
def test_a_copy_has_one_rate_however_slow_the_first(name: str, first_us: int, gbps: str) -> None:
    """Five steps copy 8 MiB, in 200 us but for the first; the op's fact and the finding divide the same bytes."""
    made = Program()
    for number in range(5):
        made.step(number)
        made.copy(name, 8 << 20, (200 if number else first_us) * US, TO)
        made.kernel(dur=20 * US)
    report = diagnose(made.trace.load(), select=[SLUG, "hotspot"])
    rates = {one.rule: one.message.partition("it reaches ")[2].partition(" GB/s")[0] for one in report.findings}
    assert rates == {SLUG: gbps, "hotspot": gbps}


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


# -- host-round-trip ----------------------------------------------------------------------------------------


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
    trips = found(converting().trace, "host-round-trip")
    assert {one.by: one.count for one in trips} == {"aten::sort": 8, None: 4}


def test_copies_of_a_trip_are_nobody_elses() -> None:
    assert found(trips().trace, "exposed-copy") == []
    assert found(trips().trace, "implicit-sync") == []


def test_batches_and_results_of_one_size_are_no_trip() -> None:
    assert found(trips(leads=True).trace, "host-round-trip") == []
    assert found(trips(factor=3).trace, "host-round-trip") == []


# -- exposed-copy -------------------------------------------------------------------------------------------


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


def test_copies_of_the_asked_window_alone_are_counted() -> None:
    report = diagnose(FIXTURES / "exposed-copy/bad.json.gz", window=(6_292_000, 11_128_000))
    found = next(found for found in report.findings if found.rule == "exposed-copy")
    assert (found.count, found.steps) == (2, 2)
    assert "once a step" in found.message
    window = report.traces[0].window
    assert all(at.start_ns < window.end_ns and at.end_ns > window.start_ns for at in (found, *found.occurrences))


def test_weights_that_a_library_offloads_stay_on_the_device() -> None:
    """Their copies go with the 400 us of Python around each; copies of a program's own function are pinned instead."""

    def finding(function: str) -> Finding:
        made = Program()
        for step in range(5):
            made.step(step)
            for layer in range(3):
                begin = made.now
                made.now += 400 * US
                made.copy(TO_DEVICE, 4 << 20, 200 * US, TO)
                made.trace.python(function, begin, made.now - begin - US, python_id=1 + 3 * step + layer)
                made.kernel(dur=50 * US)
        (one,) = found(made.trace, SLUG)
        return one

    library, own = (finding(f"{file}: set_tensor") for file in ("accelerate/hooks.py(300)", "train.py(300)"))
    assert library.advice.startswith("Keep the weights on the GPU if they fit")
    assert own.advice.startswith("Pin the source")
    assert library.title.startswith("A pageable copy of offloaded weights (4.00 MiB) runs 3 times a step")
    assert library.saving is not None
    assert own.saving is not None
    assert library.saving.step_ns > own.saving.step_ns + 3 * 300 * US
