"""Values that travel between host and device, and ops that copy one value and wait for it."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.host_round_trips import AwaitedValues, HostRoundTrips

US = 1_000


def copies(
    *kinds: tuple[str, int], threads: tuple[int, ...] = (), pinned: bool = False, step_us: int = 100_000
) -> HostRoundTrips:
    """Copies one after the other, 1 ms apart, in one step of 0.1 s; those of pageable memory block."""
    trace = TraceBuilder()
    for step in range(100_000 // step_us):
        trace.step(step, step * step_us * US, step_us * US)
    for number, (way, size) in enumerate(kinds):
        at, thread = number * 1_000 * US + 100 * US, threads[number] if threads else 1000
        trace.op("aten::to", at, 200 * US, tid=thread)
        trace.launch("cudaMemcpyAsync", at + 10 * US, (5 if pinned else 150) * US, number + 1, tid=thread)
        host = "Pinned" if pinned else "Pageable"
        memory = f"Device -> {host}" if way == "DtoH" else f"{host} -> Device"
        trace.memcpy(at + 30 * US, 100 * US, number + 1, name=f"Memcpy {way} ({memory})", size=size)
    return Analysis(trace.load()).index(HostRoundTrips)


def test_a_trip_spans_both_ops() -> None:
    trips = copies(("DtoH", 4096), ("HtoD", 4096))
    assert (trips.end_ns - trips.start_ns).tolist() == [1_200 * US]
    assert (trips.sent_ns - trips.fetched_ns).tolist() == [800 * US]
    assert trips.next_ns.tolist() == trips.end_ns.tolist()


@pytest.mark.parametrize(
    "kinds",
    [
        (("DtoH", 4096),),
        (("HtoD", 4096), ("DtoH", 4096)),
        (("DtoH", 4096), ("HtoD", 4100)),
        (("DtoH", 4), ("HtoD", 4)),
        (("DtoH", 1_023), ("HtoD", 1_023)),
        (("DtoH", 4096), ("HtoD", 16 * 4096)),
        (("DtoH", 3 * 4096), ("HtoD", 4096)),
        (("DtoH", 4096), ("DtoH", 8), ("HtoD", 4096), ("HtoD", 4096)),
    ],
)
def test_no_trip(kinds: tuple[tuple[str, int], ...]) -> None:
    assert len(copies(*kinds).down) == 0


def test_a_copy_back_by_another_thread_is_no_trip() -> None:
    assert len(copies(("DtoH", 4096), ("HtoD", 4096), threads=(1000, 1001)).down) == 0


@pytest.mark.parametrize(
    ("down", "up"), [(1_024, 1_024), (4_096, 8 * 4_096), (4 * 4_096, 4_096), (4_096, 8_192)]
)
def test_what_comes_back_has_as_many_elements_of_another_width(down: int, up: int) -> None:
    assert len(copies(("DtoH", down), ("HtoD", up)).down) == 1


@pytest.mark.parametrize(("first_ends_us", "trips"), [(1_000, 1), (1_001, 0), (1_300, 0)])
def test_copies_of_ops_that_overlap_are_no_round_trip(first_ends_us: int, trips: int) -> None:
    """The op around the copy up begins after 1 ms; that around the copy down ends then, later, or around both."""
    trace = TraceBuilder()
    trace.step(0, 0, 2_000 * US)
    trace.op("aten::to", 0, first_ends_us * US)
    trace.op("aten::to", 1_000 * US, 200 * US)
    for number, (at, way) in enumerate(
        [(10, "DtoH (Device -> Pageable)"), (1_010, "HtoD (Pageable -> Device)")]
    ):
        trace.launch("cudaMemcpyAsync", at * US, 150 * US, number + 1)
        trace.memcpy((at + 20) * US, 100 * US, number + 1, name=f"Memcpy {way}", size=4_096)
    assert len(Analysis(trace.load()).index(HostRoundTrips).down) == trips


def test_round_trips_stay_in_one_step_and_the_host_waits() -> None:
    assert len(copies(("DtoH", 4096), ("HtoD", 4096), step_us=2_000).down) == 1
    assert len(copies(("DtoH", 4096), ("HtoD", 4096), step_us=1_000).down) == 0
    assert len(copies(("DtoH", 4096), ("HtoD", 4096), pinned=True).down) == 0


@pytest.mark.parametrize("single", ["HtoD", "DtoH"])
def test_step_with_an_unpaired_copy_has_no_round_trips(single: str) -> None:
    kinds = (("DtoH", 4096), ("HtoD", 4096), ("DtoH", 8192), ("HtoD", 8192), (single, 4096))
    trips = copies(*kinds)
    assert (trips.end_ns - trips.start_ns).tolist() == [1_200 * US]
    assert trips.start_ns.tolist() == copies(*kinds[:4]).start_ns[1:].tolist()


def test_short_gap_after_a_trip_frees_its_tensors() -> None:
    """Of two trips of 1.2 ms, 0.8 ms apart; after the second comes nothing."""
    trips = copies(*[("DtoH", 4096), ("HtoD", 4096)] * 2)
    assert (trips.next_ns - trips.end_ns).tolist() == [800 * US, 0]
    assert (trips.freed_ns(2 / 3) - trips.end_ns).tolist() == [800 * US, 0]
    assert (trips.freed_ns(0.66) - trips.end_ns).tolist() == [0, 0]


@pytest.mark.parametrize("gap_us", [0, 1, 50])
def test_what_follows_a_trip_begins_when_it_ends_or_later(gap_us: int) -> None:
    """An op behind the trip, and another one 10 us behind that begin; another thread's row is none."""
    trace = TraceBuilder()
    trace.step(0, 0, 5_000 * US)
    for number, (name, at) in enumerate(
        (("DtoH (Device -> Pageable)", 100), ("HtoD (Pageable -> Device)", 1_100))
    ):
        trace.op("aten::to", at * US, 200 * US)
        trace.launch("cudaMemcpyAsync", (at + 10) * US, 150 * US, number + 1)
        trace.memcpy((at + 30) * US, 100 * US, number + 1, name=f"Memcpy {name}", size=4_096)
    trace.op("aten::other", 1_300 * US, US, tid=77)
    trace.op("aten::add", (1_300 + gap_us) * US, 5 * US)
    trace.op("aten::mul", (1_310 + gap_us) * US, 5 * US)
    trips = Analysis(trace.load()).index(HostRoundTrips)
    assert (trips.end_ns.tolist(), trips.next_ns.tolist()) == ([1_300 * US], [(1_300 + gap_us) * US])


