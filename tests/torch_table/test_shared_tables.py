"""Against torch's own tables of the shared traces: every row, every column, and the text."""

import pytest

from tests.support.paths import SHARED
from tests.torch_table.truth import (
    COLUMNS,
    differences,
    each_table,
    our_averages,
    our_key,
    our_rows,
    table_names,
    torch_key,
    torch_rows,
    wrong_rows,
)
from traceanalyzer.render.text.table import TableSize, render_table
from traceanalyzer.torch_table.printed import printed_table

AS_RECORDED = TableSize(row_limit=40, name_width=80)


@each_table()
def test_every_row_and_column_is_torchs(name: str) -> None:
    assert wrong_rows(name) == []


@each_table()
def test_rows_come_in_torchs_order_of_first_sight(name: str) -> None:
    assert [our_key(row) for row in our_rows(name)] == [torch_key(row) for row in torch_rows(name)]


def test_there_are_many_tables_to_compare_with() -> None:
    if not table_names():
        pytest.skip("no shared traces")
    assert len(table_names()) > 50


def test_a_difference_is_seen() -> None:
    theirs = dict.fromkeys(COLUMNS, 0) | {"cpu_time_total": 0.002, "cpu_memory_usage": 7}
    ours = dict.fromkeys(COLUMNS.values(), 0) | {"cpu_ns": 1, "cpu_bytes": 7}
    assert differences(theirs, ours) == {"cpu_time_total": (2.0, 1)}


@each_table()
def test_the_text_is_torchs_character_by_character(name: str) -> None:
    ours = render_table(printed_table(our_averages(name), "cuda_time_total"), AS_RECORDED)
    theirs = (SHARED / f"{name}.txt").read_text()
    assert _stripped(ours) == _stripped(theirs)


def _stripped(text: str) -> list[str]:
    """Lines without the blanks at their ends."""
    return [line.rstrip() for line in text.rstrip().splitlines()]
