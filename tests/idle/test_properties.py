"""What must hold for any trace: agreement with the reference, and that what does not matter changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.idle import reference
from tests.idle.books import Books, check_against_reference
from tests.idle.generated import has_work, traces
from tests.support.hypothesis_profiles import PROFILE, examples
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model import intervals
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Trace
from traceanalyzer.timeline.device_work import Busy

many = examples(60)


def raw_events(trace: TraceBuilder) -> list[dict[str, Any]]:
    """The events as a reader of the file sees them."""
    return json.loads(trace.to_json("array"), parse_float=Decimal)


@many
@given(traces())
def test_the_books_agree_with_the_reference(trace: TraceBuilder) -> None:
    assume(has_work(trace))
    books = Books.of(trace.load())
    work = reference.work_of(raw_events(trace))
    check_against_reference(books, work, books.steps.cpu_start_ns.tolist())
    busy = books.analysis.index(Busy)
    for device in books.devices:
        mine = [member for member in work if member.device == device]
        assert intervals.length(busy.devices[device]) == reference.busy_ns(mine)
        parts = books.parts(device)
        assert [*parts] == sorted(parts, key=lambda name: (-parts[name], name))  # largest first


@many
@given(traces(), st.floats(0, 1))
def test_splitting_the_window_anywhere_changes_nothing(trace: TraceBuilder, at: float) -> None:
    assume(has_work(trace))
    whole = Books.of(trace.load())
    low, high = whole.steps.window_start_ns, whole.steps.window_end_ns
    cut = low + round(at * (high - low))
    assume(low < cut < high)
    halves = [Books.within(whole.analysis.within(side)) for side in ((low, cut), (cut, high))]
    for device in whole.devices:
        added = sum((Counter(half.parts(device)) for half in halves), Counter())
        assert added == whole.parts(device)
        for step, parts in whole.by_step(device).items():
            added = sum((Counter(half.by_step(device).get(step, {})) for half in halves), Counter())
            assert added == parts


@many
@given(traces(), st.integers(0, 100), st.integers(0, 10**15))
def test_order_origin_and_numbers_do_not_matter(trace: TraceBuilder, seed: int, later: int) -> None:
    assume(has_work(trace))
    changed = [trace.shuffled(seed).shifted(later).renumbered()]  # what all do not change, none does
    if PROFILE != "quick":
        changed += [trace.shuffled(seed), trace.shifted(later), trace.renumbered()]
    expected = found(trace.load())
    for one in changed:
        assert found(one.load()) == expected


def found(trace: Trace) -> tuple[Any, ...]:
    """Everything that the books say, relative to the window's start."""
    books = Books.of(trace)
    parts = {device: books.parts(device) for device in books.devices}
    steps = {device: books.by_step(device) for device in books.devices}
    return parts, steps, books.causes()


def test_a_window_outside_the_trace_is_refused() -> None:
    trace = TraceBuilder()
    trace.kernel(0, 1_000, 1)
    with pytest.raises(Unavailable, match="outside"):
        Books.of(trace.load(), window=(2_000, 3_000))
