"""Words and numbers of the page that people read without the JSON beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.html.pages import page, parsed, rendered
from tests.support.fixtures import FIXTURES
from traceanalyzer.render.html.markup import rounded
from traceanalyzer.render.html.tables import facts
from traceanalyzer.report.facts import Fact


def test_evidence_has_names_and_numbers_for_people() -> None:
    trace = FIXTURES / "exposed-copy" / "bad.json.gz"
    found = next(one for one in page(trace).report.findings if one.rule == "exposed-copy")
    exact = found.evidence["gbps"]
    assert len(str(exact)) > 6
    html = parsed(rendered(trace))
    (rate,) = [
        one for one in html.having("data-path") if str(one.attributes["data-path"]).endswith("/evidence/gbps")
    ]
    assert rate.text == rounded(exact)
    assert rate.attributes["value"] == str(exact)
    cards = " ".join(one.text for one in html.of_class("evidence"))
    assert "GB/s" in cards
    assert not re.search(r"gbps|\d\.\d{4}", cards)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (9.980652738587796, "9.98"),
        (63.0, "63"),
        (0.87979, "0.88"),
        (1234.5, "1,234"),
        (-0.5, "-0.5"),
        (99.99, "100"),
    ],
)
def test_numbers_have_three_digits(number: float, text: str) -> None:
    assert rounded(number) == text


def test_facts_of_nothing_are_left_out() -> None:
    """The others keep their places in the JSON."""
    texts = ("matmul in float: 0 TFLOP/s, peak unknown", "matmul in half: 10 TFLOP/s, peak unknown")
    drawn = str(facts([Fact("rates", text) for text in texts], 0))
    assert "facts/1/text" in drawn
    assert "facts/0/text" not in drawn


def test_a_function_s_first_line_is_not_called_a_line(shared: Callable[[str], Path]) -> None:
    html = parsed(rendered(shared("real/cnn_lab.eager")))
    lines = [one.text for one in html.of_class("line") if one.name == "p"]
    assert lines
    assert all(text.startswith("Function (file, first line): ") for text in lines)


def test_the_order_of_findings_is_said() -> None:
    (note,) = [
        one.text
        for one in parsed(rendered(FIXTURES / "implicit-sync" / "bad.json.gz")).elements
        if one.name == "p" and one.text.startswith("In the order to fix: ")
    ]
    assert note.startswith("In the order to fix: specific faults")
