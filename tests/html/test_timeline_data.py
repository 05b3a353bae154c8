"""The timeline's events, words and data for the script."""

import base64
import json
import zlib
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.html.pages import busy_loop, page, parsed, rendered
from tests.job.ranks import REDUCES, Recording, Reductions
from tests.report import report_samples as samples
from tests.report.report_samples import MS, ORIGIN
from tests.support.cached_reports import analysed, loaded, reported
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.causes import Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.report import Clock, JobReport, RankReport, Report
from traceanalyzer.render.html.document import render_html
from traceanalyzer.render.html.page_data import page_of
from traceanalyzer.render.html.plot_data import Stretch
from traceanalyzer.render.html.timeline_data import (
    Columns,
    Marks,
    Overview,
    Timeline,
    Track,
    launch_words,
    overviews,
    timeline_of,
)
from traceanalyzer.render.html.timeline_events import Band
from traceanalyzer.render.html.timelines import coverage, packed_timelines, shifts, timeline_section
from traceanalyzer.report.diagnosis import analyses_of, report_of
from traceanalyzer.timeline.kernel_families import family_of

SOME = [FIXTURES / name / "bad.json.gz" for name in ("implicit-sync", "launch-bound", "exposed-copy")]


def timeline(path: Path) -> Timeline:
    found = page(path).traces[0].timeline
    assert found is not None
    return found


def of(analysis: Analysis, most: int, marks: int = 1_000) -> Timeline:
    findings = report_of([(None, analysis)]).findings
    return timeline_of(analysis, list(enumerate(findings)), [], most, marks, None)


def packed(html: bytes) -> list[dict[str, Any]]:
    (block,) = [one for one in parsed(html).having("id") if one.attributes["id"] == "timelines"]
    made: list[dict[str, Any]] = json.loads(zlib.decompress(base64.b64decode(block.text)))
    return made


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.parent.name)
def test_events_are_those_of_the_trace(path: Path) -> None:
    trace, made = loaded(path), timeline(path)
    known: dict[int, tuple[str, int, int]] = {}
    for frame in (trace.cpu, trace.gpu):
        columns = (frame[name] for name in ("event_id", "name", "start_ns", "dur_ns"))
        known |= {event: rest for event, *rest in zip(*columns, strict=True)}  # type: ignore[misc]
    events = made.events
    assert len(set(events.event_id)) == len(events.event_id) > 100
    columns = (events.event_id, events.name, events.start_ns, events.dur_ns)
    for event, name, start, dur in zip(*columns, strict=True):
        assert [made.texts[name], start, dur] == list(known[event])


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.parent.name)
def test_every_listed_occurrence_is_marked_with_its_event(path: Path) -> None:
    made = timeline(path)
    for mark in made.marks:
        found = reported(path).findings[mark.finding]
        assert len(mark.position) == len(found.occurrences)
        for place, start, event in zip(mark.position, mark.start_ns, mark.event, strict=True):
            assert found.occurrences[place].start_ns == start
            if event >= 0:
                assert made.events.event_id[event] in found.occurrences[place].event_ids
    known = [event >= 0 for mark in made.marks for event in mark.event]
    assert 2 * sum(known) > len(known)


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.parent.name)
def test_launches_and_delays_are_those_of_the_work(path: Path) -> None:
    events = timeline(path).events
    joined = 0
    for work, (launch, delay) in enumerate(zip(events.launch, events.delay_ns, strict=True)):
        if launch >= 0:
            joined += 1
            assert events.start_ns[work] - events.start_ns[launch] == delay
    assert joined > 50


def test_long_traces_are_thinned_and_whole_steps_are_said() -> None:
    analysis = Analysis(busy_loop(400).load())
    made = of(analysis, 2_000)
    cpu = analysis.trace.cpu
    assert 1_000 < len(made.events.name) < 4_000 < len(cpu) + len(analysis.trace.gpu)
    assert made.bands
    for band in made.bands:
        inside = (cpu["start_ns"] >= band.start_ns) & (cpu["start_ns"] + cpu["dur_ns"] < band.end_ns)
        inside &= cpu["dur_ns"] >= band.least_ns
        assert set(cpu[inside & (cpu["pid"] >= 0)]["event_id"]) <= set(made.events.event_id)
    assert len(made.events.start_ns) == len(made.events.dur_ns)


