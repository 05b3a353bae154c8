"""docs/sql.md: every query runs in DuckDB and in polars, both agree, and the page has the answer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import call
from tests.support.sql_page import ANSWERED, PAGE, Tables, as_table, questions
from traceanalyzer import idle_gaps, load

pytest.importorskip("duckdb")
pytest.importorskip("polars")

TEXT = PAGE.read_text("utf-8")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("sql"))
        assert call("export", ANSWERED, "frames").exit_code == 0
        yield Tables(TEXT)


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, str) or one is None:
        return bool(one == other)
    return math.isclose(float(one), float(other), rel_tol=1e-9)


def test_there_are_ten_questions() -> None:
    assert len(questions(TEXT)) == TEXT.count("\n## ") == 10


@pytest.mark.parametrize("number", range(10))
def test_both_engines_give_the_answer_of_the_page(number: int, tables: Tables) -> None:
    one = questions(TEXT)[number]
    columns, rows = tables.duckdb(one["query"])
    assert as_table(columns, rows) == one["answer"]
    other, others = tables.polars(one["query"])
    assert other == columns
    assert len(others) == len(rows) > 0
    for row, same in zip(rows, others, strict=True):
        assert all(map(alike, row, same))


def test_idle_time_in_sql_is_that_of_the_analyzer(tables: Tables) -> None:
    query = next(one["query"] for one in questions(TEXT) if "idle" in one["question"])
    ((_, _, idle_ms, _),) = tables.duckdb(query)[1]
    gaps = idle_gaps(load(Path(ANSWERED)))
    work = load(Path(ANSWERED)).kernels
    inner = (gaps["start_ns"] > work["start_ns"].min()) & (gaps["end_ns"] < (work["start_ns"] + work["dur_ns"]).max())
    assert idle_ms == pytest.approx(gaps.loc[inner, "dur_ns"].sum() / 1e6)
