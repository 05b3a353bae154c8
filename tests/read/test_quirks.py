"""What exporters write instead of what was expected: every quirk that the reader knows, on built traces."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.read.raw_events import LATE_US, kernel, of, op
from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import TraceBuilder, load_bytes
from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.columns.times import durations_ns


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1712195495406752.797", 1712195495406752797),
        ("1712195495406752.7", 1712195495406752700),
        ("1712195495406752", 1712195495406752000),
        ('"1712195495406752.797"', 1712195495406752797),
    ],
)
def test_absolute_times_with_nanoseconds_are_exact(text: str, expected: int) -> None:
    """19 digits: a double holds 16 of them."""
    content = json.dumps([op(ts=0.5), op(ts=1712195495406752.5)])
    trace = load_bytes(content.replace('"ts": 0.5', f'"ts": {text}').encode())
    assert trace.cpu["start_ns"].tolist()[0] == expected
    assert trace.meta.dialect == "torch 2.4 previews of spring 2024"


@pytest.mark.parametrize("dur", [-1.0, 1.8e16, 18446744073709551.615])
def test_an_impossible_duration_is_0_and_counted(dur: float) -> None:
    trace = of(op(dur=dur), op(dur=2.0))  # a file without a possible one is refused
    assert trace.cpu["dur_ns"].tolist() == [0, 2_000]
    assert trace.meta.anomalies == {"impossible duration of cpu_op, taken as 0": 1}


# The longest is a base period: baseTimeNanoseconds is a multiple of it.
@examples(200)
@given(st.lists(st.integers(0, 10**12) | st.sampled_from([0, 1, 999, 1_000, 7_889_238 * 10**9]), min_size=1))
def test_possible_durations_are_not_counted_as_anomalies(ns: list[int]) -> None:
    found, impossible = durations_ns(np.array([one / 1_000 for one in ns]))
    assert (found.tolist(), impossible) == (ns, 0)


def test_whole_microseconds_are_said() -> None:
    assert of(op(ts=1_600_000_000_000_000, dur=3)).meta.capabilities["nanoseconds"] is False
    assert of(op()).meta.capabilities["nanoseconds"] is True
    whole = op(ts=1_600_000_000_000_000, dur=3)
    for other in ({"dur": 3.25}, {"ts": 1_600_000_000_000_009.5}):
        assert of(whole, {**whole, **other}).meta.capabilities["nanoseconds"] is True
        assert of(whole, kernel(**{**whole, "cat": "kernel", **other})).meta.capabilities["nanoseconds"] is True


@pytest.mark.parametrize(
    ("pid", "tid", "expected"),
    [
        ("25738", "stream 7", [25738, 7]),
        (3.0, -1, [3, -1]),
        ("worker", "main", [-1000, -1001]),
        ("", "", [-1000, -1000]),
    ],
)
def test_lanes_are_numbers(pid: Any, tid: Any, expected: list[int]) -> None:
    assert of(op(pid=pid, tid=tid)).cpu[["pid", "tid"]].values.tolist() == [expected]


def test_the_first_exporter() -> None:
    """torch 1.8 to 1.11: capitalised categories, lower-case ids, allocator's instants without a category."""
    trace = of(
        op(cat="Operator", args={"Device": 24572, "External id": 5, "Trace name": "PyTorch Profiler"}),
        op(cat="Runtime", name="cudaLaunchKernel", tid="2", args={"correlation": 3, "external id": 5}),
        kernel(cat="Kernel", tid="stream 7", args={"device": 0, "stream": 7, "correlation": 3, "external id": 5}),
        {"ph": "i", "name": "[memory]", "ts": LATE_US, "pid": 1, "tid": 2, "args": {"Device Type": 1, "Bytes": -512}},
        {"ph": "s", "id": 3, "cat": "async", "name": "launch", "pid": 1, "tid": 2, "ts": 5},
    )
    assert trace.cpu["category"].tolist() == ["cpu_op", "cuda_runtime"]
    assert trace.cpu["external_id"].tolist() == [5, 5]
    assert trace.gpu["external_id"].tolist() == [5]
    assert trace.memory["bytes"].tolist() == [-512]
    assert trace.meta.counted == {"flow:async": 1}
    assert trace.meta.dialect == "torch 1.8 to 1.11"
    assert trace.meta.other_args == {}


def test_unknown_categories_go_to_the_lane_that_their_args_name() -> None:
    trace = of(op(cat="new"), kernel(cat="newer"), op(cat="new", ph="B"), op(cat=None), op(cat="new", ph=None), op())
    assert trace.cpu["category"].tolist() == ["new", "None", "cpu_op"]
    assert trace.gpu["category"].tolist() == ["newer"]
    assert trace.meta.unknown_categories == {"new": 1, "newer": 1, "None": 1}
    assert trace.meta.counted == {"no phase": 1, "phase B": 1}


def test_gpu_rows_without_timing_are_counted() -> None:
    """kineto#109: CUPTI had no timing, and the rows stand at 0."""
    trace = of(op(), kernel(ts=0, dur=0), kernel())
    assert len(trace.gpu) == 1
    assert trace.meta.counted == {"no device time": 1}
    assert trace.meta.rows["gpu"] == {"kernel": 1}
    assert trace.meta.origin_ns == 4337381005249697


def test_a_recording_may_begin_at_0() -> None:
    assert len(of(op(ts=100.0), kernel(ts=0)).gpu) == 1