def test_occurrences_are_thinned_to_the_first_and_the_costliest() -> None:
    analysis = Analysis(busy_loop(400).load())
    findings = report_of([(None, analysis)]).findings
    made = timeline_of(analysis, list(enumerate(findings)), [], 2_000, 40, None)
    for mark in made.marks:
        every = findings[mark.finding].occurrences
        assert list(mark.position) == sorted(mark.position)
        assert len(mark.position) <= 40 + 1
        assert list(mark.position[:20]) == list(range(min(20, len(every))))


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.parent.name)
def test_the_overview_is_the_books_in_parts(path: Path) -> None:
    """The busy share of all parts together is that of the window, and one part is the whole."""
    analysis = analysed(path)
    books = analysis.index(Accounting)
    parts = books.parts_ns(analysis.index(Idle))
    length = sum(parts.values())
    busy = sum(ns for name, ns in parts.items() if not name.startswith("idle:"))
    (fine,) = overviews(analysis)
    assert sum(fine.busy) / len(fine.busy) == pytest.approx(100 * busy / length, abs=1)
    (one,) = overviews(analysis, 1)
    assert one.busy == (round(100 * busy / length),)
    idle = {name: ns for name, ns in parts.items() if name.startswith("idle:")}
    assert one.names[one.why[0]] == max(idle, key=lambda name: idle[name])


def test_confidential_timelines_have_no_lines_and_annotations() -> None:
    made = page(SOME[0], True).traces[0].timeline
    assert made is not None
    assert set(made.events.line) == {-1}
    assert "annotation" not in made.kinds
    assert not any("ProfilerStep" in text or ".py" in text for text in made.texts)


def test_without_events_there_is_none() -> None:
    made = TraceBuilder()
    made.op("aten::add", 0, 1_000)
    whole = of(Analysis(made.load()), 100)
    assert whole.overviews == ()
    assert [track.kind for track in whole.tracks] == ["thread"]
    with pytest.raises(Unavailable):
        overviews(Analysis(made.load()))


def test_packed_data_is_the_timeline() -> None:
    (data,), made = packed(rendered(SOME[0])), timeline(SOME[0])
    events, origin = data["ev"], int(data["origin"])
    (kind, _, number, _, first, size), track = data["tracks"][0], made.tracks[0]
    assert (kind, number, first, size) == (track.kind, track.number, track.first, track.size)
    rows = slice(first, first + size)
    assert (np.cumsum(events["s"][rows]) + origin).tolist() == list(made.events.start_ns[rows])
    assert np.cumsum(events["e"][rows]).tolist() == list(made.events.event_id[rows])
    mark = data["marks"][0]
    occurrences = reported(SOME[0]).findings[mark["f"]].occurrences
    assert mark["c"] == [occurrences[j].cost_ns for j in mark["j"]]


AHEAD_NS = 3_000_000


def test_ranks_meet_at_their_collectives_on_one_axis() -> None:
    """One clock is 3 ms ahead, which is more than two steps."""
    compute = (1_000, 1_010, 1_000, 990)
    made = Reductions({0: compute, 1: compute}, recordings={1: Recording(ahead_ns=AHEAD_NS)})
    analyses = analyses_of({rank: trace.load() for rank, trace in made.traces().items()})
    drawn = packed(render_html(page_of(report_of(analyses), analyses)))
    ends = []
    for data in drawn:
        columns = data["ev"]
        for _, _, _, _, first, size in data["tracks"]:
            starts, names, durs = (columns[name][first : first + size] for name in "snd")
            rows = zip(accumulate(starts), names, durs, strict=True)
            found = [data["shift"] + at + dur for at, name, dur in rows if data["texts"][name] == REDUCES]
            ends += [found] if found else []
    first, second = ends
    assert len(first) == len(compute)
    assert second == pytest.approx(first, abs=50_000)
    assert min(data["shift"] for data in drawn) == 0


