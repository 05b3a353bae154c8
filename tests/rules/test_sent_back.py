"""Which op sends back what the host made of a copy, and which op the host works in meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rules.programs import TO_DEVICE, TO_HOST, US
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.rules.copies.exposed_copy import copies_sent_back, replaced_by_device_pass
from traceanalyzer.rules.copies.host_round_trip import op_on_host
from traceanalyzer.timeline.host_round_trips import HostRoundTrips

DOWN, SIZE = "down", 8 << 20
LEAST = 65_536  # bytes: what is larger is data


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

    def said(self, *spent: int) -> list[int | None]:
        """When the op begins that sends back what was made of each copy to the host, in us."""
        analysis = Analysis(self.trace.load())
        calls, work = analysis.index(Calls), analysis.index(Work)
        copies = work[work.kind.one_of("copy_d2h")]
        rows = copies_sent_back(calls, work, copies, np.array(spent or [US] * len(copies), np.int64))
        starts = calls.events.nesting.start_ns
        return [int(starts[row]) // US if row >= 0 else None for row in rows.tolist()]


def test_next_device_op_sends_the_result_back() -> None:
    host = Host()
    host.op(0, DOWN)
    host.work(60)
    host.op(120, "up", size=8)
    host.op(200, "up", size=8)
    assert host.said() == [120]
    assert host.said(0) == [None]  # the host did nothing with it


@pytest.mark.parametrize(
    ("kinds", "size", "sent"),
    [
        (("up",), LEAST, 120),
        (("up",), LEAST + 1, None),
        (("up", "up"), 8, 120),
        (("up", "kernel"), 8, None),
        (("kernel",), 8, None),
        ((), 8, 180),  # works on the host
    ],
)
def test_small_upload_sends_back(kinds: tuple[str, ...], size: int, sent: int | None) -> None:
    host = Host()
    host.op(0, DOWN)
    host.op(120, *kinds, size=size)
    host.op(180, "up", size=8)
    assert host.said() == [sent]


def test_each_thread_sends_back_what_it_fetched_itself() -> None:
    """Two threads fetch one after the other; the first to send anything is the second thread."""
    host = Host()
    host.op(0, DOWN)
    host.op(5, DOWN, tid=2000)
    host.op(100, "up", size=8, tid=2000)
    host.op(120, "kernel", tid=2000)
    host.op(200, "up", size=8)
    assert host.said() == [200, 100]


def test_op_may_follow_at_once() -> None:
    host = Host()
    host.op(0, DOWN)
    host.op(50, "up", size=8)
    host.op(150, DOWN)
    assert host.said() == [50, None]


def test_device_pass_replaces_host_work_and_copies() -> None:
    """8 MiB at 0.75 of 4,800 GB/s: 2,330 ns; of the other device, which has a quarter of the data, 583 ns."""
    host = Host()
    host.op(0, DOWN)
    host.op(100, "up", size=8)
    host.op(200, DOWN, size=SIZE // 4, device=1)
    host.op(300, "up", size=8, device=1)
    analysis = Analysis(host.trace.load())
    calls, work = analysis.index(Calls), analysis.index(Work)
    copies = work[work.kind.one_of("copy_d2h")]
    back = copies_sent_back(calls, work, copies, np.array([US, US]))
    made = replaced_by_device_pass(calls, copies, back, analysis.index(Gpus))
    first = int(np.min(made.starts_ns))
    assert (np.asarray(made.starts_ns) - first).tolist() == [0, 200 * US]
    assert (np.asarray(made.ends_ns) - first).tolist() == [150 * US, 350 * US]
    assert np.round(np.asarray(made.work_ns)).tolist() == [[2_330], [583]]


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
def test_host_op_with_a_tenth_of_the_time_is_named(
    works: tuple[tuple[str, int], ...], named: str | None
) -> None:
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
