"""Baselines: what is saved compares as the traces themselves, and what is no baseline is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.comparison.programs import ADDED, MM, built
from traceanalyzer import BadOption, UnreadableTrace, compare
from traceanalyzer.comparison import baseline
from traceanalyzer.comparison.baseline import baseline_bytes, baseline_path, load_baseline
from traceanalyzer.comparison.captures import Captures
from traceanalyzer.comparison.compare import side_of
from traceanalyzer.comparison.jobs import job_notes, rank_changes
from traceanalyzer.comparison.result import Word
from traceanalyzer.comparison.sides import Side
from traceanalyzer.comparison.snapshot import TABLES


def saved(path: Path, *captures: object) -> str:
    path.write_bytes(baseline_bytes(side_of(list(captures))))  # type: ignore[arg-type]
    return f"baseline:{path}"


def test_a_baseline_says_what_the_trace_says(tmp_path: Path) -> None:
    trace = built([MM, ADDED], syncs=1).load()
    name = saved(tmp_path / "main.parquet", trace)
    (capture,) = load_baseline(str(tmp_path / "main.parquet"))
    (told,) = side_of(trace)
    for table in TABLES:
        assert capture[None].tables[table].equals(told[None].tables[table]), table
    assert capture[None].step == told[None].step
    assert capture[None].faults == told[None].faults
    assert capture[None].recorded == told[None].recorded == ("nanoseconds", "shapes")
    assert compare(name, trace).verdict.word is Word.IDENTICAL


@pytest.mark.parametrize("late", [0, 1, None])
def test_a_baseline_of_ranks_tells_which_the_others_wait_for(late: int | None, tmp_path: Path) -> None:
    """Compared with a job in which they wait for no rank; each rank waits as long as before."""
    (one,) = (capture[None] for capture in side_of(built([MM]).load()))
    waits = [3_000_000 * (rank != late) for rank in range(2)]
    ranks = {rank: replace(one, rank=rank, waiting_ns=ns) for rank, ns in enumerate(waits)}
    side: Side = [{rank: replace(snapshot, culprit=rank == late) for rank, snapshot in ranks.items()}]
    path = tmp_path / "job.parquet"
    path.write_bytes(baseline_bytes(side))
    (loaded,) = load_baseline(str(path))
    assert [(rank, kept.rank, kept.waiting_ns) for rank, kept in loaded.items()] == [
        (rank, rank, ns) for rank, ns in enumerate(waits)
    ]
    before, after = ({rank: Captures.of([kept]) for rank, kept in part.items()} for part in (loaded, ranks))
    more = "others waited up to 3.00 ms a step more than it"
    told = [] if late is None else [f"rank {late} is late no more: {more}"]
    assert job_notes(before, after, rank_changes(before, after)) == told


def test_the_same_captures_give_the_same_bytes() -> None:
    side = side_of([built([MM, ADDED], jitter=seed).load() for seed in (7, 11, 13)])
    assert baseline_bytes(side) == baseline_bytes(side)


def test_several_captures_stay_apart(tmp_path: Path) -> None:
    captures = [built([MM, ADDED], jitter=seed).load() for seed in (7, 11, 13)]
    name = saved(tmp_path / "three.parquet", *captures)
    found = compare(name, captures)
    assert found.axes.step is not None
    assert found.axes.step.captures == (3, 3)
    assert found.verdict.word is Word.IDENTICAL


def test_a_large_baseline_keeps_fewer_durations_or_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    side = side_of(built([MM, ADDED], steps=40).load())
    whole = len(baseline_bytes(side))
    monkeypatch.setattr(baseline, "MAX_BYTES", whole - 1)
    assert len(baseline_bytes(side)) < whole
    monkeypatch.setattr(baseline, "MAX_BYTES", 100)
    with pytest.raises(BadOption, match="more than 100"):
        baseline_bytes(side)


def test_names_are_files_below_the_folder_or_paths() -> None:
    assert baseline_path("main") == Path(".traceanalyzer/main.parquet")
    assert baseline_path("a/b.parquet") == Path("a/b.parquet")
    with pytest.raises(BadOption, match="not a name"):
        baseline_path("../main")


def test_what_is_no_baseline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="no such baseline"):
        compare(f"baseline:{tmp_path / 'none.parquet'}", "new.json")
    text = tmp_path / "text.parquet"
    text.write_text("hello")
    with pytest.raises(UnreadableTrace, match="not a Parquet file"):
        load_baseline(str(text))
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), other)
    with pytest.raises(UnreadableTrace, match="is no baseline"):
        load_baseline(str(other))


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.parquet"
    saved(path, built([MM]).load())
    table = pq.read_table(path)
    key = b"traceanalyzer.baseline"
    described = json.loads(table.schema.metadata[key]) | {"schema": 0, "version": "0.0.1\udfff"}
    pq.write_table(table.replace_schema_metadata({key: json.dumps(described).encode()}), path)
    with pytest.raises(UnreadableTrace, match=r"made by traceanalyzer 0\.0\.1.udfff"):
        load_baseline(str(path))


@pytest.mark.parametrize("changed", [b'"sum": "0', b'"heads": [0, '])
def test_a_changed_baseline_is_refused(changed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "main.parquet"
    saved(path, built([MM]).load())
    table = pq.read_table(path)
    key = b"traceanalyzer.baseline"
    begin = changed.partition(b": ")[0] + b": " + (b'"' if b"sum" in changed else b"[")
    described = table.schema.metadata[key].replace(begin, changed)
    pq.write_table(table.replace_schema_metadata({key: described}), path)
    with pytest.raises(UnreadableTrace, match="not as it was saved"):
        load_baseline(str(path))
    pq.write_table(table.slice(1), path)
    with pytest.raises(UnreadableTrace, match="not as it was saved"):
        load_baseline(str(path))


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """One byte of the name of a column, wherever the file has it, as a disk may leave it."""
    path = tmp_path / "kept.parquet"
    saved(path, built([MM]).load())
    whole = path.read_bytes()
    at = [place for place in range(len(whole)) if whole.startswith(b"samples", place)]
    assert len(at) > 1
    errors = []
    for place in at:
        path.write_bytes(whole[: place + 3] + b"\xff" + whole[place + 4 :])
        with suppress(UnreadableTrace):  # a name of the footer alone is not read
            load_baseline(str(path))
            continue
        errors.append(place)
    assert errors
