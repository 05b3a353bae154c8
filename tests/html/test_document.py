"""The file: whole, small, the same every time; the command that writes it; what a notebook shows."""

import re
import shutil
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from jinja2 import UndefinedError

import traceanalyzer
from tests.html.pages import page, parsed, rendered
from tests.report import report_samples as samples
from tests.support.cached_reports import analysed, loaded, reported
from tests.support.fixtures import FIXTURES, TRACES, name_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.cli.app import run
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.render.html.document import render_html
from traceanalyzer.render.html.markup import filled, script, style, template
from traceanalyzer.render.html.page_data import Page, page_of, thinner
from traceanalyzer.render.html.summary import MOST_BYTES
from traceanalyzer.render.text.report import render_text
from traceanalyzer.report.diagnosis import report_of
from traceanalyzer.report.finding_order import triage

ONE = FIXTURES / "implicit-sync" / "bad.json.gz"
SOME = [path for path in TRACES if path.name == "good.json.gz"][::6]


def test_script_and_style_are_small() -> None:
    names = ("report.html", "flame.html", "filter.html", "timeline.html", "timeline_one.html")
    assert len((style() + script()).encode()) + sum(len(template(name).encode()) for name in names) < 150_000


def test_every_style_sheet_is_in_the_page() -> None:
    """What is for narrow windows and paper overrules the rest, so it stands last."""
    sheets = sorted(files("traceanalyzer.render.html").iterdir(), key=lambda file: file.name)
    own = [file for file in sheets if file.name.endswith(".css") and file.name != "comparison.css"]  # of another page
    texts = [file.read_text(encoding="utf-8") for file in own]
    assert len(texts) > 1
    assert all(text in style() for text in texts)
    assert sum(text.count("\n") <= 300 for text in texts) == len(texts)
    assert style().endswith(next(text for text in texts if "@media print" in text))
    assert style() in rendered(ONE).decode()


@pytest.mark.parametrize("path", SOME, ids=name_of)
def test_pages_are_whole(path: Path) -> None:
    html = rendered(path)
    made = parsed(html)
    assert len(html) < 1_000_000
    identifiers = made.values("id")
    assert len(identifiers) == len(set(identifiers))
    links = {str(one.attributes["href"]) for one in made.having("href")}
    assert all(link.startswith("#") and link[1:] in identifiers for link in links)
    assert not made.having("src")
    assert [one for one in made.elements if one.name in ("link", "iframe", "object", "img", "base")] == []
    assert not re.search(rb"https?://", html)
    assert len(made.named("article")) == len(reported(path).findings)


@pytest.mark.parametrize("path", TRACES[::5], ids=name_of)
def test_the_head_counts_as_the_text_does(path: Path) -> None:
    """What the text puts into its footer is not counted."""
    title = render_text(reported(path), width=200, verbose=True).partition("\n")[0]
    (said,) = parsed(rendered(path)).texts_of("problems")
    assert title.endswith(f"  {said}")


def test_what_is_too_little_stands_last_with_its_number() -> None:
    """All cards are on the page, each with the number that the text and the JSON give it."""
    report = reported(ONE)
    assert triage(report).minor or triage(report).profilers_own
    cards = parsed(rendered(ONE)).named("article")
    numbers = [int(str(one.attributes["id"]).partition("-")[2]) for one in cards]
    assert sorted(numbers) == [*range(1, len(report.findings) + 1)]
    others = len(triage(report).others)
    assert numbers[:others] == [*triage(report).others]
    assert "too small to act on" in rendered(ONE).decode()


def test_the_same_trace_gives_the_same_bytes() -> None:
    analyses = [(None, Analysis(loaded(ONE)))]
    again = page_of(report_of(analyses), analyses)
    assert render_html(again) == rendered(ONE)
    assert page_of(report_of(analyses), analyses, confidential=True) == page(ONE, True)


def test_only_its_own_script_may_run() -> None:
    policy = next(one for one in parsed(rendered(ONE)).having("http-equiv")).attributes["content"]
    assert "default-src 'none'" in str(policy)
    assert re.search(r"script-src 'sha256-[\w+/=]{44}'", str(policy))


def test_too_large_page_halves_its_ranks() -> None:
    analysis, report = analysed(ONE), reported(ONE)
    traces = tuple(replace(report.traces[0], rank=rank) for rank in range(5))
    findings = tuple(replace(finding, rank=rank) for finding in report.findings[:1] for rank in range(5))
    job = replace(report, traces=traces, findings=findings)
    sizes = []
    left: Page | None = page_of(job, [(rank, analysis) for rank in range(5)])
    while left is not None:
        sizes.append(sum(one.detailed for one in left.traces))
        left = thinner(left)
    assert sizes == [5, 2, 1]


