"""Every number of a page is the JSON's, what adds up on it adds up, and it has words for people."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.html.pages import documents, page, page_of_job, parsed, quotes, rendered, wrong
from tests.support.cached_reports import analysed, loaded
from tests.support.fixtures import FIXTURES, name_of
from tests.support.trace_builder import TraceBuilder
from tests.support.trace_selection import ALL
from traceanalyzer.render.html.document import render_html
from traceanalyzer.render.html.markup import rounded

SOME = [
    FIXTURES / name / "bad.json.gz"
    for name in (
        "implicit-sync",
        "exposed-copy",
        "kernel-variance",
        "allocator-thrash",
        "host-gap",
        "compile",
    )
]


@pytest.mark.parametrize("path", SOME, ids=name_of)
def test_numbers_are_those_of_the_json(path: Path) -> None:
    said = quotes(parsed(rendered(path)))
    assert len(said) > 50
    assert wrong(said, documents(page(path), [analysed(path)])) == []


def test_a_wrong_number_is_found() -> None:
    """The test of the tests."""
    path = SOME[0]
    html = rendered(path)
    cost = page(path).report.findings[0].cost_ns
    assert str(cost).encode() in html
    spoilt = quotes(parsed(html.replace(str(cost).encode(), str(cost + 1).encode())))
    assert len(wrong(spoilt, documents(page(path), [analysed(path)]))) >= 1


def test_numbers_of_ranks_are_each_rank_s_own() -> None:
    ranks = {0: loaded(SOME[0]), 3: loaded(SOME[1])}
    made, analyses = page_of_job(ranks)
    said = quotes(parsed(render_html(made)))
    assert wrong(said, documents(made, [one for _, one in analyses])) == []
    assert {path.partition("#")[0] for path, *_ in said} >= {"ops-0", "ops-1", "facts-0", "facts-1"}


def test_numbers_of_devices_are_each_device_s_own() -> None:
    """Of two ranks with two devices each, which are busy for four different times."""
    ranks = {}
    for rank in (0, 1):
        trace = TraceBuilder()
        trace.step(0, 0, 1_000_000)
        for device in (0, 1):
            trace.kernel(100_000, 100_000 * (1 + 2 * rank + device), 1 + device, device=device)
        ranks[rank] = trace.load()
    made, analyses = page_of_job(ranks)
    said = quotes(parsed(render_html(made)))
    assert wrong(said, documents(made, [one for _, one in analyses])) == []
    parts = [(path, value) for path, _, value, _ in said if "/parts_ns/compute" in path]
    assert [value for _, value in parts] == ["100000", "200000", "300000", "400000"]


@pytest.mark.parametrize("path", SOME[:2], ids=name_of)
def test_parts_of_the_window_add_up(path: Path) -> None:
    html = parsed(rendered(path))
    parts = [int(value or 0) for where, _, value, _ in quotes(html) if "/parts_ns/" in where]
    trace = page(path).report.traces[0]
    assert sum(parts) == trace.window.length_ns
    assert len(parts) == sum(ns > 0 for ns in trace.accounting[0].parts_ns.values())


@pytest.mark.of_shared(
    wanted=lambda name: (
        ALL or name in ("public/hta_cpu_only", "real/gpt2_train.eager", "public/tracelens_mi210_gpu_only")
    )
)
def test_numbers_of_shared_traces(shared_trace: Path) -> None:
    said = quotes(parsed(rendered(shared_trace)))
    assert wrong(said, documents(page(shared_trace), [analysed(shared_trace)])) == []


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