def test_the_waits_of_a_rank_are_those_in_which_it_waits_in_time() -> None:
    """Rank 1 comes later in the second and in the fourth step, rank 0 in the third."""
    made = Reductions({0: (1_000, 1_000, 1_600, 1_000), 1: (1_000, 1_200, 1_000, 1_500)})
    analyses = analyses_of({rank: trace.load() for rank, trace in made.traces().items()})
    lines = [one.timeline for one in page_of(report_of(analyses), analyses).traces]
    waits = [[] if line is None else [(ns, last) for _, ns, last in line.waits] for line in lines]
    assert [[last for _, last in own] for own in waits] == [[1, 1], [0]]
    assert [ns for own in waits for ns, _ in own] == pytest.approx([200_000, 500_000, 600_000], rel=0.05)
    assert all(list(line.waits) == sorted(line.waits) for line in lines if line is not None)


EVENTS = Columns(
    event_id=(5, 9, 7),
    name=(0, 1, 0),
    kind=(0, 1, 0),
    start_ns=(ORIGIN + 100, ORIGIN + 150, ORIGIN + 40),
    dur_ns=(30, 20, 10),
    level=(0, 1, 2),
    launch=(-1, -1, 0),
    delay_ns=(None, None, 60),
    op=(-1, 0, 1),
    shapes=(2, -1, -1),
    line=(-1, 3, -1),
    launched=(-1, -1, 2),
)
OVERVIEW = Overview(0, ("compute", "idle:python"), (80, 10), (0, 0), (1, 1))
MARKS = Marks(1, (0, 2), (ORIGIN + 100, ORIGIN + 5 * MS), (ORIGIN + 130, ORIGIN + 7 * MS), (0, -1))
ONE = Timeline(
    start_ns=ORIGIN + 10,
    end_ns=ORIGIN + 90 * MS,
    least_ns=0,
    bands=(Band(ORIGIN + 20, ORIGIN + 30, 0),),
    steps=((4, ORIGIN + 20, ORIGIN + 50),),
    overviews=(OVERVIEW,),
    tracks=(Track("thread", None, 31, 2, 0, 2), Track("stream", 0, 7, 1, 2, 1)),
    kinds=("op", "compute", "copy_d2h"),
    texts=("aten::mm", "launch", "[8]", "a" * 300),
    events=EVENTS,
    marks=(MARKS, Marks(0, (), (), (), ())),
    waits=((ORIGIN + 60, 25, 3),),
)


def report(*ranks: int | None, job: JobReport | None = None) -> Report:
    """Of traces whose clocks begin a microsecond later each."""
    metas = [samples.meta(origin_ns=ORIGIN + 1_000 * at) for at in range(len(ranks))]
    traces = tuple(samples.trace(rank, meta=meta) for rank, meta in zip(ranks, metas, strict=True))
    found = (samples.finding(0), samples.finding(0, 20 * MS, 40 * MS))
    costs = tuple(replace(one, cost_ns=at) for at, one in enumerate(found[1].occurrences))
    whole = samples.report(findings=(found[0], replace(found[1], occurrences=costs)))
    return replace(whole, traces=traces, job=job)


def built_page(of: Report, *timelines: Timeline | None, stretches: tuple[Stretch, ...] = ()) -> Any:
    traces = [
        SimpleNamespace(rank=head.rank, timeline=timeline, stretches=stretches)
        for head, timeline in zip(of.traces, timelines, strict=True)
    ]
    return SimpleNamespace(report=of, traces=traces)


def data(made: Any) -> list[dict[str, Any]]:
    (block,) = parsed(str(packed_timelines(made)).encode()).elements
    found: list[dict[str, Any]] = json.loads(zlib.decompress(base64.b64decode(block.text)))
    return found


def test_times_count_from_the_first_event() -> None:
    (one,) = data(built_page(report(None), ONE))
    assert (one["origin"], one["from"], one["to"]) == (str(ORIGIN), 10, 90 * MS)
    assert (one["bands"], one["steps"], one["waits"]) == ([[20, 30, 0]], [[4, 20, 50]], [[60, 25, 3]])
    assert one["tracks"] == [["thread", None, 31, 2, 0, 2], ["stream", 0, 7, 1, 2, 1]]
    assert one["kinds"] == ["op", "compute", "copy_d2h"]
    assert [len(text) for text in one["texts"]] == [8, 6, 3, 200]
    assert one["causes"][:1] == ["idle:data-loading"]
    (over,) = one["over"]
    assert over["names"] == ["compute", "idle:python"]
    assert [over[name] for name in ("device", "busy", "doing", "why")] == [0, [80, 10], [0, 0], [1, 1]]


