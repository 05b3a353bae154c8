"""What a page shows of hostile or confidential names, and whose numbers it has."""

import base64
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.html.pages import NASTY, Parsed, documents, hostile_trace, page, page_of_job, parsed, quotes, rendered, wrong
from tests.report import report_samples as samples
from tests.support.cached_reports import analysed, loaded
from tests.support.fixtures import FIXTURES, name_of
from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import TraceBuilder
from tests.support.trace_selection import ALL
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.device_times import IdleCause
from traceanalyzer.model.finding import Finding
from traceanalyzer.model.report import Verdict
from traceanalyzer.model.trace import Trace
from traceanalyzer.render.html.document import render_html
from traceanalyzer.render.html.markup import Html, escaped, rounded, said, tag
from traceanalyzer.render.html.page_data import Inputs, OpRow, OpTable, Page, TracePage, page_of
from traceanalyzer.render.html.plot_data import KernelRow, KernelSpread, KernelTable, MemoryCurve, Owner
from traceanalyzer.render.html.redaction import FILE, LINE, MARK, NO_REDACTION, PATH, redactor_of
from traceanalyzer.render.html.region_data import Region, RegionRow, RegionView
from traceanalyzer.render.html.summary import MOST_BYTES, summary_svg
from traceanalyzer.report.diagnosis import report_of
from traceanalyzer.report.facts import Fact

names = st.one_of(
    st.sampled_from(NASTY),
    st.text(max_size=60),
    st.sampled_from(NASTY).flatmap(lambda nasty: st.text(max_size=10).map(lambda more: more + nasty + more)),
)


def page_with(name: str) -> Page:
    """The same text wherever a page shows one."""
    found: Finding = samples.finding(0)
    evidence = {name: name, "of": {name: 3}}
    found = replace(found, cause=name, by=name, message=name, advice=name, evidence=evidence)
    head = samples.trace(
        meta=samples.meta(source=name), verdict=name, unavailable={"step": name}, accounting=(samples.accounting(),)
    )
    owners = (Owner(name, name, 1, 5),)
    curve = MemoryCurve(0, name, 1 << 30, 5, None, 0, (0, 5), (0, 1 << 30), None, owners, 1, 3)
    inputs = Inputs(0, name, name, 1, 1, 1.0, 1.0, None, None, name)
    region = Region(name, "op", 9, 9, 0, 1.0, 0, 9, ())
    spread = KernelSpread(name, 1.0, 1.0, 1.0, 1.0)
    kernel = KernelRow(name, "gemm", 2, 2, 1.0, True, 50.0, 0.5, spread)
    trace = TracePage(
        None,
        (Fact("rate", name),),
        RegionView(region, (RegionRow(name, 0, 1.0, 0.5, 2, 1, 2, 1, 0),), 10, replayed=True),
        None,
        KernelTable((kernel,), kernel, 0.5, 0),
        (curve,),
        OpTable((OpRow(name, 1, 1, 0.5, (inputs,)),), 0, 0, (name,)),
    )
    report = samples.report(head, findings=(found,))
    return Page(report, (trace,))


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
    scripts = made.named("script")
    assert [one.attributes.get("type") for one in scripts] == ["text/plain", None]
    assert json.loads(zlib.decompress(base64.b64decode(scripts[0].text)))[0]["root"][2] == 9
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


SOME = [
    FIXTURES / name / "bad.json.gz"
    for name in ("host-gap", "implicit-sync", "dataloader-stall", "unfused-optimizer", "compile")
]


def secrets(trace: Trace) -> set[str]:
    """What must not be on the page: annotations, frames of python, the file's name."""
    annotations = ["user_annotation", "gpu_user_annotation"]
    marks: set[str] = set()
    for frame in (trace.cpu, trace.gpu):
        marks |= {str(name) for name in frame.loc[frame["category"].isin(annotations), "name"].unique()}
    frames = {str(name) for name in trace.python["name"].cat.categories} if len(trace.python) else set()
    frames |= {name.partition("(")[0] for name in frames if ".py(" in name}
    return {name for name in marks | frames | {trace.meta.source} if len(name) > 3}


def leaks(html: str, names: set[str]) -> list[str]:
    there = (name for name in names if name in html)
    return sorted(name for name in there if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", html))


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.parent.name)
def test_nothing_leaks(path: Path) -> None:
    open_, redacted = rendered(path).decode(), rendered(path, True).decode()
    names = secrets(loaded(path))
    assert leaks(open_, names)
    assert leaks(redacted, names) == []
    assert ".py" not in redacted
    assert "traceanalyzer open TRACE --finding 1" in redacted


