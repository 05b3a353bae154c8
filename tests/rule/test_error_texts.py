"""Errors of views, texts and lost time name what is wrong in words of the domain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.built_findings import traced
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule import Calls, IdleTime, LostTime, Work

MS = 1_000_000


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return traced((1 * MS, 2 * MS), (30 * MS, 3 * MS))


def test_nothing_joined_is_nothing() -> None:
    assert len(LostTime.joined([]).owner) == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda w, c, i: LostTime.all_of(w, 0), "owner of lost stretches has integers, not int"),
        (lambda w, c, i: LostTime.all_of(w, np.zeros((2, 1), int)), "has integers, not int64, 2-dimensional"),
        (lambda w, c, i: LostTime.all_of(w, np.zeros(3, int)), "3 owners of 2 lost stretches"),
        (
            lambda w, c, i: LostTime.all_of(w).sums(1),
            r"sums\(1\) of owners up to 1: n is the length of the view that lost the time",
        ),
        (
            lambda w, c, i: LostTime.all_of(w).owned_by(np.zeros(1, int)),
            "an owner of 1, and owner has 1 rows",
        ),
        (lambda w, c, i: LostTime.all_of(w)[np.ones(3, bool)], "a mask of 3 rows cannot choose of 2"),
        (lambda w, c, i: list(w.by(w.op)), r"grouped by Texts or int64 arrays, not by Calls"),
        (lambda w, c, i: list(w.by([0, 1])), r"grouped by Texts or int64 arrays, not by list"),
        (
            lambda w, c, i: list(w.by(w.dur_ns / 2)),
            r"grouped by Texts or int64 arrays, not by an array of float64",
        ),
        (
            lambda w, c, i: list(w.by(w.name.values())),
            r"grouped by Texts or int64 arrays, not by an array of obj",
        ),
        (lambda w, c, i: w.name.matches("("), r"'\(' is no regular expression: "),
        (lambda w, c, i: w.name.matches(["a"]), r"matches takes one pattern, not list: one_of\(\*names\)"),
        (
            lambda w, c, i: w.name.one_of(["a"]),
            r"one_of takes texts: one_of\(\*names\), where names are a list",
        ),
        (lambda w, c, i: "x" in w.name, r"texts are no list: one_of\('x'\).any\(\)"),
        (lambda w, c, i: w.name.sums(np.ones(3)), "3 weights of 2 texts"),
        (lambda w, c, i: w.duration_ns, "Work has no duration_ns; did you mean dur_ns"),
        (lambda w, c, i: i.causes, "IdleTime has no causes; did you mean cause"),
        (lambda w, c, i: c.text("input_dim"), "trace.cpu has no texts 'input_dim'; did you mean input_dims"),
        (lambda w, c, i: w.number("grid"), "trace.gpu has no numbers 'grid'; "),
        (lambda w, c, i: c.inside(w), "rows lie in Calls, not in Work"),
        (lambda w, c, i: c.index_of_enclosing(None), "rows lie in Calls, not in NoneType"),
    ],
)
def test_wrong_arguments_raise_a_sentence(analysis: Analysis, wrong: Callable[..., Any], said: str) -> None:
    with pytest.raises((ValueError, TypeError, IndexError, AttributeError), match=said):
        wrong(analysis.index(Work), analysis.index(Calls), analysis.index(IdleTime))


def test_an_error_within_a_property_stays_its_own(analysis: Analysis) -> None:
    class Own(Work):
        __slots__ = ()

        @property
        def wrong(self) -> int:
            return None.bit_length()  # type: ignore[attr-defined, no-any-return]

    work = analysis.index(Work)
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'bit_length'"):
        _ = Own(work.events, work.entries).wrong
