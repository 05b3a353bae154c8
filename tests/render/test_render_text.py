"""The whole report as text."""

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS, ORIGIN
from tests.support.snapshots import matches
from traceanalyzer.idle.accounting import CLASSES
from traceanalyzer.model.device_times import DeviceBusy, IdleCause
from traceanalyzer.model.finding import Outcome, Status
from traceanalyzer.model.report import AnalysedWindow, Report, TraceReport, Verdict
from traceanalyzer.model.trace import Damage, Device
from traceanalyzer.render.text.finding import put_fitted, short_paths
from traceanalyzer.render.text.page import WIDEST, Page
from traceanalyzer.render.text.report import put_trace, render_text, times_count_from
from traceanalyzer.version import __version__

REPORTS = {"one": samples.report, "two_ranks": samples.two_ranks, "replayed": samples.replayed, "empty": samples.empty}


def plain(report: Report, *, verbose: bool = True, **options: object) -> str:
    """The text with the version taken out, by something as long."""
    return render_text(report, verbose=verbose, **options).replace(__version__, "x.y.z")  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", REPORTS)
def test_snapshots(name: str, width: int) -> None:
    assert matches(f"report_{name}_{width}", plain(REPORTS[name](), width=width))
    assert matches(f"screen_{name}_{width}", plain(REPORTS[name](), width=width, verbose=False))


@pytest.mark.parametrize("name", REPORTS)
def test_no_line_is_wider_than_the_page(name: str) -> None:
    for width in range(60, 161, 7):
        for verbose in (False, True):
            text = plain(REPORTS[name](), width=width, verbose=verbose)
            assert max(map(len, text.splitlines())) <= min(width, WIDEST)


