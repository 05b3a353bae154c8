"""Collectives of a job as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceanalyzer.job.rates import Rate
from traceanalyzer.model.job_report import Clock
from traceanalyzer.model.units import format_bytes, format_ns
from traceanalyzer.render.text.page import as_text
from traceanalyzer.render.words.escape import printable, shortened

_TITLES = ("collective", "group", "ranks", "size", "times", "transfer", "algbw", "busbw", "waiting")
_GROUP = 32  # columns of a group's name


def render_collectives(found: Sequence[Rate], clocks: Mapping[int, Clock]) -> str:
    """A line per kind, group and size, then one per clock."""
    rows = [_TITLES, *(_row(one) for one in found)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_TITLES))]
    lines = ["  ".join(f"{cell:>{size}}" for cell, size in zip(row, widths, strict=True)) for row in rows]
    lines += [
        f"slow link: {one.collective} of group {printable(one.group)} moves {one.busbw:.1f} GB/s, groups that do the "
        "same far more"
        for one in found
        if one.slow
    ]
    lines += [
        "",
        "algbw and busbw in GB/s (1e9 bytes), as nccl-tests define them; transfer from the last rank's start",
    ]
    lines += ["", *(_clock(rank, clock) for rank, clock in sorted(clocks.items()))]
    return as_text(lines)


def _row(one: Rate) -> tuple[str, ...]:
    size = format_bytes(one.bytes) if one.bytes else "unknown"
    speeds = (f"{one.algbw:.2f}", f"{one.busbw:.2f}") if one.bytes else ("", "")
    return (
        one.collective,
        shortened(printable(one.group), _GROUP),
        str(one.size),
        size,
        f"{one.count:,}",
        format_ns(one.transfer_ns),
        *speeds,
        format_ns(one.waiting_ns),
    )


def _clock(rank: int, clock: Clock) -> str:
    sign = "-" if clock.offset_ns < 0 else ""
    broken = f"; {clock.broken} collectives contradict it" if clock.broken else ""
    return (
        f"clock of rank {rank}: {sign}{format_ns(abs(clock.offset_ns))} against rank {clock.reference}, "
        f"drift {clock.drift_ppm:.1f} us/s, +- {format_ns(clock.uncertainty_ns)} ({clock.pairs} collectives){broken}"
    )
