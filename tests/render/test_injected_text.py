"""Names from traces run nothing in spreadsheets, and notify nobody on pages of Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from tests.report import report_samples as samples
from tests.support.comparison_samples import compared, row
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.comparison.result import Word
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.report import Report
from traceanalyzer.render.data.comparison import comparison_markdown
from traceanalyzer.render.data.markdown import render_markdown
from traceanalyzer.render.data.table import table_csv
from traceanalyzer.render.text.ops import ops_markdown
from traceanalyzer.roofline.op_rates import OpWork


def test_no_cell_of_csv_begins_a_formula() -> None:
    rows = pd.DataFrame({"name": ["=HYPERLINK(1)", "@SUM", "+1", "-1", "aten::mm", None], "ns": [-1] * 6})
    assert table_csv(rows).decode().splitlines() == [
        *("name,ns", "'=HYPERLINK(1),-1", "'@SUM,-1", "'+1,-1", "'-1,-1", "aten::mm,-1", ",-1"),
    ]


EVIL = "<img src=//evil/x> @team https://evil.example www.evil.example"


def report_of_a_finding() -> str:
    finding = replace(samples.findings()[0], by=EVIL)
    return render_markdown(Report(traces=(samples.trace(),), findings=(finding,), outcomes=(), limits={}))


def comparison_of_ops() -> str:
    return comparison_markdown(compared(rows=(row(EVIL, Word.FASTER, delta_ns=-1_000_000),)))


def table_of_ops() -> str:
    trace = TraceBuilder()
    trace.op(EVIL, 0, 9_000)
    trace.launch("cudaLaunchKernel", 1_000, 500, 1)
    trace.kernel(2_000, 1_000, 1)
    return ops_markdown(Analysis(trace.load()).index(OpWork))


@pytest.mark.parametrize("markdown", [report_of_a_finding, comparison_of_ops, table_of_ops])
def test_no_name_is_an_image_a_mention_or_a_link_in_markdown(markdown: Callable[[], str]) -> None:
    text = markdown()
    assert "<img" not in text
    assert "@team" not in text
    assert "https://" not in text
    assert "www.evil" not in text
    assert "&lt;img src" in text
