"""Clocks, lost events and stalls of the recording."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rules.hosts import said_by
from tests.rules.loops import Loop, loop_of
from tests.support.marked_recordings import MS, US, findings_by_cause, stepped
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer import Trace, diagnose, load
from traceanalyzer.model.finding import Severity, Status

Shared = Callable[[str], Path]
FULL, LOW = 1980.0, 1320.0
DIP = [FULL] * 4 + [LOW] * 3 + [FULL]


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


def test_overlapping_work_does_not_delay_the_step() -> None:
    """The profiler's row lies between two ops, and holds up none."""

    def body(loop: Loop, _: int) -> None:
        loop.overhead("Activity Buffer Request", loop.now + 1_000, 2 * MS)
        loop.pause(3 * MS)

    assert said_by(loop_of(body), "activity-buffer-request") == []


def worked(trace: TraceBuilder, which: Callable[[int], bool]) -> TraceBuilder:
    """With the work of those launches."""
    for event in [event for event in trace.events if event["name"] == "cudaLaunchKernel"]:
        correlation = event["args"]["correlation"]
        if which(correlation):
            trace.kernel(round(event["ts"] * 1000) + 8 * US, 4 * US, correlation)
    return trace


def test_a_complete_recording_only_says_what_was_left_out() -> None:
    found = findings_by_cause(worked(stepped(), lambda _: True).load())
    assert list(found) == ["left-out"]
    assert "record_shapes=True and with_stack=True" in found["left-out"].advice


def test_device_records_without_times_are_no_missing_records() -> None:
    trace = worked(stepped(), lambda _: True).shifted(5 * MS)
    for event in trace.events:
        if event["cat"] == "kernel":
            event |= {"ts": 0.0, "dur": 0.0}
    loaded = trace.load()
    found = findings_by_cause(loaded)["no-device-times"]
    assert found.message.startswith("all 160 GPU records have the time 0")
    assert found.severity is Severity.INFO
    verdict = str(diagnose(loaded).traces[0].verdict)
    assert "not judged: all 160 GPU records lost their times" in verdict
    assert "export each profile before the next profiler starts" in verdict


def test_launches_whose_work_is_missing_here_and_there() -> None:
    found = findings_by_cause(worked(stepped(), lambda number: number % 4 != 0).load())["lost-work"]
    assert found.evidence["missing"] == found.count == 40


@pytest.mark.parametrize(
    ("pieces", "missing", "said"), [(40, 9, False), (40, 10, True), (400, 15, False), (400, 16, True)]
)
def test_ten_launches_and_one_in_a_hundred_without_work_are_said(pieces: int, missing: int, said: bool) -> None:
    """Four steps of so many launches; those without work are here and there, not at the end."""
    trace = worked(stepped(pieces), lambda number: number > missing)
    assert ("lost-work" in findings_by_cause(trace.load())) is said


def test_a_device_lane_that_ends_early() -> None:
    """The last launch to end is that of another thread, which began before the others."""
    trace = worked(stepped(), lambda number: number <= 100)
    trace.launch("cudaLaunchKernel", 3 * MS, 900 * US, 9_000, tid=77)
    trace.events.insert(0, trace.events.pop())
    found = findings_by_cause(trace.load())
    assert "lost-work" not in found
    evidence = found["truncated-device-lane"].evidence
    assert evidence["missing"] == 61
    assert evidence["tail_ns"] == 3 * MS + 900 * US - (2 * MS + 20 * 20 * US + US + 12 * US)


def test_launches_in_a_capture_start_nothing() -> None:
    trace = worked(stepped(), lambda number: number <= 120)
    trace.launch("cudaStreamBeginCapture", 3 * MS + 5 * US, US, 0)
    trace.launch("cudaStreamEndCapture", 3 * MS + 900 * US, US, 0)
    assert not {"lost-work", "truncated-device-lane"} & findings_by_cause(trace.load()).keys()


def test_work_without_launches() -> None:
    trace = worked(stepped(), lambda _: True)
    for piece in range(20):
        trace.kernel(2 * MS + piece * 20 * US, 2 * US, 5_000 + piece)
    assert findings_by_cause(trace.load())["lost-launches"].count == 20


