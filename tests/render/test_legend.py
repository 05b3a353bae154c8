"""What the first screen says below the table of time, of the numbers in its findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
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


def test_uncertain_saving_may_be_nothing() -> None:
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
    said = "'Possibly' means: only if your program allows the fix."
    assert said in legend([sure, may])
    assert said not in legend([sure, replace(may, saving=replace(samples.saving(), low_share=-0.1))])


def test_the_legend_tells_of_costs_where_one_is_shown() -> None:
    saves = replace(samples.findings()[0], saving=samples.saving(), rule="host-gap")
    costs = replace(
        saves, saving=None, message="9.00 ms of this time counts here, the rest in other findings"
    )
    said = "Time that counts in another finding is left out of the cost of finding 2."
    assert said in legend([saves, costs])
    assert "left out of the cost of findings 1 and 2." in legend([costs, costs])
    assert said not in legend([saves, replace(costs, message="all of it")])
    assert said not in legend([saves, replace(costs, severity=Severity.INFO)])
    assert said not in legend([saves, replace(costs, advice=f"{NOTHING_TO_DO}.")])


def test_the_legend_explains_what_is_shown_alone() -> None:
    """Of thirty findings those at the end have no room."""
    saves = replace(samples.findings()[0], saving=samples.saving(), severity=Severity.INFO)
    rest = replace(saves, saving=None, rule="scheduler-gap")
    assert "scheduler-gap is" in legend([rest, *[replace(saves, rule="host-gap")] * 30])
    assert "scheduler-gap is" not in legend([*[replace(saves, rule="host-gap")] * 30, rest])


def test_remaining_idle_time_is_explained_where_listed() -> None:
    gap = replace(samples.findings()[0], rule="host-gap")
    said = "scheduler-gap is idle time that no other finding explains."
    assert said not in legend([gap])
    assert legend([gap, *[replace(gap, rule="scheduler-gap")] * 2]).count(said) == 1


@pytest.mark.parametrize(
    ("changes", "idle_ms", "said"),
    [
        ({}, 50, True),  # four steps of 25 ms take 8 ms less without the profiler: 32 ms of 50
        ({}, 64, True),
        ({}, 65, False),
        ({"bound": "cpu"}, 50, False),
        ({"bounds": ("gpu", "cpu")}, 50, False),
        ({"unprofiled_ns": 23 * MS}, 20, False),  # 8 of 20 ms
        ({"unprofiled_ns": 22 * MS}, 20, True),
        ({"unprofiled_ns": 22 * MS}, 19, False),  # of little idle time nothing is said
    ],
)
def test_legend_explains_gpu_idle_caused_by_the_profiler(
    changes: dict[str, Any], idle_ms: int, said: bool
) -> None:
    """Of a window of 100 ms, and a step whose pace the GPU sets."""
    time = samples.accounting(
        parts_ns={"compute": (100 - idle_ms) * MS, "idle:dispatching": idle_ms * MS}, idle_causes=()
    )
    step = replace(samples.estimate(17 * MS), **({"bound": "gpu"} | changes))
    head = samples.trace(step=step, accounting=(time,), steps=samples.steps())
    text = " ".join(render_text(samples.report(head)).split())
    assert (
        "Recorded times contain what the profiler costs, and their shares are of the whole window; the line Limit"
        in text
    )
    caused = "Here most of the idle time is due to launches that the profiler slows down."
    assert (caused in text) is said
