"""Evidence whose name alone does not say its unit, and parts of sums."""

from __future__ import annotations

from dataclasses import replace

from tests.html.test_parts import card, rows_of, shown
from tests.report import report_samples as samples
from traceanalyzer.render.html.evidence import evidence, linked

ENGINE = "autograd::engine::evaluate_function: MmBackward0"


def test_what_has_words_of_its_own_keeps_its_unit() -> None:
    assert rows_of({"gpu_ns": 2_500, "gbps": 12.34, "sms": 132, "late": 3, "own_ns": 1_000}) == {
        "GPU time": "2.50 µs",
        "GB/s": "12.3",
        "multiprocessors": "132",
        "comes last": "3",
        "its own work": "1.00 µs",
    }


def test_mappings_of_texts_are_left_to_the_json() -> None:
    assert rows_of({"mixed": {"a": 1, "b": "x"}, "one": 1}) == {"one": "1"}


def test_shares_of_parts_are_of_their_sum_and_exact() -> None:
    found = replace(
        samples.findings()[0], evidence={"by": "x", "by_op": {"a": 1.0, "b": 3.0}, "zero": {"c": 0}}
    )
    page = shown(evidence(card(found)))
    assert [one.text for one in page.elements if one.name == "li"] == ["b 75.0 %", "a 25.0 %", "c 0 %"]
    assert [one.attributes["value"] for one in page.elements if one.name == "data"] == ["3.0", "1.0", "0"]


def test_an_op_leads_to_its_row_by_its_whole_name() -> None:
    found = samples.findings()[0]
    assert str(linked(card(found, **{ENGINE: "op-1"}), ENGINE)).startswith('<a href="#op-1"><code>')
    assert "href" not in str(linked(card(found, MmBackward0="op-1"), ENGINE))
