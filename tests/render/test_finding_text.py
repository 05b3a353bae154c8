"""Findings as text: their names and grades, what they save and cost, and where to look."""

import re
from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.finding import NOTHING_TO_DO, Severity
from traceanalyzer.model.report import Fault
from traceanalyzer.model.step_times import Saving
from traceanalyzer.render.text.finding import put_fitted
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.text.report import render_text
from traceanalyzer.render.words.phrases import amount_words, cost_words, in_one_line, saving_words, short_amounts


def test_first_screen_has_verdict_and_three_largest_findings() -> None:
    for width in (80, 120):
        lines = render_text(samples.replayed(), width=width).splitlines()
        assert len(lines) <= 24
        assert lines[0].startswith("trace.json.gz   H200, 4 steps ")
        assert lines[0].endswith(" 3 problems")
        assert lines[1].startswith("Step   25.0 ms recorded, 18.0 ms predicted")
        assert [line[:2] for line in lines if line[:1].isdigit()][:3] == ["1 ", "2 ", "3 "]


def test_a_finding_says_what_what_to_do_and_what_it_saves() -> None:
    (block, *_) = render_text(samples.replayed(), width=100, quiet=True, verbose=True).split("\n\n")
    title, worth, message, advice, amounts, *_ = block.splitlines()
    assert title == "1  The GPU waits 4 times, because aten::mm comes too late"
    assert re.fullmatch(r" +saves 46 to 54 %, best guess 50 % +high  scheduler-gap", worth)
    assert message.strip().startswith("The GPU waits 4 times")
    assert advice.strip().startswith("-> ")
    assert amounts.strip() == ("18.0 -> 9.00 ms a step; recorded: 12.0 ms a step, 48.0 ms in total")


def test_a_finding_without_cost_shows_none() -> None:
    costless = samples.finding(0, cost_ns=0, cost_share=0.0, severity=Severity.INFO)
    text = render_text(samples.report(findings=(costless,)))
    assert re.search(r"^1  The GPU waits .* +info  scheduler-gap$", text, re.MULTILINE)
    assert "cost" not in text


def test_what_would_save_nothing_is_not_advised() -> None:
    """Unless it is called wrong for another reason; the whole report keeps it."""
    vain = replace(samples.saving(0.002), low_share=0.0, high_share=0.004)
    for severity, advised in ((Severity.INFO, False), (Severity.LOW, True)):
        found = replace(samples.findings()[0], saving=vain, severity=severity)
        report = samples.report(samples.replayed().traces[0], findings=(found,))
        assert ("\n   -> " in render_text(report)) is advised
        assert "-> " in render_text(report, verbose=True)


