"""The report's footer: what became of every rule, what was not understood, what was damaged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from traceanalyzer.model.finding import Finding, Outcome, Status
from traceanalyzer.model.report import Report
from traceanalyzer.model.trace import Meta
from traceanalyzer.model.units import format_ns, format_offset, format_share
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.words.savings import OF_SAVINGS, finding_name
from traceanalyzer.report.finding_order import Triage


def footer(page: Page, report: Report, parts: Triage) -> None:
    """Nothing that was left out goes unsaid: what the profiler itself did, and what is too little to act on."""
    own, minor = parts.profilers_own, parts.minor
    page.blank()
    page.lines.append(page.styled("-" * page.width, "dim"))
    several = len(report.traces) > 1
    if own:
        _recording(page, own, several=several)
    if minor:
        page.pair("also", f"too small to act on: {_priced(minor)}")
    listed = {finding.rule for finding in parts.others.values()}
    _rules(page, report.outcomes, listed, several=several)
    for trace in report.traces:
        prefix = f"{trace.meta.source}: " if several else ""
        for problem in _not_understood(trace.meta):
            page.pair("events", prefix + problem)
        for damage in trace.meta.damage:
            page.pair("damage", prefix + damage.message)
    if any(finding.saving is not None for finding in report.findings):
        page.put(OF_SAVINGS, style="dim")
    page.put(times_count_from(report), style="dim")


def times_count_from(report: Report) -> str:
    """Where the offsets of a report begin, how far that is from where Perfetto's ruler does, and what it takes."""
    metas = [trace.meta for trace in report.traces]
    marked = [meta.origin_ns - meta.window_ns[0] for meta in metas if meta.window_ns is not None]
    before = sorted({format_offset(ns) for ns in marked if format_offset(ns) != format_offset(0) and ns > 0})
    several = before and (len(before) > 1 or len(marked) < len(metas))
    ruler = (
        f"Perfetto's ruler begins {'up to ' * bool(several)}{format_offset(max(marked))} earlier"
        if before
        else ""
    )
    return (
        "Times count from the first op, annotation, call or kernel"
        + (f"; {ruler}, at the profiler's own mark" if ruler else "")
        + '. A timestamp goes into Perfetto\'s command "Pan to timestamp".'
    )


def _recording(page: Page, own: Mapping[int, Finding], *, several: bool) -> None:
    """What the profiler cost, in one line, and what is to be known of the recording, each once."""
    costly = {number: finding for number, finding in own.items() if finding.cost_ns}
    if costly:
        page.pair("profiler", f"done by the profiler, not by the program: {_priced(costly)}")
    said: dict[str, list[int | None]] = {}
    for finding in own.values():
        if not finding.cost_ns:
            said.setdefault(f"{finding.message}. {finding.advice}", []).append(finding.rank)
    for text, ranks in said.items():
        page.pair("recording", (_ranks(ranks) + ": " if several else "") + text)


def _priced(findings: Mapping[int, Finding]) -> str:
    """Each by its number and name, and what it costs."""
    return "; ".join(f"#{number} {_one_priced(finding)}" for number, finding in findings.items())


def _one_priced(finding: Finding) -> str:
    rank = "" if finding.rank is None else f" (rank {finding.rank})"
    cost = f" {format_ns(finding.cost_ns)}, {format_share(finding.cost_share)}" if finding.cost_ns else ""
    return f"{finding_name(finding)}{rank}{cost}"


def _ranks(ranks: Sequence[int | None]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _rules(page: Page, outcomes: Sequence[Outcome], listed: Collection[str], *, several: bool) -> None:
    """How many rules ran and what they found; which say nothing, do not apply, or failed, each reason once.

    What is clear and not named found nothing.
    """
    found, clear = (
        {outcome.rule for outcome in outcomes if outcome.status is status}
        for status in (Status.FOUND, Status.CLEAR)
    )
    if found or clear:
        noted = len(found - set(listed))
        also = f", {noted} noted above in this footer" if noted else ""
        page.pair(
            "rules",
            f"{len(found | clear)} ran: {len(found) - noted} with findings{also}, {len(clear - found)} clear",
        )
    unsaid = (one for one in outcomes if one.status is Status.CLEAR and one.why and one.rule not in found)
    _reasons(page, unsaid, several=several)
    for status in (Status.NOT_APPLICABLE, Status.FAILED):
        concerned = [outcome for outcome in outcomes if outcome.status is status]
        if concerned:
            page.pair("rules", f"{len({outcome.rule for outcome in concerned})} {status}")
        _reasons(page, concerned, several=several)


def _reasons(page: Page, outcomes: Iterable[Outcome], *, several: bool) -> None:
    for why, (rules, ranks) in _by_reason(outcomes).items():
        where = f" ({_ranks(ranks)})" if several and None not in ranks else ""
        page.put(f"{', '.join(rules)}{where}: {why}", indent=11, hang=3)


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
    kinds = {
        "not understood": meta.not_understood,
        "of unknown categories": meta.unknown_categories,
        "mended": meta.anomalies,
    }
    return [f"{_total(counts)} {kind}: {_listed(counts)}" for kind, counts in kinds.items() if counts]


def _total(counts: Mapping[str, int]) -> str:
    return f"{sum(counts.values()):,}"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
