"""Rows whose times cannot belong to the recording are left out, counted, and do not become the window."""

from typing import Any

import pytest

from tests.read.raw_events import LATE_US, kernel, of, op
from tests.read.samples import everything
from traceanalyzer.model.trace import Trace

SPAN = {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler"}


def ends(trace: Trace) -> int:
    return max(int((frame["start_ns"] + frame["dur_ns"]).max()) for frame in (trace.cpu, trace.gpu))


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("changes", [{"ts": 2 * LATE_US}, {"dur": 1e12}, {"ts": 0.001}, {"ts": -LATE_US}])
def test_a_kernel_far_outside_is_counted(changes: dict[str, Any], recorded: bool) -> None:
    window = [{**SPAN, "ts": LATE_US - 5, "dur": 100.0}] if recorded else []
    trace = of(op(), kernel(), kernel(**changes), *window)
    assert trace.gpu["event_id"].tolist() == [1]
    assert trace.meta.counted.get("outside the recording") == 1
    assert trace.meta.rows["gpu"] == {"kernel": 1}
    assert ends(trace) < (LATE_US + 200) * 1000


def test_op_far_outside_is_counted_and_running_one_stays() -> None:
    window = {**SPAN, "ts": LATE_US - 5, "dur": 100.0}
    trace = of(op(), op(), op(ts=2 * LATE_US), op(dur=1e12), window)
    assert trace.cpu["event_id"].tolist() == [0, 1, 3]
    assert trace.meta.counted["outside the recording"] == 1


def test_pauses_of_a_real_recording_are_not_misplaced() -> None:
    late = LATE_US + 30e6  # the program slept for half a minute
    window = {**SPAN, "ts": LATE_US, "dur": 30e6 + 100}
    trace = of(op(), kernel(), op(ts=late), kernel(ts=late), kernel(ts=late + 59e6), window)
    assert (len(trace.cpu), len(trace.gpu)) == (2, 3)
    assert everything().load().meta.counted.get("outside the recording") is None


@pytest.mark.parametrize(
    ("starts", "takes", "kept"),
    [
        (0.5, 60.5, True),
        (0.5, 60.501, False),
        (0.5, 90, False),
        (-60, 121, True),
        (-60.001, 1, False),
        (61, 0, True),
        (61.001, 0, False),
    ],
)
def test_kernels_lie_within_a_minute_of_the_recording(starts: float, takes: float, kept: bool) -> None:
    """Ops only start there: the profiler writes what still runs when it stops."""
    at, window = 4.3e12, {**SPAN, "ts": 4.3e12, "dur": 1e6}
    times = {"ts": at + starts * 1e6, "dur": takes * 1e6}
    trace = of(*[op(ts=at), op(ts=at + 5e5), kernel(ts=at)] * 2, kernel(**times), op(**times), window)
    assert len(trace.gpu) == 2 + kept
    assert len(trace.cpu) == 4 + (-60 <= starts <= 61)


@pytest.mark.parametrize(("starts", "kept"), [(199, True), (200, False)])
def test_rows_lie_as_far_from_a_long_recording_as_it_is_long(starts: int, kept: bool) -> None:
    at = 4.3e12
    window = {**SPAN, "ts": at, "dur": 99.5e6}
    assert len(of(op(ts=at), kernel(ts=at), kernel(ts=at + starts * 1e6, dur=0), window).gpu) == 1 + kept


def test_times_at_both_ends_of_64_bit_leave_differences_that_fit() -> None:
    far = [op(ts=ts, dur=7e12) for ts in (9.2e15, -9.2e15, 4.5e15, -4.5e15)]
    trace = of(*[op()] * 100, *far, *[kernel(ts=one["ts"], dur=7e12) for one in far], kernel())
    assert (len(trace.cpu), len(trace.gpu)) == (100, 1)
    assert trace.meta.counted == {"no timestamp": 4, "outside the recording": 4}
    two = of(op(ts=4.5e15, dur=7e12), op(ts=-4.5e15, dur=7e12)).cpu
    assert int(two["start_ns"].max()) + int(two["dur_ns"].max()) - int(two["start_ns"].min()) < 2**63


# -- devices ---------------------------------------------------------------------------------------------------


def labelled(pid: Any, name: str, key: str = "process_labels") -> dict[str, Any]:
    field = "labels" if key == "process_labels" else "name"
    return {"ph": "M", "name": key, "pid": pid, "tid": 0, "ts": 0, "args": {field: name}}


@pytest.mark.parametrize(
    ("pid", "declared", "device"),
    [
        (5_000_002, [labelled(5_000_002, "GPU 2")], 2),
        (77, [labelled(77, "GPU 2", "process_name")], 2),
        ("GPU 3", [], 3),
        (4, [], 4),
        (4, [labelled(4, "CPU")], None),
        (24_000, [], None),
        ("worker", [], None),
    ],
)
def test_a_kernel_without_device_is_on_that_of_its_process(pid: Any, declared: list[Any], device: int | None) -> None:
    trace = of(op(), kernel(pid=pid, tid=9, args={"correlation": 3}), *declared)
    assert trace.gpu["device"].isna().item() is (device is None)
    assert [one.ordinal for one in trace.meta.devices] == [device or 0]  # work of nobody's device counts to 0
    assert trace.gpu["stream"].tolist() == [9]
    if device is not None:
        assert trace.gpu["device"].tolist() == [device]


def test_unlisted_device_gets_no_other_devices_properties() -> None:
    work = [kernel(args={"device": ordinal, "stream": 0, "correlation": ordinal}) for ordinal in (9, 1)]
    listed = [{"id": 0, "name": "A", "numSms": 304}, {"id": 1, "name": "B", "numSms": 110}]
    devices = of(*work, deviceProperties=listed).meta.devices
    assert [(one.ordinal, one.name, one.sms) for one in devices] == [(1, "B", 110), (9, None, None)]


@pytest.mark.parametrize(
    ("listed", "capability"),
    [({"computeMajor": 9, "computeMinor": 0}, (9, 0)), ({"computeMajor": 9}, None), ({"computeMinor": 0}, None)],
)
def test_a_compute_capability_has_two_numbers(listed: dict[str, int], capability: tuple[int, int] | None) -> None:
    (device,) = of(op(), kernel(), deviceProperties=[{"id": 0, **listed}]).meta.devices
    assert device.compute_capability == capability


def test_category_without_remaining_rows_is_not_in_the_trace() -> None:
    """Its rows are counted, and what only they had was not recorded."""
    python = op(cat="python_function", name="train.py(1): main", ts=2 * LATE_US)
    trace = of(op(), kernel(), kernel(cat="gpu_memcpy", ts=2 * LATE_US), python)
    assert trace.meta.rows == {"cpu": {"cpu_op": 1}, "gpu": {"kernel": 1}}
    assert trace.meta.counted == {"outside the recording": 2}
    assert not trace.meta.capabilities["stacks"]


def test_untimed_rows_do_not_hide_a_wrong_clock() -> None:
    """Nor are they some of the twenty rows that it takes."""
    hours = 5 * 3600e6
    for count, kept in ((20, 20), (19, 0)):
        timed = [kernel(ts=LATE_US + i + hours) for i in range(count)]
        trace = of(*[op(ts=LATE_US + i) for i in range(50)], *timed, *[kernel(ts=0.0)] * 10)
        assert (trace.gpu["event_id"] < 50 + count).sum() == kept


def test_a_name_whose_rows_were_left_out_has_no_number() -> None:
    late = op(pid="gone", tid="away", ts=2 * LATE_US)
    trace = of(late, *[op(pid="worker", tid="main")] * 30)
    assert {*map(tuple, trace.cpu[["pid", "tid"]].values.tolist())} == {(-1000, -1001)}


@pytest.mark.parametrize(("off", "kept"), [(19, 1), (20, 21)])
def test_lane_clock_is_wrong_if_95_percent_lie_elsewhere(off: int, kept: int) -> None:
    """Just beyond an hour after the ops; one kernel is beside them."""
    ops = [op(ts=LATE_US + at) for at in range(50)]
    trace = of(*ops, kernel(ts=LATE_US), *[kernel(ts=LATE_US + 3601e6) for _ in range(off)])
    assert len(trace.gpu) == kept
