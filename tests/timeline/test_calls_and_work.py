"""Work beside its launch and its op: devices in any order, lines, types, and columns by their kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.selection import check_column

US = 1_000


def test_work_between_other_devices_stays_on_its_device() -> None:
    trace = TraceBuilder()
    for number, device in enumerate((0, 1, 0), start=1):
        trace.kernel(number * 20 * US, US, number, device=device)
    work = Analysis(trace.load()).index(Work)
    assert [(ordinal, own.entries.tolist()) for ordinal, own in work.by_device()] == [(0, [0, 2]), (1, [1])]


def test_shares_are_of_the_gpu_time_of_the_device() -> None:
    trace = TraceBuilder()
    for number, (device, dur_us) in enumerate(((0, 1), (0, 3), (1, 5), (1, 5)), start=1):
        trace.kernel(number * 20 * US, dur_us * US, number, device=device)
    work = Analysis(trace.load()).index(Work)
    chosen = work[np.array([0, 2])]
    assert [(pieces.entries.tolist(), share) for pieces, share in chosen.device_shares()] == [
        ([0], 0.25),
        ([2], 0.5),
    ]
    assert [share for _, share in chosen.device_shares(0.5)] == [0.5]
    assert [share for _, share in chosen.device_shares(0.51)] == []


def test_line_within_the_launching_op_is_nearer() -> None:
    trace = TraceBuilder(record_shapes=1, with_stack=1)
    trace.python("net.py(3): forward", 0, 200 * US, python_id=1)
    shapes: dict[str, Any] = {"Input Dims": [[8, 4]], "Input type": ["float"]}
    trace.op("MyFunction", 10 * US, 100 * US, **shapes)
    trace.python("net.py(9): inner", 20 * US, 60 * US, python_id=2, parent=1)
    trace.launched((40 * US, US), (50 * US, US), 1)
    work = Analysis(trace.load()).index(Work)
    assert work.line.values().tolist() == ["net.py(9): inner"]
    assert work.op.line.values().tolist() == ["net.py(3): forward"]
    assert work.types.values().tolist() == ['["float"]']
    assert work.dims.values().tolist() == ["[[8,4]]"]


def test_unlaunched_work_has_the_outermost_op_of_its_number() -> None:
    trace = TraceBuilder()
    trace.op("aten::linear", 10 * US, 50 * US, external_id=5)
    trace.op("aten::mm", 20 * US, 30 * US, external_id=6)
    trace.kernel(70 * US, US, 1, external_id=6)
    work = Analysis(trace.load()).index(Work)
    assert work.launch.there.tolist() == [False]
    assert work.op.name.values().tolist() == ["aten::mm"]
    assert work.outer_op.name.values().tolist() == ["aten::linear"]


@pytest.mark.parametrize(
    ("column", "text", "known", "of_the_other_kind"),
    [("start_ns", True, "input_dims", "dur_ns"), ("name", False, "dur_ns", "input_dims")],
)
def test_existing_columns_are_named_for_the_asked_kind(
    column: str, text: bool, known: str, of_the_other_kind: str
) -> None:
    with pytest.raises(ValueError, match=f"^trace.cpu has no (texts|numbers) '{column}'") as error:
        check_column("cpu", column, text=text)
    assert known in str(error.value)
    assert of_the_other_kind not in str(error.value)


def test_annotation_or_missing_row_is_no_outermost_op() -> None:
    trace = TraceBuilder()
    trace.annotation("mine", 0, 50 * US)
    trace.op("aten::mm", 10 * US, 20 * US)
    trace.launch("cudaLaunchKernel", 15 * US, US, 1)
    trace.launch("cudaDeviceSynchronize", 60 * US, US, 2)
    calls = Analysis(trace.load()).index(Calls)
    assert calls.is_top_op.tolist() == [False, True, False, False]
    missing = Calls(calls.events, np.array([1, -1]))
    assert (missing.is_op.tolist(), missing.is_top_op.tolist()) == ([True, False], [True, False])
