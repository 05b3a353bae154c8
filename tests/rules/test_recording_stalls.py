"""What the profiler holds up, and first uses of kernels."""

from __future__ import annotations

import pytest

from tests.rules.hosts import MS, said_by
from tests.rules.loops import Loop, loop_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Severity
from traceanalyzer.model.finding import Confidence

US = 1_000


def held_up(name: str = "Activity Buffer Request", stall_ns: int = 2 * MS, kernel_ns: int = 20_000) -> Loop:
    """Four steps of four launches and one that the profiler holds up, after a kernel of this time."""
    loop = Loop()
    for _ in range(4):
        loop.begin()
        for place in range(4):
            loop.launched(kernel_ns=kernel_ns if place == 3 else 5_000)
        loop.overhead(name, loop.now + 3_000, stall_ns)
        loop.launched("aten::add", launch_ns=stall_ns + 4_000)
        loop.end()
    return loop


@pytest.mark.parametrize("name", ["Activity Buffer Request", "Buffer Flush"])
def test_what_the_profiler_holds_up_is_named_and_info(name: str) -> None:
    (one,) = said_by(held_up(name).load(), "activity-buffer-request")
    assert (one.by, one.count, one.severity) == (name, 4, Severity.INFO)
    assert one.evidence["ops"] == {"aten::add": 4 * 2 * MS}
    assert one.evidence["stall_ns"] == 4 * 2 * MS


@pytest.mark.parametrize(("stall_ns", "said"), [(19_999, False), (20_000, True)])
def test_shorter_stalls_are_as_long_as_a_slow_launch(stall_ns: int, said: bool) -> None:
    assert bool(said_by(held_up(stall_ns=stall_ns).load(), "activity-buffer-request")) is said


def test_two_kinds_of_stalls_are_two_findings() -> None:
    loop = held_up()
    loop.begin()
    loop.overhead("Buffer Flush", loop.now + 3_000, MS)
    loop.launched("aten::sort", launch_ns=MS + 4_000)
    loop.launched()
    loop.end()
    said = {one.by: one for one in said_by(loop.load(), "activity-buffer-request")}
    assert said["Buffer Flush"].evidence["ops"] == {"aten::sort": MS}
    assert said["Activity Buffer Request"].evidence["ops"] == {"aten::add": 8 * MS}


@pytest.mark.parametrize(
    ("kernel_ns", "idle_ns", "part"),
    [(5_000, 2 * MS, "all that time"), (7_400, 2 * MS, "all that time"), (MS, MS, "for 4.0")],
)
def test_busy_device_is_idle_for_part_of_the_stall(kernel_ns: int, idle_ns: int, part: str) -> None:
    (one,) = said_by(held_up(kernel_ns=kernel_ns).load(), "activity-buffer-request")
    assert one.evidence["idle_ns"] == pytest.approx(4 * idle_ns, rel=0.02)
    assert f"the GPU was idle {part}" in one.message


# -- lane-offset ------------------------------------------------------------------------------------------------------


def loading(
    offset_us: int,
    usual_us: int = 10,
    *,
    row: str = "Lazy Function Loading",
    busy: bool = False,
    second_us: int = 0,
) -> TraceBuilder:
    """Ops whose kernel starts after its usual time, and one or two that first load their kernels."""
    trace = TraceBuilder()
    for number in range(1, 8):
        at, slow = number * 1_000 * US, number == 4 or (number == 6 and second_us > 0)
        offset = ((second_us if number == 6 else offset_us) if slow else usual_us) * US
        trace.op("aten::sort" if slow else "aten::mm", at, offset)
        if slow:
            trace.overhead(row, at + US, offset - 6 * US)
        trace.launch("cudaLaunchKernel", at + offset - 5 * US, 4 * US, number)
        trace.kernel(at + offset, (1_500 if busy and number == 3 else 20) * US, number)
    return trace


@pytest.mark.parametrize(
    ("offset_us", "usual_us", "said"),
    [(100, 10, True), (99, 10, False), (200, 40, True), (199, 40, False)],
)
def test_first_load_is_five_times_later_than_usual(offset_us: int, usual_us: int, said: bool) -> None:
    found = said_by(loading(offset_us, usual_us).load(), "lane-offset")
    assert [(one.cause, one.count, one.severity) for one in found] == [("first-use", 1, Severity.INFO)] * said
    for one in found:
        assert one.confidence is Confidence.MEDIUM
        assert one.evidence["ops"] == {"aten::sort": offset_us * US}
        assert f"up to {offset_us}" in one.message
        assert f"(usually {usual_us}.0 µs)" in one.message


def test_late_kernel_without_loading_is_no_first_use() -> None:
    assert said_by(loading(500, row="Activity Buffer Request").load(), "lane-offset") == []
    assert len(said_by(loading(500).load(), "lane-offset")) == 1
    assert said_by(loading(500, busy=True).load(), "lane-offset") == []


def test_latest_of_several_first_uses_is_reported() -> None:
    (one,) = said_by(loading(300, second_us=200).load(), "lane-offset")
    assert (one.count, one.evidence["offset_ns"]) == (2, 300 * US)
    assert one.evidence["ops"] == {"aten::sort": 500 * US}
    assert one.evidence["usual_ns"] == 10 * US


def test_what_no_op_launched_is_no_op_s_first_use() -> None:
    trace = loading(300)
    trace.overhead("Lazy Function Loading", 100 * US, 300 * US)
    trace.launch("cudaLaunchKernel", 410 * US, 4 * US, 99)
    trace.kernel(420 * US, 5 * US, 99)
    (one,) = said_by(trace.load(), "lane-offset")
    assert (one.count, one.evidence["offset_ns"]) == (1, 300 * US)


def test_overlapping_work_does_not_delay_the_step() -> None:
    """The profiler's row lies between two ops, and holds up none."""

    def body(loop: Loop, _: int) -> None:
        loop.overhead("Activity Buffer Request", loop.now + 1_000, 2 * MS)
        loop.pause(3 * MS)

    assert said_by(loop_of(body), "activity-buffer-request") == []
