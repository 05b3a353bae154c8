"""What ranks answered is kept between runs, and asked again where anything is another; in this process."""

import copyreg
import os
import pickle
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traceanalyzer.model.errors import Unavailable, UnreadableTrace
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.trace import Damage
from traceanalyzer.read.job_ranks import Declared
from traceanalyzer.report.rank_pool import Task
from traceanalyzer.report.rank_states import Call, RankFile
from traceanalyzer.runtime import answer_cache
from traceanalyzer.runtime.answer_cache import AnswerCache


def first(*_: object) -> None:
    """A question."""


def second(*_: object) -> None:
    """Another one."""


class Counting:
    """A pool that says how often it was asked, or that a file cannot be read."""

    def __init__(self, broken: str = "") -> None:
        self.asked: list[str] = []
        self.broken = broken

    def run(self, tasks: Sequence[Task], told: Callable[[Task], None]) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for task in tasks:
            name = Path(task.file.path).name
            self.asked.append(name)
            known = f"{name} {len(self.asked)}".encode()
            answers[task.file.path] = UnreadableTrace("no") if name == self.broken else known
            told(task)
        return answers

    def close(self) -> None:
        """There is none."""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the answers of a file `a` are kept: `a-state.answers`."""

    def place_of(path: Path, suffix: str) -> Path:
        return tmp_path / f"{path.name}-state{suffix}"

    monkeypatch.setitem(PLACE, "of", place_of)
    return tmp_path


PLACE: dict[str, Any] = {}  # how the place of answers is found
DECLARED = Declared("/traces/a", 3, 0, 10)


def task(name: str = "a", *, own: Any = 1, shared: Any = 1, ask: Any = first, **file: Any) -> Task:
    once = file.pop("once", False)
    given = RankFile(f"/traces/{name}", **file)
    return Task(given, (Call(ask, pickle.dumps(own), pickle.dumps(shared)),), once)


def answer(pool: Counting, *tasks: Task) -> list[Any]:
    """What is said of each task, all of which are counted."""
    told: list[Task] = []
    found = AnswerCache(pool, PLACE["of"]).run(tasks, told.append)
    assert sorted(told) == sorted(tasks)
    return [found[one.file.path] for one in tasks]


@pytest.mark.parametrize(
    ("other", "again"),
    [
        (task(), False),
        (task(own=2), True),
        (task(shared=2), True),
        (task(ask=second), True),
        (task(rank=3), True),
        (task(note=Damage("skipped", "b.json was skipped", None, 1)), True),
        (task(window=(0, 5)), True),
        (task(turn=1), True),
        (task(jobs=4), False),
    ],
)
def test_question_is_repeated_only_if_something_changed(places: Path, other: Task, again: bool) -> None:
    pool = Counting()
    assert answer(pool, task()) == [b"a 1"]
    assert answer(pool, other) == [b"a 2" if again else b"a 1"]
    assert pool.asked == ["a", *["a"] * again]
    assert answer(pool, task()) == [b"a 1"]


def test_uncached_questions_and_failures_are_not_stored(places: Path) -> None:
    pool = Counting(broken="b")
    for _ in range(2):
        answer(pool, task(once=True))
        answer(pool, task("b"))
    assert pool.asked == ["a", "b", "a", "b"]
    assert list(places.iterdir()) == []


def test_what_a_file_declares_is_kept(places: Path) -> None:
    class Declaring(Counting):
        def run(self, tasks: Sequence[Task], told: Callable[[Task], None]) -> dict[str, Any]:
            return dict.fromkeys(super().run(tasks, told), DECLARED)

    pool = Declaring()
    opened = Task(RankFile("/traces/a"))
    assert answer(pool, opened) == answer(pool, opened) == [DECLARED]
    assert pool.asked == ["a"]


def test_only_what_is_not_kept_is_asked_and_all_of_it_is_told(places: Path) -> None:
    pool = Counting()
    answer(pool, task("a"))
    assert answer(pool, task("b"), task("a"), task("c")) == [b"b 2", b"a 1", b"c 3"]
    assert pool.asked == ["a", "b", "c"]


@pytest.mark.parametrize("torn", [1, 45])
def test_a_file_that_ends_within_an_answer_is_begun_again(places: Path, torn: int) -> None:
    """Its last answer is cut by a byte, or within its head of 40 bytes; the one before it counts no more either."""
    pool = Counting()
    answer(pool, task(own=1))
    answer(pool, task(own=2))
    place = places / "a-state.answers"
    place.write_bytes(place.read_bytes()[:-torn])
    assert answer(pool, task(own=2)) == [b"a 3"]
    assert answer(pool, task(own=2)) == [b"a 3"]
    assert answer(pool, task(own=1)) == [b"a 4"]


def test_an_answer_whose_bytes_have_changed_is_asked_again(places: Path) -> None:
    pool = Counting()
    answer(pool, task(own=1))
    answer(pool, task(own=2))
    place = places / "a-state.answers"
    content = place.read_bytes()
    assert content.count(b"a 1") == 1
    place.write_bytes(content.replace(b"a 1", b"a 7"))
    assert answer(pool, task(own=2)) == [b"a 2"]
    assert answer(pool, task(own=1)) == [b"a 3"]


def test_answers_of_other_states_of_a_file_go(places: Path) -> None:
    for name in ("a-before.answers", "a-before.parquet", "ab-state.answers"):
        (places / name).write_bytes(b"")
    answer(Counting(), task())
    left = {one.name for one in places.iterdir()}
    assert left == {"a-state.answers", "a-before.parquet", "ab-state.answers"}


def test_what_another_program_answered_is_asked_again(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Counting()
    answer(pool, task())
    monkeypatch.setattr(answer_cache, "_code", lambda: b"another")
    assert answer(pool, task()) == [b"a 2"]


def test_program_changes_with_new_longer_or_newer_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are no code are none of it."""
    home = tmp_path / "program"
    (home / "report").mkdir(parents=True)
    monkeypatch.setattr(answer_cache, "__file__", str(home / "runtime" / "answer_cache.py"))
    states: list[bytes] = []

    def state(name: str, content: str, ns: int) -> bytes:
        (home / name).write_text(content)
        os.utime(home / name, ns=(ns, ns))
        states.append(answer_cache._code.__wrapped__())
        return states[-1]

    first = state("a.py", "1", 10)
    assert state("a.py", "2", 10) == state("notes.txt", "3", 10) == first
    for change in (("report/b.py", "1", 10), ("a.py", "12", 10), ("a.py", "12", 11)):
        state(*change)
    assert len(set(states)) == 4