@pytest.mark.parametrize(("first", "steps", "causes"), [(0, 4, {"no-warm-up"}), (3, 2, {"few-steps"}), (3, 4, set())])
def test_too_short_and_too_early(first: int, steps: int, causes: set[str]) -> None:
    found = findings_by_cause(worked(stepped(first=first, steps=steps), lambda _: True).load())
    assert found.keys() - {"left-out"} == causes


@pytest.mark.parametrize(("steps", "said"), [(1, "1 step with work"), (2, "2 steps with work"), (0, "no step marks")])
def test_how_many_steps_there_are_is_said_where_they_are_few(steps: int, said: str) -> None:
    trace = worked(stepped(steps=max(steps, 1)), lambda _: True)
    if not steps:
        trace.events = [event for event in trace.events if "ProfilerStep" not in event["name"]]
    assert findings_by_cause(trace.load())["few-steps"].message.startswith(f"{said}, which is too few")


@pytest.mark.parametrize(("shapes", "stacks"), [(True, False), (False, True), (True, True)])
def test_only_what_was_left_out_is_to_be_recorded(shapes: bool, stacks: bool) -> None:
    trace = worked(stepped(), lambda _: True)
    if shapes:
        trace.header["record_shapes"] = 1
        trace.op("aten::mm", 50 * US, 5 * US, **{"Input Dims": [[2, 2], [2, 2]], "Input type": ["float"] * 2})
    if stacks:
        trace.header["with_stack"] = 1
        trace.python("train.py(3): step", 0, MS, python_id=1)
    found = findings_by_cause(trace.load())
    assert ("left-out" in found) is not (shapes and stacks)
    if "left-out" in found:
        advice = found["left-out"].advice
        assert advice == f"Pass {'with_stack=True' if shapes else 'record_shapes=True'} when you record."


@pytest.mark.parametrize(("last", "cause"), [(150, "lost-work"), (149, "truncated-device-lane")])
def test_a_lane_is_cut_that_ends_a_twentieth_of_the_window_early(last: int, cause: str) -> None:
    """Of 4 ms, with 160 launches every 20 us: the last work ends 194 us and 214 us before the last launch."""
    trace = worked(stepped(), lambda number: number <= last)
    assert [one for one in findings_by_cause(trace.load()) if one in ("lost-work", "truncated-device-lane")] == [cause]


@pytest.mark.parametrize(("delay_ns", "early"), [(-1, 160), (0, 0), (1, 0)])
def test_only_what_starts_before_its_launch_is_early(delay_ns: int, early: int) -> None:
    trace = stepped()
    for call in [event for event in trace.events if event["name"] == "cudaLaunchKernel"]:
        trace.kernel(round(call["ts"] * 1_000) + delay_ns, 4 * US, call["args"]["correlation"])
    found = findings_by_cause(trace.load())
    assert ("clock-error" in found) == bool(early)
    assert not early or found["clock-error"].count == early


def test_clocks_disagree_by_as_much_as_the_earliest_start() -> None:
    trace = stepped()
    calls = [event for event in trace.events if event["name"] == "cudaLaunchKernel"]
    for place, call in enumerate(calls):
        trace.kernel(round(call["ts"] * 1_000) - 1_000 * (1 + place % 7), 4 * US, call["args"]["correlation"])
    assert findings_by_cause(trace.load())["clock-error"].evidence["worst_ns"] == 7_000


# -- throttling -------------------------------------------------------------------------------------------------------


def clocked(**series: list[float]) -> Trace:
    """Eight steps of ten equal kernels; where the clock is low they take half as long again."""
    trace, clock = TraceBuilder(), series["clock"]
    for number, mhz in enumerate(clock):
        trace.step(number + 3, number * MS, MS - 10 * US)
        for piece in range(10):
            at, full = number * MS + (piece + 1) * 90 * US, max(clock)
            trace.op("aten::mm", at, 10 * US)
            trace.launch("cudaLaunchKernel", at + US, 5 * US, number * 10 + piece + 1)
            trace.kernel(at + 10 * US, round(50 * US * full / mhz), number * 10 + piece + 1)
    names = {"clock": "SM Clock (MHz)", "power": "Power (W)", "heat": "Temperature (C)"}
    for kind, values in series.items():
        for number, value in enumerate(values):
            sample = {"ts": number * MS / US, "pid": "GPU 0 Counters", "args": {"": value}}
            trace.event(ph="C", name=names[kind], **sample)
    return trace.load()