DOWN, UP, ACROSS = "DtoH (Device -> Pageable)", "HtoD (Pageable -> Device)", "DtoD (Device -> Device)"


def awaited(*ops: tuple[str, str, int], waits: bool = True) -> tuple[list[str], list[bool], list[bool]]:
    """(op, upwards, scaler) of ops of a name that copy one way so many bytes, and wait for it; no way: no copy."""
    trace, at = TraceBuilder(), 0
    for number, (name, way, size) in enumerate(ops):
        trace.op(name, at, 90 * US)
        if way:
            trace.launch("cudaMemcpyAsync", at + 5 * US, 5 * US, number + 1)
            trace.memcpy(at + 20 * US, 10 * US, number + 1, name=f"Memcpy {way}", size=size)
        if waits:
            trace.launch("cudaStreamSynchronize", at + 15 * US, 20 * US, 100 + number)
        at += 100 * US
    trace.op("aten::mm", at, 20 * US)
    trace.launched((at + 5 * US, 5 * US), (at + 12 * US, 5 * US), 99)
    analysis = Analysis(trace.load())
    found = analysis.index(AwaitedValues)
    names = analysis.trace.cpu["name"].iloc[found.op].tolist()
    assert (len(found.copy), len(found.wait)) == (len(names), len(names))
    return names, found.upwards.tolist(), found.scaler.tolist()


@pytest.mark.parametrize(
    ("way", "size", "names", "upwards"),
    [
        (DOWN, 4, ["aten::item"], [False]),
        (DOWN, 65_536, ["aten::item"], [False]),
        (DOWN, 65_537, [], []),  # data
        (DOWN, 0, ["aten::item"], [False]),  # old ROCm records no size
        (UP, 4, ["aten::item"], [True]),
        (UP, 0, [], []),  # may be a batch
        (ACROSS, 4, [], []),
        ("", 0, [], []),
    ],
)
def test_a_value_is_a_small_copy_between_host_and_device(
    way: str, size: int, names: list[str], upwards: list[bool]
) -> None:
    assert awaited(("aten::item", way, size)) == (names, upwards, [False] * len(names))
    assert awaited(("aten::item", way.replace("Pageable", "Pinned"), size), waits=False)[0] == []


CHECK, UPDATE = "aten::_amp_foreach_non_finite_check_and_unscale_", "aten::_amp_update_scale_"


@pytest.mark.parametrize(
    ("ops", "scaler"),
    [
        (["item", CHECK, "item", "item", UPDATE, "item"], [False, False, True, False]),
        ([CHECK, "item", UPDATE, CHECK, "item", UPDATE], [True, True]),
        (["item", UPDATE], [False]),  # nothing was checked
        ([CHECK, "item"], [False]),
        ([CHECK, "nonzero", UPDATE], [False]),
    ],
)
def test_the_scaler_asks_last_between_its_check_and_its_update(ops: list[str], scaler: list[bool]) -> None:
    reads = [("", 0) if "amp" in op else (DOWN, 4) for op in ops]
    named = [op if "amp" in op else f"aten::{op}" for op in ops]
    assert awaited(*((op, *read) for op, read in zip(named, reads, strict=True)))[2] == scaler


def test_round_trips_are_not_awaited_values() -> None:
    assert awaited(("aten::to", DOWN, 4_096), ("aten::to", UP, 4_096)) == (["aten::to"], [True], [False])
    assert awaited(("aten::to", DOWN, 1_023), ("aten::to", UP, 1_023))[1] == [False, True]