def test_long_names_wrap_and_shorten() -> None:
    name = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8>" * 2
    long = samples.finding(0, cause="c" * 90, message=name)
    text = plain(samples.report(findings=(long,)), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert name in re.sub(r"\s+", "", text).replace("void", "void ")


@pytest.mark.parametrize(("width", "named"), [(80, 1), (100, 2), (120, 3)])
def test_a_cause_names_as_many_ops_as_there_is_room_for(width: int, named: int) -> None:
    ops = [f"aten::long_operator_{letter}" for letter in "abcd"]
    causes = tuple(IdleCause("idle:unknown", op, MS // 4) for op in ops)
    time = samples.accounting(idle_causes=causes)
    text = plain(samples.report(samples.trace(accounting=(time,))), width=width)
    assert [op in text for op in ops] == [True] * named + [False] * (4 - named)


def test_quiet_keeps_the_findings_alone() -> None:
    text = plain(samples.report(), quiet=True)
    assert text.startswith("1  The GPU waits 4 times")
    assert "rules " not in text
    assert plain(samples.empty(), quiet=True) == ""


@pytest.mark.parametrize("communicate", [True, False])
def test_slowest_communicating_rank_precedes_the_findings(communicate: bool) -> None:
    parts = {"compute": 60 * MS, "communication" if communicate else "memset": 40 * MS}
    traces = tuple(
        samples.trace(
            rank,
            meta=samples.meta(f"{rank}.json", rank=rank),
            step=samples.estimate((9 + rank) * MS),
            accounting=(samples.accounting(parts_ns=parts, idle_causes=()),),
            summary=Verdict(limit=f"V{rank}"),
        )
        for rank in range(2)
    )
    text = plain(samples.report(traces=traces, findings=()))
    head = text.partition("rank 0, device 0")[0]
    assert ("rank 1, the slowest:\nLimit  V1\n" in head) == communicate
    assert text.index("V1") < text.index("V0") if communicate else text.index("V0") < text.index("V1")
    assert (text.count("V0"), text.count("V1")) == (1, 1)
    assert ("rank 0, replayed alone:\nLimit  V0\n" in text) == communicate


def test_of_many_ranks_the_slowest_stands_before_the_findings() -> None:
    traces = tuple(
        samples.trace(
            rank,
            meta=samples.meta(f"{rank}.json", rank=rank),
            step=samples.estimate((9 + rank % 3) * MS),
            summary=Verdict(limit=f"V{rank}"),
        )
        for rank in range(5)
    )
    text = plain(samples.report(traces=traces, findings=()))
    head = text.partition("rank 0, device 0")[0]
    assert "rank 2, the slowest:\nLimit  V2\n" in head
    assert "V1" not in head
    assert [text.count(f"rank {rank}:\nLimit  V{rank}\n") for rank in range(5)] == [1, 1, 0, 1, 1]


def test_colour_only_where_asked_for_and_nothing_but_colour() -> None:
    coloured = plain(samples.report(), colour=True)
    assert "\x1b[31mhigh" in coloured
    assert "\x1b[32m██" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain(samples.report())


def test_ascii_stands_in_for_glyphs() -> None:
    text = plain(samples.report(), ascii_only=True)
    assert text.isascii()
    assert "device 0  ########" in text
    assert len(text.splitlines()) == len(plain(samples.report()).splitlines())


def test_every_class_has_a_glyph_of_its_own_also_in_ascii() -> None:
    parts = {name: MS * (len(CLASSES) - number) for number, name in enumerate(CLASSES) if name != "idle"}
    whole = sum(parts.values()) + MS
    time = samples.accounting(parts_ns=parts | {"idle:unknown": MS}, end_ns=samples.ORIGIN + whole)
    for ascii_only in (False, True):
        text = plain(samples.report(samples.trace(accounting=(time,))), ascii_only=ascii_only)
        listed = re.findall(r"^  (\S) [a-z]", text, re.MULTILINE)
        assert len(listed) == len(set(listed)) == len(CLASSES)
        assert not ascii_only or text.isascii()


@pytest.mark.parametrize(
    ("earlier", "said"),
    [
        ([95_341_768], "; Perfetto's ruler begins 95.342 ms earlier, at the profiler's own mark."),
        ([95_341_768, 1_200_000], "; Perfetto's ruler begins up to 95.342 ms earlier, at the profiler's own mark."),
        ([95_341_768, None], "; Perfetto's ruler begins up to 95.342 ms earlier, at the profiler's own mark."),
        ([400], "."),
        ([-MS], "."),
        ([None], "."),
    ],
)  # fmt: skip
def test_says_where_its_times_begin_and_where_perfettos_do(earlier: list[int | None], said: str) -> None:
    meta = samples.meta()
    metas = (
        replace(meta, window_ns=None if ns is None else (meta.origin_ns - ns, meta.origin_ns + 100 * MS))
        for ns in earlier
    )
    traces = (samples.trace(rank, meta=one) for rank, one in enumerate(metas))
    first, _, _ = times_count_from(replace(samples.report(), traces=tuple(traces))).partition(" A timestamp")
    assert first == "Times count from the first op, annotation, call or kernel" + said


def test_profiler_overhead_is_one_footer_line_and_no_finding() -> None:
    text = plain(samples.report(), width=120)
    assert "4  lane-offset" not in text
    (line,) = [line for line in text.splitlines() if "#4" in line]
    told = "#4 The CPU runs 12.3 µs ahead: 20.0 ms, 20.0 %"
    assert line == f"profiler   done by the profiler, not by the program: {told}"
    assert text.splitlines()[0].endswith("  3 problems")
    assert "12.3 µs ahead" not in plain(samples.report(), quiet=True)


def test_a_verdict_stands_first_and_each_rank_has_one() -> None:
    for verbose in (False, True):
        lines = plain(samples.replayed(), verbose=verbose).splitlines()
        labels = [line.split()[0] for line in lines if line and not line.startswith(" ")]
        assert labels[1:4] == ["Step", "Limit", "Fix"]
        assert plain(samples.two_ranks(), verbose=verbose).count("Step   25.0 ms recorded\n") == 2
    assert plain(samples.empty()).splitlines()[2].startswith("trace ")  # made by hand, without one


def test_rules_that_looked_are_counted_and_the_others_say_why() -> None:
    text = plain(samples.report(), width=120)
    assert "rules      4 ran: 2 with findings, 1 noted above in this footer, 1 clear\n" in text
    assert "rules      1 not applicable\n           kernel-variance: no ProfilerStep marks" in text
    assert "rules      1 failed\n           broken-rule: ZeroDivisionError" in text
    (clear,) = (one for one in samples.report().outcomes if one.status is Status.CLEAR)
    text = plain(replace(samples.report(), outcomes=(replace(clear, why="costs too little"),)))
    assert f"1 clear\n           {clear.rule}: costs too little\n" in text


def said(trace: TraceReport, *, several: bool = False) -> dict[str, str]:
    """Label -> its text."""
    page = Page(120)
    put_trace(page, trace, several=several)
    told: dict[str, str] = {}
    for line in filter(None, page.lines):
        label = line[:11].strip() or list(told)[-1]  # else it goes on below
        told[label] = f"{told.get(label, '')} {line[11:]}".strip()
    return told


@pytest.mark.parametrize(
    ("several", "of_file", "begin"),
    [(False, None, ""), (True, None, "rank 3: "), (False, 3, "rank 3: "), (True, 3, "rank 3: ")],
)
def test_rank_is_named_if_several_or_in_file(several: bool, of_file: int | None, begin: str) -> None:
    trace = samples.trace(3, meta=samples.meta("a.json", rank=of_file))
    assert said(trace, several=several)["trace"] == f"{begin}a.json"


def test_devices_are_described_or_working_ones() -> None:
    known = (Device(2, "NVIDIA H200", 132, None, None), Device(0, None, None, 1 << 30, None))
    trace = samples.trace(meta=samples.meta(devices=known), busy=(DeviceBusy(1, MS, 0.25), DeviceBusy(2, 0, 0.0)))
    told = said(trace)
    assert [(label, text) for label, text in told.items() if label.startswith("device")] == [
        ("device 0", "name not recorded, 1.00 GiB"),
        ("device 1", "name not recorded; busy 25.0 % of the window"),
        ("device 2", "NVIDIA H200, 132 SMs; busy 0 % of the window"),
    ]
    only_busy = samples.trace(meta=samples.meta(devices=()), busy=(DeviceBusy(1, MS, 0.25),))
    assert "device" not in said(only_busy)
    none = replace(only_busy, busy=(), unavailable={"busy": "no kernels"})
    assert said(none)["device"] == "none: no kernels"
    assert said(replace(none, unavailable=None))["device"] == "none: no event of a GPU"


@pytest.mark.parametrize(("asked", "end"), [(False, ""), (True, ", as asked for with --window")])
def test_a_window_counts_from_the_first_event(asked: bool, end: str) -> None:
    window = AnalysedWindow(ORIGIN + 2 * MS, ORIGIN + 5 * MS, asked=asked)
    assert said(samples.trace(window=window))["window"] == f"3.00 ms, from 2.000 ms to 5.000 ms{end}"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "4; median 25.0 ms, from 24.0 ms to 27.0 ms (marks)"),
        ({"every": samples.times(1_200)}, "1,200; median 25.0 ms, from 24.0 ms to 27.0 ms (marks)"),
        ({"every": samples.times(2)}, "2; median 25.0 ms, from 24.0 ms to 27.0 ms (marks)"),
        ({"every": samples.times(1)}, "1; 25.0 ms (marks)"),
        ({"empty": 2}, "4; median 25.0 ms, from 24.0 ms to 27.0 ms (marks); 2 more launched nothing"),
        ({"cut": 3}, "4; median 25.0 ms, from 24.0 ms to 27.0 ms (marks); 3 more cut by --window"),
        ({"marked": False}, "marks"),
        (
            {"steady": samples.times(3, 20 * MS)},
            "3; median 20.0 ms, from 19.0 ms to 22.0 ms, device busy 37.0 % (marks)",
        ),
        ({"steady": replace(samples.times(3), busy_share=None)}, "3; median 25.0 ms, from 24.0 ms to 27.0 ms (marks)"),
    ],
)
def test_steps_are_the_steady_ones_where_there_is_a_cold_start(changes: dict[str, Any], text: str) -> None:
    assert said(samples.trace(steps=samples.steps(source="marks", **changes)))["steps"] == text


