"""Against torch's own tables of the shared traces: every row, every column, and the text."""

from __future__ import annotations

import pytest

from tests.conftest import SHARED
from tests.torch_table.truth import (
    COLUMNS,
    differences,
    each_table,
    our_key,
    our_rows,
    table_names,
    torch_key,
    torch_rows,
    wrong_rows,
)
from traceanalyzer.read.load import load_file
from traceanalyzer.render.text.table import TableSize, render_table
from traceanalyzer.torch_table.key_averages import key_averages
from traceanalyzer.torch_table.printed import printed_table

AS_RECORDED = TableSize(row_limit=40, name_width=80)


@each_table()
def test_every_row_and_column_is_torchs(name: str) -> None:
    assert wrong_rows(name) == []


@each_table()
def test_rows_come_in_torchs_order_of_first_sight(name: str) -> None:
    assert [our_key(row) for row in our_rows(name)] == [torch_key(row) for row in torch_rows(name)]


def test_the_score_over_all_tables(capsys: pytest.CaptureFixture[str]) -> None:
    names = table_names()
    if not names:
        pytest.skip("no shared traces")
    rows = sum(len(torch_rows(name)) for name in names)
    wrong = [line for name in names for line in wrong_rows(name)]
    with capsys.disabled():
        print(
            f"\n{rows - len(wrong):,} of {rows:,} rows of {len(names)} tables equal in {len(COLUMNS)} columns"
        )
    assert len(names) > 50
    assert wrong == []


def test_a_difference_is_seen() -> None:
    theirs = dict.fromkeys(COLUMNS, 0) | {"cpu_time_total": 0.002, "cpu_memory_usage": 7}
    ours = dict.fromkeys(COLUMNS.values(), 0) | {"cpu_ns": 1, "cpu_bytes": 7}
    assert differences(theirs, ours) == {"cpu_time_total": (2.0, 1)}


@each_table()
def test_the_text_is_torchs_character_by_character(name: str) -> None:
    ours = render_table(
        printed_table(key_averages(load_file(SHARED / f"{name}.json.gz")), "cuda_time_total"), AS_RECORDED
    )
    theirs = (SHARED / f"{name}.txt").read_text()
    assert _stripped(ours) == _stripped(theirs)


def _stripped(text: str) -> list[str]:
    """Lines without the blanks at their ends."""
    return [line.rstrip() for line in text.rstrip().splitlines()]
