"""Cards of findings by themselves: their titles, where they lead, what is copied, and in which list they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.html.pages import Parsed, parsed
from tests.report import report_samples as samples
from tests.report.report_samples import MS, ORIGIN
from traceanalyzer.model.finding import Finding, Outcome, Severity, Status
from traceanalyzer.model.report import Fault
from traceanalyzer.render.html.cards import card_of, cards
from traceanalyzer.render.html.evidence import Card, saving
from traceanalyzer.render.html.strip_data import Earlier, Strip

STRIP = Strip(ORIGIN + 2 * MS, ORIGIN + 9 * MS, ORIGIN + 3 * MS, ORIGIN + 8 * MS, (), (), 5, 5, None, None)


def card(finding: Finding, *, index: int = 1, **changes: Any) -> Card:
    """The second finding of a report, unless it is another one."""
    made = Card(index, finding, samples.trace(), 0, None, False, False, False, "", True, "trace-0", {})
    return replace(made, **changes)


def shown(of: Card) -> Parsed:
    return parsed(str(card_of(of)).encode())


def text_of(page: Parsed, look: str) -> list[str]:
    return [one.text.replace("\u00a0", " ") for one in page.of_class(look)]


def found(**changes: Any) -> Finding:
    return samples.finding(30 * MS, length=4 * MS, **changes)


def test_example_place_gives_all_that_is_known() -> None:
    one = found(device=0, stream=0, step=0, thread=None)
    (summary,) = [at.text for at in shown(card(one)).elements if at.name == "summary"]
    assert summary.replace("\u00a0", " ") == "At 30.000 ms, 4.00 ms long, step 0, device 0, stream 0"
    many = samples.finding(30 * MS, 60 * MS, length=4 * MS, device=None, stream=None, thread=7, steps=1)
    (summary,) = [at.text for at in shown(card(many)).elements if at.name == "summary"]
    assert summary.replace("\u00a0", " ") == "For example at 30.000 ms, 4.00 ms long, thread 7"


@pytest.mark.parametrize(("index", "is_open"), [(0, True), (1, False)])
def test_the_first_card_is_open(index: int, is_open: bool) -> None:
    page = shown(card(found(), index=index))
    assert ("open" in page.of_class("where")[0].attributes) is is_open
    assert page.of_class("card")[0].attributes["id"] == f"finding-{index + 1}"


@pytest.mark.parametrize(
    ("strip", "part"),
    [
        (None, "30.000ms:34.000ms"),
        (STRIP, "2.000ms:9.000ms"),
        (replace(STRIP, start_ns=ORIGIN - 1), "0.000ms:9.000ms"),
    ],
)
def test_the_command_has_the_part_of_the_trace_that_is_drawn(strip: Strip | None, part: str) -> None:
    trace = samples.trace(meta=samples.meta("my trace.json"))
    page = shown(card(found(), trace=trace, strip=strip))
    copies = [str(one.attributes["data-copy"]) for one in page.having("data-copy")]
    assert copies == [
        f"traceanalyzer diagnose 'my trace.json' --window {part}",
        str(ORIGIN + 30 * MS),
        "traceanalyzer open 'my trace.json' --finding 2",
    ]
    rank = shown(card(found(), trace=trace, strip=strip, several=True))
    assert str(rank.having("data-copy")[2].attributes["data-copy"]) == "traceanalyzer open 'my trace.json'"
    secret = shown(card(found(), trace=trace, strip=strip, confidential=True))
    assert (
        str(secret.having("data-copy")[0].attributes["data-copy"])
        == f"traceanalyzer diagnose TRACE --window {part}"
    )
    assert "my trace" not in secret.elements[0].text


def test_a_window_at_the_first_event_is_a_microsecond_at_least() -> None:
    first = samples.finding(0, length=0)
    page = shown(card(first))
    assert str(page.having("data-copy")[0].attributes["data-copy"]).endswith("--window 0.000ms:0.001ms")


@pytest.mark.parametrize(("seen", "note"), [(5, []), (6, ["The 5 longest of 6 events are drawn."])])
def test_a_picture_says_what_it_leaves_out(seen: int, note: list[str]) -> None:
    page = shown(card(found(), strip=replace(STRIP, seen=seen)))
    (caption,) = [one.text for one in page.elements if one.name == "figcaption"]
    assert ("longest of" in caption) is bool(note)
    assert all(words in caption for words in note)
    assert "Launched" not in caption
    label = next(one for one in page.of_class("strip"))
    assert str(label.attributes["aria-label"]).startswith(
        "Timeline around a typical occurrence of finding 2;"
    )


@pytest.mark.parametrize(
    ("op", "said"), [("aten::mm", "Launched by aten::mm 2.00 ms"), (None, "Launched 2.00 ms")]
)
def test_a_launch_before_the_picture_is_told(op: str | None, said: str) -> None:
    page = shown(card(found(), strip=replace(STRIP, earlier=Earlier(2 * MS, op))))
    (caption,) = [one.text for one in page.elements if one.name == "figcaption"]
    assert f"{said} before the occurrence began" in caption.replace("\u00a0", " ")


def test_only_what_is_on_a_timeline_leads_there() -> None:
    (link,) = shown(card(found(), timeline=True)).of_class("to-timeline")
    assert link.attributes["data-at"] == "#at-2-1"
    assert not shown(card(found())).of_class("to-timeline")


def test_title_has_ranks_cause_and_op_link() -> None:
    one = found(cause="late", by="aten::mm", rank=1, ranks=(0, 1, 3))
    page = shown(card(one, several=True, ops={"aten::mm": "op-0-2"}))
    assert text_of(page, "apart") == ["late", "aten::mm", "also of 0, 3"]
    assert [at.attributes["href"] for at in page.elements if at.text == "aten::mm" and at.name == "a"] == [
        "#op-0-2"
    ]
    assert [at.text for at in page.of_class("rank")] == ["rank 1", "also of 0, 3"]
    alone = shown(card(replace(one, rank=None, ranks=()), ops={}))
    assert text_of(alone, "apart") == ["late", "aten::mm"]
    assert not alone.of_class("rank")
    assert not [at for at in alone.elements if at.name == "a" and at.text == "aten::mm"]


@pytest.mark.parametrize(
    ("findings", "saved_ms", "said"),
    [
        ((2,), 9, None),
        ((2, 3), 9, "One change removes this and finding 3; together that saves 9.00 ms a step."),
        ((1, 2, 3), 9, "One change removes this and finding 1, 3; together that saves 9.00 ms a step."),
        ((1, 2), 0, "One change removes this and finding 1."),
        ((1, 2), None, "One change removes this and finding 1."),
    ],
)
def test_what_one_change_removes_together(
    findings: tuple[int, ...], saved_ms: int | None, said: str | None
) -> None:
    saved = None if saved_ms is None else replace(samples.saving(), step_ns=saved_ms * MS)
    faults = (
        Fault("F1", "other", None, Severity.LOW, (7, 8)),
        Fault("F2", "scheduler-gap", saved, Severity.HIGH, findings),
    )
    page = shown(card(found(fault="F2"), trace=samples.trace(faults=faults)))
    assert [one.text for one in page.of_class("fault")] == ([said] if said else [])
    paths = [
        str(one.attributes["data-path"])
        for one in page.having("data-path")
        if "faults" in str(one.attributes)
    ]
    assert all(path.startswith("diagnose#/traces/0/faults/1/") for path in paths)
    others = [f"diagnose#/traces/0/faults/1/findings/{k}" for k, n in enumerate(findings) if n != 2]
    assert [path for path in paths if "findings" in path] == (others if said else [])
    assert not shown(card(found(fault=None), trace=samples.trace(faults=faults))).of_class("fault")


def test_the_page_of_a_rule_stands_at_the_first_of_its_findings() -> None:
    page = "It waits.\n\nBad: `a.item()`\nGood: `a.sum()`\n"
    assert shown(card(found(), page_of_rule=page)).of_class("explain")
    assert not shown(card(found(), page_of_rule=page, first=False)).of_class("explain")
    assert not shown(card(found())).of_class("explain")


def test_a_line_of_the_user_is_shown_where_it_is_known() -> None:
    page = shown(card(found(), strip=replace(STRIP, line="train.py(3): step")))
    assert text_of(page, "line") == ["Function (file, first line): train.py(3): step"]
    assert not shown(card(found(), strip=STRIP)).of_class("line")
    assert page.of_class("told-of")[0].attributes["class"] == "told-of wide"
    assert shown(card(found(evidence={}))).of_class("told-of")[0].attributes["class"] == "told-of"


def test_a_saving_is_told_beside_its_own_trace_s_step() -> None:
    """Of the second trace; the step is in the JSON below that."""
    one = replace(found(), saving=samples.saving())
    page = parsed(
        f"<p>{saving(card(one, trace=samples.trace(step=samples.estimate()), trace_index=1))}</p>".encode()
    )
    paths = [str(at.attributes["data-path"]) for at in page.having("data-path")]
    assert "diagnose#/traces/1/step/unprofiled_ns" in paths
    unknown = parsed(f"<p>{saving(card(one))}</p>".encode())
    assert unknown.elements[0].text.startswith("saves 9.00 ms of the time of a step: 50.0 %")


# -- all of them ------------------------------------------------------------------------------------------


def page_of(findings: Sequence[Finding], *, ranks: int = 1, **changes: Any) -> Parsed:
    traces = tuple(samples.trace(rank if ranks > 1 else None) for rank in range(ranks))
    report = replace(samples.report(), **{"traces": traces, "findings": tuple(findings), **changes})
    given: Any = SimpleNamespace(
        report=report,
        traces=[SimpleNamespace(ops=None, timeline=object() if at else None) for at in range(ranks)],
        strips=[None] * len(findings),
        explained={"scheduler-gap": "It waits."},
        confidential=False,
        anchor=lambda at: f"trace-{at}",
    )
    return parsed(f"<main>{cards(given)}</main>".encode())


def test_cards_are_ordered_fix_then_worth_then_small() -> None:
    high, info = found(), found(severity=Severity.INFO, cost_share=0.2)
    small = replace(info, cost_ns=1, cost_share=0.001)
    page = page_of([high, small, info, replace(high, severity=Severity.LOW)])
    heads = [one.text for one in page.of_class("known")]
    assert heads == ["Worth knowing: no certain gain", "Too small to act on, or profiler overhead"]
    assert [
        one.attributes["value"] for one in page.elements if one.name == "li" and "value" in one.attributes
    ] == [
        "1",
        "4",
        "3",
        "2",
    ]
    assert len(page.of_class("explain")) == 1  # at the first of them
    none = page_of([info])
    assert [one.text for one in none.of_class("nothing")] == ["Nothing found that is worth fixing."]
    assert not page.of_class("nothing")


def test_findings_beyond_40_are_lines_beyond_160_in_json() -> None:
    page = page_of([found()] * 161)
    assert len(page.of_class("card")) == 40
    rows = [one for one in page.elements if one.name == "tr" and "id" in one.attributes]
    assert [rows[0].attributes["id"], rows[-1].attributes["id"]] == ["finding-41", "finding-160"]
    assert rows[0].text.startswith("41 scheduler-gapmediumThe GPU waits 1 times")
    assert [one.text for one in page.of_class("note")] == ["1 more are in the JSON of diagnose."]
    assert not page_of([found()] * 160).of_class("note")
    assert not page_of([found()] * 40).of_class("lines")


def test_of_several_ranks_cards_say_whose_they_are() -> None:
    one, two = found(rank=0), found(rank=1, ranks=(0, 1), severity=Severity.INFO)
    page = page_of([one, two, replace(two, ranks=(1,))], ranks=2)
    items = [at.attributes for at in page.elements if at.name == "li" and "value" in at.attributes]
    assert [at["data-ranks"] for at in items] == ["0", "0 1", "1"]
    assert ["data-job" in at for at in items] == [True, True, False]
    assert len(page.of_class("to-timeline")) == 2  # the first rank has none
    anchors = [at.attributes["href"] for at in page.of_class("rank") if at.name == "a"]
    assert anchors == ["#trace-0", "#trace-1", "#trace-1"]
    lines = page_of([one] * 41, ranks=2)
    (line,) = [at.text for at in lines.elements if at.attributes.get("id") == "finding-41"]
    assert line.startswith("41 scheduler-gapmediumrank 0")


def test_where_no_rule_could_look_it_is_said_how_many() -> None:
    outcomes = (
        Outcome("a", Status.CLEAR),
        Outcome("b", Status.NOT_APPLICABLE, "no kernels"),
        Outcome("c", Status.NOT_APPLICABLE, "no kernels"),
    )
    page = page_of([], traces=(samples.trace(accounting=()),), outcomes=outcomes)
    assert [one.text for one in page.of_class("nothing")] == ["2 of 3 rules had nothing to look at."]
