"""Whatever names a trace holds, the page shows them as text: no markup, no scripts, no invisible characters."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.html.pages import NASTY, Parsed, hostile_trace, parsed
from tests.report import report_samples as samples
from tests.support.hypothesis_profiles import examples
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Finding
from traceanalyzer.render.html.document import render_html
from traceanalyzer.render.html.event_bars import Bar
from traceanalyzer.render.html.markup import Html, escaped, json_block, said, tag
from traceanalyzer.render.html.page_data import Inputs, OpRow, OpTable, Page, TracePage, page_of
from traceanalyzer.render.html.plot_data import KernelSpread, MemoryCurve, Owner
from traceanalyzer.render.html.strip_data import Earlier, Lane, Strip
from traceanalyzer.render.html.summary import MOST_BYTES, summary_svg
from traceanalyzer.report.diagnosis import report_of
from traceanalyzer.report.facts import Fact
from traceanalyzer.report.time_tree import Node

names = st.one_of(
    st.sampled_from(NASTY),
    st.text(max_size=60),
    st.sampled_from(NASTY).flatmap(lambda nasty: st.text(max_size=10).map(lambda more: more + nasty + more)),
)


def page_with(name: str) -> Page:
    """The same text wherever a page shows one."""
    strip = Strip(
        0,
        1_000,
        100,
        900,
        (Lane("thread", 1, 1, (Bar(1, name, "op", 0, 1_000, 0, True),)),),
        (),
        1,
        1,
        name,
        Earlier(5, name),
    )
    found: Finding = samples.finding(0)
    found = replace(
        found, cause=name, by=name, message=name, advice=name, evidence={name: name, "of": {name: 3}}
    )
    head = samples.trace(
        meta=samples.meta(source=name),
        verdict=name,
        unavailable={"step": name},
        accounting=(samples.accounting(),),
    )
    curve = MemoryCurve(
        0, name, 1 << 30, 5, None, 0, (0, 5), (0, 1 << 30), None, (Owner(name, name, 1, 5),), 1, 3
    )
    inputs = Inputs(0, name, name, 1, 1, 1.0, 1.0, None, None, name)
    trace = TracePage(
        None,
        (Fact("rate", name),),
        Node("all", "all", 10, 1, [Node(name, "op", 10, 1, [])]),
        None,
        (KernelSpread(name, 0, 2, 2, 1, 1.0, 1.0, 1.0, 1.0),),
        (curve,),
        OpTable((OpRow(name, 1, 1, 0.5, (inputs,), 0),), 0, 0, (name,)),
    )
    report = samples.report(head, findings=(found,))
    return Page(report, (trace,), (strip,))


PLAIN = parsed(render_html(page_with("plain")))


def shape(page: Parsed) -> list[tuple[str, tuple[str, ...], frozenset[str]]]:
    """Elements with their parents and the names of their attributes: all but the texts, and what tells their places,
    which long names do not have."""
    place = {"data-path", "data-unit", "value", "class"}
    return [
        (one.name, one.parents, frozenset(one.attributes) - place)
        for one in page.elements
        if one.name != "wbr"  # stands after the parts of a path
        and (one.name, *one.parents[-1:]) != ("code", "span")  # what reads like code in advice
    ]


SHAPE = shape(PLAIN)


@examples(60)
@given(names)
def test_names_change_texts_alone(name: str) -> None:
    html = render_html(page_with(name))
    made = parsed(html)
    if not name:
        return  # what is empty is left out
    assert shape(made) == SHAPE
    scripts = [one for one in made.elements if one.name == "script"]
    assert [one.attributes.get("type") for one in scripts] == ["application/json", "text/plain", None]
    assert json.loads(scripts[0].text)["flames"][0]["root"][2] == 10
    text = html.decode()
    assert all(character.isprintable() or character in "\n\xa0" for character in text)
    assert len(html) < 400_000


@given(names)
def test_the_svg_is_small_and_safe(name: str) -> None:
    report = page_with(name).report
    crowd = replace(report, findings=report.findings * 50, traces=report.traces * 16)
    svg = summary_svg(crowd)
    assert len(svg.encode()) <= MOST_BYTES
    made = parsed(svg.encode())
    assert {one.name for one in made.elements} <= {"svg", "rect", "text", "title"}
    assert not any(key.startswith("on") for one in made.elements for key in one.attributes)


@pytest.mark.parametrize("name", NASTY[:5])
def test_json_in_the_page_is_data(name: str) -> None:
    block = json_block("data", {"names": [name], name: 1})
    inner = block.partition(">")[2].rpartition("<")[0]
    assert not set("<>&\u2028\u2029") & set(inner)
    assert json.loads(inner)["names"] == [name]


def test_markup_is_written_once() -> None:
    assert tag("p", "a < b", None, Html("<b>c</b>"), class_="x&y", hidden=True, title=None) == (
        '<p class="x&amp;y" hidden>a &lt; b<b>c</b></p>'
    )
    assert escaped('"') == "&quot;"
    assert tag("br") == "<br>"
    assert tag("rect", x=1) == '<rect x="1"/>'
    assert said("a\u202eb") == r"a\u202eb"
    assert len(said("x" * 100_000)) == 400


def test_a_real_trace_with_such_names(tmp_path: object) -> None:
    """From the file's bytes to the page, through all that runs between."""
    made = hostile_trace()
    analysis = Analysis(made.load())
    analyses = [(None, analysis)]
    html = render_html(page_of(report_of(analyses), analyses))
    parsed(html)
    assert b"<script>alert" not in html
    assert b"&lt;script&gt;alert(1)" in html
