"""What a rule is given belongs to all rules: nobody writes to it, and what they gave stays their own."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tests.support.built_findings import traced
from tests.support.failing_rules import why
from traceanalyzer.idle.causes import Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.texts import Texts
from traceanalyzer.rule import Calls, Hits, IdleTime, Work
from traceanalyzer.rule.cpu_gaps import CpuGaps
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps

MS = 1_000_000
INDEXES = (DeviceWork, Nesting, Idle, Steps, CpuGaps)


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return traced((1 * MS, 2 * MS), (30 * MS, 3 * MS), (55 * MS, 2 * MS))


@pytest.mark.parametrize(
    "of",
    [
        lambda work, calls, idle: work.entries,
        lambda work, calls, idle: calls.rows,
        lambda work, calls, idle: calls[calls.is_op].rows,
        lambda work, calls, idle: work.launch.rows,
        lambda work, calls, idle: work.op.rows,
        lambda work, calls, idle: work.outer_op.rows,
        lambda work, calls, idle: work.start_ns,
        lambda work, calls, idle: idle.cause.names,
        lambda work, calls, idle: work.kind.names,
        lambda work, calls, idle: work.name.code,
        lambda work, calls, idle: calls.text("input_dims").code,
        lambda work, calls, idle: idle.call.rows,
    ],
)
def test_rows_and_texts_of_views_are_read_only(analysis: Analysis, of: Callable[..., Any]) -> None:
    def careless(work: Work, calls: Calls, idle: IdleTime) -> Iterator[Hits]:
        of(work, calls, idle)[:] = 0
        yield from ()

    said = why(analysis, careless)
    assert "ValueError: what views, indexes and a yielded finding have is shared, so copy it first (assign" in said
    assert "(rule/test_shared_arrays.py, line " in said


@pytest.mark.parametrize("kind", INDEXES)
def test_arrays_of_indexes_are_read_only(analysis: Analysis, kind: Any) -> None:
    index = analysis.index(kind)
    arrays = []
    for one in fields(index):
        value = getattr(index, one.name)
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]
        arrays += [part for part in parts if isinstance(part, np.ndarray)]
    assert arrays
    assert not any(array.flags.writeable for array in arrays)


def test_what_a_rule_gives_stays_its_own(analysis: Analysis) -> None:
    work = analysis.index(Work)
    rows, names = work.entries.copy(), np.array(["a"], object)
    view, texts = Work(work.events, rows), Texts(np.zeros(1, np.int64), names)
    rows[:] = rows[::-1].copy()
    names[0] = "b"
    assert not view.entries.flags.writeable
    assert texts.distinct() == ["b"]
    assert Work(work.events, work.entries).entries is work.entries
