"""The report of a job as text: what it says of all ranks together, at most a screen or two for any number of them."""

from collections.abc import Iterator, Sequence

from traceanalyzer.job.rates import Rate
from traceanalyzer.model.report import Clock, Iteration, Iterations, JobReport, RankReport, Slowdown
from traceanalyzer.model.step_times import median
from traceanalyzer.model.units import format_bytes, format_ns, percent
from traceanalyzer.render.text.page import Page, as_text
from traceanalyzer.render.words.escape import printable, shortened
from traceanalyzer.report.job_summary import CollectivesReport
from traceanalyzer.report.words import runs_of

_RATE_TITLES = ("", "collective", "size", "times", "transfer", "algbw", "busbw", "overlap", "waiting")
_CLOCK_TITLES = ("clock of", "reads more", "+-", "drift", "collectives", "contradict")
_COLUMNS, _COLLECTIVE = 80, 13
_RANKS = 16  # in the table: of more the ones that stand out
_SHOWN_ITERATIONS = 4
# Of the names: recordings of one program share all but those of what runs now and then; chosen.
_SAME_PROGRAM = 0.9
_LARGEST = 3  # ranks or stages of which S is said
_TITLES = ("rank", "recorded", "waits", "delays", "predicted alone", "clock offset", "drift", "±")
_LEGEND = (
    "Times are per step. recorded: median. waits: in collectives until the last rank arrives. delays: the mean time "
    "that the other ranks wait for this rank. predicted alone: without the profiler and without waiting. "
    "It may be longer than recorded minus waits, because other streams compute during the waits. "
    "clock offset: of this rank's clock from the reference rank's, known to within ±."
)


def render_collectives(told: CollectivesReport) -> str:
    """The groups, a line per kind, group and size, then one per clock; none is wider than 80 columns."""
    found, clocks = told.collectives, told.clocks
    groups = {(one.group, one.ranks): one for one in found}
    names = {key: f"g{number}" for number, key in enumerate(groups, 1)}
    named = [(names[one.group, one.ranks], one) for one in found]
    lines = [_group(names[key], one) for key, one in groups.items()]
    lines += ["", *_table([_RATE_TITLES, *(_rate_row(name, one) for name, one in named)]), ""]
    for name, one in named:
        if one.slow:
            lines.append(f"slow link: {one.collective} of {name} moves {one.busbw:.1f} GB/s,")
            lines.append(f"    the median of groups that do the same {one.beside:.1f}")
    lines += [
        "algbw and busbw in GB/s (1e9 bytes) as nccl-tests define them; transfer from the",
        "last rank's start; overlap: share of it during which the GPU computes",
        "",
    ]
    lines += _table([_CLOCK_TITLES, *(_clock(rank, clock) for rank, clock in sorted(clocks.items()))])
    if told.slowdown is not None:
        lines += ["", *slowdown_lines(told.slowdown)]
    lines += [f"rank {rank}: no collective in common with another rank" for rank in told.alone]
    return as_text(lines)


def _group(name: str, one: Rate) -> str:
    size = f" of {one.size}" if one.size > len(one.ranks) else ""
    role = f", {one.role} parallel" if one.role else ""
    called = f": {printable(one.group)}" if one.group else ""
    return shortened(f"{name}: ranks {ranges(one.ranks)}{size}{role}{called}", _COLUMNS)


def ranges(ranks: Sequence[int]) -> str:
    """`0-3,6`: ranks that follow each other by their first and last."""
    return ",".join("-".join(map(str, dict.fromkeys((run[0], run[-1])))) for run in runs_of(ranks))


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:>{size}}" for cell, size in zip(row, widths, strict=True))


def _rate_row(name: str, one: Rate) -> tuple[str, ...]:
    size = format_bytes(one.bytes) if one.bytes else "unknown"
    return (
        name,
        shortened(printable(one.collective), _COLLECTIVE),
        size,
        str(one.count),
        format_ns(one.transfer_ns),
        *((f"{speed:.{2 * (speed < 100)}f}" if one.bytes else "") for speed in (one.algbw, one.busbw)),
        "" if one.overlap is None else percent(one.overlap),
        format_ns(one.waiting_ns),
    )


def _clock(rank: int, clock: Clock) -> tuple[str, ...]:
    return (
        f"rank {rank}",
        "reference" if rank == clock.reference else _offset(clock),
        format_ns(clock.uncertainty_ns),
        f"{clock.drift_ppm:.1f} µs/s",
        str(clock.pairs),
        str(clock.broken) if clock.broken else "",
    )


def _offset(clock: Clock) -> str:
    return "-" * (clock.offset_ns < 0) + format_ns(abs(clock.offset_ns))


def put_job_notes(page: Page, job: JobReport) -> None:
    for ranks, step in (job.as_peers or {}).items():
        now = "" if job.step is None else f", now {format_ns(job.step.unprofiled_ns)}"
        page.put(f"with rank {ranks} as its peers: predicted {format_ns(step.unprofiled_ns)} a step{now}")
    if job.missing:
        page.put(f"not given: {ranks_in_words(job.missing)} of {job.world_size} ranks", style="dim")


