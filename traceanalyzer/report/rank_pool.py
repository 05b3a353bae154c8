"""A job whose ranks are in other processes: they read the files, and this one sees no more than what they answer."""

import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from traceanalyzer.job.cross_rank_indexes import introduce
from traceanalyzer.job.ranks import Ask, JobView, Rank, Ranks
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.read.folders import Layout
from traceanalyzer.read.job_ranks import Declared, assign_ranks, find_duplicate_traces
from traceanalyzer.read.load import skipped_note, traces_of_layout
from traceanalyzer.read.merged import Merged
from traceanalyzer.report.rank_states import Call, RankFile, States
from traceanalyzer.report.summary import attempt
from traceanalyzer.runtime.pool import Lost, Pool

T = TypeVar("T")
R = TypeVar("R", bound=Rank)


class SeveralRanks(Exception):
    """A file holds traces of several ranks: no pool takes these apart."""


class Task(NamedTuple):
    """Read a file, where there are no calls; else ask its rank what comes last of them; or what a file says `once`."""

    file: RankFile
    calls: tuple[Call, ...] = ()
    once: bool = False

    @property
    def key(self) -> str:
        return self.file.path

    def run(self, states: States) -> Any:
        """What the task gives; the error that it fails with is a value, too."""
        try:
            if self.once:
                return states.once(self.file, self.calls[-1])
            return states.answer(self.file, self.calls) if self.calls else states.open(self.file)
        except Merged:
            return SeveralRanks(self.file.path)
        except Exception as error:
            return error

    def questions(self) -> bytes:
        """All questions so far, and as what the file is read."""
        file = self.file
        digest = hashlib.sha256(repr((file.rank, file.note, file.window, file.turn)).encode())
        for call in self.calls:
            digest.update(f"{call.ask.__module__}.{call.ask.__qualname__}".encode())
            digest.update(hashlib.sha256(call.own).digest() + hashlib.sha256(call.shared).digest())
        return digest.digest()


Progress = Callable[[str, int, int], None]
"""Called as (file, number of ranks done, number of ranks)."""


class Elsewhere(Ranks):
    """Ranks that a pool has; `lost` are files whose processes ended, with the reason."""

    def __init__(
        self, pool: Pool, files: Mapping[Rank, RankFile], template: RankFile, progress: Progress | None
    ) -> None:
        self._pool, self._files, self._template, self._progress = pool, dict(files), template, progress
        self._calls: dict[Rank, tuple[Call, ...]] = dict.fromkeys(files, ())
        self.all = tuple(files)
        self.lost: dict[str, Lost] = {}

    @property
    def unranked(self) -> int:
        """How many of the traces do not tell their rank."""
        return sum(file.rank is None for file in self._files.values())

    def each(self, ask: Ask[T], given: Mapping[R, Any], shared: Any = None) -> dict[R, T]:
        common = pickle.dumps(shared, pickle.HIGHEST_PROTOCOL)
        for rank, own in given.items():
            call = Call(ask, pickle.dumps(own, pickle.HIGHEST_PROTOCOL), common)
            self._calls[rank] = (*self._calls[rank], call)
        tasks = [Task(self._files[rank], self._calls[rank]) for rank in given]
        found = self._pool.run(tasks, _counted(self._progress, len(tasks)))
        answers: dict[R, T] = {}
        for rank in given:
            answer = found[self._files[rank].path]
            if isinstance(answer, Lost):
                self.lost[self._files[rank].path] = answer
            if isinstance(answer, Unavailable):
                continue
            if isinstance(answer, Exception):
                raise answer
            answers[rank] = answer
        return answers

    def once(self, ask: Ask[T], files: Sequence[str], shared: Any = None) -> dict[str, T | Exception]:
        """What each file says, or the reason why not; the pool keeps none of it."""
        call = Call(ask, pickle.dumps(None), pickle.dumps(shared, pickle.HIGHEST_PROTOCOL))
        template = self._template._replace(window=None)
        tasks = [Task(template._replace(path=file), (call,), once=True) for file in files]
        found = self._pool.run(tasks, _counted(self._progress, len(tasks)))
        return {file: found[file] for file in files}


def _counted(progress: Progress | None, many: int) -> Callable[[Task], None]:
    so_far = 0

    def told(task: Task) -> None:
        nonlocal so_far
        so_far += 1
        if progress is not None:
            progress(task.file.path, so_far, many)

    return told


def in_pool(
    pool: Pool,
    layout: Layout,
    template: RankFile,
    say: Callable[[Elsewhere, JobView | None], T],
    progress: Progress | None = None,
) -> T:
    """What `say` makes of the ranks and of what they have in common; called again without a rank that was lost.

    Raises what `load_job` does, and SeveralRanks: a file holds those of several.
    """
    tasks = [Task(template._replace(path=str(path))) for path in layout.files]
    opened = pool.run(tasks, _counted(progress, len(tasks)))
    for turn in count():
        template = template._replace(turn=turn)
        ranks = _opened(pool, layout, template, opened, progress)
        view = attempt({}, "job", partial(introduce, ranks), None)
        with suppress(Lost):
            said = say(ranks, view)
            if not ranks.lost:
                return said
        opened |= ranks.lost
    raise AssertionError("files are lost until none is left")


def _opened(
    pool: Pool,
    layout: Layout,
    template: RankFile,
    opened: Mapping[str, Declared | Exception],
    progress: Progress | None,
) -> Elsewhere:
    """The ranks that could be read, as `load_job` would have them."""

    def read(path: str | Path) -> list[Declared]:
        found = opened[str(path)]
        if isinstance(found, Exception):
            raise found
        return [found]

    declared, skipped = traces_of_layout(layout, read)
    copies, more = find_duplicate_traces(declared)
    skipped += more
    found = [one for at, one in enumerate(declared) if at not in copies]
    note = skipped_note(skipped) if skipped else None
    files = {
        rank: template._replace(path=one.source, rank=known, note=None if at else note)
        for at, (one, (rank, known)) in enumerate(zip(found, assign_ranks(found), strict=True))
    }
    ranks = Elsewhere(pool, dict(sorted(files.items())), template, progress)
    ranks.iterations = {name: tuple(map(str, one)) for name, one in layout.iterations.items()}
    return ranks
