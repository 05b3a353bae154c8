"""Parts of a confidential page one by one: what is veiled, what is left out, and which numbers stay."""

from dataclasses import replace
from typing import Any

import pytest

from tests.report import report_samples as samples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.finding import Finding, Outcome, Status
from traceanalyzer.model.trace import Damage
from traceanalyzer.render.html.page_data import TracePage, redacted_page
from traceanalyzer.render.html.plot_data import MemoryCurve, Owner, StepSeries, StepTime, Stretch
from traceanalyzer.render.html.redaction import FILE, LINE, MARK, Redactor, redactor_of

SECRET = "my secret phase"


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    made = TraceBuilder(with_stack=1)
    made.annotation(SECRET, 0, 1_000)
    return redactor_of([made.load()])


def said(text: str) -> str:
    return f"in {text}, often"


def test_every_text_of_a_finding_is_veiled(redactor: Redactor) -> None:
    texts: dict[str, Any] = dict.fromkeys(("cause", "message", "advice", "by"), said(SECRET))
    evidence = {SECRET: 3, "ops": {said(SECRET): 1.5}, "lines": [SECRET, 4], "n_ns": 7}
    found = replace(samples.finding(0), **texts, evidence=evidence)
    outcomes = (Outcome("a", Status.FAILED, said(SECRET)), Outcome("b", Status.CLEAR))
    bare = replace(found, by=None)
    report = redactor.report(replace(samples.report(), findings=(found, bare), outcomes=outcomes))
    first, second = report.findings
    told = said(MARK)
    assert [first.cause, first.message, first.advice, first.by, second.by] == [*[told] * 4, None]
    assert first.evidence == {MARK: 3, "ops": {told: 1.5}, "lines": [MARK, 4], "n_ns": 7}
    assert [one.why for one in report.outcomes] == [told, None]
    assert amounts(first) == amounts(found)


def amounts(finding: Finding) -> tuple[object, ...]:
    return finding.rule, finding.cost_ns, finding.cost_share, finding.start_ns, finding.occurrences


def test_machine_is_omitted_and_damage_is_veiled(redactor: Redactor) -> None:
    damage = (Damage("truncated", said(SECRET), 7, 1),)
    meta = samples.meta(
        "/home/ann/a.json",
        damage=damage,
        thread_names={1: "ann's thread"},
        extra={"host_name": "cluster"},
        other_args={"user": 2},
    )
    (veiled,) = redactor.report(samples.report(samples.trace(meta=meta))).traces
    assert (veiled.meta.source, veiled.meta.thread_names, veiled.meta.extra) == (FILE, {}, {})
    assert veiled.meta.other_args == {}
    assert veiled.meta.damage == (replace(damage[0], message=said(MARK)),)
    assert (veiled.meta.events, veiled.meta.rows) == (meta.events, meta.rows)
    assert veiled.window == samples.trace(meta=meta).window


def test_owners_steps_and_stretches_name_veiled_ops_and_no_lines(redactor: Redactor) -> None:
    owners = (Owner(SECRET, "mine.py(3): f", 2, 512), Owner("aten::mm", None, 1, 8))
    curve = MemoryCurve(0, "CUDA:0", 9, 1, None, 0, (1,), (9,), None, owners, 0, 0)
    steps = StepSeries(0, 5, 1, (StepTime(1, 5, {"other": 5}, ((SECRET, 4), ("aten::mm", 1)), "idle:python"),))
    stretch = Stretch(0, 1, 5, "idle:python", SECRET, 3, "mine.py(3): f")
    page = TracePage(None, steps=steps, memory=(curve,), stretches=(stretch, replace(stretch, op=None)))
    veiled = redacted_page(page, redactor)
    assert veiled.memory[0].owners == (Owner(MARK, None, 2, 512), Owner("aten::mm", None, 1, 8))
    assert veiled.steps is not None
    assert veiled.steps.steps[0] == StepTime(1, 5, {"other": 5}, ((MARK, 4), ("aten::mm", 1)), "idle:python")
    assert veiled.stretches == tuple(Stretch(0, 1, 5, "idle:python", name, 3) for name in (MARK, None))


def test_frames_are_veiled_wherever_they_were_recorded() -> None:
    """In a stack, line by line, and as a module; the file by its path and by its name."""
    made = TraceBuilder(with_stack=1)
    stack = "<built-in run>;hidden model: forward\nhidden main: fit"
    told: dict[str, Any] = {"Call stack": stack, "Module Hierarchy": "hidden.Net"}
    made.op("aten::mm", 0, 1_000, **told)
    trace = made.load()
    found = redactor_of([trace])
    for name in ("<built-in run>", "hidden model: forward", "hidden main: fit", "hidden.Net"):
        assert found.names[name] == LINE
    assert found.names[trace.meta.source] == FILE
    names = list(found.names)
    assert [len(name) for name in names] == sorted((len(name) for name in names), reverse=True)
