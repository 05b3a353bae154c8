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
    ],
)
def test_wrong_arguments_raise_a_sentence(analysis: Analysis, wrong: Callable[..., Any], said: str) -> None:
    with pytest.raises((ValueError, TypeError, IndexError, AttributeError), match=said):
        wrong(analysis.index(Work), analysis.index(Calls), analysis.index(IdleTime))