def test_a_saving_is_told_with_its_interval() -> None:
    step, finding = samples.estimate(18_300_000), samples.findings()[0]
    saved = Saving(8_900_000, 8_000_000, 9_500_000, 0.486, 0.44, 0.52, "replayed")
    assert saving_words(saved, step) == "18.3 -> 9.40 ms a step"
    assert saving_words(replace(saved, step_ns=900_000), step) == "18.3 -> 17.4 ms a step"
    assert saving_words(saved, None) == "saves 8.90 ms a step"
    little = replace(samples.saving(0.004), low_share=-0.01, high_share=0.009)
    unsure = replace(little, high_share=0.12, high_ns=2 * MS)
    worse = replace(saved, step_ns=-900_000, share=-0.05)
    assert saving_words(worse, step) == "18.3 -> 19.2 ms a step"
    assert saving_words(worse, None) == "adds 900 µs a step"
    assert short_amounts(finding) == "costs 48.0 % of recorded time"
    assert short_amounts(replace(finding, saving=saved)) == "saves 44 to 52 %, best guess 49 %"
    beyond = replace(finding, saving=replace(saved, beyond=True))
    assert short_amounts(beyond) == "saves 44 to 52 %, best guess 49 %"
    narrow = replace(saved, low_share=0.487, high_share=0.488)
    assert short_amounts(replace(finding, saving=narrow)) == "saves 49 %"
    near_nothing = replace(saved, low_share=-0.004, high_share=0.52)
    assert short_amounts(replace(finding, saving=near_nothing)) == "saves 0 to 52 %, best guess 49 %"
    no_less = replace(near_nothing, low_share=0.0)
    assert short_amounts(replace(finding, saving=no_less)) == "saves 0 to 52 %, best guess 49 %"
    less_than_said = replace(saved, low_share=0.004)
    assert short_amounts(replace(finding, saving=less_than_said)) == "saves 0 to 52 %, best guess 49 %"
    nearly_all = replace(saved, share=0.997, low_share=0.98, high_share=1.0)
    assert short_amounts(replace(finding, saving=nearly_all)) == "saves 98 to 99 %, best guess 99 %"
    assert short_amounts(replace(finding, saving=worse)) == "saves nothing"
    info = replace(finding, severity=Severity.INFO)
    assert short_amounts(replace(info, saving=little)) == "saves nothing"
    assert short_amounts(replace(info, saving=unsure)) == "could save 0 to 12 %"
    few = replace(saved, share=0.046, low_share=0.044, high_share=0.046)
    assert short_amounts(replace(finding, saving=few)) == "saves 4 to 5 %, best guess 4.6 %"
    fewer = replace(saved, share=0.014, low_share=0.012, high_share=0.014)  # each rounds to 1 %
    assert short_amounts(replace(finding, saving=fewer)) == "saves 1 to 2 %, best guess 1.4 %"
    assert short_amounts(replace(info, saving=saved)) == "could save 44 to 52 %, best guess 49 %"


def test_costs_are_told_per_step_and_in_all() -> None:
    finding = replace(samples.findings()[0], cost_per_step_ns=8 * MS, cost_ns=48 * MS)
    assert cost_words(finding) == "cost 8.00 ms a step, 48.0 ms in total"
    assert cost_words(replace(finding, cost_per_step_ns=0)) == "cost 48.0 ms in total"
    assert cost_words(replace(finding, steps=1)) == "cost 48.0 ms in total"  # once, and in no usual step
    assert cost_words(replace(finding, cost_per_step_ns=48 * MS)) == "cost 48.0 ms in total"
    assert cost_words(replace(finding, cost_ns=0)) == ""
    info = replace(finding, severity=Severity.INFO)
    assert cost_words(info) == "cost 8.00 ms a step, 48.0 ms in total (48.0 % of the window)"
    saved = replace(finding, saving=samples.saving())
    assert amount_words(saved, None) == "saves 9.00 ms a step; recorded: 8.00 ms a step, 48.0 ms in total"
    assert amount_words(replace(saved, cost_ns=0), None) == "saves 9.00 ms a step"


def test_names_of_backward_ops_are_theirs_and_not_the_engines() -> None:
    engine = "autograd::engine::evaluate_function: MmBackward0"
    text = render_text(samples.report(findings=(samples.finding(0, message=f"before {engine} (5 %)", by=engine),)))
    assert "1  Before MmBackward0 (5 %)" in text


_SEEN = (
    "aten::mm waits (median 2.00 ms; at most 3.00 ms) before aten::mm (60 % of this time), f(g) (30 %), "
    "aten::add (10 %), for inputs of shapes 2048, 8192x2048; without the profiler the GPU is probably busy"
)


@pytest.mark.parametrize(
    ("lines", "left_out"),
    [(3, []), (2, ["f(g)"]), (1, ["f(g)", "shapes", "(median 2.00 ms; at most 3.00 ms)", "without"])],
)
def test_details_go_before_the_clauses_of_a_message(lines: int, left_out: list[str]) -> None:
    page = Page(80)
    put_fitted(page, _SEEN, lines)
    text = " ".join(page.lines)
    assert len(page.lines) <= lines
    assert text.count("(") == text.count(")")
    assert [part for part in left_out if part in text] == []
    assert text.startswith("aten::mm waits")
    assert "aten::mm (60 % of this time)" in text


