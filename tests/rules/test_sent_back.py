"""Which op the host works in between the copies of a round trip."""

import pytest

from tests.rules.programs import TO_DEVICE, TO_HOST, US
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.views import Calls
from traceanalyzer.rules.copies.host_round_trip import op_on_host
from traceanalyzer.timeline.host_round_trips import HostRoundTrips

DOWN, SIZE = "down", 8 << 20


class Host:
    """Ops of 50 us, at times in us; each copies, launches a kernel, both or nothing."""

    def __init__(self) -> None:
        self.trace, self.number = TraceBuilder(devices=[H200, {**H200, "id": 1}]), 0

    def op(self, at: int, *kinds: str, size: int = SIZE, tid: int = 1000, device: int = 0) -> None:
        self.trace.op("aten::to", at * US, 50 * US, tid=tid)
        for place, kind in enumerate(kinds):
            self.number += 1
            inner = (at + 1 + 10 * place) * US
            self.trace.op("aten::copy_" if kind != "kernel" else "aten::add", inner, 8 * US, tid=tid)
            self.trace.launch("cudaMemcpyAsync", inner + US, 5 * US, self.number, tid=tid)
            begin = inner + 3 * US
            if kind == "kernel":
                self.trace.kernel(begin, 2 * US, self.number, device=device)
            else:
                name = TO_HOST if kind == DOWN else TO_DEVICE
                self.trace.memcpy(begin, 2 * US, self.number, name=name, size=size, device=device)

    def work(self, at: int, dur: int = 50, name: str = "aten::argmax", tid: int = 1000) -> None:
        self.trace.op(name, at * US, dur * US, tid=tid)


def trips(*works: tuple[str, int], moved: str = "", tid: int = 1000) -> str | None:
    """The op that is named of a trip whose copies leave the host 500 us for these ops (name, us)."""
    host = Host()
    host.op(0, DOWN)
    at = 50
    for name, dur in works:
        host.work(at, dur, name, tid)
        at += dur
    if moved:
        host.work(at, 400, moved)
    host.op(550, "up")
    analysis = Analysis(host.trace.load())
    return op_on_host(analysis.index(Calls), analysis.index(HostRoundTrips), 0.1)[0]


@pytest.mark.parametrize(
    ("works", "named"),
    [
        ((("aten::sort", 50),), "aten::sort"),  # a tenth
        ((("aten::sort", 49),), None),
        ((("aten::sort", 60), ("aten::abs", 90)), "aten::abs"),
        ((("aten::sort", 60), ("aten::abs", 90), ("aten::sort", 40)), "aten::sort"),
        ((), None),
    ],
)
def test_host_op_with_a_tenth_of_the_time_is_named(works: tuple[tuple[str, int], ...], named: str | None) -> None:
    assert trips(*works) == named


@pytest.mark.parametrize("moved", ["aten::contiguous", "aten::_to_copy", "aten::empty_like", "aten::view"])
def test_conversions_are_not_the_host_op(moved: str) -> None:
    assert trips(moved=moved) is None
    assert trips(("aten::abs", 60), moved=moved) == "aten::abs"


def test_an_op_of_another_thread_works_on_something_else() -> None:
    assert trips(("aten::sort", 300), tid=77) is None


def test_an_op_within_another_is_told_by_what_the_user_called() -> None:
    host = Host()
    host.op(0, DOWN)
    host.work(60, 400, "aten::std")
    host.work(61, 390, "aten::sort")
    host.op(550, "up")
    analysis = Analysis(host.trace.load())
    assert op_on_host(analysis.index(Calls), analysis.index(HostRoundTrips), 0.1)[0] == "aten::std"


def test_trips_are_judged_by_size() -> None:
    """Of 1,000 us in two trips of 8 MiB an op takes 120; of 500 us in the trip of 2 MiB another takes 45."""
    host = Host()
    for number, (size, name, dur) in enumerate(
        ((SIZE, "aten::sort", 120), (SIZE // 4, "aten::abs", 45), (SIZE, "aten::abs", 1))
    ):
        at = 2_000 * number
        host.op(at, DOWN, size=size)
        host.work(at + 60, dur, name)
        host.op(at + 550, "up", size=size)
    host.work(8_000, 600, "aten::neg")  # after the last
    analysis = Analysis(host.trace.load())
    named = op_on_host(analysis.index(Calls), analysis.index(HostRoundTrips), 0.1)
    assert [named[at] for at in range(len(named))] == ["aten::sort", None, "aten::sort"]
