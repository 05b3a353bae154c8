"""A confidential page names neither files nor lines of python nor annotations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.html.pages import page, rendered
from tests.report import report_samples as samples
from tests.support.cached_reports import analysed, loaded
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.report import IdleCause, Verdict
from traceanalyzer.model.trace import Trace
from traceanalyzer.render.html.document import render_html
from traceanalyzer.render.html.page_data import page_of
from traceanalyzer.render.html.redaction import FILE, LINE, MARK, NO_REDACTION, PATH, redactor_of
from traceanalyzer.report.diagnosis import report_of
from traceanalyzer.report.time_tree import Node

SOME = [
    FIXTURES / name / "bad.json.gz"
    for name in ("host-gap", "implicit-sync", "dataloader-stall", "unfused-optimizer", "compile")
]


def secrets(trace: Trace) -> set[str]:
    """What must not be on the page: annotations, frames of python, the file's name."""
    marks = {
        str(name)
        for frame in (trace.cpu, trace.gpu)
        for name in frame.loc[
            frame["category"].isin(["user_annotation", "gpu_user_annotation"]), "name"
        ].unique()
    }
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
    assert "traceanalyzer diagnose TRACE --window" in redacted


def test_numbers_stay() -> None:
    path = SOME[0]
    values = [
        re.findall(r'<data value="([^"]+)" data-path="diagnose#/findings', rendered(path, c).decode())
        for c in (False, True)
    ]
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
        made.op(
            "aten::mm",
            begin + 100_000,
            50_000,
            **{"Call stack": "/home/ann/secret_project/net.py(3): forward"},
        )
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
    assert "SecretNet" in shown
    for name in ("secret", "Secret", "cluster-17", "/home", "ann", "train.py", "built.json"):
        assert not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", html), name
    assert "[module]" in html


def frames_of(node: Node | None) -> list[str]:
    return [] if node is None else [node.name, *(name for one in node.inside for name in frames_of(one))]


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
        for flame in (trace.flame, trace.cpu_flame, trace.idle_flame):
            names = frames_of(flame)
            assert len(names) > 1
            assert any("secret" in name.lower() for name in names) is (not confidential)
        strips = [strip for strip in shown.strips if strip is not None]
        kinds = {bar.kind for strip in strips for lane in strip.lanes for bar in lane.bars}
        assert ("annotation" in kinds) is (not confidential)
        assert {"op", "call", "compute"} & kinds
        lines = {strip.line for strip in strips} | {one.line for one in trace.stretches}
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
