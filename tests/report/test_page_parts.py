"""Parts of the page: what a device did over the window, which ops are shown, and how rows are found and drawn."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.render.html.event_bars import cpu_bars, entries_of, rows_of
from traceanalyzer.render.html.page_data import MOST_INPUTS, op_table
from traceanalyzer.render.html.timeline_data import overviews
from traceanalyzer.timeline.selection import Events

US = 1_000


def test_how_busy_each_part_was_and_with_what_most() -> None:
    """Four parts of 100 us: work alone, half idle, mostly a copy beside some work, and idle."""
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 400 * US)
    trace.kernel(0, 150 * US, 1)
    trace.memcpy(200 * US, 60 * US, 2, name="Memcpy HtoD (Pinned -> Device)")
    trace.kernel(260 * US, 40 * US, 3)
    trace.kernel(399 * US, US, 4)
    (found,) = overviews(Analysis(trace.load()), 4)
    assert found.device == 0
    assert found.busy == (100, 50, 100, 1)
    assert [found.names[one] for one in found.doing] == ["compute", "compute", "copy_h2d", "compute"]
    assert [one >= 0 for one in found.why] == [False, True, False, True]
    assert all(found.names[one].startswith("idle:") for one in found.why if one >= 0)


def test_a_part_in_which_nothing_ran_is_doing_nothing() -> None:
    trace = TraceBuilder()
    trace.kernel(0, 10 * US, 1)
    trace.kernel(30 * US, 10 * US, 2)
    trace.kernel(0, 40 * US, 3, device=1)
    first, second = overviews(Analysis(trace.load()), 4)
    assert (first.device, first.busy) == (0, (100, 0, 0, 100))
    assert [one >= 0 for one in first.doing] == [True, False, False, True]
    assert (second.device, second.busy, second.why) == (1, (100,) * 4, (-1,) * 4)


@pytest.mark.parametrize("more", [0, 1])
def test_ops_beyond_the_most_are_summed_and_inputs_counted(more: int) -> None:
    trace = TraceBuilder(record_shapes=1)
    number = 0
    for at, calls in enumerate((1, 2, MOST_INPUTS + more)):
        for call in range(calls):
            number += 1
            dims = {"Input Dims": [[call + 1, 8]], "Input type": ["float"], "Concrete Inputs": [""]}
            trace.op(f"aten::op{at}", number * 100 * US, 50 * US, **dims)
            trace.launch("cudaLaunchKernel", number * 100 * US + US, US, number)
            trace.kernel(number * 100 * US + 10 * US, 10 * US, number)
    table = op_table(Analysis(trace.load()), 2)
    assert [(row.name, row.calls, len(row.inputs), row.more) for row in table.rows] == [
        ("aten::op2", MOST_INPUTS + more, MOST_INPUTS, more),
        ("aten::op1", 2, 2, 0),
    ]
    assert (table.others, table.others_ns) == (1, 10 * US)
    assert len(table.peaks) == 1
    every = op_table(Analysis(trace.load()), 3)
    assert (len(every.rows), every.others, every.others_ns) == (3, 0, 0)


def test_kinds_of_bars_are_those_of_their_rows() -> None:
    trace = TraceBuilder()
    trace.annotation("step", 0, 100 * US)
    trace.op("aten::mm", US, 50 * US)
    trace.launch("cudaLaunchKernel", 2 * US, US, 1)
    trace.launch("cudaStreamSynchronize", 4 * US, US, 2)
    trace.op("cudaStreamSynchronize", 6 * US, US)  # of the user's, called so
    trace.kernel(3 * US, US, 1)
    events = Analysis(trace.load()).index(Events)
    _, bars = cpu_bars(events, np.arange(5), np.array([], np.int64))
    assert [bar.kind for bar in bars] == ["annotation", "op", "call", "wait", "op"]
    assert [bar.level for bar in bars] == [0, 1, 2, 2, 2]


def test_rows_are_found_by_ids_that_are_there() -> None:
    assert rows_of(np.array([2, 5, 9]), np.array([9, 2, 2, 3, 10, 0])).tolist() == [0, 2]
    trace = TraceBuilder()
    op = trace.op("aten::mm", 0, 10 * US)
    late = trace.kernel(20 * US, US, 1)
    early = trace.kernel(10 * US, US, 2)
    mark = trace.gpu_annotation("forward", 10 * US, 11 * US, external_id=9)  # no work
    events = Analysis(trace.load()).index(Events)
    assert events.work is not None
    entries = [entries_of(events, np.array([one])) for one in (op, mark, late, early)]
    assert [len(one) for one in entries] == [0, 0, 1, 1]
    starts = [int(events.work.start_ns[one][0]) for one in entries[2:]]
    assert starts[0] - starts[1] == 10 * US