def test_a_cold_start_is_told_in_all() -> None:
    cold = replace(samples.times(1, 60 * MS), total_ns=61 * MS)
    steps = samples.steps(cold=cold, steady=samples.times(3))
    told = said(samples.trace(steps=steps))
    assert told["cold start"] == "apart from these: the first step took 61.0 ms, device busy 37.0 %"
    two = replace(steps, cold=samples.times(2, 60 * MS))
    assert said(samples.trace(steps=two))["cold start"] == (
        "apart from these: the first 2 steps took 120 ms, device busy 37.0 %"
    )
    assert "cold start" not in said(samples.trace())


@pytest.mark.parametrize(
    ("traced_ms", "end"), [(25, ""), (26, "; the recorded step of 26.0 ms is the mean of those replayed, 2 of 4 steps")]
)
def test_a_recorded_step_that_is_no_median_is_explained(traced_ms: int, end: str) -> None:
    step = samples.estimate(traced_ns=traced_ms * MS, basis="2 of 4 steps replayed, and so on")
    every = "4; median 25.0 ms, from 24.0 ms to 27.0 ms (marks)"
    assert said(samples.trace(steps=samples.steps(source="marks"), step=step))["steps"] == every + end
    steady = samples.steps(source="marks", every=samples.times(4, 40 * MS), steady=samples.times(3))
    assert said(samples.trace(steps=steady, step=step))["steps"].endswith(f"(marks){end}")


