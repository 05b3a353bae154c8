"""Rows are chosen as of an array: by masks, positions and slices; what cannot be chosen raises."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rules.loops import Loop, loop_of
from tests.support.built_findings import traced
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule import Calls, IdleTime, LostTime, Work


def pauses(loop: Loop, number: int) -> None:
    loop.pause(50_000 * number)


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return Analysis(loop_of(pauses))


@pytest.mark.parametrize("view", [Calls, Work, IdleTime])
def test_a_mask_of_another_length_is_refused(analysis: Analysis, view: type) -> None:
    rows = analysis.index(view)
    for length in (len(rows) - 1, len(rows) + 1, 1):
        with pytest.raises(IndexError, match=rf"a mask of {length:,} rows cannot choose of {len(rows):,}"):
            rows[np.ones(length, bool)]
    assert len(rows[np.ones(len(rows), bool)]) == len(rows)


def test_rows_are_chosen_as_of_an_array(analysis: Analysis) -> None:
    work = analysis.index(Work)
    starts = work.start_ns.tolist()
    assert work[1].start_ns.tolist() == starts[1:2]
    assert work[-1].start_ns.tolist() == starts[-1:]
    assert work[0:2].start_ns.tolist() == starts[:2]
    assert work[[1, 0]].start_ns.tolist() == [starts[1], starts[0]]
    assert len(work[[]]) == 0
    with pytest.raises(IndexError, match="positions from 99 to 99 cannot choose of"):
        work[99]
    with pytest.raises(TypeError, match="by a mask, positions or a slice, not by float64"):
        work[np.array([0.0])]


def test_kinds_of_work_that_there_are_not_are_refused() -> None:
    work = traced((1_000, 5_000)).index(Work)
    assert len(work.of_kind("compute", "memset")) == len(work)
    with pytest.raises(
        ValueError, match="none is called copy_dtoh; there are compute, communication, copy_h2d"
    ):
        work.of_kind("copy_dtoh", "compute")
    with pytest.raises(ValueError, match="none is called kernel; there are compute"):
        work.kind.one_of("kernel")
    with pytest.raises(TypeError, match="one_of takes texts"):
        work.kind.one_of(("compute", "memset"))  # type: ignore[arg-type]


def test_texts_of_none_are_refused() -> None:
    """-1 is no position from the end."""
    name = traced((1_000, 5_000)).index(Work).name
    assert name[-1] == name[0]
    assert len(name[np.array([0, 0])]) == 2
    with pytest.raises(IndexError, match="texts at positions below 0: -1 stands for none, leave it out"):
        name[np.array([0, -1])]


def test_negative_positions_and_2d_masks_are_refused() -> None:
    work = traced((1_000, 5_000)).index(Work)
    with pytest.raises(IndexError, match=r"from -1 to 0 cannot choose.*-1 stands for none, leave it out"):
        work[np.array([0, -1])]
    with pytest.raises(TypeError, match="by one dimension, not by 2"):
        work[np.ones((len(work), 1), bool)]


def test_rows_are_grouped_by_parallel_keys(analysis: Analysis) -> None:
    work = analysis.index(Work)
    with pytest.raises(TypeError, match="by a mask, positions or a slice, not by Work"):
        work[work]  # type: ignore[index]
    with pytest.raises(ValueError, match=f"a key of 2 rows cannot group {len(work)}"):
        list(work.by(work[0:2].device))


def test_views_of_another_trace_raise(analysis: Analysis) -> None:
    calls, foreign = analysis.index(Calls), traced((1_000, 5_000)).index(Calls)
    for combine in (
        lambda: calls.inside(foreign),
        lambda: calls.index_of_enclosing(foreign),
        lambda: calls.joined([foreign]),
        lambda: LostTime.launched_by(analysis.index(IdleTime), foreign),
    ):
        with pytest.raises(ValueError, match="of another trace, or of another window"):
            combine()
