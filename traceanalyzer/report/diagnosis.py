"""Traces -> indexes -> rules -> Report: the one place that knows every stage.

Not called `diagnose`: a module of that name would take the place of the function in the package.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import BadOption, Unavailable
from traceanalyzer.model.finding import Report
from traceanalyzer.model.trace import Trace
from traceanalyzer.model.units import format_ns
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.report.summary import accounting_of, scope_of, span_of, summarise
from traceanalyzer.rule.grouping import ranked
from traceanalyzer.rule.judging import Savings, judge
from traceanalyzer.rule.registry import configured, select_rules

_log = logging.getLogger(__name__)


def diagnose(
    traces: Trace | Mapping[int, Trace],
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    settings: Mapping[str, str] | None = None,
    window: tuple[int | None, int | None] | None = None,
) -> Report:
    """Run rules over a trace, or over all traces of a job, and report what they found.

    Args:
        traces: what `load` returned.
        select: slugs of the rules to run; all when empty.
        ignore: slugs of rules to leave out.
        settings: limits to override, `{"scheduler-gap.min_gap_ns": "20000"}`.
        window: analyse only [start, end), in ns from each trace's first event; None leaves a side open.

    Raises:
        BadOption: an unknown rule or limit, or a window outside the trace.
    """
    analysed = analyses_of(traces, window)
    return report_of(analysed, select=select, ignore=ignore, settings=settings)


def report_of(
    analysed: Sequence[tuple[int | None, Analysis]],
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    settings: Mapping[str, str] | None = None,
) -> Report:
    """As `diagnose`, of what `analyses_of` returned.

    Raises:
        BadOption: an unknown rule or limit.
    """
    rules = configured(select_rules(select, ignore), settings or {})
    judged = [judge(rules, one, scope_of(one, rank), _savings(one)) for rank, one in analysed]
    return Report(
        metas=tuple(one.trace.meta for _, one in analysed),
        accounting=tuple(row for rank, one in analysed for row in accounting_of(one, rank)),
        summary=tuple(summarise(one, rank) for rank, one in analysed),
        findings=ranked(finding for one in judged for finding in one.findings),
        outcomes=tuple(outcome for one in judged for outcome in one.outcomes),
        limits={f"{rule.slug}.{name}": value for rule in rules for name, value in rule.in_force()},
    )


def _savings(analysis: Analysis) -> Savings:
    """What edits save of the unprofiled step; None where the program cannot be replayed."""
    try:
        forecast = analysis.index(Forecast)
    except Unavailable:
        return lambda edits: None
    return forecast.saving


def by_rank(traces: Trace | Mapping[int, Trace]) -> list[tuple[int | None, Trace]]:
    """The traces with the rank that the report calls each by; a trace alone may have none."""
    return sorted(traces.items()) if isinstance(traces, Mapping) else [(traces.meta.rank, traces)]


def analyses_of(
    traces: Trace | Mapping[int, Trace], window: tuple[int | None, int | None] | None = None
) -> list[tuple[int | None, Analysis]]:
    """The traces as they are analysed, with the rank that the report calls each by; arguments as of `diagnose`."""
    return [(rank, restricted(trace, window)) for rank, trace in by_rank(traces)]


def restricted(trace: Trace, window: tuple[int | None, int | None] | None) -> Analysis:
    """The analysis of [start, end) alone, in ns from the trace's first event.

    Raises:
        BadOption: the window is empty or misses the trace.
    """
    if window is None:
        return Analysis(trace)
    first, last = span_of(trace)
    start = first if window[0] is None else trace.meta.origin_ns + window[0]
    end = last if window[1] is None else trace.meta.origin_ns + window[1]
    if end <= first or start >= last:
        length = format_ns(last - trace.meta.origin_ns)
        remedy = f"The last event ends {length} after the first one starts; times count from there."
        raise BadOption("the window lies outside the trace", where=trace.meta.source, remedy=remedy)
    if start >= end:
        raise BadOption("the window ends before it starts", where=trace.meta.source)
    return Analysis(trace, (max(start, first), min(end, last)))
