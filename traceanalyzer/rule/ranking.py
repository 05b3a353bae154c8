"""In which order findings are said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.rule.registry import Kind, kind_of

_LARGE_SHARE = 1 / 3  # of the step that one op takes; chosen


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By severity, what surely saves most first, then what nobody can tell; ties by cost, names, rank and place.

    Facts that cost nobody anything stand by the share of GPU time that they are about. An op that takes a third of the
    step or more stands where that third puts it: where nothing before it explains it, that is what to look at.

    Where nothing is sure to be wrong, what the time goes to comes first.
    """
    found = sorted(findings, key=_place)
    if any(one.severity is not Severity.INFO or _saves(one) for one in found):
        return tuple(found)
    told = (Kind.FACT, Kind.QUESTION)
    return tuple(sorted(found, key=lambda one: kind_of(one.rule) not in told))


def _saves(found: Finding) -> bool:
    return found.saving is not None and found.saving.low_share > 0


def _about(found: Finding) -> float | None:
    """Share of GPU time that a fact is about which costs nobody anything; None of other findings."""
    if found.cost_ns or found.saving is not None:
        return None
    if found.evidence.get("part_share", 0.0) >= _LARGE_SHARE:
        return _LARGE_SHARE
    about = found.evidence.get("gpu_share")
    return None if about is None else float(about)


def _place(found: Finding) -> tuple[Any, ...]:
    device = -1 if found.device is None else found.device
    rank = -1 if found.rank is None else found.rank
    about = _about(found)
    cost_share = found.cost_share if about is None else about
    worth = cost_share if found.saving is None else found.saving.share
    names = found.rule, found.cause, found.by or ""
    return (
        found.severity.rank,
        (found.saving is None and about is None) or (found.severity is Severity.LOW and not _saves(found)),
        -worth,
        -found.cost_ns,
        *names,
        rank,
        device,
        found.start_ns,
    )
