"""Parts of the page and the room that each has."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.report import report_samples as samples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Finding
from traceanalyzer.model.texts import Texts
from traceanalyzer.render.html.page_data import MOST_INPUTS, MOST_OPS, Page, Room, TracePage, op_table, page_of, thinner
from traceanalyzer.render.html.plot_data import Stretch, longest_stretches
from traceanalyzer.render.html.region_data import MOST_REGIONS
from traceanalyzer.render.html.timeline_data import cpu_kinds, overviews
from traceanalyzer.render.html.timeline_events import entries_of, rows_of
from traceanalyzer.report.diagnosis import report_of
from traceanalyzer.rule.registry import all_rules
from traceanalyzer.timeline.selection import Events

US = 1_000


def test_how_busy_each_part_was_and_with_what_most() -> None:
    """Four parts of 100 us: work alone, half idle, mostly a copy beside some work, and idle."""
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 400 * US)
    trace.kernel(0, 150 * US, 1)
    trace.memcpy(200 * US, 60 * US, 2, name="Memcpy HtoD (Pinned -> Device)")
    trace.kernel(260 * US, 40 * US, 3)
    trace.kernel(399 * US, US, 4)
    (found,) = overviews(Analysis(trace.load()), 4)
    assert found.device == 0
    assert found.busy == (100, 50, 100, 1)
    assert [found.names[one] for one in found.doing] == ["compute", "compute", "copy_h2d", "compute"]
    assert [one >= 0 for one in found.why] == [False, True, False, True]
    assert all(found.names[one].startswith("idle:") for one in found.why if one >= 0)


def test_a_part_in_which_nothing_ran_is_doing_nothing() -> None:
    trace = TraceBuilder()
    trace.kernel(0, 10 * US, 1)
    trace.kernel(30 * US, 10 * US, 2)
    trace.kernel(0, 40 * US, 3, device=1)
    first, second = overviews(Analysis(trace.load()), 4)
    assert (first.device, first.busy) == (0, (100, 0, 0, 100))
    assert [one >= 0 for one in first.doing] == [True, False, False, True]
    assert (second.device, second.busy, second.why) == (1, (100,) * 4, (-1,) * 4)


@pytest.mark.parametrize("more", [0, 1])
def test_ops_beyond_the_most_are_summed_and_inputs_counted(more: int) -> None:
    trace = TraceBuilder(record_shapes=1)
    number = 0
    for at, calls in enumerate((1, 2, MOST_INPUTS + more)):
        for call in range(calls):
            number += 1
            dims = {"Input Dims": [[call + 1, 8]], "Input type": ["float"], "Concrete Inputs": [""]}
            trace.op(f"aten::op{at}", number * 100 * US, 50 * US, **dims)
            trace.launched((number * 100 * US + US, US), (number * 100 * US + 10 * US, 10 * US), number)
    table = op_table(Analysis(trace.load()), 2)
    assert [(row.name, row.calls, len(row.inputs)) for row in table.rows] == [
        ("aten::op2", MOST_INPUTS + more, MOST_INPUTS),
        ("aten::op1", 2, 2),
    ]
    assert (table.others, table.others_ns) == (1, 10 * US)
    assert len(table.peaks) == 1
    every = op_table(Analysis(trace.load()), 3)
    assert (len(every.rows), every.others, every.others_ns) == (3, 0, 0)


def test_kinds_of_events_are_those_of_their_rows() -> None:
    trace = TraceBuilder()
    trace.annotation("step", 0, 100 * US)
    trace.op("aten::mm", US, 50 * US)
    trace.launch("cudaLaunchKernel", 2 * US, US, 1)
    trace.launch("cudaStreamSynchronize", 4 * US, US, 2)
    trace.op("cudaStreamSynchronize", 6 * US, US)  # of the user's, called so
    trace.kernel(3 * US, US, 1)
    events = Analysis(trace.load()).index(Events)
    rows = np.arange(5)
    kinds = cpu_kinds(events, rows, Texts.column(events.trace.lanes.cpu, "name", rows))
    assert kinds == ["annotation", "op", "call", "wait", "op"]


def test_rows_are_found_by_ids_that_are_there() -> None:
    assert rows_of(np.array([2, 5, 9]), np.array([9, 2, 2, 3, 10, 0])).tolist() == [0, 2]
    trace = TraceBuilder()
    op = trace.op("aten::mm", 0, 10 * US)
    late = trace.kernel(20 * US, US, 1)
    early = trace.kernel(10 * US, US, 2)
    mark = trace.gpu_annotation("forward", 10 * US, 11 * US, external_id=9)  # no work
    events = Analysis(trace.load()).index(Events)
    assert events.work is not None
    entries = [entries_of(events, np.array([one])) for one in (op, mark, late, early)]
    assert [len(one) for one in entries] == [0, 0, 1, 1]
    starts = [int(events.work.start_ns[one][0]) for one in entries[2:]]
    assert starts[0] - starts[1] == 10 * US


@pytest.mark.parametrize(
    ("traces", "room"),
    [
        (0, Room(MOST_REGIONS, 120, MOST_OPS, 14_000, 5_000)),
        (1, Room(MOST_REGIONS, 120, MOST_OPS, 14_000, 5_000)),
        (3, Room(1_000, 40, 26, 4_666, 1_666)),
        (8, Room(375, 20, 10, 1_750, 625)),
        (20, Room(150, 20, 5, 1_000, 500)),
    ],
)
def test_of_more_traces_less_is_drawn_of_each(traces: int, room: Room) -> None:
    """A trace has 3,000 regions, 120 steps, 80 ops, 14,000 events and 5,000 marks of all."""
    assert Room.of(traces) == room


def job_of(ranks: int, culprits: tuple[int, ...] | None, *found: int) -> Any:
    """A report of ranks, with the culprits of the job, and of each finding its rank."""
    return SimpleNamespace(
        job=None if culprits is None else SimpleNamespace(culprits=culprits),
        findings=[SimpleNamespace(rank=rank) for rank in found],
        traces=[SimpleNamespace(rank=rank) for rank in range(ranks)],
    )


def test_first_half_of_the_remaining_ranks_stays() -> None:
    """Of 8 of 12 ranks."""
    report = job_of(12, (9, 4), 7, 4, 7, 2)
    shown = [rank for rank in range(12) if rank not in (6, 8, 10, 11)]
    page = Page(report, tuple(TracePage(rank, detailed=rank in shown) for rank in range(12)))
    kept = []
    left: Page | None = page
    while left is not None:
        kept.append([one.rank for one in left.traces if one.detailed])
        left = thinner(left)
    assert kept == [shown, [2, 4, 7, 9], [4, 9], [9]]
    assert [page.anchor(at) for at in (5, 6)] == ["trace-5", "ranks"]


def loop(steps: int = 4) -> TraceBuilder:
    """Steps of 100 us: an op launches 50 us of work late, under an annotation; the last launches a copy, too."""
    trace = TraceBuilder(with_stack=1)
    stack: dict[str, Any] = {"Call stack": "mine.py(3): forward"}
    for number in range(steps):
        at = number * 100 * US
        trace.step(number, at, 100 * US)
        trace.annotation("my phase", at + US, 90 * US)
        trace.op("aten::mm", at + 30 * US, 20 * US, **stack)
        trace.launched((at + 40 * US, 5 * US), (at + 45 * US, 50 * US), number + 1, name="gemm")
    trace.op("aten::copy_", steps * 100 * US - 40 * US, 20 * US)
    trace.copied((steps * 100 * US - 35 * US, 5 * US), (steps * 100 * US - 3 * US, 2 * US), 99)
    return trace


def test_ops_are_of_the_whole_trace_and_steps_of_the_window() -> None:
    """As the commands that print ops have no window."""
    analysis = Analysis(loop().load(), (0, 250 * US))
    analyses = [(None, analysis)]
    (trace,) = page_of(report_of(analyses), analyses).traces
    assert trace.ops is not None
    assert [(row.name, row.calls) for row in trace.ops.rows] == [("aten::mm", 4), ("aten::copy_", 1)]
    assert trace.steps is not None
    assert len(trace.steps.steps) < 4
    assert trace.flame is not None
    assert trace.flame.root.gpu_ns == 50 * US


def test_a_confidential_page_keeps_numbers_and_no_lines() -> None:
    made = loop()
    made.op("my phase", 330 * US, 20 * US)  # in the last step's annotation of that name
    made.launched((335 * US, 5 * US), (396 * US, US), 50)
    analyses = [(None, Analysis(made.load()))]
    report = report_of(analyses)
    (shown,), (veiled,) = (page_of(report, analyses, confidential=hidden).traces for hidden in (False, True))
    assert shown.stretches
    assert [one.end_ns for one in veiled.stretches] == [one.end_ns for one in shown.stretches]
    assert {one.line for one in veiled.stretches} == {None}
    assert shown.steps is not None
    assert veiled.steps is not None
    assert [one.ns for one in veiled.steps.steps] == [one.ns for one in shown.steps.steps]
    assert "my phase" in [name for step in shown.steps.steps for name, _ in step.ops]
    assert "my phase" not in [name for step in veiled.steps.steps for name, _ in step.ops]
    assert all(fact.values == {} for fact in veiled.facts)


def test_rules_that_found_something_are_explained() -> None:
    pages = {rule.slug: "\n".join(rule.paragraphs) for rule in all_rules()}
    known = sorted(pages)[:2]
    analyses = [(None, Analysis(loop().load()))]
    found: list[Finding] = [replace(samples.finding(0), rule=rule) for rule in (*known, known[0], "of-a-plugin")]
    report = replace(report_of(analyses), findings=tuple(found))
    assert page_of(report, analyses).explained == {rule: pages[rule] for rule in known}


def test_of_findings_each_trace_has_its_own() -> None:
    """Marks of the timeline name the findings by their places in the report."""
    one, two = Analysis(loop().load()), Analysis(loop().load())
    analyses: list[tuple[int | None, Analysis]] = [(0, one), (1, two)]
    first = replace(samples.finding(0), rank=0)
    findings = (first, replace(first, rank=1), replace(first, rank=0))
    page = page_of(replace(report_of(analyses), findings=findings), analyses)
    marks = [trace.timeline and [mark.finding for mark in trace.timeline.marks] for trace in page.traces]
    assert marks == [[0, 2], [1]]


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def loading(*loaded_us: int, slow_us: int = 100) -> TraceBuilder:
    """Steps in which data is loaded, so long each, then an op takes its time to launch 50 us of work."""
    trace, at = TraceBuilder(), 0
    for number, us in enumerate(loaded_us, 1):
        begin = at
        trace.op(LOADER, at, us * US)
        at += us * US
        trace.op("aten::mm", at, (slow_us + 5) * US)
        trace.launch("cudaLaunchKernel", at + slow_us * US, 5 * US, number)
        at += (slow_us + 5) * US
        trace.kernel(at, 50 * US, number)
        at += 60 * US
        trace.step(number, begin, at - begin - US)
    return trace


def stretches(trace: TraceBuilder, window: tuple[int, int] | None = None, **more: int) -> tuple[Stretch, ...]:
    return longest_stretches(Analysis(trace.load(), window), **more)


@pytest.mark.parametrize(
    ("loaded_us", "slow_us", "cause", "op"),
    [(300, 100, "idle:data-loading", LOADER), (100, 300, "idle:dispatching", "aten::mm")],
)
def test_a_stretch_is_named_by_its_longest_piece(loaded_us: int, slow_us: int, cause: str, op: str) -> None:
    for found in stretches(loading(*[loaded_us] * 3, slow_us=slow_us))[:2]:
        assert (found.cause, found.op) == (cause, op)
        assert found.end_ns - found.start_ns == pytest.approx(415 * US, abs=1)


def test_the_longest_come_first_each_with_its_step() -> None:
    """A step of a device ends where its last work does, and the wait for the next one's data is the next one's."""
    found = stretches(loading(10, 200, 400, 300))
    lengths = [one.end_ns - one.start_ns for one in found]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[:4] == [515 * US, 415 * US, 315 * US, 115 * US]
    assert [one.step for one in found[:3]] == [2, 3, 1]


def test_equal_stretches_are_in_time_order_and_limited() -> None:
    found = stretches(loading(*[200] * 12), most=5)
    assert len(found) == 5
    assert [one.start_ns for one in found] == sorted(one.start_ns for one in found)
    assert len(stretches(loading(*[200] * 12))) == 8


def test_of_a_window_those_that_lie_in_it() -> None:
    trace = loading(100, 900, 100, 200, 100)
    every = stretches(trace)
    assert every[0].end_ns - every[0].start_ns == 1_015 * US
    found = stretches(trace, (1_500 * US, 2_600 * US))
    assert found
    assert all(one.start_ns >= 1_500 * US and one.end_ns <= 2_600 * US for one in found)


def test_without_marks_a_stretch_is_of_no_step() -> None:
    trace = loading(200)
    trace.events = [one for one in trace.events if not one["name"].startswith("ProfilerStep")]
    assert {one.step for one in stretches(trace)} == {None}
