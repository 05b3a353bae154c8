"""Text columns: what is kept of them is what pandas says, and looked at anew by every analysis."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model.test_threads import FIXTURES
from tests.support.cached_reports import loaded
from traceanalyzer.model import answers
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.answers import remembered
from traceanalyzer.model.trace import codes, codes_at, holding, matching, texts_of
from traceanalyzer.rule.views import Calls


@given(st.data())
def test_holding_is_looking_up(data: st.DataObject) -> None:
    asked = np.array(data.draw(st.lists(st.booleans(), max_size=30)), bool)
    code: Any = np.array(data.draw(st.lists(st.integers(-1, len(asked) - 1), max_size=60)), np.int64)
    width = data.draw(st.sampled_from([np.int8, np.int16, np.int64]))
    assert holding(asked, code.astype(width)).tolist() == np.append(asked, False)[code].tolist()


def test_columns_are_those_of_the_frame() -> None:
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


def test_an_analysis_sees_what_was_written_to_a_frame() -> None:
    trace = loaded(FIXTURES / "healthy" / "train.json.gz")
    cpu = trace.cpu.copy()
    changed = trace.with_frames(cpu=cpu)
    before = texts_of(changed.lanes.cpu, "name").tolist()
    cpu["name"] = cpu["name"].cat.rename_categories({before[0]: "renamed"})
    assert texts_of(changed.lanes.cpu, "name").tolist() == before  # kept until the next analysis
    Analysis(changed)
    assert texts_of(changed.lanes.cpu, "name").tolist() == ["renamed", *before[1:]]
    assert texts_of(trace.lanes.cpu, "name").tolist() == before


def test_properties_of_views_are_kept_and_read_only() -> None:
    calls = Analysis(loaded(FIXTURES / "healthy" / "train.json.gz")).index(Calls)
    assert calls.start_ns is calls.start_ns
    assert calls.name is calls.name
    assert not calls.start_ns.flags.writeable
    assert not calls.name.code.flags.writeable
    some = calls[calls.is_op]
    assert some.start_ns.tolist() == calls.start_ns[calls.is_op].tolist()


def test_a_pattern_is_asked_once_for_each_text(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = re.compile("once only")
    asked = [remembered(pattern.search)(text) for text in ("once only", "never", "once only, too")]
    assert asked == [True, False, True]
    assert remembered(pattern.search)("never") is False
    assert dict(remembered(pattern.search).__self__) == {
        "once only": True,
        "never": False,
        "once only, too": True,
    }
    monkeypatch.setattr(answers, "_MOST_TEXTS", 3)
    assert remembered(pattern.search)("once only, again") is True
    assert dict(remembered(pattern.search).__self__) == {"once only, again": True}


def test_other_predicates_are_asked_as_they_are() -> None:
    for wanted in (str.isupper, "name".__eq__, re.compile("a").match):
        assert remembered(wanted) is wanted


@pytest.mark.parametrize("asked", ["101", "1001", "11011", "100000001", "1111101111101"])
def test_what_lies_between_two_that_hold_does_not(asked: str) -> None:
    """By comparing or by looking up, however many there are."""
    holds = np.array([one == "1" for one in asked], bool)
    for width in (np.int8, np.int64):
        code: Any = np.arange(-1, len(holds)).astype(width)
        assert holding(holds, code).tolist() == [False, *holds.tolist()]