def test_values_that_do_not_fit_are_null_and_counted() -> None:
    trace = of(
        op(args={"External id": "12", "Sequence number": 2**70, "Fwd thread id": "x", "Input Dims": [[1]]}),
        op(args={"External id": 13.0, "Sequence number": 1.5, "Fwd thread id": 0}),
        op(args={"External id": None, "Sequence number": ""}),
        kernel(args={"device": "zero", "stream": 7, "correlation": [], "bytes": "None"}),
    )
    assert trace.cpu["external_id"].tolist()[:2] == [12, 13]
    assert trace.cpu["external_id"].isna().tolist() == [False, False, True]
    assert trace.cpu["sequence"].isna().all()
    assert trace.cpu["fwd_thread"].isna().tolist() == [True, False, True]
    assert trace.cpu["input_dims"].tolist()[0] == "[[1]]"
    assert trace.gpu["device"].tolist() == [0]  # as its pid says
    expected = {"unreadable Sequence number": 2, "unreadable Fwd thread id": 1, "unreadable device": 1}
    assert trace.meta.anomalies == {**expected, "unreadable correlation": 1}


def test_args_without_a_column_are_kept_and_counted() -> None:
    trace = of(op(args={"b": 1, "a": {"x": [1.5, None]}}), op(args={"a": "µ"}), op(args="odd"), op(args={}))
    texts = [None if text != text else json.loads(text) for text in trace.cpu["other_args"].tolist()]
    assert texts == [{"a": {"x": [1.5, None]}, "b": 1}, {"a": "µ"}, {"args": "odd"}, None]
    assert trace.meta.other_args == {"cpu_op.a": 2, "cpu_op.args": 1, "cpu_op.b": 1}


def test_names_that_are_no_text() -> None:
    trace = of(op(name=7), op(name=None), op(name=["a"]), op(name={"b": 1}))
    assert trace.cpu["name"].tolist() == ["7", "", '["a"]', '{"b":1}']


def test_entries_that_are_no_events_are_counted() -> None:
    trace = of(op(), None, 5, "text", [op()], {})
    assert trace.meta.counted == {"unreadable": 4, "no phase": 1}
    assert trace.cpu["event_id"].tolist() == [0]


def test_rocm() -> None:
    trace = of(
        op(cat="cuda_runtime", name="hipLaunchKernel", args={"cid": 1, "correlation": 3, "ptr": "0x7f"}),
        kernel(args={"device": 9, "stream": 0, "correlation": 3, "kind": "Dispatch Kernel"}),
        roctracer_version=4.1,
        baseTimeNanoseconds=0,
        deviceProperties=[{"id": 0, "name": "", "numSms": 304}],
    )
    assert trace.meta.dialect == "torch 2.8 to 2.11 on ROCm"
    assert trace.meta.versions == {"roctracer_version": "4.1"}
    (device,) = trace.meta.devices
    assert (device.ordinal, device.name, device.sms) == (9, None, 304)


def test_meta_of_a_distributed_recording() -> None:
    info = {"rank": 3, "world_size": "8", "backend": "nccl"}
    trace = of(op(), kernel(), distributedInfo=info, cuda_runtime_version=13000, with_stack=1, note=[1])
    assert (trace.meta.rank, trace.meta.world_size) == (3, 8)
    assert trace.meta.versions == {"cuda_runtime_version": "13000"}
    assert trace.meta.capabilities["stacks"] is True
    assert trace.meta.capabilities["shapes"] is False
    assert trace.meta.extra == {"cuda_runtime_version": 13000, "note": [1]}
    assert of(op(), distributedInfo=[1], deviceProperties="none").meta.rank is None


def test_the_recorded_window_and_thread_names() -> None:
    span = {"cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler"}
    name = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "ts": 0}
    trace = of(op(), {**span, "ph": "X", "ts": 5, "dur": 2.5}, {**name, "args": {"name": "stream 7 "}}, {**name})
    assert trace.meta.window_ns == (5_000, 7_500)
    assert trace.meta.thread_names == {"1/2": "stream 7"}
    for broken in ({"dur": "x"}, {"dur": -1}, {"ts": "x"}, {"dur": None}):
        assert of(op(), {**span, "ph": "X", "ts": 5, "dur": 2.5, **broken}).meta.window_ns is None


def test_a_built_trace_shifts_without_loss() -> None:
    trace = TraceBuilder()
    trace.op("a", 1, 1)
    assert trace.shifted(4_337_381_005_249_697).load().cpu["start_ns"].tolist() == [4337381005249698]


ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
KEYS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]
LINKS = ["External id", "external id", "correlation", "Addr"]
ARGS = [*LINKS, "device", "stream", "grid", "Input Dims", "bytes"]
EVENTS = st.builds(
    lambda plain, changes, args: {**plain, **({"args": args} if args else {}), **changes},
    st.sampled_from([op(), kernel(), op(cat="python_function"), op(cat="cpu_instant_event"), op(cat="ac2g")]),
    st.dictionaries(st.sampled_from(KEYS), ODD, max_size=3),
    st.dictionaries(st.sampled_from(ARGS) | st.text(max_size=3), ODD, max_size=4),
)


@examples(300)
@given(st.lists(EVENTS | ODD, max_size=12))
def test_odd_events_never_crash_and_are_all_counted(events: list[Any]) -> None:
    try:
        trace = of(*events)
    except TraceAnalyzerError:
        return
    in_frames = sum(len(getattr(trace, name)) for name in Trace.FRAMES)
    assert in_frames == sum(sum(rows.values()) for rows in trace.meta.rows.values())
    assert in_frames + sum(trace.meta.counted.values()) == trace.meta.events
    assert trace.meta.events == len(events) or trace.meta.damage