def put_iterations(page: Page, iterations: Iterations) -> None:
    """How many there are, which is diagnosed, and a line for each that differs from the others."""
    each = iterations.each
    at = next(one.name for one in each if one.diagnosed)
    step = "" if iterations.step_ns is None else f", step {format_ns(iterations.step_ns)} in the median"
    page.put(f"{len(each)} iterations, {each[0].name} to {each[-1].name}{step}; the findings are of {at}")
    told = {one.name: words for one in each if (words := _difference(one))}
    for name, words in list(told.items())[:_SHOWN_ITERATIONS]:
        page.put(f"iteration {name}: {words}")
    if any(one.diagnosed and one.more_ns for one in each):
        page.put("To see what the others say, pass the files of one of these alone.", style="dim")
    if iterations.noise_ns is None:
        page.put("whether they differ is unknown: too few steps to know the noise", style="dim")
    elif not any(one.more_ns for one in each):
        noise = format_ns(iterations.noise_ns)
        page.put(f"none differs from the others by more than the noise, {noise}", style="dim")


def _difference(one: Iteration) -> str:
    told = []
    if one.more_ns is not None:
        parts = []
        for part in one.parts:
            kind, _, cause = part.part.partition(":")
            where = "" if part.rank is None else f" on rank {part.rank}"
            parts.append(f"{kind}{f' ({cause})' * bool(cause)} {format_ns(abs(part.more_ns))}{where}")
        what = f"a step takes {format_ns(abs(one.more_ns))} {'more' if one.more_ns > 0 else 'less'} than the others"
        told.append(f"{what}: {', '.join(parts)}" if parts else what)
    if one.program_share < _SAME_PROGRAM:
        told.append(f"another program: {one.program_share:.0%} of its ops and kernels have the same names")
    told += [f"not read: {text}" for text in one.skipped[:2]]
    return "; ".join(told)


def put_ranks(page: Page, job: JobReport, *, most: int = _RANKS, legend: bool = True) -> None:
    """A line per rank: its step, who waits, and its clock; of more than `most` ranks those that stand out."""
    rows = [_TITLES, *(_row(rank) for rank in _shown(job, most))]
    filled = [at for at in range(len(_TITLES)) if any(row[at] for row in rows[1:])]
    rows = [tuple(row[at] for at in filled) for row in rows]
    page.blank()
    for place, line in enumerate(_table(rows)):
        page.lines.append(page.styled(line[: page.width], "dim") if not place else line[: page.width])
    if legend:
        page.put(_LEGEND, style="dim")
    left = len(job.ranks) - len(rows) + 1
    if left > 0:
        others = f"and {left} rank{'s' * (left != 1)} between these"
        page.put(f"{others}; `--rank N` shows one rank alone", style="dim")
    for part, why in (job.unavailable or {}).items():
        page.put(f"{part}: {why}", style="dim")


def slowdown_lines(found: Slowdown) -> Iterator[str]:
    yield f"as recorded the job takes {found.s:.2f} times as long as with even ranks (S)"
    for name, parts in (("rank", found.by_rank), ("stage", found.by_stage)):
        largest = sorted(parts, key=lambda one: (-parts[one], one))[:_LARGEST]
        said = ", ".join(f"{name} {one} {parts[one]:.2f}" for one in largest)
        if said:
            yield f"    with one uneven {name} alone: {said}"


def _shown(job: JobReport, most: int) -> Sequence[RankReport]:
    if len(job.ranks) <= most:
        return job.ranks
    first = set(job.culprits)
    by_hold = sorted(job.ranks, key=lambda one: (one.rank not in first, -one.holding_up_ns, one.rank))
    chosen = {one.rank for one in by_hold[: most // 2]}
    others = [one for one in job.ranks if one.rank not in chosen]
    by_wait = sorted(others, key=lambda one: (-one.waiting_ns, one.rank))
    chosen |= {one.rank for one in by_wait[: most - len(chosen)]}
    return [one for one in job.ranks if one.rank in chosen]


def _row(rank: RankReport) -> tuple[str, ...]:
    clock = rank.clock
    return (
        str(rank.rank),
        format_ns(round(median(rank.dur_ns))) if rank.dur_ns else "",
        format_ns(rank.waiting_ns),
        format_ns(rank.holding_up_ns),
        "" if rank.alone_ns is None else format_ns(rank.alone_ns),
        "" if clock is None else _offset(clock),
        "" if clock is None or not clock.drift_ppm else f"{clock.drift_ppm:.1f} µs/s",
        "" if clock is None else format_ns(clock.uncertainty_ns),
    )


def ranks_in_words(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0 to 7`, `ranks 1, 4 and 12 more`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    runs = runs_of(ranks)
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    shown = ", ".join(texts[:4])
    return f"ranks {shown}" + (f" and {sum(map(len, runs[4:]))} more" if len(runs) > 4 else "")
