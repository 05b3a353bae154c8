"""What the rest of a gap is charged to, where one row more or less makes another cause of it."""

from __future__ import annotations

import pytest

from tests.idle.one_gap import FIRST, LATE, US, gap, judged, pieces
from tests.support.trace_builder import TraceBuilder


@pytest.mark.parametrize(("back", "cause"), [(False, "blocking-upload"), (True, "synchronisation")])
def test_op_that_copies_both_ways_waits_for_its_read_back(back: bool, cause: str) -> None:
    trace = gap()
    trace.op("aten::copy_", 40 * US, FIRST - 20 * US)
    trace.launch("cudaMemcpyAsync", 42 * US, 2 * US, 8)
    trace.memcpy(FIRST, 1, 8, name="Memcpy HtoD (Pageable -> Device)")
    if back:
        trace.launch("cudaMemcpyAsync", 45 * US, 2 * US, 7)
        trace.memcpy(FIRST + 1, 1, 7, name="Memcpy DtoH (Device -> Pinned)")
    trace.launch("cudaStreamSynchronize", 50 * US, FIRST - 40 * US, 9)
    for i in range(5):
        trace.op("aten::view", FIRST + 50 * US + i * 170 * US, 120 * US)
    assert judged(trace, work=2 + back)[0] == cause


@pytest.mark.parametrize(
    ("waited_at", "linked", "cause"),
    [
        (40, True, "waiting"),  # since the work before was launched
        (5, True, "unknown"),  # what came before that wait was over
        (40, False, "unknown"),  # nobody knows when the work before was launched
    ],
)
def test_work_waits_for_an_event_awaited_since_the_last_launch(
    waited_at: int, linked: bool, cause: str
) -> None:
    """Launched while the device was busy, and started long after."""
    trace = TraceBuilder()
    trace.step(0, 0, 2_000 * US)
    trace.launch("cudaLaunchKernel", 1 * US, 2 * US, 5)
    trace.kernel(4 * US, 2 * US, 5)
    trace.launch("cudaStreamWaitEvent", waited_at * US, 1 * US, 9)
    if linked:
        trace.launch("cudaLaunchKernel", 20 * US, 5 * US, 1)
    trace.kernel(28 * US, FIRST - 28 * US, 1)
    trace.launch("cudaLaunchKernel", 60 * US, 5 * US, 2)
    trace.kernel(LATE, 50 * US, 2)
    assert judged(trace, work=2)[0] == cause


@pytest.mark.parametrize(("held_us", "cause"), [(200, "host-code"), (520, "unknown")])
def test_delay_after_a_late_launch_counts_if_most_of_the_gap(held_us: int, cause: str) -> None:
    """Thirty others started 4 us after their launches: that is the usual delay."""
    trace = TraceBuilder()
    trace.step(0, 0, 5_000 * US)
    for i in range(30):
        trace.launch("cudaLaunchKernel", 20 * i * US, 2 * US, i + 1)
        trace.kernel((20 * i + 4) * US, 6 * US, i + 1)
    trace.launch("cudaLaunchKernel", (1_600 - held_us) * US, 2 * US, 99)
    trace.kernel(1_600 * US, 50 * US, 99)
    assert judged(trace, work=30)[0] == cause


@pytest.mark.parametrize(("ends_us", "row"), [(880, "aten::sum"), (884, "cudaLaunchKernel")])
def test_gap_belongs_to_the_op_before_the_launch_or_launching(ends_us: int, row: str) -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 2_000 * US)
    trace.launch("cudaLaunchKernel", 1 * US, 2 * US, 1)
    trace.kernel(4 * US, 90 * US, 1)
    trace.op("aten::norm", 90 * US, 800 * US)
    trace.op("aten::sum", 91 * US, (ends_us - 91) * US)
    for i in range(70):
        trace.op("aten::view", (100 + 11 * i) * US, 10 * US)
    trace.launch("cudaLaunchKernel", 881 * US, 2 * US, 2)
    trace.kernel(886 * US, 50 * US, 2)
    assert judged(trace)[:2] == ("dispatching", row)


