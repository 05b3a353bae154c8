"""The report as text: snapshots at 80 and 120 columns, and what must hold at any width."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from tests.snapshots import matches
from traceanalyzer.idle.accounting import CLASSES
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.report import IdleCause, Report, Saving
from traceanalyzer.render.text.escape import printable, shortened
from traceanalyzer.render.text.page import Page, bar
from traceanalyzer.render.text.report import render_text
from traceanalyzer.render.text.savings import cost_words, count_words, grade, saving_words
from traceanalyzer.version import __version__

REPORTS = {
    "one": samples.report,
    "two_ranks": samples.two_ranks,
    "replayed": samples.replayed,
    "empty": samples.empty,
}


def plain(report: Report, **options: object) -> str:
    """The text with the version taken out, by something as long."""
    return render_text(report, **options).replace(__version__, "x.y.z")  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", REPORTS)
def test_snapshots(name: str, width: int) -> None:
    assert matches(f"report_{name}_{width}", plain(REPORTS[name](), width=width))


@pytest.mark.parametrize("name", REPORTS)
def test_no_line_is_wider_than_the_page(name: str) -> None:
    for width in range(60, 161, 7):
        text = plain(REPORTS[name](), width=width)
        assert max(map(len, text.splitlines())) <= width


def test_long_names_wrap_and_shorten() -> None:
    name = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8>" * 2
    long = samples.finding(0, cause="c" * 90, message=name)
    text = plain(samples.report(findings=(long,)), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert name in re.sub(r"\s+", "", text).replace("void", "void ")


@pytest.mark.parametrize(("width", "named"), [(80, 1), (100, 2), (140, 3)])
def test_a_cause_names_as_many_ops_as_there_is_room_for(width: int, named: int) -> None:
    ops = [f"aten::rather_long_operator_{letter}" for letter in "abcd"]
    causes = tuple(IdleCause("idle:unknown", op, MS // 4) for op in ops)
    time = samples.accounting(idle_causes=causes)
    text = plain(samples.report(samples.trace(accounting=(time,))), width=width)
    assert [op in text for op in ops] == [True] * named + [False] * (4 - named)


def test_quiet_keeps_the_findings_alone() -> None:
    text = plain(samples.report(), quiet=True)
    assert text.startswith("1  scheduler-gap: late")
    assert "rules " not in text
    assert plain(samples.empty(), quiet=True) == ""


def test_a_finding_takes_at_most_seven_lines_at_eighty_columns() -> None:
    blocks = plain(samples.report(), quiet=True).strip().split("\n\n")
    assert {len(block.splitlines()) for block in blocks} <= {5, 6, 7}
    assert (
        max(len(block.splitlines()) for block in plain(samples.report(), width=120, quiet=True).split("\n\n"))
        <= 6
    )


def test_colour_only_where_asked_for_and_nothing_but_colour() -> None:
    coloured = plain(samples.report(), colour=True)
    assert "\x1b[31mhigh" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain(samples.report())


def test_ascii_stands_in_for_glyphs() -> None:
    text = plain(samples.report(), ascii_only=True)
    assert text.isascii()
    assert "device 0  ########" in text
    assert len(text.splitlines()) == len(plain(samples.report()).splitlines())


def test_names_cannot_write_to_the_terminal() -> None:
    evil = samples.finding(0, message="\x1b[2Jgone\r\x07", by="\x1b]0;title\x07", advice="\x9b1m.")
    text = plain(samples.report(findings=(evil,)))
    assert "\x1b" not in text
    assert r"\x1b[2Jgone \x07" in text


def test_a_finding_without_cost_shows_none() -> None:
    costless = samples.finding(0, cost_ns=0, cost_share=0.0, severity=Severity.INFO)
    text = plain(samples.report(findings=(costless,)))
    assert "1  scheduler-gap: late" + " " * 54 + "info\n" in text
    assert "cost " not in text


def test_a_window_that_was_asked_for_is_named() -> None:
    window = replace(samples.trace().window, asked=True)
    asked = samples.report(samples.trace(window=window))
    assert "--window" in plain(asked)
    assert "--window" not in plain(samples.report())


def test_unmarked_and_single_steps() -> None:
    unmarked = samples.report(samples.trace(steps=samples.steps(marked=False, source="no marks")))
    single = samples.report(samples.trace(steps=samples.steps(every=samples.times(1))))
    assert "steps      no marks\n" in plain(unmarked)
    assert "steps      1; 25.0 ms (steps" in plain(single)


def test_a_device_that_is_not_described() -> None:
    meta = samples.meta()
    bare = replace(meta, devices=(replace(meta.devices[0], name=None, sms=None, memory_bytes=None),))
    assert "device 0   unnamed; busy 37.0 %" in plain(samples.report(samples.trace(meta=bare)))
    assert "device 0   unnamed\n" in plain(samples.report(samples.trace(meta=bare, busy=())))


@pytest.mark.parametrize("sizes", [[1, 1, 1], [999, 1, 0], [5, 0, 7]])
def test_bars_are_exactly_as_wide_as_asked(sizes: list[int]) -> None:
    for width in range(1, 50):
        drawn = bar(list(zip("abc", sizes, strict=True)), width)
        assert len(drawn) == width
        assert all(
            abs(drawn.count(g) - width * s / sum(sizes)) < 1 for g, s in zip("abc", sizes, strict=True)
        )


def test_nothing_draws_nothing() -> None:
    assert bar([("a", 0)], 10) == ""
    page = Page()
    page.blank()
    assert page.lines == []


def test_shortened_keeps_both_ends() -> None:
    assert shortened("abcdefghij", 10) == "abcdefghij"
    assert shortened("abcdefghij", 5) == "ab…ij"


def test_printable_leaves_text_alone() -> None:
    assert printable("aten::mm µ") == "aten::mm µ"
    assert printable("a\nb\x00") == r"a b\x00"


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
    "words", ["2.34 ms", "17.5 %", "0.9 µs", "4.00 KiB", "312 TFLOP/s", "900 GB/s", "5 x"]
)
def test_no_line_ends_between_a_number_and_its_unit(words: str) -> None:
    for before in range(40, 75):
        page = Page(60)
        page.put("a " * (before // 2) + f"takes {words} of the time")
        assert words in page.text()


def test_paths_are_never_broken_and_other_long_words_are() -> None:
    path = "/data/" + "long/" * 20 + "trace.json.gz"
    page = Page(60)
    page.pair("trace", path)
    page.put("kernel" * 20, indent=3)
    lines = page.lines
    assert lines[1].strip() == path
    assert max(map(len, lines[2:])) == 60
    assert all(line.startswith("   ") for line in lines[2:])


def test_what_the_profiler_did_is_one_line_of_the_footer_and_no_finding() -> None:
    text = plain(samples.report(), width=120)
    assert "4  lane-offset" not in text
    (line,) = [line for line in text.splitlines() if "lane-offset: queueing" in line]
    assert line == "profiler   its own doing, not the program's: lane-offset: queueing 20.0 ms, 20.0 %"
    assert "1 high, 1 medium, 1 low" in text.splitlines()[0]
    assert "info" not in text.splitlines()[0]
    assert "lane-offset: queueing" not in plain(samples.report(), quiet=True)


def test_a_saving_is_told_with_its_interval() -> None:
    step, finding = samples.estimate(18_300_000), samples.findings()[0]
    saved = Saving(8_900_000, 8_000_000, 9_500_000, 0.486, 0.44, 0.52, "replayed")
    assert saving_words(saved, step) == "saves 8.90 ms of 18.3 ms a step (44 to 52 %)"
    assert saving_words(saved, None) == "saves 8.90 ms a step (44 to 52 %)"
    assert saving_words(replace(saved, low_share=0.487, high_share=0.488), step).endswith("(49 %)")
    assert saving_words(samples.saving(0.004), step) == "fixing it saves next to nothing"
    assert saving_words(samples.saving(-0.004), step) == "fixing it saves next to nothing"
    worse = replace(saved, step_ns=-900_000, share=-0.05)
    assert saving_words(worse, step) == "fixing it alone adds 900 µs to 18.3 ms a step"
    assert saving_words(worse, None) == "fixing it alone adds 900 µs to the time a step"
    assert grade(finding) == "high  costs 48.0 %"
    assert grade(replace(finding, saving=saved)) == "high  saves 48.6 %"
    assert grade(replace(finding, saving=worse)) == "high  saves nothing"
    assert grade(replace(finding, severity=Severity.INFO)) == "info"


def test_costs_are_told_per_step_and_in_all_and_counts_with_their_steps() -> None:
    finding = replace(samples.findings()[0], count=96, steps=6, cost_per_step_ns=8 * MS, cost_ns=48 * MS)
    assert cost_words(finding) == "cost 8.00 ms a step, 48.0 ms in all (48.0 % of the window)"
    assert cost_words(replace(finding, cost_per_step_ns=0)) == "cost 48.0 ms in all (48.0 % of the window)"
    assert cost_words(replace(finding, cost_ns=0)) == ""
    assert count_words(finding) == "96 times in 6 steps"
    assert count_words(replace(finding, count=1, steps=1)) == "once in 1 step"
    assert count_words(replace(finding, count=2, steps=0)) == "twice"


def test_the_page_avoids_words_that_only_its_authors_understand() -> None:
    for name in REPORTS:
        report = REPORTS[name]()
        messages = [replace(finding, message="A message.", cause="cause") for finding in report.findings]
        text = plain(replace(report, findings=tuple(messages)))
        for word in ("late launch", "ran dry", "look at", "torch 2.8 to 2.11", "two modes", "nobody's loss"):
            assert word not in text


def test_a_verdict_stands_first_and_each_rank_has_one() -> None:
    assert plain(samples.replayed()).splitlines()[2].startswith("18.0 ms a step without the profiler")
    assert plain(samples.empty()).splitlines()[2].startswith("trace ")
    assert "\nrank 1: 25.0 ms a step, as recorded\n" in plain(samples.two_ranks())


def test_what_failed_in_the_head_is_said() -> None:
    head = samples.trace(busy=(), unavailable={"busy": "failed: ZeroDivisionError: division by zero"})
    assert "failed     busy: failed: ZeroDivisionError" in plain(samples.report(head))


def test_a_device_that_only_rows_name_is_listed() -> None:
    meta = samples.meta(devices=())
    text = plain(samples.report(samples.trace(meta=meta)))
    assert "device 0   unnamed; busy 37.0 % of the window" in text
    assert "device     none" not in text
