"""What the first screen says below the table of time, of the numbers in its findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.report import report_samples as samples
from traceanalyzer.model.finding import NOTHING_TO_DO, Finding, Severity
from traceanalyzer.render.text.report import render_text


def legend(findings: Sequence[Finding]) -> str:
    return " ".join(render_text(replace(samples.replayed(), findings=tuple(findings))).split())


def test_the_legend_tells_of_savings_where_one_is_shown() -> None:
    saves = replace(samples.findings()[0], saving=samples.saving())
    nothing = replace(samples.saving(0.001), low_share=0.0, high_share=0.002)
    in_vain = replace(saves, severity=Severity.INFO, saving=nothing)
    settled = replace(saves, severity=Severity.INFO, advice=f"{NOTHING_TO_DO}.")
    other = replace(saves, saving=None)
    assert "Savings are shares" in legend([saves])
    assert "Savings are shares" not in legend([in_vain])
    assert "Savings are shares" not in legend([other, settled])
    assert "Recorded times contain" in legend([other])


def test_that_a_saving_may_be_nothing_is_said_where_one_is_not_sure() -> None:
    sure = replace(samples.findings()[0], saving=samples.saving())
    unsure = replace(sure, saving=replace(samples.saving(), low_share=-0.1))
    nearly = replace(samples.saving(0.002), low_share=-0.1, high_share=0.1)  # told as probably nothing
    said = "A range that begins at 0 means"
    assert said not in legend([sure])
    assert said in legend([sure, unsure])
    assert said not in legend([sure, replace(sure, saving=nearly)])
    assert "Savings are shares" in legend([replace(sure, saving=nearly)])


def test_what_may_save_is_said_where_one_may() -> None:
    sure = replace(samples.findings()[0], saving=samples.saving())
    may = replace(sure, severity=Severity.INFO)
    said = "'May save' means: if your program allows the fix."
    assert said in legend([sure, may])
    assert said not in legend([sure, replace(may, saving=replace(samples.saving(), low_share=-0.1))])


def test_the_legend_tells_of_costs_where_one_is_shown() -> None:
    saves = replace(samples.findings()[0], saving=samples.saving(), rule="host-gap")
    costs = replace(saves, saving=None)
    said = "Costs do not overlap: no time counts in two findings."
    assert said in legend([saves, costs])
    assert said not in legend([saves, replace(costs, severity=Severity.INFO)])
    assert said not in legend([saves, replace(costs, advice=f"{NOTHING_TO_DO}.")])


def test_what_is_left_of_the_idle_time_is_explained_where_it_is_listed() -> None:
    gap = replace(samples.findings()[0], rule="host-gap")
    said = "scheduler-gap is idle time that no other finding explains."
    assert said not in legend([gap])
    assert legend([gap, *[replace(gap, rule="scheduler-gap")] * 2]).count(said) == 1