def test_starts_and_ids_are_differences_along_each_track() -> None:
    (one,) = data(built_page(report(None), ONE))
    columns = one["ev"]
    assert set(columns) == set("nksdlpwohige")
    assert [columns[name] for name in "sde"] == [[100, 50, 40], [30, 20, 10], [5, 4, 7]]
    assert [columns[name] for name in "nkl"] == [[0, 1, 0], [0, 1, 0], [0, 1, 2]]
    assert [columns[name] for name in "pwg"] == [[-1, -1, 0], [None, None, 60], [-1, -1, 2]]
    assert [columns[name] for name in "ohi"] == [[-1, 0, 1], [2, -1, -1], [-1, 3, -1]]


def test_marks_have_the_findings_text_and_occurrence_costs() -> None:
    """Findings without occurrences here have none."""
    (one,) = data(built_page(report(None), ONE))
    (mark,) = one["marks"]
    assert [mark.pop(name) for name in ("f", "rule", "severity", "count")] == [1, "scheduler-gap", "high", 3]
    assert mark == {"j": [0, 2], "s": [100, 5 * MS - 100], "t": [30, 2 * MS], "c": [0, 2], "e": [0, -1]}


def test_gaps_are_from_start_to_end_of_their_own_trace() -> None:
    gap = Stretch(1, ORIGIN + 3_000, ORIGIN + 9_000, "idle:python", "aten::mm", 4, "a.py(1): f")
    first, last = data(built_page(report(0, 1), ONE, ONE, stretches=(gap,)))
    assert [first["trace"], last["trace"], first["rank"], last["rank"]] == [0, 1, 0, 1]
    assert first["gaps"][0][:3] == [1, 3_000, 9_000]
    assert last["gaps"][0][:3] == [1, 2_000, 8_000]
    assert first["gaps"][0][3].startswith("idle: ")
    assert first["gaps"][0][4] == "a.py(1): f"
    assert last["origin"] == str(ORIGIN + 1_000)


def test_traces_without_a_timeline_are_left_out() -> None:
    (one,) = data(built_page(report(0, 1), None, ONE))
    assert (one["trace"], one["rank"]) == (1, 1)
    assert packed_timelines(built_page(report(0), None)) is None
    assert timeline_section(built_page(report(0), None)) is None


RANK = RankReport(0, 1_000 * MS, Clock(0))


def test_ranks_have_one_axis_where_their_clocks_are_known() -> None:
    """Rank 1's begins 1 us later by itself, its file 3 ms later, and it reads 2 ms more: 1.001 ms after rank 0's."""
    other = replace(RANK, rank=1, base_ns=1_003 * MS, clock=Clock(0, 2 * MS))
    unknown = replace(RANK, rank=2, clock=None)
    job = JobReport((RANK, other, unknown), culprits=(1, 0))
    of = report(0, 1, 2, 3, job=job)
    assert shifts(of) == [0, MS + 1_000, None, None]
    made = data(built_page(of, ONE, ONE, ONE, ONE))
    assert [one["shift"] for one in made] == [0, MS + 1_000, None, None]
    assert [one["first"] for one in made] == [False, True, False, False]  # it is shown first
    assert shifts(report(None)) == [None]
    early = replace(other, clock=Clock(0, 9 * MS))
    assert shifts(report(0, 1, job=JobReport((RANK, early)))) == [6 * MS - 1_000, 0]


def test_drifting_clock_is_corrected_at_the_window_middle() -> None:
    """It gains a thousandth from 1 s on; the window's middle is 50 ms after that: 50 us."""
    at = ORIGIN + 1_000 * MS
    fast = replace(RANK, rank=1, clock=Clock(0, 0, drift_ppm=1_000.0, at_ns=at))
    assert shifts(report(0, 1, job=JobReport((RANK, fast)))) == [49_000, 0]


