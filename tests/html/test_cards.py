"""Cards of findings, and the elements that they are made of."""

import base64
import json
import zlib
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
from traceanalyzer.render.html.cards import Card, card_of, cards, coded, explained, saving
from traceanalyzer.render.html.markup import (
    UNITS,
    Html,
    breakable,
    code,
    escaped,
    number,
    packed,
    pointer,
    prose,
    quoted,
    rounded,
    tag,
    together,
)
from traceanalyzer.rule.registry import all_rules


def card(finding: Finding, *, index: int = 1, **changes: Any) -> Card:
    """The second finding of a report, unless it is another one."""
    made = Card(index, finding, samples.trace(), 0, False, False, False, "", True, "trace-0", {})
    return replace(made, **changes)


def shown(of: Card) -> Parsed:
    return parsed(str(card_of(of)).encode())


def text_of(page: Parsed, look: str) -> list[str]:
    return [one.text.replace("\u00a0", " ") for one in page.of_class(look)]


def found(**changes: Any) -> Finding:
    return samples.finding(30 * MS, length=4 * MS, **changes)


def test_example_place_gives_all_that_is_known() -> None:
    one = found(device=0, stream=0, step=0, thread=None)
    (summary,) = shown(card(one)).texts_of("when")
    assert summary.replace("\u00a0", " ") == "At 30.000 ms, 4.00 ms long, step 0, device 0, stream 0"
    many = samples.finding(30 * MS, 60 * MS, length=4 * MS, device=None, stream=None, thread=7, steps=1)
    (summary,) = shown(card(many)).texts_of("when")
    assert summary.replace("\u00a0", " ") == "For example at 30.000 ms, 4.00 ms long, thread 7"


@pytest.mark.parametrize(("index", "is_open"), [(0, True), (1, False)])
def test_the_first_card_is_open(index: int, is_open: bool) -> None:
    page = shown(card(found(), index=index))
    details = page.named("details")[0]
    assert ("open" in details.attributes) is is_open
    assert page.of_class("card")[0].attributes["id"] == f"finding-{index + 1}"


def test_what_is_copied_names_the_file_without_its_folders() -> None:
    trace = samples.trace(meta=samples.meta("/home/ann/my trace.json"))

    def copies(**changes: Any) -> list[str]:
        page = shown(card(found(), trace=trace, **changes))
        return page.values("data-copy")

    assert copies() == ["traceanalyzer open 'my trace.json' --finding 2", str(ORIGIN + 30 * MS)]
    assert copies(several=True)[0] == "traceanalyzer open 'my trace.json'"
    assert copies(confidential=True)[0] == "traceanalyzer open TRACE --finding 2"


def test_a_card_says_its_saving_before_it_is_opened() -> None:
    page = shown(card(found(saving=samples.saving(), title="The GPU waits")))
    (head,) = [text for text in page.texts("summary") if "GPU" in text]
    assert head == "2 The GPU waits◆ medium saves 46 to 54 %, best guess 50 % scheduler-gap"


def test_only_what_is_on_a_timeline_leads_there() -> None:
    one = samples.finding(0, 30 * MS, length=4 * MS)
    page = shown(card(replace(one, start_ns=ORIGIN + 30 * MS), timeline=True))
    assert page.values("data-at") == ["#at-2-1", "#at-2-2"]
    assert [at.name for at in page.having("data-at")] == ["a", "canvas"]
    assert not shown(card(found())).of_class("to-timeline")


def test_title_has_rule_ranks_and_op_link() -> None:
    one = found(cause="late", by="aten::mm", rank=1, ranks=(0, 1, 3))
    page = shown(card(one, several=True, ops={"aten::mm": "op-0-2"}))
    assert text_of(page, "apart") == ["also of 0, 3", "scheduler-gap"]
    assert [at.attributes["href"] for at in page.named("a") if at.text == "aten::mm"] == ["#op-0-2"]
    assert page.texts_of("rank") == ["rank 1", "also of 0, 3", "rank 1"]
    alone = shown(card(replace(one, rank=None, ranks=()), ops={}))
    assert text_of(alone, "apart") == ["scheduler-gap"]
    assert not alone.of_class("rank")
    assert "aten::mm" not in alone.texts("a")


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
def test_one_change_for_several(findings: tuple[int, ...], saved_ms: int | None, said: str | None) -> None:
    saved = None if saved_ms is None else replace(samples.saving(), step_ns=saved_ms * MS)
    faults = (
        Fault("F1", "other", None, Severity.LOW, (7, 8)),
        Fault("F2", "scheduler-gap", saved, Severity.HIGH, findings),
    )
    page = shown(card(found(fault="F2"), trace=samples.trace(faults=faults)))
    assert page.texts_of("fault") == ([said] if said else [])
    paths = [path for path in page.values("data-path") if "faults" in path]
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
    page = shown(card(found(evidence={"lines": {"train.py(3): step": 2}})))
    assert text_of(page, "line") == ["in train.py(3): step (file, first line)"]
    other = shown(card(found(by="train.py(9): fit")))
    assert text_of(other, "line") == ["in train.py(9): fit (file, first line)"]
    assert not shown(card(found(by="aten::mm", evidence={}))).of_class("line")


