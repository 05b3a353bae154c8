"""Columns of the timeline by hand, and steps with more events than room."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.report import report_samples as samples
from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Finding, Occurrence
from traceanalyzer.render.html.timeline_data import (
    Marks,
    Timeline,
    Track,
    drawn_steps,
    finding_marks,
    longest_waits,
    timeline_of,
)
from traceanalyzer.render.html.timeline_events import chosen
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.steps import Steps

US = 1_000


def timeline(trace: TraceBuilder, said: Any = None, window: tuple[int, int] | None = None) -> Timeline:
    return timeline_of(Analysis(trace.load(), window), [], [], 1_000, 100, said)


def two_threads() -> TraceBuilder:
    """Ops of two threads launch a kernel and a copy; a kernel on another stream has no launch."""
    made = TraceBuilder(record_shapes=1)
    shapes: dict[str, Any] = {"Input Dims": [[4, 8], [8, 2]]}
    made.annotation("phase", 0, 100 * US)
    made.op("aten::linear", US, 50 * US)
    made.op("aten::mm", 2 * US, 40 * US, **shapes)
    made.launch("cudaLaunchKernel", 3 * US, 5 * US, 1)
    made.launch("cudaStreamSynchronize", 60 * US, 5 * US, 2)
    made.op("aten::copy_", 10 * US, 30 * US, tid=TID + 1)
    made.launch("cudaMemcpyAsync", 12 * US, 5 * US, 3, tid=TID + 1)
    made.kernel(20 * US, 30 * US, 1, name="gemm")
    made.memcpy(50 * US, 10 * US, 3)
    made.kernel(25 * US, 7 * US, 9, name="gemm", stream=8)
    return made


def rows(made: Timeline) -> list[tuple[Any, ...]]:
    """(name, kind, level, name of the launch, delay in us, op) of each event."""
    events = made.events

    def text(at: int) -> str | None:
        return None if at < 0 else made.texts[at]

    return [
        (
            text(name),
            made.kinds[kind],
            level,
            None if launch < 0 else text(events.name[launch]),
            None if delay is None else delay // US,
            text(op),
        )
        for name, kind, level, launch, delay, op in zip(
            events.name, events.kind, events.level, events.launch, events.delay_ns, events.op, strict=True
        )
    ]


def test_each_event_says_where_it_is_and_what_launched_it() -> None:
    """By tracks: two threads, two streams. An op is no op around itself; work without launch has no delay."""
    made = timeline(two_threads())
    assert made.tracks == (
        Track("thread", None, TID, 4, 0, 5),
        Track("thread", None, TID + 1, 2, 5, 2),
        Track("stream", 0, 7, 1, 7, 2),
        Track("stream", 0, 8, 1, 9, 1),
    )
    assert rows(made) == [
        ("phase", "annotation", 0, None, None, None),
        ("aten::linear", "op", 1, None, None, None),
        ("aten::mm", "op", 2, None, None, None),
        ("cudaLaunchKernel", "call", 3, None, None, "aten::mm"),
        ("cudaStreamSynchronize", "wait", 1, None, None, None),
        ("aten::copy_", "op", 0, None, None, None),
        ("cudaMemcpyAsync", "call", 1, None, None, "aten::copy_"),
        ("gemm", "gemm", 0, "cudaLaunchKernel", 17, "aten::mm"),
        ("Memcpy DtoD (Device -> Device)", "copy_d2d", 0, "cudaMemcpyAsync", 38, "aten::copy_"),
        ("gemm", "gemm", 0, None, None, None),
    ]
    shapes = [at for at, one in enumerate(made.events.shapes) if one >= 0]
    assert shapes == [2, 7]  # the op's own, and those of the op around the launch
    assert len({made.events.shapes[at] for at in shapes}) == 1
    assert len(set(made.texts)) == len(made.texts)
    assert [one // US for one in made.events.dur_ns] == [100, 50, 40, 5, 5, 30, 5, 30, 10, 7]


def test_confidential_timeline_has_no_annotations() -> None:
    """Without the annotation ops are a level further out."""
    made = timeline(two_threads(), lambda name: name.upper())
    assert {one[1] for one in rows(made)} == {"op", "call", "wait", "gemm", "copy_d2d"}
    assert [one[:3] for one in rows(made)][:2] == [("ATEN::LINEAR", "op", 0), ("ATEN::MM", "op", 1)]
    assert set(made.events.line) == {-1}


@pytest.mark.parametrize(("deep", "levels"), [(11, 11), (12, 12), (13, 12), (20, 12)])
def test_what_is_nested_deeper_than_twelve_is_at_the_last_level(deep: int, levels: int) -> None:
    made = TraceBuilder()
    for level in range(deep):
        made.op(f"aten::op{level}", level * US, (100 - 2 * level) * US)
    found = timeline(made)
    assert [track.levels for track in found.tracks] == [levels]
    assert found.events.level == tuple(min(level, 11) for level in range(deep))


@pytest.mark.parametrize(("count", "every"), [(400, 1), (401, 2), (801, 3)])
def test_of_more_than_four_hundred_steps_every_nth_is_drawn(count: int, every: int) -> None:
    made = TraceBuilder()
    made.step(1, 0, 10 * US)
    steps = Analysis(made.load()).index(Steps)
    edges = np.arange(count) * 10
    many = replace(steps, number=np.arange(count) + 5, cpu_start_ns=edges, cpu_end_ns=edges + 8)
    found = drawn_steps(many)
    assert found[:2] == ((5, 0, 10), (5 + every, 10 * every, 10 * every + 10))
    assert len(found) == -(-count // every)
    if every == 1:
        assert found[-1] == (404, 3_990, 3_998)  # the last ends with its mark


def test_marked_steps_are_drawn_on_the_first_device() -> None:
    made = TraceBuilder()
    made.op("aten::mm", 0, 10 * US)
    steps = Analysis(made.load()).index(Steps)
    assert drawn_steps(steps) == ()
    made.step(3, 20 * US, 10 * US)
    marked = replace(Analysis(made.load()).index(Steps), bounds_ns={1: np.array([5, 6]), 0: np.array([7, 9])})
    assert drawn_steps(marked) == ((3, 7, 9),)


def found_at(*occurrences: tuple[int, tuple[int, ...]], typical: int = 0) -> Finding:
    """Occurrences every 100 ns with (cost, events)."""
    made = tuple(
        Occurrence(at * 100, at * 100 + 10, cost, 0, 7, None, None, events)
        for at, (cost, events) in enumerate(occurrences)
    )
    return replace(samples.finding(0), occurrences=made, start_ns=made[typical].start_ns)


def marked(finding: Finding, share: int, ids: tuple[int, ...] = (), streams: int | None = None) -> Marks:
    tracks = [] if streams is None else [Track("stream", 0, 7, 1, streams, 1)]
    columns: Any = SimpleNamespace(event_id=ids)
    return finding_marks(4, finding, columns, [Track("thread", None, TID, 1, 0, 1), *tracks], share)


def test_occurrence_leads_to_its_work_or_first_event() -> None:
    """Events 10, 11, 12 are of the thread, 20 and 21 of the stream."""
    finding = found_at((1, (11, 21, 20)), (1, (12, 11)), (1, (99,)), (1, ()), (1, (99, 12)))
    assert marked(finding, 50, (10, 11, 12, 20, 21), 3) == Marks(
        4, (0, 1, 2, 3, 4), (0, 100, 200, 300, 400), (10, 110, 210, 310, 410), (4, 2, -2, -1, 2)
    )
    assert marked(finding, 50, (10, 11, 12)).event == (1, 2, -2, -1, 2)


@pytest.mark.parametrize(
    ("count", "share", "later"),
    [
        (20, 5, []),
        (21, 5, [28]),
        (30, 20, [28]),
        (30, 22, [21, 28, 29]),
        (30, 30, list(range(20, 30))),
        (30, 29, [*range(20, 26), 27, 28, 29]),
    ],
)
def test_first_twenty_costliest_and_typical_are_marked(count: int, share: int, later: list[int]) -> None:
    """Of thirty the 22nd and the last are the costliest, the 27th costs least, and the 29th is the typical one."""
    costs = [5] * 30
    costs[21], costs[29], costs[26], costs[28] = 9, 8, 1, 2
    finding = found_at(*((cost, (0,)) for cost in costs[:count]), typical=min(28, count - 1))
    positions = [at if at < count else count - 1 for at in later]
    assert list(marked(finding, share).position) == [*range(20), *positions]


def test_findings_share_the_room_for_marks() -> None:
    """Of 60 there are 30 for each of two; the typical occurrence is the first."""
    finding = found_at(*((5, ()) for _ in range(50)))
    analysis = Analysis(two_threads().load())
    made = timeline_of(analysis, [(3, finding), (8, finding)], [], 1_000, 60, None)
    assert [(mark.finding, len(mark.position)) for mark in made.marks] == [(3, 30), (8, 30)]


def test_the_longest_waits_for_other_ranks_are_drawn_in_time() -> None:
    """Of 302 collectives one does not wait and one waits least; `entry` is of the device's work."""
    count = 302
    waiting = np.arange(count) + 10
    waiting[7], waiting[100] = 0, 1
    waits: Any = SimpleNamespace(entry=np.arange(count) * 2, waiting_ns=waiting, last=np.arange(count) % 8)
    work: Any = SimpleNamespace(start_ns=np.arange(2 * count) * 100)
    analysis: Any = SimpleNamespace(index={CollectiveWaits: waits, DeviceWork: work}.__getitem__)
    kept = [at for at in range(count) if at not in (7, 100)]
    assert longest_waits(analysis) == tuple((200 * at, at + 10, at % 8) for at in kept)
    waits.waiting_ns[:300] = 0
    assert longest_waits(analysis) == ((60_000, 310, 4), (60_200, 311, 5))


