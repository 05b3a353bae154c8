"""Sorts of which no shapes were recorded, and what follows them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.rules.kernel_programs import NVJET, changed, found
from tests.support.trace_builder import H200, TID, TraceBuilder, content_of, load_bytes
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Confidence
from traceanalyzer.model.trace import Trace

US, SORT_US = 1_000, 4_000
SEGMENTED = "void cub::detail::radix_sort::DeviceSegmentedRadixSortKernel<long, long>(long const*)"
ONESWEEP = "void cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<long, long>(long const*)"
READER = "void at::native::vectorized_elementwise_kernel<4, at::native::ClampFunctor<long>>(int)"
SIZE = 256 * 200_000 * 8
PART = ("aten::slice", "aten::unsqueeze")


def sorting(
    views: Sequence[str] = PART,
    *,
    size: int = SIZE,
    kernel: str = SEGMENTED,
    rows: int = 256,
    blocks: int = 200,
    thread: int = TID,
    steps: int = 6,
) -> Trace:
    """A sort in two kernels, views of its result, and an op that reads them with `blocks` of 256 threads."""
    trace, number, at = TraceBuilder(devices=[H200]), 0, 0
    for step in range(steps):
        begin = at
        number += 3
        trace.op("aten::sort", at + 1 * US, 50 * US)
        trace.launch("cudaMemcpyAsync", at + 5 * US, 3 * US, number)
        trace.memcpy(at + 10 * US, 300 * US, number, size=size)
        trace.launch("cudaLaunchKernel", at + 15 * US, 3 * US, number + 1)
        trace.kernel(at + 311 * US, (SORT_US - 300) * US, number + 1, name=kernel, grid=(rows, 1, 1))
        for place, name in enumerate(views):
            trace.op(name, at + (60 + 3 * place) * US, 2 * US)
        trace.op("aten::clamp", at + 100 * US, 10 * US, tid=thread)
        trace.launch("cudaLaunchKernel", at + 102 * US, 3 * US, number + 2, tid=thread)
        trace.kernel(at + 4_020 * US, 10 * US, number + 2, name=READER, grid=(blocks, 1, 1))
        trace.op("aten::mm", at + 120 * US, 10 * US)
        trace.launch("cudaLaunchKernel", at + 122 * US, 3 * US, 1_000 + number)
        trace.kernel(at + 4_032 * US, 500 * US, 1_000 + number, name=NVJET, grid=(4_000, 1, 1))
        at += 4_540 * US
        trace.step(step, begin, at - begin - 1)
    return trace.load()


def test_what_reads_a_part_with_few_threads_could_be_had_by_topk() -> None:
    (one,) = found(sorting(), "full-sort")
    assert (
        "aten::sort sorts whole tensors once a step, in 4.00 ms, and what follows reads only a part"
        in one.message
    )
    assert one.confidence is Confidence.LOW
    part = 200 * 256 * 16 / (SIZE / 8)
    # twelve times its bytes at 4.8 TB/s, 45 us, and the part of the sort
    topk = 12 * SIZE / 4_800 + 45_000 + part * SORT_US * US
    assert one.evidence["topk_ns"] == pytest.approx(topk, abs=1)
    assert one.cost_ns == pytest.approx(6 * (SORT_US * US - topk), abs=100)


def test_a_sort_of_few_rows_is_quicker_and_topk_is_not() -> None:
    """Rows are known of segmented sorts alone."""
    both = [
        found(sorting(kernel=kernel, rows=rows), "full-sort")[0]
        for kernel, rows in ((SEGMENTED, 16), (ONESWEEP, 99))
    ]
    assert both[1].evidence["topk_ns"] - both[0].evidence["topk_ns"] == 110_000 - 45_000


@pytest.mark.parametrize(
    "trace",
    [
        sorting([]),
        sorting(["aten::unsqueeze"]),
        sorting(["aten::mul", "aten::slice"]),
        sorting(blocks=3_200),  # 13.1 of 51.2 million elements
        sorting(size=4_194_303, blocks=1),
        sorting(thread=TID + 1),
    ],
    ids=["whole", "views", "read-before", "many-threads", "small", "other-thread"],
)
def test_what_may_be_needed_whole_is_left_alone(trace: Trace) -> None:
    assert found(trace, "full-sort") == []


def test_the_quarter_of_a_sort_decides() -> None:
    assert len(found(sorting(blocks=3_124), "full-sort")) == 1
    assert found(sorting(blocks=3_126), "full-sort") == []


def test_where_nothing_is_known_of_a_sort_shapes_are_asked_for() -> None:
    (outcome,) = (
        one for one in diagnose(sorting([]), select=["full-sort"]).outcomes if one.rule == "full-sort"
    )
    assert "record_shapes=True" in (outcome.why or "")


def test_the_reader_of_a_sort_is_an_op_of_its_thread() -> None:
    """Behind the views nothing follows on the sort's thread; the next thread begins with a small op."""

    def elsewhere(event: dict[str, Any]) -> None:
        if event.get("cat") in ("cpu_op", "cuda_runtime") and event["ts"] >= 100:
            event["tid"] = TID + 1

    assert len(found(sorting(steps=1), "full-sort")) == 1
    assert found(changed(sorting(steps=1), elsewhere), "full-sort") == []


def test_of_two_copies_in_a_sort_the_larger_one_is_of_its_input() -> None:
    """Indices of a byte each are copied before or after the numbers; eight times as many elements as theirs."""
    (alone,) = found(sorting(), "full-sort")
    for late in (False, True):
        content = json.loads(content_of(sorting()))
        events = content["traceEvents"]
        for one in [one for one in events if one.get("name") == "aten::sort"]:
            (copy,) = (x for x in events if x["args"].get("bytes") == SIZE and 0 < x["ts"] - one["ts"] < 20)
            ids = {"correlation": 50_000 + int(one["ts"])}
            launch = {"cat": "cuda_runtime", "name": "cudaMemcpyAsync", "ts": one["ts"] + (20 if late else 1)}
            events.append({**one, **launch, "dur": 2, "args": {"cbid": 211, **ids}})
            args = {**copy["args"], **ids, "bytes": SIZE // 8}
            events.append({**copy, "ts": copy["ts"] + (4_535 if late else -5), "dur": 1, "args": args})
        (one,) = found(load_bytes(json.dumps(content).encode()), "full-sort")
        assert one.evidence["topk_ns"] == pytest.approx(alone.evidence["topk_ns"], rel=0.001)
