"""Each event of a merged file is put back as its rank's own file had it, whoever merged it."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.read.same import assert_same
from tests.support.merged_traces import fused, labelled, rank_trace, shifted, written
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.read import merged
from traceanalyzer.read.columns.collector import Collector, Declared
from traceanalyzer.read.load import load_job
from traceanalyzer.read.merged import restore_of, shifted_back, unfused, unlabelled
from traceanalyzer.read.text.batches import Batches

SHIFT = 100_000_000


@pytest.mark.parametrize(
    ("event", "rank", "restored"),
    [
        ({"pid": "[TP03-EP01] 17", "tid": "x"}, "TP03-EP01", {"pid": 17, "tid": "x"}),
        ({"pid": "[TP03] Spans"}, "TP03", {"pid": "Spans"}),
        ({"pid": "[Unknown] -1"}, "Unknown", {"pid": -1}),
        ({"pid": "[TP1] a\nb"}, "TP1", {"pid": "a\nb"}),
        ({"pid": "[TP1] [TP2] 5"}, "TP1", {"pid": "[TP2] 5"}),
        ({"pid": "[DP1-TP2-PP3-EP4] -1"}, "DP1-TP2-PP3-EP4", {"pid": -1}),
        ({"pid": "[TP] 5"}, None, None),
        ({"pid": "[TP1]5"}, None, None),
        ({"pid": "[TP1234567] 5"}, None, None),
        ({"pid": "[tp1] 17"}, None, None),
        ({"pid": "x [TP1] 17"}, None, None),
        ({"pid": 17}, None, None),
        ({}, None, None),
    ],
)
def test_labels_before_pids(event: dict[str, Any], rank: Any, restored: dict[str, Any] | None) -> None:
    before = deepcopy(event)
    assert unlabelled(event) == rank
    assert event == (before if restored is None else restored)


@pytest.mark.parametrize(
    ("event", "rank", "restored"),
    [
        ({"pid": 17, "tid": 5}, 0, {"pid": 17, "tid": 5}),
        ({"pid": SHIFT + 17, "tid": SHIFT + 5}, 1, {"pid": 17, "tid": 5}),
        ({"pid": 2 * SHIFT - 1, "tid": 2 * SHIFT}, 2, {"pid": -1, "tid": 0}),
        ({"pid": -1, "tid": 0}, 0, {"pid": -1, "tid": 0}),
        ({"pid": SHIFT // 2 - 1}, 0, {"pid": SHIFT // 2 - 1}),
        ({"pid": SHIFT // 2}, 1, {"pid": -SHIFT // 2}),
        ({"pid": f"Spans_{3 * SHIFT}", "tid": f"a_{3 * SHIFT}"}, 3, {"pid": "Spans", "tid": "a"}),
        ({"pid": "Spans_0", "tid": "PyTorch Profiler_0"}, 0, {"pid": "Spans", "tid": "PyTorch Profiler"}),
        ({"pid": "Spans", "tid": "x"}, None, None),
        ({"pid": -SHIFT}, None, None),
        ({"pid": 1_000_000 * SHIFT}, None, None),
        ({"pid": 999_999 * SHIFT + 4}, 999_999, {"pid": 4}),
        (
            {"ph": "M", "pid": SHIFT, "args": {"name": "python_rank1", "labels": "GPU 7_1", "more": "a_1"}},
            1,
            {"ph": "M", "pid": 0, "args": {"name": "python", "labels": "GPU 7", "more": "a_1"}},
        ),
        (
            {"ph": "X", "pid": SHIFT, "args": {"name": "python_rank1"}},
            1,
            {"ph": "X", "pid": 0, "args": {"name": "python_rank1"}},
        ),
        ({"ph": "M", "pid": SHIFT, "args": {"name": 3}}, 1, {"ph": "M", "pid": 0, "args": {"name": 3}}),
        ({"ph": "M", "pid": SHIFT, "args": None}, 1, {"ph": "M", "pid": 0, "args": None}),
    ],
)
def test_pids_that_were_moved(event: dict[str, Any], rank: Any, restored: dict[str, Any] | None) -> None:
    before = deepcopy(event)
    assert shifted_back(event) == rank
    assert event == (before if restored is None else restored)


@pytest.mark.parametrize(
    ("event", "rank", "restored"),
    [
        (
            {"pid": 9, "args": {"rank": 3, "pid_raw": "Spans", "id_raw": 4, "correlation": 90, "correlation_raw": 9}},
            3,
            {"pid": "Spans", "args": {"correlation": 9}},
        ),
        (
            {"pid": 9, "args": {"rank": 0, "External id": 80, "External id_raw": 8, "stream": 7}},
            0,
            {"pid": 9, "args": {"External id": 8, "stream": 7}},
        ),
        ({"args": {"rank": 999_999}}, 999_999, {"args": {}}),
        ({"args": {"rank": 1_000_000}}, None, {"args": {}}),
        ({"args": {"rank": -1}}, None, {"args": {}}),
        ({"args": {"rank": "1"}}, None, {"args": {}}),
        ({"args": [1]}, None, {"args": [1]}),
        ({}, None, {}),
    ],
)
def test_ids_that_were_kept_beside_the_rank(event: dict[str, Any], rank: Any, restored: dict[str, Any]) -> None:
    assert unfused(event) == rank
    assert event == restored


def collected(pids: list[Any], names: list[str], keys: frozenset[str] = frozenset()) -> Collector:
    """Rows of these pids, and processes of these names."""
    collector = Collector()
    for pid in pids:
        collector.heads["aten::mm", pid, 1]
    collector.declared = Declared(processes={str(at): {"process_name": name} for at, name in enumerate(names)})
    collector.declared.processes["x"] = {"process_labels": "GPU 0"}
    collector.group("cpu", "cpu_op", keys)
    return collector


NAMED = ["python_rank0", "python_rank1"]


@pytest.mark.parametrize(
    ("pids", "names", "keys", "restore"),
    [
        ([3, "[TP1] 4"], [], (), unlabelled),
        ([3, "x [TP1] 4"], [], (), None),
        ([3, SHIFT], NAMED, (), shifted_back),
        ([3, SHIFT // 2 + 1], NAMED, (), shifted_back),
        ([3, SHIFT // 2], NAMED, (), None),
        ([3, SHIFT], [*NAMED, "python"], (), None),
        ([3, SHIFT], [], (), None),
        ([3, "a"], NAMED, (), None),
        ([3], [], ("rank", "pid_raw", "stream"), unfused),
        ([3], [], ("rank", "stream"), None),
        ([3], [], ("pid_raw",), None),
    ],
)
def test_how_a_file_was_merged_is_told_by_its_marks(
    pids: list[Any], names: list[str], keys: tuple[str, ...], restore: Any
) -> None:
    assert restore_of(collected(pids, names, frozenset(keys))) is restore


def test_launches_of_how_many_processes_share_ids_is_said() -> None:
    """Of three processes, two of which have two ids in common; calls without one share nothing."""
    made = TraceBuilder()
    for pid, ids in ((100, (1, 2, 0)), (200, (2, 1, 0)), (300, (7, 0))):
        for at, correlation in enumerate(ids):
            made.launch("cudaLaunchKernel", 1_000 * at, 100, correlation, pid=pid, tid=pid)
    with pytest.raises(UnreadableTrace, match=r"the launches of 3 processes, and 2 correlation ids are of several"):
        made.load()


@pytest.mark.parametrize("merge", [labelled, shifted, fused])
def test_ranks_may_begin_and_end_in_any_batch(merge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places of events and numbers of those of other ranks are the same however much is parsed at a time."""
    path = written(tmp_path / "merged.json", merge([rank_trace(rank) for rank in (0, 1, 2)]))
    whole = load_job(path)
    monkeypatch.setattr(merged, "Batches", lambda source: Batches(source, 600))
    parts = load_job(path)
    assert sorted(parts) == [0, 1, 2]
    for rank, trace in parts.items():
        assert_same(trace, whole[rank])
        assert trace.meta.counted["of another rank"] > sum(map(len, (trace.cpu, trace.gpu)))


def test_a_rank_without_a_row_is_none(tmp_path: Path) -> None:
    """Some merge the names of processes that recorded nothing."""
    file = labelled([rank_trace(rank) for rank in (0, 1)])
    name = {"ph": "M", "name": "process_name", "ts": 0, "tid": 0, "args": {"name": "python"}}
    file["traceEvents"].insert(0, {**name, "pid": "[TP07] 9"})
    assert sorted(load_job(written(tmp_path / "merged.json", file))) == [0, 1]
