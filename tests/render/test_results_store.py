"""Tables of the files of a job in their folder: of which rank each is, what is done again, and what is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from traceanalyzer.read.folders import Layout
from traceanalyzer.render.data.results import TABLES, RankTables, Stored, parquet_bytes, store


class Job:
    """Files that say which rank they are of, or nothing; which were read."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder, self.results = tmp_path / "job", tmp_path / "results"
        self.folder.mkdir()
        self.declared: dict[str, int | None] = {}
        self.broken: set[str] = set()
        self.read: list[str] = []

    def file(self, name: str, rank: int | None = None, content: str | None = None) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name if content is None else content)
        self.declared[str(path)] = rank
        return path

    def once(
        self, files: Sequence[str], made_from: Mapping[str, str]
    ) -> Mapping[str, RankTables | Exception]:
        self.read += [Path(file).name for file in files]
        return {file: self._answer(file, made_from[file]) for file in files}

    def _answer(self, file: str, made_from: str) -> RankTables | Exception:
        if Path(file).name in self.broken:
            return ValueError("it is broken")
        said = {"rank": self.declared[file], "source": Path(file).name, "events": 7}
        more = {"made_from": made_from, "file": said}
        return RankTables({name: parquet_bytes(pa.table({"n": [1]}), more) for name in TABLES}, said)

    def store(self, *files: Path, run: str = "r", **iterations: tuple[Path, ...]) -> Stored:
        self.read = []
        return store(self.results, run, Layout(files, {}, iterations), self.once, _written)

    def told(self) -> list[dict[str, Any]]:
        with (self.results / "files.parquet").open("rb") as stream:
            return list(pq.read_table(stream).to_pylist())

    def places(self) -> list[str]:
        found = (self.results / "findings").rglob("part.parquet")
        return sorted(str(path.parent.relative_to(self.results / "findings")) for path in found)


def _written(path: Path, content: bytes) -> None:
    path.write_bytes(content)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_rank_is_declared_or_from_the_name_or_the_place(job: Job) -> None:
    files = (job.file("rank7.json", 0), job.file("rank3.json"), job.file("c.json"))
    assert job.store(*files) == Stored(3, 0, {})
    assert job.places() == [f"run=r/iteration=0/rank={rank}" for rank in (0, 2, 3)]
    assert [
        (row["rank"], row["source"], row["status"], row["problem"], row["events"]) for row in job.told()
    ] == [
        (0, "rank7.json", "done", None, 7),
        (2, "c.json", "done", None, 7),
        (3, "rank3.json", "done", None, 7),
    ]


def test_of_two_files_of_one_rank_the_first_is_kept(job: Job) -> None:
    one, two = job.file("a.json", 1), job.file("b.json", 1)
    assert job.store(one, two) == Stored(1, 0, {str(two): "another file is of rank 1, too: a.json"})
    assert [(row["source"], row["status"]) for row in job.told()] == [
        ("a.json", "done"),
        ("b.json", "failed"),
    ]


def test_only_what_changed_is_read_again(job: Job) -> None:
    files = [job.file(f"rank{rank}.json") for rank in range(3)]
    job.store(*files)
    assert job.store(*files) == Stored(0, 3, {})
    assert job.read == []
    job.file("rank1.json", content="other")
    assert job.store(*files) == Stored(1, 2, {})
    assert job.read == ["rank1.json"]
    (job.results / "steps/run=r/iteration=0/rank=2/part.parquet").unlink()
    assert job.store(*files) == Stored(1, 2, {})
    assert job.read == ["rank2.json"]


def test_a_file_without_a_rank_is_another_one_at_another_place(job: Job) -> None:
    """Of the name that tells a rank, the place says nothing."""
    files = [job.file("a.json"), job.file("rank5.json"), job.file("rank6.json")]
    job.store(*files)
    job.store(files[2], files[1], files[0])
    assert job.read == ["a.json"]


def test_seventeen_files_are_all_read(job: Job) -> None:
    files = [job.file(f"rank{rank}.json") for rank in range(17)]
    assert job.store(*files) == Stored(17, 0, {})
    assert len(job.read) == 17


def test_iterations_and_runs_are_ordered_by_number(job: Job) -> None:
    ten, two = job.file("ten.json", 0), job.file("two.json", 0)
    job.store(**{"10": (ten,), "2": (two,)})
    job.broken = {"bad.json"}
    bad = job.file("bad.json")
    assert job.store(bad, run="a/b") == Stored(0, 0, {str(bad): "ValueError: it is broken"})
    told = [(row["run"], row["iteration"], row["rank"], row["status"]) for row in job.told()]
    assert told == [("a/b", "0", None, "failed"), ("r", "2", 0, "done"), ("r", "10", 0, "done")]
    job.store(**{"10": (ten,), "2": (two,)})  # another run's failure stays
    assert [row["run"] for row in job.told()] == ["a/b", "r", "r"]
    job.broken = set()
    assert job.store(bad, run="a/b") == Stored(1, 0, {})
    assert [(row["run"], row["status"]) for row in job.told()] == [
        ("a/b", "done"),
        ("r", "done"),
        ("r", "done"),
    ]
    assert job.places() == [
        "run=a%2Fb/iteration=0/rank=0",
        "run=r/iteration=10/rank=0",
        "run=r/iteration=2/rank=0",
    ]


def test_what_a_run_that_was_broken_off_left_is_removed(job: Job) -> None:
    file = job.file("rank0.json")
    job.store(file)
    place = job.results / "findings/run=r/iteration=0/rank=0"
    (place / ".part.parquet.123").write_text("half")
    job.file("rank0.json", content="other")
    job.store(file)
    assert [path.name for path in place.iterdir()] == ["part.parquet"]
