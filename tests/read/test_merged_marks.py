"""Marks of merged files by themselves: what each event was, whose it is, and which marks are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.merged_traces import Event, fused, labelled, rank_trace, shifted, written
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.read.load import load, load_job
from traceanalyzer.read.merged import _unfused, _unlabelled


@pytest.mark.parametrize(
    ("pid", "mark", "restored"),
    [
        ("[TP03-EP01] 17", "TP03-EP01", 17),
        ("[TP03] Spans", "TP03", "Spans"),
        ("[Unknown] 5", "Unknown", 5),
        ("[DP1-TP2-PP3-EP4] -1", "DP1-TP2-PP3-EP4", -1),
        ("[TP1] [TP2] 5", "TP1", "[TP2] 5"),
        ("[tp1] 5", None, "[tp1] 5"),
        ("[TP] 5", None, "[TP] 5"),
        ("[TP1]5", None, "[TP1]5"),
        ("x [TP1] 5", None, "x [TP1] 5"),
        ("[TP1234567] 5", None, "[TP1234567] 5"),
        (17, None, 17),
    ],
)
def test_a_label_before_a_process_is_taken_off(pid: Any, mark: str | None, restored: Any) -> None:
    event: Event = {"pid": pid, "tid": 3}
    assert _unlabelled(event) == mark
    assert event == {"pid": restored, "tid": 3}
    assert _unlabelled({}) is None


@pytest.mark.parametrize(
    ("args", "rank", "event"),
    [
        ({"rank": 0, "pid_raw": 7}, 0, {"pid": 7, "args": {}}),
        ({"rank": 3}, 3, {"pid": 1, "args": {}}),
        ({"rank": 999_999, "id_raw": 4}, 999_999, {"pid": 1, "args": {}}),
        ({"rank": 1_000_000}, None, {"pid": 1, "args": {}}),
        ({"rank": -1}, None, {"pid": 1, "args": {}}),
        ({"rank": "2", "pid_raw": 7}, None, {"pid": 1, "args": {"pid_raw": 7}}),
        ({"pid_raw": 7}, None, {"pid": 1, "args": {"pid_raw": 7}}),
        (
            {
                "rank": 2,
                "correlation": 90,
                "correlation_raw": 9,
                "External id": 80,
                "External id_raw": 8,
                "k": 1,
            },
            2,
            {"pid": 1, "args": {"correlation": 9, "External id": 8, "k": 1}},
        ),
        ("text", None, {"pid": 1, "args": "text"}),
    ],
)
def test_ids_of_a_fused_merge_are_restored(args: Any, rank: int | None, event: Event) -> None:
    given: Event = {"pid": 1, "args": args}
    assert _unfused(given) == rank
    assert given == event
    assert _unfused({"pid": 1}) is None


@pytest.mark.parametrize("merge", [labelled, shifted, fused])
def test_ranks_come_in_their_order_though_another_is_met_first(merge: Any, tmp_path: Path) -> None:
    """Of each its own events alone, in the order in which they were written."""
    whole = merge([rank_trace(rank) for rank in (0, 1, 2)])
    whole["traceEvents"].reverse()
    job = load_job(written(tmp_path / "merged.json", whole))
    assert list(job) == [0, 1, 2]
    assert [trace.meta.rank for trace in job.values()] == [0, 1, 2]
    for rank, trace in job.items():
        kernels = trace.gpu[trace.gpu["category"] == "kernel"]
        assert sorted(kernels["start_ns"]) == [20_000 + 1_000 * rank + 100_000 * step for step in range(3)]


def test_a_mark_without_rows_is_no_rank(tmp_path: Path) -> None:
    """Only a name was declared for it."""
    whole = labelled([rank_trace(0), rank_trace(1)])
    whole["traceEvents"].append(
        {"ph": "M", "name": "process_name", "pid": "[TP07-EP07] 5", "tid": 0, "ts": 0, "args": {"name": "p"}}
    )
    assert sorted(load_job(written(tmp_path / "merged.json", whole))) == [0, 1]


def test_events_without_a_mark_are_of_no_rank(tmp_path: Path) -> None:
    """They count as those of other ranks do."""
    whole = labelled([rank_trace(0), rank_trace(1)])
    own = len(whole["traceEvents"]) // 2
    plain = {"ph": "X", "cat": "cpu_op", "name": "aten::odd", "pid": 9, "tid": 9, "ts": 1.0, "dur": 1.0}
    whole["traceEvents"].insert(0, plain)
    job = load_job(written(tmp_path / "merged.json", whole))
    for trace in job.values():
        assert "aten::odd" not in set(trace.cpu["name"])
        assert trace.meta.counted["of another rank"] == own + 1


@pytest.mark.parametrize(("pids", "merged"), [((100, 100), False), ((100, 101), True)])
def test_launches_of_one_number_in_two_processes_were_merged(
    pids: tuple[int, int], merged: bool, tmp_path: Path
) -> None:
    events = []
    for pid, shift in zip(pids, (0, 0.5), strict=True):
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid, "tid": pid}
        events.append({**call, "ts": 5.0 + shift, "dur": 0.1, "args": {"correlation": 4}})
    path = written(tmp_path / "trace.json", {"traceEvents": events})
    if not merged:
        assert len(load(path).cpu) == 2
        return
    with pytest.raises(UnreadableTrace, match="launches of 2 processes, and 1 correlation ids"):
        load(path)


def test_partly_rank_named_processes_are_not_merged(tmp_path: Path) -> None:
    """Though one of them has a number as large as those that a merge gives."""
    made = TraceBuilder()
    for pid, name in ((1_000, "train_rank0"), (100_001_000, "loader")):
        made.op("aten::mm", 0, 10_000, pid=pid, tid=pid)
        made.event(ph="M", name="process_name", pid=pid, tid=0, ts=0, args={"name": name})
    trace = load(made.write(tmp_path / "one.json"))
    assert trace.meta.rank is None
    assert sorted(trace.cpu["pid"]) == [1_000, 100_001_000]