def test_a_saving_is_told_beside_its_own_trace_s_step() -> None:
    """Of the second trace; the step is in the JSON below that."""
    one = replace(found(), saving=samples.saving())
    of_second = card(one, trace=samples.trace(step=samples.estimate()), trace_index=1)
    page = parsed(f"<p>{saving(of_second)}</p>".encode())
    assert "diagnose#/traces/1/step/unprofiled_ns" in page.values("data-path")
    unknown = parsed(f"<p>{saving(card(one))}</p>".encode())
    assert unknown.elements[0].text.startswith("saves 9.00 ms of the time of a step: 50.0 %")


def page_of(findings: Sequence[Finding], *, ranks: int = 1, **changes: Any) -> Parsed:
    traces = tuple(samples.trace(rank if ranks > 1 else None) for rank in range(ranks))
    report = replace(samples.report(), **{"traces": traces, "findings": tuple(findings), **changes})
    given: Any = SimpleNamespace(
        report=report,
        traces=[SimpleNamespace(ops=None, timeline=object() if at else None) for at in range(ranks)],
        explained={"scheduler-gap": "It waits."},
        confidential=False,
        anchor=lambda at: f"trace-{at}",
    )
    return parsed(f"<main>{cards(given)}</main>".encode())


def test_cards_are_ordered_fix_then_worth_then_small() -> None:
    high, info = found(), found(severity=Severity.INFO, cost_share=0.2)
    small = replace(info, cost_ns=1, cost_share=0.001)
    page = page_of([high, small, info, replace(high, severity=Severity.LOW)])
    assert page.texts_of("known") == [
        "Worth knowing: no certain gain",
        "About the recording, too small to act on, or of low confidence",
    ]
    assert [one.attributes["value"] for one in page.having("value") if one.name == "li"] == list("1432")
    assert len(page.of_class("explain")) == 1  # at the first of them
    none = page_of([info])
    assert none.texts_of("nothing") == ["Nothing found that is worth fixing."]
    assert not page.of_class("nothing")


def test_findings_beyond_40_are_lines_beyond_160_in_json() -> None:
    page = page_of([found(title="It waits")] * 161)
    assert len(page.of_class("card")) == 40
    rows = [one for one in page.named("tr") if "id" in one.attributes]
    assert [rows[0].attributes["id"], rows[-1].attributes["id"]] == ["finding-41", "finding-160"]
    assert rows[0].text.startswith("41 It waits scheduler-gapmediumThe GPU waits 1 times")
    assert page.texts_of("note") == ["1 more are in the JSON of diagnose."]
    assert not page_of([found()] * 160).of_class("note")
    assert not page_of([found()] * 40).of_class("lines")


def test_of_several_ranks_cards_say_whose_they_are() -> None:
    one, two = found(rank=0), found(rank=1, ranks=(0, 1), severity=Severity.INFO)
    page = page_of([one, two, replace(two, ranks=(1,))], ranks=2)
    items = [at.attributes for at in page.having("value") if at.name == "li"]
    assert [at["data-ranks"] for at in items] == ["0", "0 1", "1"]
    assert ["data-job" in at for at in items] == [True, True, False]
    assert len(page.of_class("to-timeline")) == 2  # the first rank has none
    anchors = [at.attributes["href"] for at in page.named("a") if at.text.startswith("rank ")]
    assert anchors == ["#trace-0", "#trace-1", "#trace-1"]
    lines = page_of([replace(one, title="It waits")] * 41, ranks=2)
    (line,) = [at.text for at in lines.elements if at.attributes.get("id") == "finding-41"]
    assert line.startswith("41 It waits scheduler-gapmediumrank 0")


def test_where_no_rule_could_look_it_is_said_how_many() -> None:
    outcomes = (
        Outcome("a", Status.CLEAR),
        Outcome("b", Status.NOT_APPLICABLE, "no kernels"),
        Outcome("c", Status.NOT_APPLICABLE, "no kernels"),
    )
    page = page_of([], traces=(samples.trace(accounting=()),), outcomes=outcomes)
    assert page.texts_of("nothing") == ["2 of 3 rules had nothing to look at."]


def test_no_page_of_a_rule_shows_backticks() -> None:
    assert [rule.slug for rule in all_rules() if "`" in str(explained(rule.page))] == []