def test_the_folder_of_answers_is_the_user_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache" / "traceanalyzer"
    monkeypatch.setitem(PLACE, "of", lambda path, suffix: folder / f"{path.name}-state{suffix}")
    pool = Counting()
    assert answer(pool, task()) == answer(pool, task()) == [b"a 1"]
    assert folder.stat().st_mode & 0o777 == 0o700


class Command:
    """Unpickled without a check it leaves a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("nested", [False, True])
def test_code_in_a_stored_answer_is_not_run(places: Path, tmp_path: Path, nested: bool) -> None:
    """The answer is asked again."""
    command = Command(str(tmp_path / "ran"))
    stored: Any = {"rank": [command]} if nested else command
    place = places / "a-state.answers"
    answer(Counting(), task())
    content = pickle.dumps(stored)
    key = place.read_bytes()[:32]
    place.write_bytes(key + struct.pack("<II", len(content), zlib.crc32(content)) + content)
    assert answer(Counting(), task()) == [b"a 1"]
    assert not (tmp_path / "ran").exists()


def test_records_and_arrays_are_read_from_the_cache(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a library, as dask does, has registered how exceptions are pickled."""
    monkeypatch.setitem(copyreg.dispatch_table, Unavailable, lambda error: (print, (str(error),)))
    stored = (DECLARED, Severity.HIGH, np.arange(3), {"a": {1, 2}}, Unavailable("no steps"))

    class Recording(Counting):
        def run(self, tasks: Sequence[Task], told: Callable[[Task], None]) -> dict[str, Any]:
            return dict.fromkeys(super().run(tasks, told), stored)

    pool = Recording()
    for _ in range(2):
        (found,) = answer(pool, task())
        assert found[:2] == stored[:2]
        assert found[2].tolist() == [0, 1, 2]
        assert (found[3], str(found[4])) == ({"a": {1, 2}}, "no steps")
    assert pool.asked == ["a"]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners on this system")
def test_answers_of_another_user_are_not_read(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(Counting(), task())
    monkeypatch.setattr(os, "getuid", lambda: 65_534)
    assert answer(Counting(), task(), task("b")) == [b"a 1", b"b 2"]
    assert [path.name for path in places.iterdir()] == ["a-state.answers"]


def test_answers_that_others_may_write_are_not_read(places: Path) -> None:
    pool = Counting()
    answer(pool, task())
    (places / "a-state.answers").chmod(0o666)
    assert answer(pool, task()) == [b"a 2"]


def test_answers_that_cannot_be_kept_are_given_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is a file; or there is no place for any."""
    (tmp_path / "cache").write_bytes(b"")
    places = [tmp_path / "cache" / "a-state.answers", None]
    for place in places:
        monkeypatch.setitem(PLACE, "of", lambda path, suffix, place=place: place)
        pool = Counting()
        assert [answer(pool, task()), answer(pool, task())] == [[b"a 1"], [b"a 2"]]
