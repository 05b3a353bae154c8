"""The report's footer: what became of every rule, what was not understood, what was damaged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from traceanalyzer.model.finding import Finding, Outcome, Status
from traceanalyzer.model.report import Report
from traceanalyzer.model.trace import Meta
from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.text.savings import finding_name

_UNDERSTOOD = ("flow:", "metadata", "window mark")


def footer(page: Page, report: Report, own: Sequence[Finding], minor: Sequence[Finding] = ()) -> None:
    """Nothing that was left out goes unsaid; `own` is what the profiler itself did, `minor` what is too little."""
    page.blank()
    page.lines.append(page.styled("-" * page.width, "dim"))
    if own:
        page.pair("profiler", f"its own doing, not the program's: {'; '.join(map(_own, own))}")
    if minor:
        page.pair("minor", f"seen, and nothing to act on: {'; '.join(map(_own, minor))}")
    several = len(report.traces) > 1
    for status in Status:
        found = [outcome for outcome in report.outcomes if outcome.status is status]
        _status(page, status, found, several=several)
    for trace in report.traces:
        prefix = f"{trace.meta.source}: " if several else ""
        for problem in _not_understood(trace.meta):
            page.pair("events", prefix + problem)
        for damage in trace.meta.damage:
            page.pair("damage", prefix + damage.message)
    page.put(
        "Times count from the trace's first event; a Perfetto timestamp goes into Perfetto's command "
        '"Pan to timestamp".',
        style="dim",
    )


def _own(finding: Finding) -> str:
    rank = "" if finding.rank is None else f" (rank {finding.rank})"
    cost = f" {format_ns(finding.cost_ns)}, {format_share(finding.cost_share)}" if finding.cost_ns else ""
    return f"{finding_name(finding)}{rank}{cost}"


def _status(page: Page, status: Status, outcomes: list[Outcome], *, several: bool) -> None:
    """The rules of one status; why they do not apply or how they failed, each reason once."""
    if not outcomes:
        return
    rules = dict.fromkeys(outcome.rule for outcome in outcomes)
    told = status in (Status.FOUND, Status.CLEAR)
    page.pair("rules", f"{len(rules)} {status}" + (f": {', '.join(rules)}" if told else ""))
    for why, (concerned, ranks) in _by_reason([] if told else outcomes).items():
        where = f" (rank {', '.join(map(str, ranks))})" if several else ""
        page.put(f"{', '.join(concerned)}{where}: {why}", indent=11, hang=3)


def _by_reason(outcomes: Iterable[Outcome]) -> dict[str | None, tuple[list[str], list[int | None]]]:
    """Reason -> the rules and the ranks that have it, each once."""
    grouped: dict[str | None, tuple[list[str], list[int | None]]] = {}
    for outcome in outcomes:
        rules, ranks = grouped.setdefault(outcome.why, ([], []))
        if outcome.rule not in rules:
            rules.append(outcome.rule)
        if outcome.rank not in ranks:
            ranks.append(outcome.rank)
    return grouped


def _not_understood(meta: Meta) -> list[str]:
    """Kinds of events that were counted but not analysed, each with its number."""
    unreadable = {name: n for name, n in meta.counted.items() if not name.startswith(_UNDERSTOOD)}
    kinds = {
        "not understood": unreadable,
        "of unknown categories": meta.unknown_categories,
        "mended": meta.anomalies,
    }
    return [f"{_total(counts)} {kind}: {_listed(counts)}" for kind, counts in kinds.items() if counts]


def _total(counts: Mapping[str, int]) -> str:
    return f"{sum(counts.values()):,}"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
