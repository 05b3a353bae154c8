"""Ranks between two questions, and a job of them in this process: each answers once, wherever it lies meanwhile."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.job.ranks import Reductions, job_of
from tests.report.pools import Here
from traceanalyzer.job.view import JobView
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable, UnreadableTrace
from traceanalyzer.model.trace import Damage
from traceanalyzer.read.folders import layout_of
from traceanalyzer.report import rank_states
from traceanalyzer.report.rank_pool import Elsewhere, in_pool
from traceanalyzer.report.rank_states import Call, RankFile, States, unpacked, used_bytes

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


def said(answer: Any) -> Any:
    return pickle.loads(unpacked(answer))


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
def test_a_rank_answers_each_question_once_and_all_again_as_another(
    files: list[str], begun: Begun, most_bytes: int | None
) -> None:
    """Also where it is put on disk after each."""
    states, path = begun(most_bytes), files[0]
    file = RankFile(path, rank=0)
    states.open(file)
    assert said(states.answer(file, [call(1, "all")])) == (0, 0, None, 1, "all")
    assert said(states.answer(file, [call(1, "all"), call(2)])) == (0, 0, None, 2, None)
    assert said(states.answer(file, [call(1, "all"), call(2)])) == (0, 0, None, 2, None)
    assert [ASKED["rank0.json", number] for number in "12"] == [1, 1]
    noted = file._replace(rank=5, note=Damage("skipped", "b.json was skipped", None, 1), turn=1)
    assert said(states.answer(noted, [call(1), call(2)])) == (5, 1, None, 2, None)
    assert [ASKED["rank0.json", number] for number in "12"] == [2, 2]


def test_a_rank_is_asked_within_its_window(files: list[str]) -> None:
    file = RankFile(files[0], rank=0, window=(0, 300 * US))
    assert said(States().answer(file, [call(1)]))[2] == 300 * US
    assert said(States().once(file, call(1)))[2] == 300 * US
    assert said(States().once(file._replace(window=None), call(1)))[2] is None


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
    assert 10 << 20 < used_bytes() < 1 << 40


def asked(folder: Path, say: Callable[[Elsewhere, JobView | None], Any], **template: Any) -> Any:
    told: list[tuple[str, int, int]] = []
    found = in_pool(Here(), layout_of([folder]), RankFile(**template), say, lambda *one: told.append(one))
    assert [(so_far, many) for _, so_far, many in told[:3]] == [(1, 3), (2, 3), (3, 3)]
    return found


def test_ranks_elsewhere_stand_by_number_and_those_without_an_answer_are_left_out(
    files: list[str], tmp_path: Path
) -> None:
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


def test_what_was_passed_over_is_noted_of_the_first_rank_alone_and_a_copy_is_no_rank(
    files: list[str], tmp_path: Path
) -> None:
    (tmp_path / "copy.json").write_bytes(Path(files[2]).read_bytes())

    def say(ranks: Elsewhere, _: JobView | None) -> Any:
        return ranks.each(seen, dict.fromkeys(ranks.all, 1))

    found = in_pool(Here(), layout_of([tmp_path]), RankFile(), say)
    assert {rank: one[1] for rank, one in found.items()} in (
        {0: 1, 1: 0, 2: 0},
        {0: 0, 1: 0, 2: 1},
    )