@pytest.mark.parametrize("last", ["Measure.", "(Or measure.)", "mode='default' is quicker.", "`item` waits."])
def test_an_advice_ends_with_a_sentence(last: str) -> None:
    advice = "-> Set the variable NHWC=1, in each process before import; else nothing changes."
    page = Page(40)
    put_fitted(page, f"{advice} {last}", 1, whole=True)
    assert " ".join(page.lines) == advice


def test_first_screen_states_saving_as_a_range_and_a_guess() -> None:
    finding = replace(samples.findings()[0], cost_per_step_ns=12 * MS, steps=4)
    info = replace(finding, severity=Severity.INFO)
    assert short_amounts(finding) == "costs 48.0 % of recorded time"
    assert short_amounts(info) == "takes 12.0 ms a step (48.0 % of the window) as recorded"
    assert short_amounts(replace(info, cost_ns=0)) == ""
    saving = replace(samples.saving(0.17), low_share=0.04, high_share=0.4)
    assert short_amounts(replace(finding, saving=saving)) == "saves 4 to 40 %, best guess 17 %"
    assert short_amounts(replace(info, saving=saving)) == "could save 4 to 40 %, best guess 17 %"
    unsure = replace(saving, low_share=-0.01)
    assert short_amounts(replace(finding, saving=unsure)) == "saves 0 to 40 %, best guess 17 %"
    little = replace(saving, share=0.004, low_share=0.0)
    assert short_amounts(replace(finding, saving=little)) == "saves 0 to 40 %"
    assert short_amounts(replace(finding, saving=replace(little, high_share=0.004))) == "saves nothing"


def test_title_in_one_line_loses_whole_parts_but_not_its_number() -> None:
    title = "aten::item reads a value back and makes the CPU wait twice a step, in step() (train.py:45)"
    assert in_one_line(title, 100) == title
    assert in_one_line(title, 70) == "aten::item reads a value back and makes the CPU wait twice a step"
    numbered = "Half-precision GEMMs use slow kernels: 50,257 is odd"
    assert in_one_line(numbered, 42) == numbered
    assert in_one_line("Half-precision GEMMs use slow kernels: a size is odd", 42) == (
        "Half-precision GEMMs use slow kernels"
    )


def test_prerequisites_of_a_saving_are_shown_in_full() -> None:
    finding = replace(samples.findings()[0], cost_ns=0, saving=replace(samples.saving(), beyond=True))
    said = "saves 9.00 ms a step, in addition to "
    assert amount_words(finding, samples.estimate()) == said + "other fixes on the CPU"
    assert amount_words(finding, samples.estimate(), [2, 3]) == said + "findings 2 and 3"


def test_full_report_and_first_screen_agree_on_saving() -> None:
    report = samples.replayed()
    first, second = report.findings[:2]
    fault = Fault("F1", first.rule, samples.saving(0.7), Severity.HIGH, (1, 2))
    whole = replace(report, traces=(replace(report.traces[0], faults=(fault,)),), findings=(first, second))
    short = render_text(whole)
    assert "saves 66 to 74 %, best guess 70 %; also fixes 2" in short
    assert "fixed with 1\n" in short
    text = render_text(whole, verbose=True)
    assert "saves 66 to 74 %, best guess 70 %; also fixes 2" in text
    assert "   fixed with 1  " in text
    assert "fixing only this: 18.0 -> 9.00 ms a step" in text


@pytest.mark.parametrize(
    ("needless", "shown", "left"),
    [
        ((2,), [1, 3], "... --verbose shows finding 2"),
        ((1, 3), [2], "... --verbose shows findings 1 and 3"),
        ((1, 2, 3), [1], "... --verbose shows findings 2 and 3"),
    ],
)
def test_what_needs_no_fix_is_only_counted(needless: tuple[int, ...], shown: list[int], left: str) -> None:
    report = samples.replayed()
    found = [
        replace(one, advice=f"{NOTHING_TO_DO}: all is well.") if number in needless else one
        for number, one in enumerate(report.findings[:3], 1)
    ]
    lines = render_text(replace(report, findings=tuple(found))).splitlines()
    assert [int(line[0]) for line in lines if re.match(r"\d  ", line)] == shown
    assert left in lines
