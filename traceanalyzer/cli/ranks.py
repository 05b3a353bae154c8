"""Traces for a command that asks each rank of a job alike: read here, or by processes where that is quicker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from traceanalyzer.cli.loading import load_all, name_iteration, reuse_freed_memory, shown_progress, warn_of_unranked
from traceanalyzer.model.interpreter import cores, free_bytes

if TYPE_CHECKING:
    from traceanalyzer.job.ranks import JobView, Ranks
    from traceanalyzer.read.folders import Layout
    from traceanalyzer.report.diagnosis import Offsets
    from traceanalyzer.report.rank_states import States
    from traceanalyzer.runtime.pool import Pool

T = TypeVar("T")
Say = Callable[["Ranks", "JobView | None"], T]

# Names: the processes begin before this one imports them. Workers of a cluster have an allocator of their own.
_STATES, _STATES_HERE = "traceanalyzer.report.rank_states:States", f"{__name__}:states_of_process"

WORTH_BYTES = 48 << 20  # a process takes 0.7 s to begin, in which one core reads and analyses 24 MB
# Times the plain bytes of a file: memory for the largest of a process's ranks; 3 to 10 in 2 to 11 MB.
_RANK_BYTES = 12
_HERE_BYTES = 4 << 30  # by this measure, for ranks in this process: of 512 ranks of 1.7 MB it held an eighth
_BEGUN_BYTES = 150 << 20  # what a process holds before its first rank, 112 MiB, and a third more
_SHARE = 0.6  # of the memory that is free, for all processes; chosen


def with_ranks(
    paths: Sequence[Path],
    window: Offsets | None,
    say: Say[T],
    *,
    quiet: bool = False,
    jobs: int | None = None,
    cache: bool = False,
    meanwhile: Callable[[], object] | None = None,
    scheduler: str | None = None,
    tensors: Path | None = None,
) -> T:
    """What `say` makes of the ranks and of what they have in common; `window` is analysed, else as `load_all`."""
    from traceanalyzer.read.folders import layout_of

    layout = layout_of(paths)
    pool = None if tensors else _pool(layout.files, jobs, scheduler)
    if pool is not None:
        from traceanalyzer.report.rank_pool import SeveralRanks

        with suppress(SeveralRanks), closing(pool):
            if meanwhile:
                meanwhile()
            return _in_pool(pool, layout, window, say, quiet, cache)
    loaded = load_all(layout, quiet=quiet, jobs=jobs, cache=cache, meanwhile=meanwhile, tensors=tensors)
    from traceanalyzer.job.ranks import Here
    from traceanalyzer.report.diagnosis import analyses_of, view_of

    analyses = dict(analyses_of(loaded, window))
    for analysis in analyses.values():
        analysis.threads = min(analysis.threads, jobs or analysis.threads)
    return say(Here(analyses, getattr(loaded, "iterations", None)), view_of(analyses))


@contextmanager
def readers(files: Sequence[Path], jobs: int | None, scheduler: str | None) -> Iterator[Ranks]:
    """What reads files one by one and keeps none: processes or a cluster, where the files are worth it."""
    pool = _pool(files, jobs, scheduler)
    if pool is None:
        from traceanalyzer.job.ranks import Here

        yield Here({})
        return
    from traceanalyzer.report.rank_pool import Elsewhere
    from traceanalyzer.report.rank_states import RankFile

    with closing(pool), shown_progress() as line:
        yield Elsewhere(pool, {}, RankFile(jobs=max(cores() // len(files), 1)), None if line is None else line.of_rank)


def _in_pool(pool: Pool, layout: Layout, window: Offsets | None, say: Say[T], quiet: bool, cache: bool) -> T:
    from traceanalyzer.report.rank_pool import Elsewhere, in_pool
    from traceanalyzer.report.rank_states import RankFile

    def told(ranks: Elsewhere, view: JobView | None) -> T:
        warn_of_unranked(ranks.unranked, len(ranks.all))
        name_iteration(ranks.iterations, [str(file) for file in layout.files])
        return say(ranks, view)

    if cache:
        from traceanalyzer.read.cache import place_of
        from traceanalyzer.runtime.answer_cache import AnswerCache

        pool = AnswerCache(pool, place_of)
    template = RankFile(window=window, cache=cache, jobs=max(cores() // len(layout.files), 1))
    with shown_progress(quiet) as line:
        return in_pool(pool, layout, template, told, None if line is None else line.of_rank)


def _pool(files: Sequence[Path], jobs: int | None, scheduler: str | None) -> Pool | None:
    """What reads and analyses the files, where it is not this process."""
    if scheduler is not None:
        from traceanalyzer.runtime.cluster import Cluster

        return Cluster(scheduler, _STATES)
    count, most_bytes = _processes(files, jobs)
    if count == 0:
        return None
    from traceanalyzer.runtime.processes import Processes

    try:
        return Processes(count, _STATES_HERE, most_bytes)
    except OSError:  # a container at its limit of processes: this one reads
        return None


def states_of_process(most_bytes: int | None) -> States:
    """What a process keeps between tasks."""
    from traceanalyzer.report.rank_states import States

    reuse_freed_memory()
    return States(most_bytes)


def _processes(files: Sequence[Path], jobs: int | None) -> tuple[int, int | None]:
    """(how many processes are worth it, how much memory each may hold); 0 where this one does as well."""
    from traceanalyzer.read.remote import is_url
    from traceanalyzer.read.text.source import Source, is_regular

    if len(files) < 2:
        return 0, None
    if any(map(is_url, files)):  # `memory://` is of this process; of others nobody knows how large they are
        in_memory = any(str(path).startswith("memory:") for path in files)
        return (0 if in_memory else min(jobs or cores(), len(files))), None
    if not all(map(is_regular, files)):  # another process has neither pipes nor standard input
        return 0, None
    sizes = [Source(path).plain_bytes() or 0 for path in files]
    most, free = min(jobs or cores(), len(files)), free_bytes()
    if free is None:
        return (most, None) if most > 1 and sum(sizes) >= WORTH_BYTES else (0, None)
    free = int(_SHARE * free)
    if sum(sizes) < WORTH_BYTES or (most == 1 and _RANK_BYTES * sum(sizes) < min(free, _HERE_BYTES)):
        return 0, None
    most = max(min(most, free // (_BEGUN_BYTES + _RANK_BYTES * max(sizes))), 1)
    return most, free // most
