"""The books of a trace: what the docs say of them, odd traces, and agreement with the slow reference."""

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.idle import reference
from tests.idle.books import Books, check_against_reference
from tests.idle.generated import has_work, traces
from tests.idle.one_gap import US, gap
from tests.job.ranks import REDUCES
from tests.support.cached_reports import analysed
from tests.support.hypothesis_profiles import PROFILE, examples
from tests.support.trace_builder import TraceBuilder
from tests.support.trace_selection import one_of_each_writer
from traceanalyzer.idle.accounting import CLASSES, Accounting
from traceanalyzer.idle.causes import CAUSES
from traceanalyzer.model import intervals
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Trace
from traceanalyzer.timeline.device_work import Busy
from traceanalyzer.timeline.names import STEP_MARK

PAGE = (Path(__file__).parents[2] / "docs" / "accounting.md").read_text(encoding="utf-8")


def test_every_class_and_cause_is_explained() -> None:
    for name in CLASSES:
        assert f"`{name}`" in PAGE or name == "idle"
    for cause in CAUSES:
        assert f"| `{cause}` |" in PAGE


def test_integer_microseconds_are_no_trouble() -> None:
    """Old exporters round down: kernels last no time, and work starts as its launch does."""
    trace = TraceBuilder()
    for i in range(4):
        trace.launched((10 * i * US, 2 * US), (10 * i * US, 0), i + 1)
    rows = Analysis(trace.load()).index(Accounting).summaries
    assert sum(rows[0].parts_ns.values()) == rows[0].end_ns - rows[0].start_ns == 32 * US
    assert all(name.startswith("idle") for name in rows[0].parts_ns)


def test_a_trace_of_nothing_but_kernels() -> None:
    trace = TraceBuilder()
    trace.kernel(0, 10 * US, 1)
    trace.kernel(30 * US, 10 * US, 2)
    (row,) = Analysis(trace.load()).index(Accounting).summaries
    assert row.parts_ns == {"compute": 20 * US, "idle:unlinked": 20 * US}


def test_a_device_that_is_never_idle() -> None:
    trace = TraceBuilder()
    trace.kernel(0, 10 * US, 1)
    (row,) = Analysis(trace.load()).index(Accounting).summaries
    assert row.parts_ns == {"compute": 10 * US}
    assert row.idle_causes == ()


@pytest.mark.parametrize(
    ("kinds", "named"),
    [
        ("kernel nccl HtoD memset", "compute_over_communication"),
        ("kernel nccl", "compute_over_communication"),
        ("kernel HtoD memset", "compute_over_copy"),
        ("kernel DtoD", "compute_over_copy"),
        ("kernel memset", "compute"),
        ("nccl DtoH memset", "communication"),
        ("DtoH HtoD memset", "copy_h2d"),
        ("DtoD memset", "copy_d2d"),
    ],
)
def test_work_that_runs_at_once_is_named_by_what_hides_the_rest(kinds: str, named: str) -> None:
    """On streams of their own, in whatever order the file has them."""
    for ordered in (kinds.split(), kinds.split()[::-1]):
        trace = TraceBuilder()
        for number, kind in enumerate(ordered):
            where = {"start": 0, "dur": 10 * US, "correlation": number + 1, "stream": 7 + number}
            if kind == "memset":
                trace.memset(**where)
            elif kind in ("kernel", "nccl"):
                trace.kernel(**where, name=REDUCES if kind == "nccl" else "gemm")
            else:
                trace.memcpy(**where, name=f"Memcpy {kind}")
        (row,) = Analysis(trace.load()).index(Accounting).summaries
        assert row.parts_ns == {named: 10 * US}


def test_work_without_a_device_is_on_device_0() -> None:
    trace = gap()
    loaded = trace.load()
    null = loaded.gpu["device"].mask(loaded.gpu["device"] == 0)
    lost = loaded.with_frames(gpu=loaded.gpu.assign(device=null, stream=null))
    (row,) = Analysis(lost).index(Accounting).summaries
    assert row.device == 0
    assert row.parts_ns == Analysis(loaded).index(Accounting).summaries[0].parts_ns


@pytest.mark.of_shared(wanted=one_of_each_writer)
def test_the_books_are_exact(shared_trace: Path) -> None:
    events = reference.raw_events(shared_trace)
    work = reference.work_of(events)
    analysis = analysed(shared_trace)
    if not work:
        with pytest.raises(Unavailable, match=r"no kernels|no device records|replace their times"):
            Books.within(analysis)
        return
    books = Books.within(analysis)
    busy = books.analysis.index(Busy)
    for device in books.devices:
        mine = [member for member in work if member.device == device]
        assert intervals.length(busy.devices[device]) == reference.busy_ns(mine)
    begins = books.steps.cpu_start_ns.tolist()
    if books.steps.kind == "ProfilerStep":
        assert begins == sorted(
            reference.ns(event["ts"]) for event in events if STEP_MARK.match(str(event.get("name"))) and is_cpu(event)
        )
    check_against_reference(books, work, begins)


def is_cpu(event: dict[str, object]) -> bool:
    """On the CPU lane; the GPU lane repeats annotations."""
    return event.get("ph") == "X" and event.get("cat") != "gpu_user_annotation"


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
