"""Names from traces run nothing in spreadsheets, and notify nobody on pages of Markdown."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from tests.report import report_samples as samples
from traceanalyzer.model.report import Report
from traceanalyzer.render.data.markdown import render_markdown
from traceanalyzer.render.data.table import table_csv


def test_no_cell_of_csv_begins_a_formula() -> None:
    rows = pd.DataFrame({"name": ["=HYPERLINK(1)", "@SUM", "+1", "-1", "aten::mm", None], "ns": [-1] * 6})
    assert table_csv(rows).decode().splitlines() == [
        *("name,ns", "'=HYPERLINK(1),-1", "'@SUM,-1", "'+1,-1", "'-1,-1", "aten::mm,-1", ",-1"),
    ]


def test_no_name_is_an_image_a_mention_or_a_link_in_markdown() -> None:
    finding = replace(
        samples.findings()[0], by="<img src=//evil/x> @team https://evil.example www.evil.example"
    )
    text = render_markdown(Report(traces=(samples.trace(),), findings=(finding,), outcomes=(), limits={}))
    assert "<img" not in text
    assert "@team" not in text
    assert "https://" not in text
    assert "www.evil" not in text
    assert "&lt;img src" in text
