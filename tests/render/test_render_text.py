"""The report as text: snapshots at 80 and 120 columns, and what must hold at any width."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS, hit, scope
from tests.snapshots import matches
from traceanalyzer.model.report import IdleCause, Report
from traceanalyzer.render.text.escape import printable, shortened
from traceanalyzer.render.text.page import Page, bar
from traceanalyzer.render.text.report import render_text
from traceanalyzer.rule.grouping import findings_of
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
    long = findings_of("rule", [hit(0, MS, cause="c" * 90, message="{op}", evidence={"op": name})], scope())
    text = plain(samples.report(findings=tuple(long)), width=80)
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
    assert text.startswith("1  scheduler-gap: late-launch")
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
    evil = findings_of("rule", [hit(0, MS, message="{op}", evidence={"op": "\x1b[2Jgone\r\x07"})], scope())
    text = plain(samples.report(findings=tuple(evil)))
    assert "\x1b" not in text
    assert r"\x1b[2Jgone \x07" in text


def test_a_finding_without_cost_shows_none() -> None:
    costless = findings_of("rule", [hit(0, MS, cost=0)], scope())
    text = plain(samples.report(findings=tuple(costless)))
    assert "1  rule: late-launch" + " " * 56 + "info\n" in text
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
