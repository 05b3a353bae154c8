"""Trips of data to the host and back: which copies belong together."""

from __future__ import annotations

import pytest

from tests.builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.host_round_trips import HostRoundTrips

US = 1_000


def copies(*kinds: tuple[str, int], threads: tuple[int, ...] = ()) -> HostRoundTrips:
    """Blocking copies one after the other, 1 ms apart, in one step."""
    trace = TraceBuilder()
    trace.step(0, 0, 100_000 * US)
    for number, (way, size) in enumerate(kinds):
        at, thread = number * 1_000 * US + 100 * US, threads[number] if threads else 1000
        trace.op("aten::to", at, 200 * US, tid=thread)
        trace.launch("cudaMemcpyAsync", at + 10 * US, 150 * US, number + 1, tid=thread)
        memory = "Device -> Pageable" if way == "DtoH" else "Pageable -> Device"
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
        (("DtoH", 4096), ("DtoH", 8), ("HtoD", 4096), ("HtoD", 4096)),
    ],
)
def test_no_trip(kinds: tuple[tuple[str, int], ...]) -> None:
    assert len(copies(*kinds).down) == 0


def test_a_copy_back_by_another_thread_is_no_trip() -> None:
    assert len(copies(("DtoH", 4096), ("HtoD", 4096), threads=(1000, 1001)).down) == 0
