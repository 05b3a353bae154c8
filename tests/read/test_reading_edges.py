"""Edges of the ways into the reader: archives, copies of URLs, large files without events, cached columns, messages."""

import io
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.read.samples import everything
from tests.support.merged_traces import labelled, rank_trace, written
from tests.support.trace_builder import load_bytes
from tests.support.trace_files import declared, tar
from traceanalyzer.model.errors import NotATrace, UnreadableTrace
from traceanalyzer.model.schema import FRAMES
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.read import cache
from traceanalyzer.read import load as load_module
from traceanalyzer.read.job_ranks import assign_ranks
from traceanalyzer.read.load import load, load_file, load_job
from traceanalyzer.read.remote import fetched
from traceanalyzer.read.text import envelope
from traceanalyzer.read.text.batches import Batches

upath = pytest.importorskip("upath")
TRACE = b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}'


# -- archives ---------------------------------------------------------------------------------------------


def test_folders_and_links_of_an_archive_are_no_traces(tmp_path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, kind in (("run.json", tarfile.DIRTYPE), ("last.json", tarfile.SYMTYPE)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "run.json/trace.JSON"
            archive.addfile(entry)
        entry = tarfile.TarInfo("run.json/trace.JSON")
        entry.size = len(TRACE)
        archive.addfile(entry, io.BytesIO(TRACE))
    (path := tmp_path / "a.tar").write_bytes(made.getvalue())
    assert load(path).cpu["name"].tolist() == ["a"]


def test_an_archive_of_several_traces_names_the_first_two(tmp_path: Path) -> None:
    content = tar(("x.txt", b"?"), ("one/a.json", TRACE), ("two/b.json", TRACE), ("c.json", TRACE))
    (path := tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(UnreadableTrace) as refused:
        load_file(path)
    assert refused.value.problem == "is a tar archive of several .json files: one/a.json, two/b.json"
    assert refused.value.where == str(path)
    assert "unpack it and pass the folder" in str(refused.value.remedy)


# -- URLs -------------------------------------------------------------------------------------------------


def test_fetched_copy_of_a_url_lives_while_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(b"content")
    with fetched(f"file://{tmp_path}/a.json.gz") as copy:
        assert (copy.name, copy.read_bytes()) == ("a.json.gz", b"content")
        assert copy.parent != tmp_path
    assert not copy.parent.exists()
    with pytest.raises(ValueError, match="while it is read"), fetched(f"file://{tmp_path}/a.json.gz") as copy:
        raise ValueError("while it is read")
    assert not copy.parent.exists()
    assert (tmp_path / "a.json.gz").exists()


def test_a_url_of_merged_ranks_is_refused_by_its_name(tmp_path: Path) -> None:
    path = written(tmp_path / "merged.json", labelled([rank_trace(rank) for rank in (0, 1)]))
    with pytest.raises(UnreadableTrace) as refused:
        load_job(f"file://{path}")
    assert (refused.value.problem, refused.value.where, refused.value.remedy) == (
        "holds traces of several ranks, merged",
        f"file://{path}",
        "Fetch it, and pass the file.",
    )


def test_a_url_is_read_in_batches_of_the_size_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    plain = Batches

    def noted(source: Any, batch_bytes: int, *rest: Any) -> Any:
        asked.append(batch_bytes)
        return plain(source, batch_bytes, *rest)

    monkeypatch.setattr("traceanalyzer.read.load.Batches", noted)
    path = everything().write(tmp_path / "a.json")
    trace = load(f"file://{path}", batch_bytes=1_234)
    assert asked == [1_234]
    assert trace.meta.source == f"file://{path}"


# -- files without events ---------------------------------------------------------------------------------


@pytest.mark.parametrize("large", [False, True])
def test_a_file_without_events_is_told_by_its_first_eight_keys(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large it is; keys within other objects are none of its own."""
    if large:
        monkeypatch.setattr(envelope, "_MAX_PARSED_BYTES", 50)
    keys = [f"key {at}" for at in range(9)]
    inner = '{"inner": ["text", {"deep": "key"}]}'
    content = "{" + ", ".join(f'"{key}": {inner if at else "5"}' for at, key in enumerate(keys)) + "}"
    with pytest.raises(NotATrace) as refused:
        load_bytes(f" \n{content}".encode())
    assert refused.value.problem == (f"is JSON, but holds no traceEvents; its top-level keys are {', '.join(keys[:8])}")


def test_large_content_that_is_no_object_is_not_called_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "_MAX_PARSED_BYTES", 10)
    with pytest.raises(UnreadableTrace, match="neither JSON nor gzip nor zstd: byte 1 begins no object"):
        load_bytes(b' "a text that is long: key"' + b" " * 50)


# -- the cache --------------------------------------------------------------------------------------------


def test_what_cannot_be_put_in_its_place_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = everything().write(tmp_path / "trace.json")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        assert len(load_file(path, cache=True).cpu)
    assert list((tmp_path / "cache" / "traceanalyzer").iterdir()) == []
    load_file(path, cache=True)
    (kept,) = (tmp_path / "cache" / "traceanalyzer").iterdir()
    assert kept.suffix == ".arrow"


@pytest.mark.parametrize("chunks", [1, 2])
def test_columns_of_the_cache_are_those_of_the_reader(chunks: int) -> None:
    """What is not there is -2**63 among numbers, no number among real ones, and no text."""

    def column(values: list[Any], kind: Any) -> Any:
        parts = [values] if chunks == 1 else [values[:1], values[1:]]
        return pa.chunked_array([pa.array(part, kind) for part in parts])

    columns = {one.name: one for frame in FRAMES.values() for one in frame.columns}
    whole = cache.stored_column(columns["correlation"], column([5, None, 7], pa.int64()))
    assert whole.tolist() == [5, NULL_INT, 7]
    real = cache.stored_column(columns["blocks_per_sm"], column([0.5, None, 2.0], pa.float64()))
    np.testing.assert_array_equal(real, [0.5, np.nan, 2.0])
    texts = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int32()), pa.array(["a", "b"]))
    given = pa.chunked_array([texts] if chunks == 1 else [texts[:1], texts[1:]])
    coded = cache.stored_column(columns["name"], given)
    assert [None if code < 0 else coded.texts[code] for code in coded.codes] == ["b", None, "a"]


# -- several recordings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "problem", "remedies"),
    [
        (
            declared("my run/a.json", 3, world_size=4, program=(1,)),
            declared("new/a.json", 3, world_size=2, program=(1,)),
            "two traces of rank 3: my run/a.json and new/a.json: these are of two jobs, one of 4 ranks, one of 2",
            ["diagnose 'my run', and then new."],
        ),
        (
            declared("a/x.json", 3, program=(1,)),
            declared("b/x.json", 3, program=(2,)),
            "two traces of rank 3: a/x.json and b/x.json: these are of two jobs, or of one job before and after a "
            "large change; only 0% of the names of ops and kernels are in both",
            ["diagnose a, and then b.", "compare a b"],
        ),
        (
            declared("a/x.json", 0, program=(1,)),
            declared("b/x.json", 0, program=(1,)),
            "two traces of rank 0: a/x.json and b/x.json: one program, recorded twice",
            ["compare a b"],
        ),
    ],
)
def test_two_recordings_of_a_rank_are_told_with_what_to_do(
    one: Any, other: Any, problem: str, remedies: list[str]
) -> None:
    """The first that was given comes first."""
    with pytest.raises(UnreadableTrace) as refused:
        assign_ranks([declared("z.json", 1), one, other])
    assert refused.value.problem == problem
    said = str(refused.value.remedy)
    assert [part in said for part in remedies] == [True] * len(remedies)
    assert ("diagnose" in said) == any("diagnose" in part for part in remedies)
    assert ("compare" in said) == any("compare" in part for part in remedies)


def test_sequential_recordings_are_named_in_given_order() -> None:
    """Also where others that overlap come between."""
    traces = [
        declared("c.json", start=300, end=400),
        declared("a.json", end=150),
        declared("b.json", start=100, end=250),
    ]
    with pytest.raises(UnreadableTrace) as refused:
        assign_ranks(traces)
    assert refused.value.problem.startswith("c.json and b.json declare no rank")
    assert str(refused.value.remedy).endswith("compare c.json b.json")


def test_what_was_passed_over_is_told_of_each_file() -> None:
    files = ("x/a.json", "is empty"), ("b.json", "p")
    skipped: Any = [SimpleNamespace(path=path, problem=problem) for path, problem in files]
    note = load_module.skipped_note(skipped)
    assert note.kind == "skipped files"
    assert note.message == "a.json was skipped: is empty; b.json was skipped: p"