def steps_of(*kernels: int) -> TraceBuilder:
    """Steps of 3 ms, the last of 4, with so many kernels of 20 us, each launched by a call in an op of 3 us."""
    trace = TraceBuilder()
    for step, count in enumerate(kernels):
        trace.step(step, step * 3_000 * US, (3_000 + 1_000 * (step == len(kernels) - 1)) * US)
        for at in range(count):
            begin = (step * 3_000 + 1 + at * 21) * US
            trace.op("aten::mm", begin, 3 * US)
            trace.launched((begin + US, US), (begin + 5 * US, 20 * US))
    return trace


@pytest.mark.parametrize(
    ("most", "kernels"),
    [
        pytest.param(140, 100, id="all kernels last long enough"),
        pytest.param(400, 100, id="all events have room"),
        pytest.param(110, 0, id="one kernel too many: as long as each other, they stay or go together"),
    ],
)
def test_every_kernel_that_is_drawn_has_its_launch_and_op(most: int, kernels: int) -> None:
    """One of three steps is drawn, of 300 events; 7.5 us are seen from afar, but there is no room for 300 kernels."""
    made = timeline_of(Analysis(steps_of(100, 100, 100).load()), [], [], most, 100, None)
    drawn = [one for one in rows(made) if one[1] == "kernel"]
    assert len(drawn) == kernels
    assert {(name, op) for _, _, _, name, _, op in drawn} <= {("cudaLaunchKernel", "aten::mm")}
    assert sum(one[1] == "op" for one in rows(made)) == sum(one[1] == "call" for one in rows(made)) == kernels


@pytest.mark.parametrize(
    ("most", "drawn"),
    [
        pytest.param(140, [(6, 3_001)], id="too many events"),
        pytest.param(700, [(6, 0)], id="room for the usual step"),
        pytest.param(800, [(6, 0), (9, 0)], id="room for both"),
    ],
)
def test_the_step_that_is_thinned_is_the_usual_one(most: int, drawn: list[tuple[int, int]]) -> None:
    """Of three of 3 ms the last, of 300 events; the longest, of 420, only where all have room: (ms, least ns)."""
    bands = chosen(Analysis(steps_of(100, 100, 100, 140).load()), [], [], most).bands
    assert [(band.start_ns // 1_000 // US, band.least_ns) for band in bands] == drawn
