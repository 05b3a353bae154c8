"""Ranks between two questions, and a job of them in this process: each answers once, wherever it lies meanwhile."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.job.ranks import Reductions, job_of
from tests.report.pools import Here
from traceanalyzer.job.ranks import JobView
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable, UnreadableTrace
from traceanalyzer.model.trace import Damage, Trace
from traceanalyzer.read.folders import layout_of
from traceanalyzer.read.load import load_file
from traceanalyzer.report import rank_states
from traceanalyzer.report.rank_pool import Elsewhere, Lost, Task, in_pool
from traceanalyzer.report.rank_states import Call, RankFile, States, used_bytes

US = 1_000
ASKED: Counter[tuple[str, str]] = Counter()
Begun = Callable[[int | None], States]
EVEN = {0: (500,) * 4, 1: (700,) * 4, 2: (600,) * 4}


def seen(analysis: Analysis, own: Any, shared: Any) -> tuple[Any, ...]:
    """What the rank knows of itself, and what it is given."""
    meta, window = analysis.trace.meta, analysis.window.asked_ns
    ASKED[Path(meta.source).name, str(own)] += 1
    length = None if window is None else window[1] - window[0]
    return meta.rank, len(meta.damage), length, own, shared


def refusing(analysis: Analysis, own: Any, _: Any) -> int:
    if own:
        raise Unavailable("not of this one")
    return 7


def failing(analysis: Analysis, own: Any, _: Any) -> int:
    if own:
        raise UnreadableTrace("gone")
    return 7


def call(own: Any, shared: Any = None) -> Call:
    return Call(seen, pickle.dumps(own), pickle.dumps(shared))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Three ranks' files."""
    job_of(Reductions(EVEN), tmp_path)
    ASKED.clear()
    return sorted(map(str, tmp_path.iterdir()))


@pytest.fixture
def begun() -> Iterator[Begun]:
    """Makes `States`; what they put on disk goes at the end."""
    made: list[States] = []

    def states(most_bytes: int | None) -> States:
        made.append(States(most_bytes))
        return made[-1]

    yield states
    for one in made:
        if one._folder is not None:
            one._folder.cleanup()


@pytest.mark.parametrize("most_bytes", [None, 1])
def test_rank_answers_once_and_anew_as_another(
    files: list[str], begun: Begun, most_bytes: int | None
) -> None:
    """Also where it is put on disk after each."""
    states, path = begun(most_bytes), files[0]
    file = RankFile(path, rank=0)
    states.open(file)
    assert states.answer(file, [call(1, "all")]) == (0, 0, None, 1, "all")
    assert states.answer(file, [call(1, "all"), call(2)]) == (0, 0, None, 2, None)
    assert states.answer(file, [call(1, "all"), call(2)]) == (0, 0, None, 2, None)
    assert [ASKED["rank0.json", number] for number in "12"] == [1, 1]
    noted = file._replace(rank=5, note=Damage("skipped", "b.json was skipped", None, 1), turn=1)
    assert states.answer(noted, [call(1), call(2)]) == (5, 1, None, 2, None)
    assert [ASKED["rank0.json", number] for number in "12"] == [2, 2]


def test_a_rank_is_asked_within_its_window(files: list[str]) -> None:
    file = RankFile(files[0], rank=0, window=(0, 300 * US))
    assert States().answer(file, [call(1)])[2] == 300 * US
    assert States().once(file, call(1))[2] == 300 * US
    assert States().once(file._replace(window=None), call(1))[2] is None


@pytest.mark.parametrize(("held", "stored"), [(99, 0), (100, 2), (500, 2)])
def test_from_its_limit_on_the_older_half_goes_to_disk(
    files: list[str], begun: Begun, monkeypatch: pytest.MonkeyPatch, held: int, stored: int
) -> None:
    """Of one rank that one; of three the two that were used least recently."""
    states = begun(100)
    monkeypatch.setattr(rank_states, "used_bytes", lambda: 0)
    for path in files:
        states.open(RankFile(path))
    monkeypatch.setattr(rank_states, "used_bytes", lambda: held)
    states.answer(RankFile(files[0]), [call(1)])
    assert sorted(states._stored) == files[1:][:stored]
    alone = begun(100)
    alone.open(RankFile(files[0]))
    assert len(alone._stored) == (held >= 100)