def test_what_is_missing_and_what_failed_is_said() -> None:
    trace = samples.trace(steps=None, unavailable={"steps": "no marks", "step": "failed: ValueError"})
    told = said(trace)
    assert told["steps"] == "none: no marks"
    assert told["failed"] == "step: failed: ValueError"
    assert told["without"] == "stacks, memory (not recorded)"
    assert told["events"] == "12,412 read"
    plain = said(samples.trace(steps=None, missing=()))
    assert plain["steps"] == "none: unknown"
    assert not {"failed", "without"} & set(plain)


def footer_of(report: Report) -> list[str]:
    """Its lines, below the rule that it begins with."""
    lines = render_text(report, verbose=True, width=120).splitlines()
    begin = max(at for at, line in enumerate(lines) if line == "-" * 120)
    return lines[begin + 1 :]


def rules_of(report: Report) -> list[str]:
    """What is said of rules and their reasons."""
    lines = footer_of(report)
    begin = next(at for at, line in enumerate(lines) if line.startswith("rules"))
    return [line[11:] for line in lines[begin:] if line.startswith(("rules", " " * 11))]


def test_rule_with_a_finding_at_one_rank_is_clear_at_none() -> None:
    outcomes = (
        Outcome("scheduler-gap", Status.FOUND, None, 0),
        Outcome("scheduler-gap", Status.CLEAR, "costs too little", 1),
        Outcome("hidden-dtod-copy", Status.CLEAR, "costs too little", 0),
        Outcome("hidden-dtod-copy", Status.CLEAR, "costs too little", 1),
        Outcome("hotspot", Status.CLEAR, None, 0),
        Outcome("hotspot", Status.CLEAR, None, 1),
    )
    found = samples.findings(0)[:1]
    report = replace(samples.two_ranks(), outcomes=outcomes, findings=tuple(found))
    assert rules_of(report) == ["3 ran: 1 with findings, 2 clear", "hidden-dtod-copy (ranks 0, 1): costs too little"]


def test_rules_with_one_reason_share_a_line_with_ranks() -> None:
    outcomes = (
        Outcome("a", Status.NOT_APPLICABLE, "no steps", 1),
        Outcome("b", Status.NOT_APPLICABLE, "no steps", 1),
        Outcome("a", Status.NOT_APPLICABLE, "no shapes", 0),
        Outcome("c", Status.NOT_APPLICABLE, "one rank alone"),
        Outcome("d", Status.FAILED, "ZeroDivisionError", 0),
    )
    report = replace(samples.two_ranks(), outcomes=outcomes, findings=())
    assert rules_of(report) == [
        "3 not applicable",
        "a, b (rank 1): no steps",
        "a (rank 0): no shapes",
        "c: one rank alone",
        "1 failed",
        "d (rank 0): ZeroDivisionError",
    ]
    of_one = replace(samples.report(findings=()), outcomes=tuple(replace(one, rank=0) for one in outcomes[:2]))
    assert rules_of(of_one) == ["2 not applicable", "a, b: no steps"]


