"""What notebooks use: frames of kernels and queue depth, of findings and idle time, and short texts of objects."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.report import report_samples as samples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Analysis, Unavailable, diagnose, kernels, load, queue_depth
from traceanalyzer.model.errors import BadOption

MS = 1_000_000
START = 5 * MS


def small() -> TraceBuilder:
    """Two kernels on stream 9 of device 1, queued by one op on thread 77, and one that nobody launched."""
    made = TraceBuilder()
    made.step(3, START, 10 * MS, tid=77)
    made.op("aten::mm", START, 100_000, tid=77, external_id=50)
    for number in (1, 2):
        made.launch("cudaLaunchKernel", START + number * 1_000, 500, number, tid=77, external_id=50)
    made.kernel(START + 10_000, 20_000, 1, name="gemm", device=1, stream=9, external_id=50)
    made.kernel(START + 5 * MS, 30_000, 2, name="gemm", device=1, stream=9, external_id=50)
    made.kernel(START + 8 * MS, 40_000, 77, name="stray", device=1, stream=9)
    return made


def test_kernels_have_their_op_launch_step_and_delay() -> None:
    trace = small().load()
    frame = kernels(trace)
    assert frame["kernel"].tolist() == ["gemm", "gemm", "stray"]
    assert frame["op"].isna().tolist() == [False, False, True]
    assert frame["op"].tolist()[:2] == ["aten::mm", "aten::mm"]
    assert frame["launch"].tolist()[:2] == ["cudaLaunchKernel"] * 2
    assert frame["delay_ns"].tolist()[:2] == [9_000, 5 * MS - 2_000]
    assert frame["delay_ns"].isna().tolist() == [False, False, True]
    assert frame["step"].tolist()[:2] == [3, 3]
    assert (frame["device"] == 1).all()
    assert (frame["stream"] == 9).all()
    assert frame["start_s"].tolist()[0] == pytest.approx(10e-6)
    assert frame["kind"].tolist() == ["compute"] * 3
    assert str(frame["launch_event_id"].dtype) == str(frame["step"].dtype) == "Int64"
    assert trace.cpu.set_index("event_id").loc[frame["launch_event_id"].iloc[0], "name"] == "cudaLaunchKernel"


def test_kernels_need_no_marks_and_do_need_kernels() -> None:
    made = TraceBuilder()
    made.kernel(START, MS, 1)
    assert kernels(made.load())["step"].isna().all()
    cpu_only = TraceBuilder()
    cpu_only.op("aten::mm", START, MS)
    with pytest.raises(Unavailable, match="no kernels"):
        kernels(cpu_only.load())


def test_the_queue_grows_with_launches_and_shrinks_with_ends() -> None:
    frame = queue_depth(Analysis(small().load()))
    assert frame["queued"].tolist() == [1, 2, 1, 0]
    assert frame["time_ns"].tolist() == [START + at for at in (1_000, 2_000, 30_000, 5 * MS + 30_000)]
    assert frame["time_s"].iloc[0] == pytest.approx(1e-6)
    assert frame["device"].tolist() == [1] * 4


def test_paths_and_numbers_are_taken(tmp_path: Path) -> None:
    path = small().write(tmp_path / "trace.json")
    by_path = diagnose(str(path))
    assert by_path.findings == diagnose(load(path)).findings
    limit = next(name for name, value in by_path.limits.items() if isinstance(value, int))
    assert diagnose(path, settings={limit: 700}).limits[limit] == 700
    assert diagnose(path, settings={limit: 7e3}).limits[limit] == 7_000
    with pytest.raises(BadOption, match="not a whole number"):
        diagnose(path, settings={limit: 7.5})


@pytest.mark.parametrize("step_ms", [0.0, -1.0, float("nan"), float("inf")])
def test_step_times_are_positive(step_ms: float) -> None:
    with pytest.raises(BadOption, match="not a positive time"):
        diagnose(small().load(), step_ms=step_ms)


def test_idle_time_is_a_frame_with_causes() -> None:
    report = diagnose(small().load())
    (time,) = report.traces[0].accounting
    frame = report.idle
    assert frame["ns"].sum() == sum(time.idle_ns.values())
    assert frame["share"].sum() == pytest.approx(sum(time.idle_ns.values()) / time.length_ns)
    assert set(frame["cause"]) == set(time.idle_ns)
    assert str(frame["rank"].dtype) == "Int64"


def test_findings_say_seconds_since_the_start() -> None:
    report = diagnose(small().load())
    frame = report.to_frame()
    origin = report.traces[0].meta.origin_ns
    expected = [(finding.start_ns - origin) / 1e9 for finding in report.findings]
    assert frame["start_s"].tolist() == pytest.approx(expected)
    assert isinstance(frame, pd.DataFrame)


def test_every_finding_has_device_stream_and_thread() -> None:
    """Swapped ones would go unseen on traces where all are 0 or 7."""
    findings = diagnose(small().load()).findings
    assert findings
    for finding in findings:
        for place in (finding, *finding.occurrences):
            assert (place.device, place.stream) in {(1, 9), (1, None), (None, None)}
            assert place.thread in (77, None)
    assert 1 in {finding.device for finding in findings}


def test_objects_print_in_one_short_line() -> None:
    trace = small().load()
    report = diagnose(trace)
    for thing in (report, report.findings[0], report.traces[0], Analysis(trace), trace, trace.meta):
        assert len(repr(thing)) < 300, repr(thing)
        assert "\n" not in repr(thing)
        assert repr(thing).startswith(f"{type(thing).__name__}(")


def test_a_trace_has_its_tables() -> None:
    trace = small().load()
    assert trace.kernels.equals(kernels(trace))
    assert trace.queue_depth().equals(queue_depth(trace))


def test_a_window_is_text_offsets_or_a_span_of_the_report() -> None:
    trace = small().load()
    whole = diagnose(trace).traces[0].window
    half = (whole.length_ns // 2000) * 1000
    by_offsets = diagnose(trace, window=(0, np.int64(half))).traces[0].window  # type: ignore[arg-type]
    by_text = diagnose(trace, window=f"0ns:{half}ns").traces[0].window
    by_span = diagnose(trace, window=by_offsets).traces[0].window
    assert by_offsets == by_text == by_span
    assert by_offsets.end_ns - trace.meta.origin_ns == half
    assert type(by_offsets.end_ns) is int
    finding = diagnose(trace).findings[0]
    assert diagnose(trace, window=finding).traces[0].window.asked
    with pytest.raises(BadOption, match="is not a time"):
        diagnose(trace, window="soon:later")


def test_idle_gaps_are_rows_with_causes() -> None:
    trace = small().load()
    report, gaps = diagnose(trace), trace.idle_gaps()
    (time,) = report.traces[0].accounting
    assert gaps["dur_ns"].tolist() == (gaps["end_ns"] - gaps["start_ns"]).tolist()
    inside = gaps[(gaps["start_ns"] >= time.start_ns) & (gaps["end_ns"] <= time.end_ns)]
    sums = inside.groupby("cause")["dur_ns"].sum().to_dict()
    assert sums == {cause: ns for cause, ns in time.idle_ns.items() if ns}
    assert gaps["start_ns"].is_monotonic_increasing


def test_savings_are_columns_and_severities_are_ordered() -> None:
    findings = samples.replayed().findings
    frame = samples.replayed().to_frame()
    expected = [found.saving and found.saving.share for found in findings]
    assert frame["saving_share"].tolist()[:3] == expected[:3]
    assert pd.isna(frame["saving_share"][3])
    assert frame["saving_ns"][0] == findings[0].saving.step_ns  # type: ignore[union-attr]
    assert (frame["severity"] >= "low").tolist() == [True, True, True, False]
    assert str(frame["severity"].max()) == "high"


def two_devices() -> TraceBuilder:
    """Device 1 works from 10 to 40 us and from 60 us on, device 0 from 20 to 50 us: all given within 5 us."""
    made = TraceBuilder()
    made.step(0, START, MS)
    for number, (device, begin, dur) in enumerate(((1, 10, 30), (0, 20, 30), (1, 60, 10), (0, 90, 10)), 1):
        made.launch("cudaLaunchKernel", START + number * 1_000, 500, number)
        made.kernel(START + begin * 1_000, dur * 1_000, number, device=device, stream=7 + device)
    return made


def test_each_device_has_a_queue_and_idle_time_of_its_own() -> None:
    trace = two_devices().load()
    depth = queue_depth(trace)
    assert list(zip(depth["device"], (depth["time_ns"] - START) // 1_000, depth["queued"], strict=True)) == [
        (0, 2, 1), (0, 4, 2), (0, 50, 1), (0, 100, 0), (1, 1, 1), (1, 3, 2), (1, 40, 1), (1, 70, 0),
    ]  # fmt: skip
    gaps = trace.idle_gaps()
    assert gaps["device"].is_monotonic_increasing
    assert set(gaps["device"]) == {0, 1}
    for device, begin, end in ((0, 50, 90), (1, 40, 60)):
        own = gaps[(gaps["device"] == device) & (gaps["start_ns"] >= START + begin * 1_000)]
        assert own["start_ns"].is_monotonic_increasing
        assert own["dur_ns"][own["end_ns"] <= START + end * 1_000].sum() == (end - begin) * 1_000
    assert set(gaps["step"].dropna()) == {0}
    assert gaps["start_s"].tolist() == pytest.approx(((gaps["start_ns"] - START) / 1e9).tolist())


def test_early_work_has_a_delay_and_unlaunched_no_event() -> None:
    """Clocks of host and device may differ by a little."""
    made = TraceBuilder()
    made.launched((START, 500), (START - 300, 2_000), 1)
    made.kernel(START + 5_000, 2_000, 77)
    frame = kernels(made.load())
    assert frame["delay_ns"].tolist()[:1] == [-300]
    assert frame["launch_event_id"].tolist()[:1] == [0]
    assert frame[["delay_ns", "launch_event_id", "launch", "op"]].iloc[1].isna().all()


def test_rows_of_frames_say_their_event_step_and_op() -> None:
    """A kernel before the steps, two in step 4, and one in step 5 that device 1 runs."""
    made, us = TraceBuilder(), 1_000
    early = made.kernel(0, 20 * us, 900)
    made.step(4, 100 * us, 400 * us)
    made.step(5, 500 * us, 400 * us)
    events, launches = [early], []
    for number, (at, name, begin) in enumerate(
        ((110, "aten::mm", 125), (150, "aten::nonzero", 350), (510, "aten::add", 525)), 1
    ):
        op_us = 200 if name == "aten::nonzero" else 20
        made.op(name, at * us, op_us * us)
        launches.append(made.launch("cudaLaunchKernel", (at + op_us - 10) * us, 5 * us, number))
        events.append(made.kernel(begin * us, 30 * us, number, device=int(number == 3)))
    trace = made.load()
    frame = kernels(trace)
    assert frame["event_id"].tolist() == events
    assert frame["launch_event_id"].tolist()[1:] == launches
    assert frame["step"].tolist()[1:] == [4, 4, 5]
    assert frame["op"].tolist()[1:] == ["aten::mm", "aten::nonzero", "aten::add"]
    assert frame[["step", "op", "launch_event_id"]].iloc[0].isna().all()
    gaps = trace.idle_gaps()
    first = gaps[gaps["device"] == 0]
    assert ((first["start_ns"] // us).tolist(), (first["end_ns"] // us).tolist()) == (
        [20, 100, 155, 380, 500],
        [100, 125, 350, 500, 900],
    )
    assert first["step"].fillna(-1).tolist() == [-1, 0, 0, 0, 1]
    assert first["op"].fillna("").tolist() == ["", "", "aten::nonzero", "", ""]
    assert first["cause"].tolist() == ["host-code", "host-code", "dispatching", "tail", "tail"]
