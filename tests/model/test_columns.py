"""Text columns: their values equal those of the pandas frame, and each analysis reads them again."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cached_reports import loaded
from tests.support.fixtures import FIXTURES
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.text_queries import cached_predicate, rows_with_codes
from traceanalyzer.model.trace import codes, codes_at, matching, texts_of
from traceanalyzer.rule.views import Calls


@given(st.data())
def test_rows_with_codes_equals_indexing(data: st.DataObject) -> None:
    wanted = np.array(data.draw(st.lists(st.booleans(), max_size=30)), bool)
    code: Any = np.array(data.draw(st.lists(st.integers(-1, len(wanted) - 1), max_size=60)), np.int64)
    width = data.draw(st.sampled_from([np.int8, np.int16, np.int64]))
    assert rows_with_codes(wanted, code.astype(width)).tolist() == np.append(wanted, False)[code].tolist()


@pytest.mark.parametrize("wanted", ["101", "1001", "11011", "100000001", "1111101111101"])
@pytest.mark.parametrize("width", [np.int8, np.int64])
def test_codes_between_two_matches_do_not_match(wanted: str, width: type) -> None:
    mask = np.array([digit == "1" for digit in wanted], bool)
    code: Any = np.arange(-1, len(mask)).astype(width)
    assert rows_with_codes(mask, code).tolist() == [False, *mask.tolist()]


def test_columns_equal_those_of_the_frame() -> None:
    cpu = loaded(FIXTURES / "healthy" / "train.json.gz").cpu
    for column in ("name", "category", "input_dims", "call_stack"):
        assert texts_of(cpu, column).tolist() == [str(text) for text in cpu[column].cat.categories]
        assert codes(cpu, column).tolist() == cpu[column].cat.codes.tolist()
        some = np.array([3, -1, 5])
        assert codes_at(cpu, column, some).tolist() == [
            *codes(cpu, column)[[3]],
            -1,
            *codes(cpu, column)[[5]],
        ]
    expected = cpu["name"].astype(object).str.startswith("aten::").to_numpy(bool)
    assert matching(cpu, "name", lambda name: name.startswith("aten::")).tolist() == expected.tolist()


def test_an_analysis_sees_changes_of_a_frame() -> None:
    trace = loaded(FIXTURES / "healthy" / "train.json.gz")
    cpu = trace.cpu.copy()
    changed = trace.with_frames(cpu=cpu)
    before = texts_of(changed.lanes.cpu, "name").tolist()
    cpu["name"] = cpu["name"].cat.rename_categories({before[0]: "renamed"})
    assert texts_of(changed.lanes.cpu, "name").tolist() == before  # until the next analysis
    Analysis(changed)
    assert texts_of(changed.lanes.cpu, "name").tolist() == ["renamed", *before[1:]]
    assert texts_of(trace.lanes.cpu, "name").tolist() == before


def test_properties_of_views_are_cached_and_read_only() -> None:
    calls = Analysis(loaded(FIXTURES / "healthy" / "train.json.gz")).index(Calls)
    assert calls.start_ns is calls.start_ns
    assert calls.name is calls.name
    assert not calls.start_ns.flags.writeable
    assert not calls.name.code.flags.writeable
    some = calls[calls.is_op]
    assert some.start_ns.tolist() == calls.start_ns[calls.is_op].tolist()


def test_a_pattern_searches_each_text_once() -> None:
    pattern = re.compile("once only")
    wanted = cached_predicate(pattern.search)
    assert [wanted(text) for text in ("once only", "never", "once only, too")] == [True, False, True]
    assert cached_predicate(pattern.search)("never") is False
    cache = wanted.__self__  # type: ignore[attr-defined]
    assert cache == {"once only": True, "never": False, "once only, too": True}
    for number in range(20_000):
        wanted(f"text {number}")
    assert len(cache) < 20_000


def test_other_predicates_are_not_cached() -> None:
    for wanted in (str.isupper, "name".__eq__, re.compile("a").match):
        assert cached_predicate(wanted) is wanted