def test_memory_is_that_of_the_process() -> None:
    """What is resident, not all that is mapped; as Linux tells it."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("no /proc")
    told = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
    assert used_bytes() == pytest.approx(int(told) << 10, rel=0.05)


def test_files_are_read_by_requested_processes_and_cache(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a rank is opened, asked by a process that has not read it, and asked once."""
    given: list[tuple[Any, Any]] = []

    def read(path: str, **options: Any) -> Trace:
        given.append((options["jobs"], options["cache"]))
        return load_file(path)

    monkeypatch.setattr(rank_states, "load_file", read)
    for jobs, cache in ((3, True), (1, False)):
        file, opened = RankFile(files[0], rank=0, jobs=jobs, cache=cache), States()
        opened.open(file)
        opened.answer(file, [call(1)])
        States().answer(file, [call(1)])
        States().once(file, call(1))
    assert given == [(3, True)] * 3 + [(1, False)] * 3


def asked(folder: Path, say: Callable[[Elsewhere, JobView | None], Any], **template: Any) -> Any:
    told: list[tuple[str, int, int]] = []
    found = in_pool(Here(), layout_of([folder]), RankFile(**template), say, lambda *one: told.append(one))
    assert [(so_far, many) for _, so_far, many in told[:3]] == [(1, 3), (2, 3), (3, 3)]
    return found


def test_remote_ranks_are_by_number_and_failures_left_out(files: list[str], tmp_path: Path) -> None:
    last = str(Path(files[0]).rename(tmp_path / "z.json"))

    def say(ranks: Elsewhere, _: JobView | None) -> Any:
        mine = ranks.each(seen, {rank: f"of {rank}" for rank in ranks.all}, "all")
        some = ranks.each(refusing, {0: True, 1: False, 2: False})
        once = ranks.once(seen, [last], "all")
        return ranks.all, ranks.unranked, mine, some, once

    every, unranked, mine, some, once = asked(tmp_path, say, window=(0, 300 * US))
    assert (every, unranked) == ((0, 1, 2), 0)
    assert mine == {rank: (rank, 0, 300 * US, f"of {rank}", "all") for rank in range(3)}
    assert some == {1: 7, 2: 7}
    assert once == {last: (0, 0, None, None, "all")}


def test_an_error_of_one_rank_is_raised_and_none_is_lost_by_it(files: list[str], tmp_path: Path) -> None:
    lost = []

    def say(ranks: Elsewhere, _: JobView | None) -> Any:
        with pytest.raises(UnreadableTrace, match="gone"):
            ranks.each(failing, {0: True, 1: False})
        lost.append(dict(ranks.lost))
        return 1

    assert asked(tmp_path, say) == 1
    assert lost == [{}]


def test_ignored_events_are_noted_once_and_a_copy_is_no_rank(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "copy.json").write_bytes(Path(files[2]).read_bytes())

    def say(ranks: Elsewhere, _: JobView | None) -> Any:
        return ranks.each(seen, dict.fromkeys(ranks.all, 1))

    found = in_pool(Here(), layout_of([tmp_path]), RankFile(), say)
    assert {rank: one[1] for rank, one in found.items()} in (
        {0: 1, 1: 0, 2: 0},
        {0: 0, 1: 0, 2: 1},
    )


class Ending(Here):
    """The process that has rank 1 ends as soon as it is asked."""

    def run(self, tasks: Sequence[Task], told: Callable[[Task], None]) -> dict[str, Any]:
        answers = super().run(tasks, told)
        ended = [one.file.path for one in tasks if one.calls and one.file.path.endswith("rank1.json")]
        return answers | {path: Lost("the process ended", where=path) for path in ended}


@pytest.mark.parametrize("silent", [False, True])
def test_a_job_is_begun_again_without_a_rank_that_was_lost(
    files: list[str], tmp_path: Path, silent: bool
) -> None:
    """Even where who asks makes do without its answer; the first of the others has a note."""
    pool, begun = Ending(), []

    def say(ranks: Elsewhere, _: JobView | None) -> Any:
        begun.append(ranks.all)
        with suppress(*[Lost] * silent):
            return ranks.each(seen, dict.fromkeys(ranks.all, 1))

    found = in_pool(pool, layout_of([tmp_path]), RankFile(), say)
    assert begun == [(0, 1, 2), (0, 2)]
    assert found == {0: (0, 1, None, 1, None), 2: (2, 0, None, 1, None)}
    turns = [task.file.turn for task in pool.asked if task.calls]
    assert (turns[0], turns[-1]) == (0, 1)
    assert turns == sorted(turns)