def test_advice_shows_its_code_as_code() -> None:
    text = "Call torch.compile(model) before step 5, with fused=True, or write aten::mm.out; see zero.grad (no call)."
    page = parsed(str(coded("diagnose#/findings/0/advice", text)).encode())
    assert page.texts("code") == ["torch.compile(model)", "fused=True", "aten::mm.out", "zero.grad"]
    assert page.elements[0].text.replace("\xa0", " ") == text
    assert page.elements[0].attributes == {"data-path": "diagnose#/findings/0/advice", "data-unit": "text"}
    assert coded("a", "Nothing to write.") == '<span data-path="a" data-unit="text">Nothing to write.</span>'


def test_what_stands_between_backticks_is_code() -> None:
    made = str(explained("`a` and `b < c`, no more"))
    assert made == '<div class="explained drawn"><code>a</code> and <code>b &lt; c</code>, no more</div>'


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("percent", 0.4567, "46"),
        ("percent", 0.999, "99"),  # no fix saves all of a step
        ("percent", 1.0, "99"),
        ("percent", -0.2, "0"),
        ("count", 1_234_567, "1,234,567"),
        ("number", 3, "3"),
        ("number", 1_234, "1234"),
        ("number", 1_234.5, "1,234"),
        ("rate", 9.94, "9.9"),
        ("rate", 10.0, "10"),
        ("rate", 12_345.6, "12,346"),
        ("offset", 12_345_678, "12.346 ms"),
        ("ns", 1_500, "1.50 µs"),
        ("bytes", 1_536, "1.50 KiB"),
        ("share", 0.125, "12.5 %"),
        ("text", "a\x1bb", "a\\x1bb"),
    ],
)
def test_numbers_are_written_by_their_unit(unit: str, value: Any, text: str) -> None:
    assert UNITS[unit](value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(99.94, "99.9"), (100.4, "100"), (-1_234.0, "-1,234"), (-99.94, "-99.9"), (0.0, "0")]
)
def test_number_has_three_digits_and_all_before_the_point(value: float, text: str) -> None:
    assert rounded(value) == text


def test_zero_or_empty_attributes_and_children_are_written() -> None:
    assert tag("li", 0, value=0) == '<li value="0">0</li>'
    assert tag("option", "", value="") == '<option value=""></option>'
    assert tag("p", None, hidden=False, title=None) == "<p></p>"
    assert tag("button", data_path="a", aria_label="b", class_="c", for_="d") == (
        '<button data-path="a" aria-label="b" class="c" for="d"></button>'
    )
    assert tag("line", y1=2) == '<line y1="2"/>'
    assert tag("rect", tag("title", "t")) == "<rect><title>t</title></rect>"  # it has something in it
    assert tag("meta", name_="x") == '<meta name="x">'


def test_markup_is_escaped_once_and_long_texts_are_cut() -> None:
    assert together([Html("<b>"), None, "<", 0]) == "<b>&lt;0"
    assert escaped(Html("<" * 5_000)) == "<" * 5_000
    assert len(escaped("a" * 5_000)) == 1_600


def test_places_in_a_document_follow_the_rfc() -> None:
    assert pointer("diagnose", "findings", 0, "by/op", "a~b") == "diagnose#/findings/0/by~1op/a~0b"
    assert pointer("ops-1", "~1") == "ops-1#/~01"


def test_quoted_values_say_where_they_stand_exactly() -> None:
    assert number("d#/a", 1_500, "ns") == ('<data value="1500" data-path="d#/a" data-unit="ns">1.50 µs</data>')
    assert quoted("d#/a", "a/b", "code", class_="x") == (
        '<code data-path="d#/a" data-unit="text" class="x">a/<wbr>b</code>'
    )
    assert quoted("d#/a", "a/b") == '<span data-path="d#/a" data-unit="text">a/b</span>'
    assert prose("d#/a", "takes 12 ms") == '<span data-path="d#/a" data-unit="text">takes 12\xa0ms</span>'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at::native::mm", "at::<wbr>native::<wbr>mm"),
        ("/home/me/train_step.py", "/<wbr>home/<wbr>me/<wbr>train_<wbr>step.py"),
        ("a<b_&_/", "a&lt;b_&amp;_/"),  # nothing begins after these
    ],
)
def test_lines_end_after_the_parts_of_a_name(text: str, shown: str) -> None:
    assert breakable(text) == shown
    assert code(text, title="t") == f'<code title="t">{shown}</code>'


def test_data_of_scripts_is_the_value() -> None:
    value = {"a&b": ["<", ">", "\u2028", "\u2029", 1.5, None]}
    (block,) = parsed(str(packed("more", value)).encode()).elements
    assert block.attributes == {"type": "text/plain", "id": "more"}
    assert json.loads(zlib.decompress(base64.b64decode(block.text))) == value
