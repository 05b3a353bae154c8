"""Cards of findings, and the elements that they are made of."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.html.pages import Parsed, page, parsed, rendered
from tests.report import report_samples as samples
from tests.report.report_samples import MS, ORIGIN
from tests.support.fixtures import FIXTURES
from traceanalyzer.model.finding import Finding, Outcome, Severity, Status
from traceanalyzer.model.report import Fault
from traceanalyzer.render.html.cards import Card, card_of, cards, code_in, coded, example, explained, saving
from traceanalyzer.render.html.markup import (
    UNITS,
    Html,
    breakable,
    code,
    escaped,
    json_block,
    number,
    packed,
    pointer,
    prose,
    quoted,
    rounded,
    tag,
    together,
)
from traceanalyzer.render.html.strip_data import Earlier, Strip
from traceanalyzer.rule.registry import all_rules

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


def test_title_has_rule_ranks_and_op_link() -> None:
    one = found(cause="late", by="aten::mm", rank=1, ranks=(0, 1, 3))
    page = shown(card(one, several=True, ops={"aten::mm": "op-0-2"}))
    assert text_of(page, "apart") == ["scheduler-gap", "aten::mm", "also of 0, 3"]
    assert [at.attributes["href"] for at in page.elements if at.text == "aten::mm" and at.name == "a"] == [
        "#op-0-2"
    ]
    assert [at.text for at in page.of_class("rank")] == ["rank 1", "also of 0, 3"]
    alone = shown(card(replace(one, rank=None, ranks=()), ops={}))
    assert text_of(alone, "apart") == ["scheduler-gap"]
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
    assert heads == [
        "Worth knowing: no certain gain",
        "Too small to act on, of low confidence, or profiler overhead",
    ]
    assert [
        one.attributes["value"] for one in page.elements if one.name == "li" and "value" in one.attributes
    ] == ["1", "4", "3", "2"]
    assert len(page.of_class("explain")) == 1  # at the first of them
    none = page_of([info])
    assert [one.text for one in none.of_class("nothing")] == ["Nothing found that is worth fixing."]
    assert not page.of_class("nothing")


def test_findings_beyond_40_are_lines_beyond_160_in_json() -> None:
    page = page_of([found(title="It waits")] * 161)
    assert len(page.of_class("card")) == 40
    rows = [one for one in page.elements if one.name == "tr" and "id" in one.attributes]
    assert [rows[0].attributes["id"], rows[-1].attributes["id"]] == ["finding-41", "finding-160"]
    assert rows[0].text.startswith("41 It waits scheduler-gapmediumThe GPU waits 1 times")
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
    assert [one.text for one in page.of_class("nothing")] == ["2 of 3 rules had nothing to look at."]


@pytest.mark.parametrize(
    ("side", "lines"),
    [
        ("`loss.item()` in every step; `x[x > 0]`.", ("loss.item()", "x[x > 0]")),
        ("add up on the device and read every 100 steps; `torch.where`", ()),
        ("AdamW(params, fused=True)", ("AdamW(params, fused=True)",)),
        ("(a + b).backward(), or grad(u, (x, y))", ("(a + b).backward()", "grad(u, (x, y))")),
        ("model.to(x, y), and the same for its\ninput images", ("model.to(x, y)",)),
        ("`with model.no_sync():` around all but the last", ("with model.no_sync():",)),
        ("F.rms_norm, F.gelu, or the function under torch.compile", ()),
        ("the same in a CUDA graph, fused by torch.compile, or a larger batch", ()),
        ("off; or torch.fill = False where results must repeat", ()),
        ("x = 3", ("x = 3",)),
        ("x[0]", ("x[0]",)),
        ("x", ()),
        ("for x in f(y):", ("for x in f(y):",)),
        ("f(a; b), g[1, 2]; {h(1): 2, h(3): 4}", ("g[1, 2]", "{h(1): 2, h(3): 4}")),
        ("and f(x)", ("f(x)",)),
        ("order(x)", ("order(x)",)),
        ("f(\0)", ()),
    ],
)
def test_code_is_told_from_prose(side: str, lines: tuple[str, ...]) -> None:
    assert code_in(side) == lines


def test_no_page_of_a_rule_shows_backticks() -> None:
    """Neither in the example nor in what `explain` says."""
    drawn = [(rule.slug, str(example(rule.page) or ""), str(explained(rule.page))) for rule in all_rules()]
    assert [slug for slug, box, page in drawn if "`" in box + page] == []
    boxes = {slug: box for slug, box, _ in drawn if box}
    assert "implicit-sync" not in boxes
    assert len(boxes) > 10


def test_what_to_write_is_copied_and_what_not_to_write_is_not() -> None:
    trace = FIXTURES / "unfused-optimizer" / "bad.json.gz"
    assert any(found.rule == "unfused-optimizer" for found in page(trace).report.findings)
    copies = [one.attributes["data-copy"] for one in parsed(rendered(trace)).having("data-copy")]
    assert "AdamW(params, fused=True)" in copies
    assert "AdamW(params, foreach=False)" not in copies


def test_advice_shows_its_code_as_code() -> None:
    text = "Call torch.compile(model) before step 5, with fused=True, or write aten::mm.out; see zero.grad (no call)."
    shown = coded("diagnose#/findings/0/advice", text)
    page = parsed(str(shown).encode())
    assert [one.text for one in page.elements if one.name == "code"] == [
        "torch.compile(model)",
        "fused=True",
        "aten::mm.out",
        "zero.grad",
    ]
    assert page.elements[0].text.replace("\xa0", " ") == text
    assert page.elements[0].attributes == {"data-path": "diagnose#/findings/0/advice", "data-unit": "text"}
    assert coded("a", "Nothing to write.") == '<span data-path="a" data-unit="text">Nothing to write.</span>'


def test_what_stands_between_backticks_is_code() -> None:
    assert explained("`a` and `b < c`, no more") == (
        '<div class="explained drawn"><code>a</code> and <code>b &lt; c</code>, no more</div>'
    )


@pytest.mark.parametrize(
    ("page_of_rule", "rows"),
    [
        (
            "Text.\nBad: `f(x)`, then `g(x)`. Good: `h(x)`; `k(x)`.\n\nMore text.",
            [("In general: instead of", "f(x)", 0), ("", "g(x)", 0), ("write", "h(x)", 1), ("", "k(x)", 1)],
        ),
        (
            "Bad: a loop. Good: f(x, [1, 2]),\nor g(y).\nMore.",
            [("In general: write", "f(x, [1, 2])", 1), ("", "g(y)", 1)],
        ),
        ("Bad: `f(x)` Good: think first.\n", None),
        ("No example.", None),
    ],
)
def test_the_example_offers_what_is_good_to_be_copied(
    page_of_rule: str, rows: list[tuple[str, str, int]] | None
) -> None:
    drawn = example(page_of_rule)
    if rows is None:
        assert drawn is None
        return
    page = parsed(str(drawn).encode())
    labels = [one.text for one in page.of_class("label")]
    lines = [one.text for one in page.elements if one.name == "code"]
    assert list(zip(labels, lines, strict=True)) == [row[:2] for row in rows]
    buttons = [
        (one.attributes["data-copy"], one.attributes["aria-label"]) for one in page.having("data-copy")
    ]
    assert buttons == [(line, f"Copy: {label or line}") for label, line, copies in rows if copies]


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
    assert number("d#/a", 1_500, "ns") == (
        '<data value="1500" data-path="d#/a" data-unit="ns">1.50 µs</data>'
    )
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
    (block,) = parsed(str(json_block("data", value)).encode()).elements
    assert block.attributes == {"type": "application/json", "id": "data"}
    assert not set("<>&\u2028\u2029") & set(block.text)
    assert json.loads(block.text) == value
    (block,) = parsed(str(packed("more", value)).encode()).elements
    assert block.attributes == {"type": "text/plain", "id": "more"}
    assert json.loads(zlib.decompress(base64.b64decode(block.text))) == value