@pytest.mark.parametrize("several", [False, True])
def test_ignored_events_are_summed_and_damage_follows(several: bool) -> None:
    meta = samples.meta(
        "a.json",
        counted={"odd": 1_200, "even": 34, "flow:ac2g": 400, "metadata": 12},
        unknown_categories={"mystery": 3},
        damage=(Damage("truncated", "the file ends within an event", 9, 1),),
    )
    traces = [samples.trace(0 if several else None, meta=meta)]
    if several:
        traces.append(samples.trace(1, meta=samples.meta("b.json")))
    lines = footer_of(replace(samples.report(findings=()), traces=tuple(traces), outcomes=()))
    name = "a.json: " if several else ""
    assert lines[:3] == [
        f"events     {name}1,234 not understood: even 34, odd 1,200",
        f"events     {name}3 of unknown categories: mystery 3",
        f"damage     {name}the file ends within an event",
    ]


@pytest.mark.parametrize(("saves", "told"), [(True, True), (False, False)])
def test_what_savings_are_is_said_where_there_is_one(saves: bool, told: bool) -> None:
    found = replace(samples.findings()[0], saving=samples.saving() if saves else None)
    text = " ".join(footer_of(samples.report(findings=(found,))))
    assert ("Savings are shares of a step" in text) is told


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/home/me/env/lib/torch/nn/linear.py(12): forward", "nn/linear.py(12): forward"),
        ("at a/b/c/d.pyx(3) and x/y.py", "at c/d.pyx(3) and x/y.py"),
        ("(/a/b/c.py)", "(b/c.py)"),
        ("/a/b/c.txt", "/a/b/c.txt"),
    ],
)
def test_paths_are_told_by_their_last_two_parts(path: str, short: str) -> None:
    assert short_paths(path) == short


@pytest.mark.parametrize(("lines", "whole", "count"), [(1, False, 1), (2, False, 2), (1, True, 2)])
def test_text_is_cut_to_its_lines_unless_it_stays_whole(lines: int, whole: bool, count: int) -> None:
    text = "The GPU waits for the next launch of the CPU each time, which takes long, and is idle."
    page = Page(60)
    put_fitted(page, text, lines, whole=whole)
    assert len(page.lines) == count
    assert page.lines[-1].endswith("the CPU each time" if count == 1 else "and is idle.")
    page = Page(100)
    put_fitted(page, text, lines, whole=whole)
    assert page.lines == [text]


@pytest.mark.parametrize(("ranks", "begin"), [((None,), ""), ((0,), "rank 0: "), ((0, 1), "ranks 0, 1: ")])
def test_what_is_to_be_known_of_the_recording_is_said_once(ranks: tuple[int | None, ...], begin: str) -> None:
    """Of several ranks with those that it is about; what costs time is counted in another line."""
    (told,) = [one for one in samples.findings() if one.rule == "lane-offset"]
    free = replace(told, message="The buffer is small", advice="Make it larger.", cost_ns=0, cost_share=0.0)
    found = tuple(replace(free, rank=rank) for rank in ranks)
    outcomes = (Outcome("lane-offset", Status.FOUND, group="recording"),)
    report = replace(samples.report() if ranks == (None,) else samples.two_ranks(), outcomes=outcomes)
    lines = footer_of(replace(report, findings=found))
    assert f"recording  {begin}The buffer is small. Make it larger." in lines
    assert not [line for line in lines if line.startswith("profiler")]
    costly = replace(told, rank=ranks[0])
    lines = footer_of(replace(report, findings=(costly,)))
    of = "" if ranks[0] is None else " (rank 0)"
    told_of = f"#1 The CPU runs 12.3 µs ahead{of}: 20.0 ms, 20.0 %"
    assert f"profiler   done by the profiler, not by the program: {told_of}" in lines
    assert not [line for line in lines if line.startswith("recording")]