def test_numbers_stay() -> None:
    number = rb'<data value="([^"]+)" data-path="diagnose#/findings'
    values = [re.findall(number, rendered(SOME[0], confidential)) for confidential in (False, True)]
    assert values[0] == values[1] != []


def private_trace() -> TraceBuilder:
    made = TraceBuilder(with_stack=1, host_name="cluster-17")
    made.python("/home/ann/secret_project/train.py(12): fit", 0, 40_000_000, python_id=1)
    made.python("nn.Module: SecretNet_0", 0, 39_000_000, python_id=2, parent=1)
    for step in range(4):
        begin = step * 10_000_000
        made.step(step, begin, 10_000_000)
        made.annotation("17", begin + 9_200_000, 100_000)
        made.annotation("secret phase", begin + 10_000, 9_000_000)
        stack = "/home/ann/secret_project/net.py(3): forward"
        made.op("aten::mm", begin + 100_000, 50_000, **{"Call stack": stack})
        made.launched((begin + 110_000, 10_000), (begin + 150_000, 1_000_000), step + 1, name="gemm")
        made.gpu_annotation("secret phase", begin + 150_000, 1_000_000, external_id=9)
    return made


def test_modules_hosts_and_paths_are_left_out() -> None:
    analysis = Analysis(private_trace().load())
    analyses = [(None, analysis)]
    report = report_of(analyses)
    shown = render_html(page_of(report, analyses)).decode()
    html = render_html(page_of(report, analyses, confidential=True)).decode()
    assert "secret phase" in shown
    for name in ("secret", "Secret", "cluster-17", "/home", "ann", "train.py", "built.json"):
        assert not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", html), name


def frames_of(region: Region) -> list[str]:
    return [region.name, *(name for one in region.inside for name in frames_of(one))]


def test_drawings_are_veiled_only_on_request() -> None:
    """The GPU waits for an op of the phase, too."""
    made = private_trace()
    made.annotation("secret phase", 41_000_000, 6_000_000)
    made.op("aten::slow", 41_100_000, 5_000_000)
    made.launched((46_000_000, 10_000), (46_050_000, 1_000_000), 99)
    analyses = [(None, Analysis(made.load()))]
    report = report_of(analyses)
    for confidential in (False, True):
        shown = page_of(report, analyses, confidential=confidential)
        (trace,) = shown.traces
        assert trace.flame is not None
        names = [*frames_of(trace.flame.root), *(row.name for row in trace.flame.rows)]
        assert any("secret" in name.lower() for name in names) is (not confidential)
        assert trace.timeline is not None
        assert ("annotation" in trace.timeline.kinds) is (not confidential)
        assert {"op", "call", "gemm"} <= set(trace.timeline.kinds)
        lines = {one.line for one in trace.stretches}
        assert any(line is not None and "secret_project" in line for line in lines) is (not confidential)


def test_texts_are_veiled_whatever_names_them() -> None:
    redactor = redactor_of([private_trace().load()])
    assert redactor.text("in secret phase, 3 times") == f"in {MARK}, 3 times"
    assert redactor.text("at /home/ann/secret_project/train.py(12): fit") == f"at {LINE}"
    assert redactor.text("at models/other.py(3): run, often") == f"at {LINE}, often"
    assert redactor.text("read /data/set/one.bin at once") == f"read {PATH} at once"
    assert redactor.text("804 TFLOP/s and 12 GB/s; n/a") == "804 TFLOP/s and 12 GB/s; n/a"
    assert redactor.text("of nn.Module: Linear_3 there") == f"of {LINE} there"
    assert redactor.value({"line": "a/b.py(1): f", "n": 3, "all": ["secret phase"]}) == {
        "line": LINE,
        "n": 3,
        "all": [MARK],
    }
    assert redactor.text("17 times, 0.5 ms") == "17 times, 0.5 ms"
    assert NO_REDACTION.text("a/b.py(1): f") == "a/b.py(1): f"
    report = report_of([(None, analysed(SOME[0]))])
    assert NO_REDACTION.report(report) is report
    assert page(SOME[0], True).report.traces[0].meta.source == FILE