@pytest.mark.parametrize(
    ("power", "heat", "cause"),
    [(500.0, 88.0, "thermal"), (700.0, 83.0, "thermal"), (700.0, 60.0, "power"), (300.0, 60.0, "clocks")],
)
def test_a_clock_that_falls_is_told_with_its_reason(power: float, heat: float, cause: str) -> None:
    powers = [700.0] * 4 + [power] * 3 + [700.0]
    found = findings_by_cause(clocked(clock=DIP, power=powers, heat=[heat] * 8), "throttling")
    assert list(found) == [cause]
    assert found[cause].count == 30
    assert found[cause].cost_ns == 30 * 25 * US
    assert found[cause].evidence["slowdown"] == pytest.approx(1.5)
    assert "1,320 of 1,980 MHz" in found[cause].message


@pytest.mark.parametrize("clock", [[FULL] * 8, [FULL, 1900.0] * 4, [LOW] * 3 + [FULL] * 5])
def test_steady_clocks_boost_and_ramp_are_no_throttling(clock: list[float]) -> None:
    assert findings_by_cause(clocked(clock=clock), "throttling") == {}


def test_only_work_after_full_clock_is_throttled() -> None:
    found = findings_by_cause(clocked(clock=[LOW] * 3 + [FULL] * 3 + [LOW] * 2), "throttling")
    assert {cause: one.count for cause, one in found.items()} == {"clocks": 20}


@pytest.mark.parametrize(
    ("series", "said"),
    [
        ({}, "the SM clock falls to 1,320 of 1,980 MHz: "),
        ({"power": [300.0] * 7 + [700.0]}, "the SM clock falls to 1,320 of 1,980 MHz at 300 W: "),
        ({"heat": [88.0] * 8}, "the SM clock falls to 1,320 of 1,980 MHz at 88 C: "),
    ],
    ids=["clock alone", "power", "temperature"],
)
def test_power_and_temperature_are_told_where_they_are_known(series: dict[str, list[float]], said: str) -> None:
    (one,) = findings_by_cause(clocked(clock=DIP, **series), "throttling").values()
    assert one.message.startswith(said)


def test_without_counters_it_does_not_apply(shared: Shared) -> None:
    trace = load(shared("pairs/clean_gemm.fixed"))
    assert isinstance(trace, Trace)
    (outcome,) = diagnose(trace, select=["throttling"]).outcomes
    assert outcome.status is Status.NOT_APPLICABLE
    assert "no clock counters" in str(outcome.why)


def test_each_device_is_held_against_its_own_highest_clock() -> None:
    """The second device's clock is a tenth lower than the first one's, and falls when that falls."""
    trace = TraceBuilder(devices=[H200, {**H200, "id": 1}])
    for number, mhz in enumerate(DIP):
        trace.step(number + 3, number * MS, MS - 10 * US)
        for device, share in ((0, 1.0), (1, 0.9)):
            counter = {"ts": number * MS / US, "pid": f"GPU {device} Counters", "args": {"": mhz * share}}
            trace.event(ph="C", name="SM Clock (MHz)", **counter)
            for piece in range(10):
                at, launched = number * MS + (piece + 1) * 90 * US, 20 * number + 10 * device + piece + 1
                trace.launch("cudaLaunchKernel", at + 10 * device * US, 5 * US, launched)
                trace.kernel(at + 20 * US, round(50 * US * FULL / mhz), launched, device=device)
    report = diagnose(trace.load(), select=["throttling"])
    assert {one.device: (one.count, one.cost_ns) for one in report.findings} == dict.fromkeys(
        (0, 1), (30, 30 * 25 * US)
    )
    low = {one.device: one.message for one in report.findings}
    assert "1,320 of 1,980 MHz" in low[0]
    assert "1,188 of 1,782 MHz" in low[1]


@pytest.mark.parametrize(("worked_in", "few"), [(2, True), (3, False)])
def test_steps_without_work_are_no_steps_to_judge_by(worked_in: int, few: bool) -> None:
    """Five are marked."""
    trace = worked(stepped(steps=5), lambda correlation: correlation <= 40 * worked_in)
    assert ("few-steps" in findings_by_cause(trace.load())) is few