@pytest.mark.parametrize(
    ("bands", "least", "within", "elsewhere"),
    [
        ((), 0, "", "all"),
        ((0,), 5_000, "All events of 1 step (tinted), ", "from 5.00 µs"),
        ((0, 700, 0), 0, "All events of 2 steps (tinted), of one step the events from 700 ns, ", "all"),
        ((300, 700), 1, "of one step the events from 700 ns, ", "from 1 ns"),
    ],
)
def test_a_timeline_says_what_it_has(bands: tuple[int, ...], least: int, within: str, elsewhere: str) -> None:
    made = replace(ONE, least_ns=least, bands=tuple(Band(0, 1, shown) for shown in bands))
    rest = f"the surroundings of each finding’s first occurrences; elsewhere events {elsewhere}."
    assert coverage(made) == within + rest


def test_a_rank_is_chosen_among_those_that_are_drawn() -> None:
    section = parsed(str(timeline_section(built_page(report(3, 5, 6), None, ONE, ONE))).encode())
    (choice,) = [one for one in section.having("id") if one.attributes["id"] == "timeline-trace"]
    assert choice.text == "rank 5rank 6"
    options = [one for one in section.elements if one.name == "option" and "rank" in one.text]
    assert [one.attributes["value"] for one in options] == ["0", "1"]
    labels = section.values("aria-label")
    assert [one for one in labels if one and one.startswith("Timeline of")] == [
        "Timeline of rank 5",
        "Timeline of rank 6",
    ]
    alone = str(timeline_section(built_page(report(3), ONE)))
    assert "timeline-trace" not in alone
    assert "Timeline of the trace" in alone


def test_findings_are_chosen_by_their_numbers() -> None:
    section = parsed(str(timeline_section(built_page(report(None), ONE))).encode())
    options = [one for one in section.having("data-finding") if one.name == "option"]
    assert [(one.text, one.attributes["value"], one.attributes["data-finding"]) for one in options] == [
        ("2 The GPU waits 3 times, because aten::mm comes too late", "0", "2"),
        ("1 The GPU waits 1 times, because aten::mm comes too late", "1", "1"),
    ]


@pytest.mark.parametrize(("count", "others"), [(5, []), (6, ["idle: other causes"])])
def test_five_causes_have_a_color_of_their_own(count: int, others: list[str]) -> None:
    parts = {f"idle:cause {at}": 9 - at for at in reversed(range(count))}
    of = with_time(report(None), parts)
    made = replace(ONE, kinds=("op", "python", "copy_d2h", "copy_h2d", "memset", "gemm"))
    section = parsed(str(timeline_section(built_page(of, made))).encode())
    (listed,) = section.of_class("legend")
    items = [(one.attributes["class"] or "").split()[-1] for one in section.of_class("swatch")]
    causes = [f"i-{at}" for at in range(5)] + ["i-5"] * len(others)
    assert items == ["b-op", "b-gemm", "b-copy", "b-memset", *causes]
    assert "opGEMM, convolutioncopymemsetidle: cause 0idle: cause 1" in listed.text
    assert listed.text.endswith("idle: cause 4" + "".join(others))


def with_time(of: Report, parts: dict[str, int]) -> Report:
    (trace,) = of.traces
    return replace(of, traces=(replace(trace, accounting=(samples.accounting(parts_ns=parts),)),))


@pytest.mark.parametrize(
    ("kernel", "family"),
    [
        ("nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_TNT", "gemm"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_", "attention"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", "reduction"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor>", "elementwise"),
        ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>", "moving"),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, 4>", "moving"),
        ("cudnn::ops::nchwToNhwcKernel<float>", "moving"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<Adam>", "elementwise"),
        ("my_kernel", "kernel"),
    ],
)
def test_kernels_differ_by_family(kernel: str, family: str) -> None:
    assert family_of(kernel) == family


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (
            ("[48, 1, 1]", "[128,1,1]", 40, 16 << 10, -1),
            "grid 48x1x1, block 128x1x1, 40 registers, 16.0 KiB shared memory",
        ),
        ((None, None, -1, -1, 2048), "2.00 KiB"),
        ((None, None, -1, -1, -1), ""),
    ],
)
def test_a_launch_is_said_in_one_line(launch: tuple[Any, ...], words: str) -> None:
    assert launch_words(*launch) == words


def test_causes_of_the_timeline_are_those_of_the_whole_report() -> None:
    of = with_time(report(None), {"idle:b": 50, "idle:a": 50, "idle:c": 90, "compute": 10})
    (one,) = data(built_page(of, ONE))
    assert one["causes"] == ["idle:c", "idle:a", "idle:b"]
