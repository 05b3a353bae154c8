"""Remedies as code: only what is code is offered to be copied."""

from __future__ import annotations

import pytest

from tests.html.pages import page, parsed, rendered
from tests.support.fixtures import FIXTURES
from traceanalyzer.render.html.cards import code_in, coded, copied, example, explained
from traceanalyzer.render.html.markup import Html
from traceanalyzer.rule.registry import all_rules


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
    ("side", "lines"),
    [
        ("x = 3", ("x = 3",)),
        ("x[0]", ("x[0]",)),
        ("x", ()),
        ("with a:", ("with a:",)),
        ("for x in f(y):", ("for x in f(y):",)),
        ("f(a; b), g[1, 2]; {h(1): 2, h(3): 4}", ("g[1, 2]", "{h(1): 2, h(3): 4}")),
        ("and f(x)", ("f(x)",)),
        ("order(x)", ("order(x)",)),
        ("f(\0)", ()),
    ],
)
def test_lines_of_code_do_something(side: str, lines: tuple[str, ...]) -> None:
    assert code_in(side) == lines


def test_what_has_no_text_to_copy_has_no_button() -> None:
    assert "button" not in copied("label", Html("x"), None)
    assert "button" not in copied("label", Html("x"), "")
