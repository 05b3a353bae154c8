"""Limits of a recorded test: what a trace has beyond them, with ops and lines."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from traceanalyzer import diagnose
from traceanalyzer.comparison.compare import compare, side_of
from traceanalyzer.comparison.snapshot import Snapshot
from traceanalyzer.model.errors import BadOption, TraceAnalyzerError
from traceanalyzer.model.finding import Severity
from traceanalyzer.render.data.ci import source_line

_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(B|kB|MB|GB)\s*")
_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
_NO_GPU = "no work of a GPU was recorded"
_COUNTERS = {
    "limit_launches": (("launches",), "launches"),
    "limit_syncs": (("synchronisations",), "waits for the device"),
    "limit_copies": (("h2d bytes", "d2h bytes"), "bytes between host and device"),
}
_PLACES = 5  # that are named


class Uncounted(Exception):
    """The trace cannot tell whether a limit is kept."""


def broken(path: Path, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """What is beyond the limit, as sentences; empty where it is kept. Raises BadOption, Uncounted."""
    given = [*args, *kwargs.values()]
    if len(given) != 1:
        raise BadOption(f"{name} takes one limit, not {len(given)}")
    if name in _COUNTERS:
        return _counted(path, name, bytes_of(given[0]) if name == "limit_copies" else float(given[0]))
    checks = {"limit_idle": _idle, "no_findings": _findings, "not_slower_than": _slower}
    return checks[name](path, given[0])


def bytes_of(text: str | int) -> float:
    """`1 MB` as 1,000,000. Raises BadOption: it is no amount."""
    match = _AMOUNT.fullmatch(str(text) if isinstance(text, str) else f"{text} B")
    if match is None:
        raise BadOption(f"{text!r} is no amount of bytes", remedy='Write it as "1 MB".')
    return float(match[1]) * _UNITS[match[2]]


def share_of(text: str) -> float:
    """`20 %` as 0.2. Raises BadOption: it is no share."""
    match = _SHARE.fullmatch(str(text))
    if match is None or float(match[1]) > 100:
        raise BadOption(f"{text!r} is no share", remedy='Write it as "20 %".')
    return float(match[1]) / 100


@lru_cache(maxsize=1)
def _snapshot(path: Path) -> Snapshot:
    try:
        return next(iter(side_of([path])[0].values()))
    except TraceAnalyzerError as error:
        raise Uncounted(f"{_NO_GPU}: {error.problem}") from error


def _counted(path: Path, name: str, limit: float) -> list[str]:
    """A counter, in the step that has most of it."""
    counters, words = _COUNTERS[name]
    tables = _snapshot(path).tables
    totals = tables["totals"].set_index("counter")["most"]
    if not any(totals.get(counter, 0) for counter in ("kernels", *counters)):
        raise Uncounted(f"{name}: {_NO_GPU}")
    most = float(sum(totals.get(counter, 0.0) for counter in counters))
    if most <= limit:
        return []
    calls = tables["calls"]
    own = calls[calls["counter"].isin(counters)].sort_values("most", ascending=False).head(_PLACES)
    counts = zip(own["op"], own["name"], own["most"], strict=True)
    ops = ", ".join(f"{op or call} ({count:g})" for op, call, count in counts)
    ops = f": {ops}" if ops else ""
    lines = _lines(path)
    at = f"; lines: {', '.join(lines)}" if lines else ""
    return [f"{name}: {most:,.0f} {words} in a step, {limit:,.0f} allowed{ops}{at}"]


def _lines(path: Path) -> list[str]:
    places = [place for finding in _report(path).findings if (place := source_line(finding))]
    return list(dict.fromkeys(f"{place.file}:{place.line}" for place in places))[:_PLACES]


@lru_cache(maxsize=1)
def _report(path: Path) -> Any:
    return diagnose(path)


def _judged(path: Path, name: str) -> Any:
    """The report, if the trace has work of a GPU."""
    report = _report(path)
    if not report.traces[0].busy:
        raise Uncounted(f"{name}: {_NO_GPU}")
    return report


def _idle(path: Path, limit: str) -> list[str]:
    allowed = share_of(limit)
    idle = 1 - max(one.share for one in _judged(path, "limit_idle").traces[0].busy)
    return [f"limit_idle: idle for {idle:.0%} of the window, {allowed:.0%} allowed"] if idle > allowed else []


def _findings(path: Path, severity: str) -> list[str]:
    if severity not in ("high", "medium", "low"):
        raise BadOption(f"{severity!r} is no severity", remedy="It is high, medium or low.")
    found = [one for one in _judged(path, "no_findings").findings if one.severity.rank <= Severity(severity).rank]
    places = [(place := source_line(one)) and f" at {place.file}:{place.line}" for one in found]
    return [f"no_findings: {one.rule}: {one.message}{at or ''}" for one, at in zip(found, places, strict=True)]


def _slower(path: Path, baseline: str) -> list[str]:
    _judged(path, "not_slower_than")
    found = compare([baseline], [str(path)])
    return [f"not_slower_than: slower than {baseline}"] if found.verdict.word == "slower" else []
