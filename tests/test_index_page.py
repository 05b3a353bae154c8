"""docs/indexes.md: every index with its columns and what it is built from."""

from __future__ import annotations

from tools.index_page import all_indexes, columns, index_page


def test_every_index_is_listed_with_its_columns() -> None:
    page = index_page()
    for kind in all_indexes():
        assert f"\n| [{kind.__name__}](../{kind.__module__.replace('.', '/')}.py) | " in page
        assert columns(kind)


def test_an_index_lists_what_it_is_built_from() -> None:
    (row,) = [line for line in index_page().splitlines() if line.startswith("| [StepMarks]")]
    assert row.endswith(" | Trace, Nesting, SyncCalls, DeviceWork or none, LostRecords |")
    assert "`cpu_start_ns`, `cpu_end_ns`" in row


def test_a_view_lists_its_members() -> None:
    (row,) = [line for line in index_page().splitlines() if line.startswith("| [Work]")]
    assert "`dur_ns`" in row
    assert "`of_kind(...)`" in row