def test_reports_of_every_kind_have_a_page() -> None:
    """Reports built by hand, whose events no trace has: cards without timelines."""
    analysis = analysed(ONE)
    for report in (samples.report(), samples.replayed(), samples.empty()):
        made = page_of(report, [(trace.rank, analysis) for trace in report.traces])
        html = render_html(made).decode()
        parsed(html.encode())
        assert html.count("<article") == len(report.findings)
    html = render_html(page_of(samples.replayed(), [(None, analysis)])).decode()
    assert "Fixing it alone makes" in html
    assert "Fixing it saves almost nothing." in html
    assert "broken-rule" in html


def test_what_was_not_understood_is_said() -> None:
    analysis = analysed(ONE)
    report = samples.report()
    html = parsed(render_html(page_of(report, [(None, analysis)])))
    (listed,) = html.of_class("recorded")
    for text in ("mystery 3", "unreadable Addr 2"):
        assert text in listed.text
    (verdict,) = html.of_class("verdict")
    assert "the file ends within an event" in verdict.text
    assert "ac2g" not in listed.text


def test_slots_are_filled_once() -> None:
    with pytest.raises(UndefinedError):
        filled("filter.html")
    assert "{{script}}" in filled("filter.html", i="{{script}}")


def test_a_trace_without_a_gpu_has_a_page(tmp_path: Path) -> None:
    made = TraceBuilder()
    made.op("aten::add", 0, 1_000)
    analyses = [(None, Analysis(made.load()))]
    html = render_html(page_of(report_of(analyses), analyses)).decode()
    assert "no kernels, copies or memsets in the trace" in html
    assert 'class="flame script-only"' in html  # of the CPU


# -- the command ------------------------------------------------------------------------------------------


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, output = tmp_path / "trace.json.gz", tmp_path / "report.html"
    shutil.copy(ONE, trace)
    assert run(["report", str(trace), "-o", str(output)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r"\S+report\.html: \d+ findings\n", said.err)
    html = output.read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>")
    assert trace.name in html
    assert str(trace.parent) not in html
    assert run(["report", str(trace), "-o", str(output)]) == 2
    assert "--force" in capsys.readouterr().err
    assert run(["report", str(trace), "-o", str(output), "--confidential", "--force", "--step-ms", "2"]) == 0
    redacted = output.read_text(encoding="utf-8")
    assert "trace.json.gz" not in redacted
    assert "2.00 ms" in redacted


def test_the_command_takes_ranks(tmp_path: Path) -> None:
    shutil.copy(ONE, tmp_path / "rank0.json.gz")
    shutil.copy(ONE, tmp_path / "rank1.json.gz")
    assert run(["report", str(tmp_path), "-o", str(tmp_path / "report.html")]) == 0
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h2>Rank 0</h2>" in html
    assert "<h2>Rank 1</h2>" in html


def test_the_command_refuses_what_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(ONE)]) == 2
    assert "--output" in capsys.readouterr().err
    assert run(["report", str(ONE), "-o", str(tmp_path / "none" / "report.html")]) == 2
    assert run(["report", str(tmp_path / "none.json"), "-o", str(tmp_path / "report.html")]) == 2
    assert not (tmp_path / "report.html").exists()
    assert run(["report", str(ONE), "-o", str(tmp_path / "report.pdf")]) == 2
    assert "a page is HTML, not .pdf" in capsys.readouterr().err


def test_the_shown_commands_are_those_of_the_finding() -> None:
    codes = parsed(rendered(ONE)).texts_of("open-command")
    assert codes == [f"traceanalyzer open bad.json.gz --finding {at + 1}" for at in range(len(reported(ONE).findings))]


# -- notebooks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SOME[:3], ids=name_of)
def test_notebooks_show_a_small_svg(path: Path) -> None:
    report = reported(path)
    assert isinstance(report, traceanalyzer.Report)
    svg = report._repr_html_()
    assert svg is not None
    assert len(svg.encode()) <= MOST_BYTES
    made = parsed(svg.encode())
    assert made.elements[0].name == "svg"
    text = " ".join(one.text for one in made.elements if one.name == "text")
    assert report.traces[0].verdict in text
    for finding in report.findings[:8]:
        assert finding.title[:20] in text