def test_heads_of_a_report_are_veiled() -> None:
    redactor = redactor_of([private_trace().load()])
    said = "in secret phase"
    head = samples.trace(
        steps=samples.steps(source=said),
        accounting=(samples.accounting(idle_causes=(IdleCause("idle:python", "secret phase", 1),)),),
        unavailable={"steps": said},
        verdict=said,
        summary=Verdict(said, said, said),
    )
    (veiled,) = redactor.report(samples.report(head)).traces
    told = f"in {MARK}"
    assert veiled.steps is not None
    assert (veiled.steps.source, veiled.unavailable, veiled.verdict) == (told, {"steps": told}, told)
    assert veiled.summary == Verdict(told, told, told)
    assert [one.op for one in veiled.accounting[0].idle_causes] == [MARK]
    assert veiled.meta.damage == ()


def test_of_names_that_hold_one_another_nothing_is_left() -> None:
    """The longest first; a name is a whole word, of three characters or more with a letter among them."""
    made = TraceBuilder()
    for number, name in enumerate(("train", "train my_model", "my_model: last", "io", "3.5", "fit")):
        made.annotation(name, 1_000 * number, 500)
    made.gpu_annotation("eval my_model", 0, 500, external_id=1)
    made.kernel(0, 500, 1)
    redactor = redactor_of([made.load()])
    for text, shown in (
        ("in train my_model once", f"in {MARK} once"),
        ("train my_model: last, eval my_model", f"{MARK} {MARK}, {MARK}"),
        ("train and my_model: last", f"{MARK} and {MARK}"),
        ("of trainer, train_step, retrain or (train)", f"of trainer, train_step, retrain or ({MARK})"),
        ("io took 3.5 ms, fit 3", f"io took 3.5 ms, {MARK} 3"),
    ):
        assert redactor.text(text) == shown


PAGES = [
    FIXTURES / name / "bad.json.gz"
    for name in ("implicit-sync", "exposed-copy", "kernel-variance", "allocator-thrash", "host-gap", "compile")
]


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_numbers_are_those_of_the_json(path: Path) -> None:
    said = quotes(parsed(rendered(path)))
    assert len(said) > 50
    assert wrong(said, documents(page(path), [analysed(path)])) == []


def test_a_wrong_number_is_found() -> None:
    """The test of the tests."""
    path = PAGES[0]
    html = rendered(path)
    cost = page(path).report.findings[0].cost_ns
    assert str(cost).encode() in html
    spoilt = quotes(parsed(html.replace(str(cost).encode(), str(cost + 1).encode())))
    assert len(wrong(spoilt, documents(page(path), [analysed(path)]))) >= 1


def test_numbers_of_ranks_are_each_rank_s_own() -> None:
    ranks = {0: loaded(PAGES[0]), 3: loaded(PAGES[1])}
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


@pytest.mark.parametrize("path", PAGES[:2], ids=name_of)
def test_parts_of_the_window_add_up(path: Path) -> None:
    html = parsed(rendered(path))
    parts = [int(value or 0) for where, _, value, _ in quotes(html) if "/parts_ns/" in where]
    trace = page(path).report.traces[0]
    assert sum(parts) == trace.window.length_ns
    assert len(parts) == sum(ns > 0 for ns in trace.accounting[0].parts_ns.values())


QUOTED = ("public/hta_cpu_only", "real/gpt2_train.eager", "public/tracelens_mi210_gpu_only")


@pytest.mark.of_shared(wanted=lambda name: ALL or name in QUOTED)
def test_numbers_of_shared_traces(shared_trace: Path) -> None:
    said = quotes(parsed(rendered(shared_trace)))
    assert wrong(said, documents(page(shared_trace), [analysed(shared_trace)])) == []


def test_evidence_has_names_and_numbers_for_people() -> None:
    trace = FIXTURES / "exposed-copy" / "bad.json.gz"
    found = next(one for one in page(trace).report.findings if one.rule == "exposed-copy")
    exact = found.evidence["gbps"]
    assert len(str(exact)) > 6
    html = parsed(rendered(trace))
    (rate,) = [quote for quote in quotes(html) if quote[0].endswith("/evidence/gbps")]
    assert rate[2:] == (str(exact), rounded(exact))
    cards = " ".join(one.text for one in html.of_class("evidence"))
    assert "GB/s" in cards
    assert not re.search(r"gbps|\d\.\d{4}", cards)


def test_a_function_s_first_line_is_not_called_a_line(shared: Callable[[str], Path]) -> None:
    html = parsed(rendered(shared("real/cnn_lab.eager")))
    lines = [one.text for one in html.of_class("line") if one.name == "li"]
    assert lines
    assert all(text.endswith(" (file, first line)") for text in lines)
