"""Traces behind URLs: in memory and in files, as fsspec reads them."""

import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import call, diagnosed, refused
from tests.job.ranks import Reductions, job_of
from traceanalyzer import load, load_job
from traceanalyzer.model.errors import BadOption, NotATrace, UnreadableTrace
from traceanalyzer.read import remote
from traceanalyzer.read.remote import as_path, fetched

upath = pytest.importorskip("upath")
known_implementations = pytest.importorskip("fsspec.registry").known_implementations
MemoryFileSystem = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem
UNEVEN = {0: (500, 500, 500), 1: (900, 900, 900), 2: (500, 510, 500)}
THERE = "memory://jobs/one"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Three ranks, of which one is late."""
    job_of(Reductions(UNEVEN), tmp_path)
    return tmp_path


@pytest.fixture
def in_memory(job: Path) -> Iterator[Path]:
    """The same in memory."""
    there = upath.UPath(THERE)
    there.mkdir(parents=True, exist_ok=True)
    for file in job.iterdir():
        (there / file.name).write_bytes(file.read_bytes())
    yield there
    there.rmdir(recursive=True)


def test_a_file_in_memory_is_read_and_named_by_its_url(in_memory: Path, job: Path) -> None:
    there, here = load(f"{THERE}/rank1.json"), load(job / "rank1.json")
    assert there.meta.source == f"{THERE}/rank1.json"
    assert there.cpu.equals(here.cpu)
    assert there.gpu.equals(here.gpu)


@pytest.mark.usefixtures("in_memory")
def test_a_folder_in_memory_is_a_job(job: Path) -> None:
    assert sorted(load_job(THERE)) == sorted(load_job(job)) == [0, 1, 2]
    assert diagnosed(THERE, "--format", "json").replace(THERE, str(job)) == diagnosed(job, "--format", "json")


@pytest.mark.slow
def test_files_are_read_by_processes_from_urls(job: Path) -> None:
    """Each fetches its own."""
    there = f"file://{job}"
    said = diagnosed(there, "--format", "json", "--jobs", "2")
    assert said.replace(there, str(job)) == diagnosed(job, "--format", "json")


def test_collectives_of_a_url(job: Path) -> None:
    assert call("collectives", f"file://{job}").stdout == call("collectives", job).stdout


def test_what_is_not_there_is_named_by_its_url(in_memory: Path) -> None:
    (in_memory / "rank9.json").write_text("{}")
    with pytest.raises(UnreadableTrace, match=f"{THERE}/rank8.json"):
        load(f"{THERE}/rank8.json")
    with pytest.raises(NotATrace, match=f"{THERE}/rank9.json"):
        load(f"{THERE}/rank9.json")


def test_an_unknown_scheme_is_refused() -> None:
    said = refused("diagnose", "nonsense://there/rank0.json")
    assert "nonsense://there" in said
    assert "cannot be read: " in said


@pytest.mark.parametrize("command", [("diagnose",), ("compare", THERE), ("facts",)])
@pytest.mark.usefixtures("in_memory")
def test_a_protocol_without_its_package_is_one_line(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {"class": "absent.HTTPFileSystem", "err": "Install aiohttp"}
    monkeypatch.setitem(known_implementations, "http", absent)
    assert refused(*command, "http://user:word@host/t.json") == ("http://host/t.json: cannot be read: Install aiohttp")


@pytest.mark.parametrize("question", ["isdir", "ls"])
@pytest.mark.usefixtures("in_memory")
def test_a_bucket_that_refuses_an_answer_is_one_line(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: object, **__: object) -> None:
        raise RuntimeError("no credentials")

    monkeypatch.setattr(MemoryFileSystem, question, refusing)
    assert refused("diagnose", THERE) == f"{THERE}: cannot be fetched: no credentials"


def test_what_reads_urls_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "upath":
            raise ImportError(name)
        return plain(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BadOption, match="traceanalyzer\\[cluster\\]"):
        as_path(f"{THERE}/rank0.json")


def test_why_a_file_could_not_be_fetched_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the error is not the system's."""

    class Unreachable:
        name = "rank0.json"
        error: OSError

        def open(self, mode: str) -> Any:
            raise self.error

    for error, said in (
        (OSError("no route to the bucket"), "cannot be fetched: no route to the bucket"),
        (PermissionError(13, "Permission denied"), "cannot be fetched: Permission denied"),
    ):
        Unreachable.error = error
        monkeypatch.setattr(remote, "as_path", lambda url: Unreachable())
        with pytest.raises(UnreadableTrace, match=f"s3://a/rank0.json: {said}"), fetched("s3://a/rank0.json"):
            pass


@pytest.mark.usefixtures("in_memory")
def test_progress_of_a_url_is_told() -> None:
    told: list[tuple[int, int | None, int]] = []
    trace = load(f"{THERE}/rank1.json", progress=lambda *one: told.append(one))
    assert told[-1][0] == told[-1][1]
    assert told[-1][2] == trace.meta.events
