"""The report as text: snapshots at 80 and 120 columns, and what must hold at any width."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from tests.support.snapshots import matches
from traceanalyzer.idle.accounting import CLASSES
from traceanalyzer.model.finding import Status
from traceanalyzer.model.report import IdleCause, Report, Verdict
from traceanalyzer.render.text.page import WIDEST
from traceanalyzer.render.text.report import render_text, times_count_from
from traceanalyzer.version import __version__

REPORTS = {
    "one": samples.report,
    "two_ranks": samples.two_ranks,
    "replayed": samples.replayed,
    "empty": samples.empty,
}


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
    assert text.startswith("1  scheduler-gap: late")
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
    (line,) = [line for line in text.splitlines() if "lane-offset: queueing" in line]
    assert (
        line
        == "profiler   done by the profiler, not by the program: #4 lane-offset: queueing 20.0 ms, 20.0 %"
    )
    assert "1 high, 1 medium, 1 low" in text.splitlines()[0]
    assert "info" not in text.splitlines()[0]
    assert "lane-offset: queueing" not in plain(samples.report(), quiet=True)


def test_a_verdict_stands_first_and_each_rank_has_one() -> None:
    for verbose in (False, True):
        lines = plain(samples.replayed(), verbose=verbose).splitlines()
        first = 2 if verbose else 1
        assert [line.split()[0] for line in lines[first : first + 3]] == ["Step", "Limit", "Fix"]
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