@pytest.mark.parametrize("recorded", [True, False])
def test_launches_to_another_device_leave_nothing_unrecorded(recorded: bool) -> None:
    """One device is done; what is launched after that runs on the other one, or is not in the file."""
    trace = TraceBuilder()
    trace.step(0, 0, 1_000 * US)
    for number, device in ((1, 0), (2, 1)):
        trace.launch("cudaLaunchKernel", number * 10 * US, 5 * US, number)
        trace.kernel(100 * US, 100 * US, number, device=device)
    trace.launch("cudaLaunchKernel", 300 * US, 5 * US, 3)
    if recorded:
        trace.kernel(310 * US, 690 * US, 3, device=1)
    found = pieces(trace, work=-1)
    assert ("not-recorded" in found) is not recorded
    assert "tail" in found


@pytest.mark.parametrize(("gap_us", "charged"), [(200, True), (201, False)])
def test_call_that_found_the_device_idle_explains_short_gaps(gap_us: int, charged: bool) -> None:
    """It began 20 us after the device ran dry and took 20 us; an op fills the rest."""
    trace = TraceBuilder()
    trace.step(0, 0, 2_000 * US)
    trace.launch("cudaLaunchKernel", 1 * US, 2 * US, 1)
    trace.kernel(4 * US, 96 * US, 1)
    trace.op("aten::item", 118 * US, 24 * US)
    trace.launch("cudaStreamSynchronize", 120 * US, 20 * US, 9)
    for at in range(143, 90 + gap_us, 10):
        trace.op("aten::view", at * US, 9 * US)
    trace.launch("cudaLaunchKernel", (94 + gap_us) * US, 3 * US, 2)
    trace.kernel((100 + gap_us) * US, 50 * US, 2)
    assert (judged(trace)[0] == "synchronisation") is charged


@pytest.mark.parametrize(
    ("launched_us", "sync_us", "refill"),
    [
        (90, 95, True),  # launched in time, and the call waits for it
        (90, 131, False),  # the call came when the copy had begun
        (120, 123, False),  # the CPU came late: the device had run dry before
    ],
)
def test_copy_to_the_host_is_awaited_by_the_earlier_call(
    launched_us: int, sync_us: int, refill: bool
) -> None:
    """The device idles from 100 to 130 us."""
    trace = TraceBuilder()
    trace.step(0, 0, 1_000 * US)
    trace.launch("cudaLaunchKernel", 1 * US, 2 * US, 1)
    trace.kernel(4 * US, 96 * US, 1)
    trace.launch("cudaMemcpyAsync", launched_us * US, 2 * US, 2)
    trace.memcpy(130 * US, 40 * US, 2, name="Memcpy DtoH (Device -> Pinned)")
    trace.launch("cudaStreamSynchronize", sync_us * US, (175 - sync_us) * US, 9)
    trace.launch("cudaLaunchKernel", 200 * US, 2 * US, 3)
    trace.kernel(204 * US, 96 * US, 3)
    assert (judged(trace)[:2] == ("synchronisation", "cudaStreamSynchronize")) is refill


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "blocking-upload"),
        ("Memcpy DtoH (Device -> Pageable)", "synchronisation"),
    ],
)
def test_a_call_that_copies_outside_any_op_holds_up_by_itself(name: str, cause: str) -> None:
    trace = gap()
    trace.launch("cudaMemcpy", 40 * US, FIRST - 20 * US, 8)
    trace.memcpy(FIRST, 1, 8, name=name)
    for i in range(5):
        trace.op("aten::view", FIRST + 50 * US + i * 170 * US, 120 * US)
    assert judged(trace, work=2)[:2] == (cause, "cudaMemcpy")
