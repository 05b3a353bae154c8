"""Collectives of a job as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceanalyzer.job.rates import Rate
from traceanalyzer.model.report import Clock
from traceanalyzer.model.units import format_bytes, format_ns
from traceanalyzer.render.text.job import slowdown_lines
from traceanalyzer.render.text.page import as_text
from traceanalyzer.render.words.escape import printable, shortened
from traceanalyzer.report.job_summary import CollectivesReport

_TITLES = ("", "collective", "size", "times", "transfer", "algbw", "busbw", "beside", "waiting")
_CLOCK_TITLES = ("clock of", "reads more", "+-", "drift", "collectives", "contradict")
_COLUMNS, _COLLECTIVE = 80, 13


def render_collectives(told: CollectivesReport) -> str:
    """The groups, a line per kind, group and size, then one per clock; none is wider than 80 columns."""
    found, clocks = told.collectives, told.clocks
    groups = {_key(one): one for one in found}
    names = {key: f"g{number}" for number, key in enumerate(groups, 1)}
    lines = [_group(names[key], one) for key, one in groups.items()]
    lines += ["", *_table([_TITLES, *(_row(names[_key(one)], one) for one in found)])]
    lines += ["", *(line for one in found if one.slow for line in _slow(names[_key(one)], one))]
    lines += [
        "algbw and busbw in GB/s (1e9 bytes) as nccl-tests define them; transfer from the",
        "last rank's start; beside: share of it during which the GPU computes",
        "",
    ]
    lines += _table([_CLOCK_TITLES, *(_clock(rank, clock) for rank, clock in sorted(clocks.items()))])
    if told.slowdown is not None:
        lines += ["", *slowdown_lines(told.slowdown)]
    lines += [f"rank {rank}: no collective in common with another rank" for rank in told.alone]
    return as_text(lines)


def _key(one: Rate) -> tuple[str, tuple[int, ...]]:
    return one.group, one.ranks


def _group(name: str, one: Rate) -> str:
    size = f" of {one.size}" if one.size > len(one.ranks) else ""
    role = f", {one.role} parallel" if one.role else ""
    called = f": {printable(one.group)}" if one.group else ""
    return shortened(f"{name}: ranks {ranges(one.ranks)}{size}{role}{called}", _COLUMNS)


def ranges(ranks: Sequence[int]) -> str:
    """`0-3,6`: ranks that follow each other by their first and last."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    return ",".join("-".join(map(str, part)) for part in parts)


def _slow(name: str, one: Rate) -> Iterator[str]:
    yield f"slow link: {one.collective} of {name} moves {one.busbw:.1f} GB/s,"
    yield f"    the median of groups that do the same {one.beside:.1f}"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:>{size}}" for cell, size in zip(row, widths, strict=True))


def _row(name: str, one: Rate) -> tuple[str, ...]:
    size = format_bytes(one.bytes) if one.bytes else "unknown"
    return (
        name,
        shortened(printable(one.collective), _COLLECTIVE),
        size,
        str(one.count),
        format_ns(one.transfer_ns),
        *((_speed(one.algbw), _speed(one.busbw)) if one.bytes else ("", "")),
        "" if one.overlap is None else f"{one.overlap:.0%}".replace("%", " %"),
        format_ns(one.waiting_ns),
    )


def _speed(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _clock(rank: int, clock: Clock) -> tuple[str, ...]:
    sign = "-" if clock.offset_ns < 0 else ""
    return (
        f"rank {rank}",
        "reference" if rank == clock.reference else sign + format_ns(abs(clock.offset_ns)),
        format_ns(clock.uncertainty_ns),
        f"{clock.drift_ppm:.1f} µs/s",
        str(clock.pairs),
        str(clock.broken) if clock.broken else "",
    )
