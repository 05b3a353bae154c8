"""What the shared traces are known to be idle for: their labels are true by construction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.idle.books import Books
from tests.support.cached_reports import analysed
from tests.support.paths import shared_names
from traceanalyzer.idle.causes import CAUSES
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting

Shared = Callable[[str], Path]

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
RECORDED_ON_H200 = ("pairs/", "real/", "ddp/", "seeds/")


@pytest.mark.parametrize(
    ("pair", "cause", "ops"),
    [
        ("dataloader", "data-loading", {LOADER}),
        ("python_between", "python", {None}),
        ("launch_bound", "dispatching", {"aten::mul", "aten::add"}),
        ("optimizer_loop", "dispatching", {"aten::mul_"}),
        ("device_sync", "synchronisation", {"cudaDeviceSynchronize"}),
        ("nonzero", "synchronisation", {"aten::index"}),
        ("cpu_roundtrip", "synchronisation", {"aten::to"}),
        ("recompile", "compilation", {"dynamo"}),
        ("gc_pause", "host-code", {None}),
        ("graph_break", "dispatching", {"aten::linear"}),
    ],
)
def test_the_dominant_cause_and_op_are_right(
    shared: Shared, pair: str, cause: str, ops: set[str | None]
) -> None:
    books = Books.within(analysed(shared(f"pairs/{pair}.bad")))
    assert books.dominant_cause() == cause
    assert books.dominant()[0] == cause
    assert books.dominant()[1] in ops


def test_no_op_is_open_while_garbage_is_collected(shared: Shared) -> None:
    books = Books.within(analysed(shared("pairs/gc_pause.bad")))
    trace = books.trace
    nesting = books.analysis.index(Nesting)
    pauses = np.flatnonzero(books.idle.dur_ns > 100_000_000)
    pauses = pauses[books.idle.cause[pauses] == CAUSES.index("host-code")]
    assert len(pauses) == len(books.steps) - 1  # the last one has no work behind it: the tail
    ops = nesting.op == np.arange(len(trace.cpu))
    for start, end in zip(books.idle.start_ns[pauses], books.idle.end_ns[pauses], strict=True):
        inside = np.minimum(nesting.end_ns[ops], end) - np.maximum(nesting.start_ns[ops], start)
        assert inside.max() < 0.001 * (end - start)


def test_part_of_the_optimizer_loop_is_the_profilers(shared: Shared) -> None:
    parts = Books.within(analysed(shared("pairs/optimizer_loop.bad"))).parts(0)
    assert parts["idle:profiler-overhead"] == pytest.approx(
        2.0e6, rel=0.05
    )  # one buffer request and its flush


@pytest.mark.parametrize(
    "name", ["clean_gemm.fixed", "clean_train.fixed", "fp32_gemm.bad", "low_occupancy.bad"]
)
def test_busy_traces_are_hardly_idle(shared: Shared, name: str) -> None:
    assert Books.within(analysed(shared(f"pairs/{name}"))).idle_share(0) < 0.05


def test_gaps_between_the_kernels_of_a_graph_are_in_it(shared: Shared) -> None:
    books = Books.within(analysed(shared("pairs/launch_bound.fixed")))
    trace = books.trace
    idle, work = books.idle, books.analysis.index(DeviceWork)
    both = (idle.work >= 0) & (idle.before >= 0)
    call, before = work.call[idle.work[both]], work.call[idle.before[both]]
    within = (call == before) & (call >= 0) & (trace.cpu["name"].to_numpy()[call] == "cudaGraphLaunch")
    assert within.sum() > 1000
    assert (idle.cause[both][within] == CAUSES.index("in-graph")).all()
    assert (idle.cause[both][~within] != CAUSES.index("in-graph")).all()


@pytest.mark.parametrize("name", [name for name in shared_names() if name.startswith(RECORDED_ON_H200)])
def test_hardly_anything_is_unknown(shared: Shared, name: str) -> None:
    books = Books.within(analysed(shared(name)))
    for device in books.devices:
        assert books.parts(device).get("idle:unknown", 0) < 0.02 * books.steps.window_ns


@pytest.mark.parametrize(
    ("name", "cause", "op"),
    [
        ("public/kineto_v100_resnet50_nw0", "data-loading", LOADER),
        ("public/hta_a100_alexnet", "first-use", "aten::empty_strided"),  # the CUDA context
        (
            "public/hta_a100_event_sync",
            "first-use",
            "aten::empty",
        ),  # not the aten::fill_ after it
        ("seeds/2048_bf16_cold_eager_w0u0a10", "first-use", "aten::mm"),
        ("seeds/4096_bf16_warm_eager_w0u0a20", "profiler-overhead", "Activity Buffer Request"),
        ("ddp/straggler_cpu.rank1", "host-code", None),
    ],
)
def test_what_an_expert_sees_in_the_largest_gap(
    shared: Shared, name: str, cause: str, op: str | None
) -> None:
    books = Books.within(analysed(shared(name)))
    assert books.dominant() == (cause, op)


def test_annotations_that_old_exporters_wrote_as_ops_mark_steps(shared: Shared) -> None:
    books = Books.within(analysed(shared("public/kineto_v100_resnet50_nw4")))
    assert books.steps.kind == "ProfilerStep"
    assert books.steps.number.tolist() == [5, 6, 7, 8, 9, 10]
