"""Names come from the trace and run nothing, anywhere."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.report import report_samples as samples
from tests.support.comparison_samples import compared, row
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.cli.app import run
from traceanalyzer.comparison.result import Word
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.report import Report
from traceanalyzer.render.data.ci import render_markdown
from traceanalyzer.render.data.comparison import comparison_markdown
from traceanalyzer.render.data.encode import to_json
from traceanalyzer.render.data.json import render_json
from traceanalyzer.render.data.results import write_findings
from traceanalyzer.render.data.table import table_csv
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.text.report import render_text
from traceanalyzer.render.text.views import ops_markdown
from traceanalyzer.render.words.escape import JOINED, printable, to_markdown
from traceanalyzer.roofline.op_rates import OpWork

EVIL = "aten::\x1b[31mred\u202egnirts\x07\u2028\x9b2J"
SHOWN = r"aten::\x1b[31mred\u202egnirts\x07 \x9b2J"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Ops, kernels, python functions and shapes with such names."""
    made = TraceBuilder(record_shapes=1, profile_memory=1, with_stack=1)
    made.step(0, 0, 1_000_000, external_id=90)
    shapes = {"Input Dims": [[4, 4]], "Input type": [EVIL]}
    made.op(EVIL, 10_000, 50_000, external_id=1, **shapes)
    made.launch("cudaLaunchKernel", 11_000, 1_000, 1, external_id=1)
    made.kernel(20_000, 30_000, 1, external_id=1, name=EVIL)
    made.kernel(900_000, 30_000, 2, name=EVIL)
    made.python(f"train.py(7): {EVIL}", 0, 900_000, python_id=1)
    made.memory(12_000, 4096, allocated=4096, reserved=8192)
    return made.write(tmp_path / "trace.json")


@pytest.mark.parametrize(
    "arguments",
    [
        ("diagnose",),
        ("table", "--max-name-width", "120"),
        ("table", "--group-by-input-shape", "--group-by-stack-n", "3", "--python-functions"),
        ("table", "--format", "markdown"),
        ("ops",),
        ("memory",),
    ],
    ids=" ".join,
)
def test_texts_of_a_trace_are_printed_as_printable(
    trace: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([arguments[0], str(trace), *arguments[1:]]) == 0
    text = capsys.readouterr().out
    assert [line for line in text.split("\n") if not line.isprintable()] == []
    assert (r"\\x1b\[31mred" if "markdown" in arguments else r"\x1b[31mred") in text


def test_escapes_say_what_was_there() -> None:
    assert printable(EVIL) == SHOWN
    assert printable("half \udcff of a pair") == r"half \udcff of a pair"
    assert to_markdown(["a|b"], [["\x1b\n"]]).splitlines()[2] == r"| \\x1b  |"


def test_non_breaking_spaces_stay_next_to_escaped_text() -> None:
    assert printable(f"my{JOINED}trace.json\x1b\tis\u2003new") == f"my{JOINED}trace.json\\x1b is new"
    page = Page(60)
    page.put(f"{'word ' * 11}my{JOINED}trace.json")
    assert [line.rstrip() for line in page.lines] == ["word " * 10 + "word", "my trace.json"]


def test_documents_hold_what_is_no_unicode_as_escapes() -> None:
    """A file's name may hold any bytes; Python shows them as halves of surrogate pairs."""
    head = samples.trace(meta=samples.meta(source="caf\udce9.json"))
    finding = replace(samples.findings()[0], message="\ud800", evidence={"op": "\ud800", "n": 1 << 70})
    report = samples.report(head, findings=(finding,))
    document = json.loads(render_json(report))
    assert document["traces"][0]["source"] == r"caf\udce9.json"
    assert document["findings"][0]["message"] == r"\ud800"
    assert document["findings"][0]["evidence"]["n"] == float(1 << 70)
    stream = io.BytesIO()
    write_findings(report, stream)
    row = pq.read_table(io.BytesIO(stream.getvalue())).to_pylist()[0]
    assert row["message"] == r"\ud800"
    assert "\\udce9" in render_text(report)


def test_data_hold_no_control_characters_either() -> None:
    evil = "a\x1b[2J\x9b1m\x07b"
    said = to_json({evil: evil})
    assert json.loads(said) == {evil: evil}
    assert said.isascii()
    assert json.loads(to_json("\u00e9 \u00b5s")) == "\u00e9 \u00b5s"
    table = table_csv(pd.DataFrame({"name": [evil, "two\nlines"]})).decode()
    assert "\x1b" not in table
    assert "\x9b" not in table
    assert "a\\x1b[2J\\x9b1m\\x07b" in table
    assert '"two\nlines"' in table


def test_no_cell_of_csv_begins_a_formula() -> None:
    rows = pd.DataFrame({"name": ["=HYPERLINK(1)", "@SUM", "+1", "-1", "aten::mm", None], "ns": [-1] * 6})
    assert table_csv(rows).decode().splitlines() == [
        *("name,ns", "'=HYPERLINK(1),-1", "'@SUM,-1", "'+1,-1", "'-1,-1", "aten::mm,-1", ",-1")
    ]


FORMULAS = "<img src=//evil/x> @team https://evil.example www.evil.example"


def report_of_a_finding() -> str:
    finding = replace(samples.findings()[0], title=FORMULAS)
    return render_markdown(Report(traces=(samples.trace(),), findings=(finding,), outcomes=(), limits={}))


def comparison_of_ops() -> str:
    return comparison_markdown(compared(rows=(row(FORMULAS, Word.FASTER, delta_ns=-1_000_000),)))


def table_of_ops() -> str:
    trace = TraceBuilder()
    trace.op(FORMULAS, 0, 9_000)
    trace.launched((1_000, 500), (2_000, 1_000), 1)
    return ops_markdown(Analysis(trace.load()).index(OpWork))


@pytest.mark.parametrize("markdown", [report_of_a_finding, comparison_of_ops, table_of_ops])
def test_no_name_is_an_image_a_mention_or_a_link_in_markdown(markdown: Callable[[], str]) -> None:
    text = markdown()
    assert "<img" not in text
    assert "@team" not in text
    assert "https://" not in text
    assert "www.evil" not in text
    assert "&lt;img src" in text
