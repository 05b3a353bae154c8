"""Where time goes, in few rows: none of it is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.report import report_samples as samples
from traceanalyzer.model.report import IDLE
from traceanalyzer.render.text.bars import _OTHER, _OTHER_WORK, _before, _largest, device_bar
from traceanalyzer.render.text.page import Page

NS = st.integers(1, 10**9)


def test_work_without_a_row_of_its_own_is_one_row_before_idle_time() -> None:
    """It had none where causes took all rows: the shares added up to 98.5 %."""
    classes = [("compute", "compute", 94, list[str]()), ("memset", "memset", 14, []), ("idle", IDLE, 892, [])]
    causes = [(f"cause {k}", "", ns, list[str]()) for k, ns in enumerate((450, 235, 66, 49, 41))]
    rows = _largest(classes, [*causes, (_OTHER, "", 51, [])], 8, 1000)
    assert [row[0] for row in rows[:3]] == ["compute", _OTHER_WORK, "idle"]
    assert sum(row[2] for row in rows if row[1]) == 1000
    assert len(rows) == 8


@examples(200)
@given(
    st.lists(NS, max_size=4), st.lists(NS, min_size=1, max_size=5), st.integers(0, 10**6), st.integers(6, 8)
)
def test_causes_in_few_rows_are_still_all_idle_time(
    busy: list[int], causes: list[int], other: int, most: int
) -> None:
    why = [(f"cause {k}", "", ns, ["aten::add"]) for k, ns in enumerate(causes)]
    why += [(_OTHER, "", other, [])] if other else []
    idle = sum(ns for _, _, ns, _ in why)
    classes = [(f"class {k}", f"class {k}", ns, list[str]()) for k, ns in enumerate(busy)]
    classes.append(("idle", IDLE, idle, []))
    rows = _largest(classes, why, most, idle + sum(busy))
    assert len(rows) <= most
    assert ("idle", IDLE, idle, []) in rows
    shown = [ns for _, name, ns, _ in rows if not name]
    if shown:
        assert sum(shown) == idle
    else:  # each is next to nothing, or busy classes take all rows
        assert len(rows) >= most - 1 or max(causes) < 0.005 * (idle + sum(busy))


def test_a_call_that_launches_many_kernels_is_not_what_the_device_waits_for() -> None:
    assert [_before(name) for name in ("aten::mm", "cudaGraphLaunch", "hipGraphLaunch")] == [
        "before aten::mm",
        "cudaGraphLaunch",
        "hipGraphLaunch",
    ]


def test_the_bar_of_few_rows_is_of_all_the_time() -> None:
    """Of four devices each has room for two rows: idle time, and its largest cause."""
    time, page = samples.accounting(), Page(80)
    device_bar(page, time, rank=None, most=2)
    assert [line[4:14].strip() for line in page.lines[1:3]] == ["idle", "data loadi"]
    busy, idle = (page.lines[0].count(glyph) for glyph in "■·")
    assert idle / (busy + idle) == pytest.approx(time.classes_ns[IDLE] / time.length_ns, abs=0.05)
