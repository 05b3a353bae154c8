"""The first screen: how long a finding is on it, which findings it shows, and what it says below them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from traceanalyzer.model.fault import Fault
from traceanalyzer.model.finding import NOTHING_TO_DO, Finding, Severity
from traceanalyzer.render.text.finding import WHOLE, put_finding, put_short
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.text.report import render_text
from traceanalyzer.render.words.savings import finding_name
from traceanalyzer.report.triage import triaged

LONG = "aten::mm waits for the host (a detail), once a step; and so on, and on, " * 6 + "until the end"
SENTENCE = "Do this to the model, and then do that to the loader as well."


def lines_of(detail: int, message: str, advice: str) -> list[str]:
    page = Page(80)
    found = replace(samples.findings()[0], message=message, advice=advice)
    put_short(page, 1, found, samples.report(findings=(found,)), detail)
    return page.lines


@pytest.mark.parametrize(
    ("detail", "message", "advice", "count", "of_advice"),
    [
        (WHOLE, LONG, f"{SENTENCE} {SENTENCE} {SENTENCE}", 5, 2),
        (WHOLE, LONG, "Do this.", 5, 1),  # what happened has the lines that are left
        (WHOLE, "it waits", "Do this.", 3, 1),
        (WHOLE, LONG, f"{SENTENCE[:-1]}, {'and that, ' * 20}too.", 7, 4),  # a sentence is never cut
        (1, LONG, "Do this.", 4, 1),
        (0, LONG, SENTENCE, 1, 0),
    ],
)
def test_a_finding_has_five_lines(detail: int, message: str, advice: str, count: int, of_advice: int) -> None:
    lines = lines_of(detail, message, advice)
    assert len(lines) == count
    begin = next((at for at, line in enumerate(lines) if "->" in line), count)
    assert count - begin == of_advice
    assert ("(more: --verbose)" in " ".join(lines)) is (message == LONG and detail > 0)


def test_after_which_findings_a_saving_comes_is_said_with_all_the_rest() -> None:
    page, whole = Page(80), Page(80)
    saving = replace(samples.saving(), beyond=True)
    found = replace(samples.findings()[0], message=LONG, advice=f"{SENTENCE} {SENTENCE}", saving=saving)
    on_cpu = replace(found, saving=samples.saving(), stream=None)
    on_gpu, info = replace(on_cpu, stream=7), replace(on_cpu, severity=Severity.INFO)
    report = samples.report(samples.trace(step=samples.estimate()), findings=(found, on_gpu, on_cpu, info))
    put_short(page, 1, found, report, WHOLE)
    put_finding(whole, 1, found, report)
    told = "saves 9.00 of 18.0 ms a step, in addition to what finding 3 saves"
    assert any(told in line for line in whole.lines)
    assert not any("in addition to" in line for line in page.lines)


def infos(count: int, advice: str = SENTENCE) -> list[Finding]:
    return [
        replace(
            one,
            severity=Severity.INFO,
            rule=f"rule-{at}",
            message=LONG if at % 2 else "it waits",
            advice=advice,
        )
        for at, one in enumerate([samples.findings()[0]] * count)
    ]


def numbers(text: str) -> list[int]:
    return [int(line.split()[0]) for line in text.splitlines() if re.match(r"\d+  ", line)]


def test_what_has_no_room_is_at_the_end_and_is_counted() -> None:
    """A short finding does not take the place of a long one before it: the numbers have no holes."""
    text = render_text(samples.report(findings=tuple(infos(20))))
    shown = numbers(text)
    assert 5 < len(shown) < 20
    assert shown == [*range(1, len(shown) + 1)]
    assert f"... and findings {len(shown) + 1} to 20: --verbose shows them" in text


def test_what_needs_no_fix_has_the_last_number() -> None:
    found = infos(3)
    found[0] = replace(found[0], advice=f"{NOTHING_TO_DO}: all is well.")
    found = [replace(one, fault=f"F{number}") for number, one in enumerate(found, 1)]
    faults = [
        Fault(f"F{number}", one.rule, None, one.severity, (number,)) for number, one in enumerate(found, 1)
    ]
    told, _ = triaged(found, [faults], [])
    assert [one.rule for one in told] == ["rule-1", "rule-2", "rule-0"]
    assert numbers(render_text(samples.report(findings=told))) == [1, 2]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model.py(12): forward", "model.py(12): forward()"),
        ("a.py(12): f", "a.py(12): f()"),
        ("aa_long.py(12): forward_of_all", "…_long.py(12): forward_of_all()"),
        ("a_lon.py(12): forward_of_all_kin", "forward_of_all_kin()"),
        ("/home/me/project/package/model.py(1234): forward", "model.py(1234): forward()"),
        ("package/modeling_of_something_long.py(1306): forward", "…thing_long.py(1306): forward()"),
    ],
)
def test_of_a_line_of_python_the_end_is_kept(name: str, said: str) -> None:
    found = replace(samples.findings()[0], cause="", by=name)
    assert finding_name(found, 31) == f"scheduler-gap: {said}"


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
