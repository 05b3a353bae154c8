"""The first screen: step, limit and fix, the findings, where the time goes, and what to do next."""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from traceanalyzer.model.finding import Finding, Severity, Status
from traceanalyzer.model.report import IDLE, Report, TraceReport
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.text.bars import device_bar
from traceanalyzer.render.text.finding import WHOLE, put_fitted, put_short
from traceanalyzer.render.text.job import put_iterations, put_job, put_ranks
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.words.escape import printable, shortened
from traceanalyzer.render.words.savings import (
    OF_SAVINGS,
    costs_share,
    may_save,
    probably_nothing,
    saves_nothing,
)
from traceanalyzer.report.finding_order import Triage
from traceanalyzer.report.job_summary import rank_of, slowest_of, unprofiled_ns
from traceanalyzer.report.words import listed
from traceanalyzer.rule.messages import IN_OTHERS
from traceanalyzer.rule.registry import Kind, kind_of
from traceanalyzer.version import __version__

_OF_FINDINGS = "Recorded times contain what the profiler costs, and their shares are of the whole window"
_OF_LIMIT = "; the line Limit is about the predicted step."
_OF_IDLE = " Here most of the idle time is due to launches that the profiler slows down."
_PROFILERS = 0.5  # of the idle time: the least that the profiler costs where it causes most of it
_IDLE = 0.2  # of the window: less idle time is no question where the GPU is the limit; chosen
_OF_COSTS = "Time that counts in another finding is left out of the cost of {}."
_NOT_SURE = "A range that begins at 0 means that a fix may save nothing."
_MAY_SAVE = "'Possibly' means: only if {why}."
_ALLOWED, _RECURS = "your program allows the fix", "what happened in few steps happens again"
_FEW = 0.5  # of the steps; chosen
_REST = "{rule} is idle time that no other finding explains."


def legend(numbered: Mapping[int, Finding], traces: Sequence[TraceReport]) -> str:
    """What the numbers of the findings are, of those that ask for something."""
    findings = numbered.values()
    savings = [
        saving for one in findings if (saving := one.saving) and not (one.settled or saves_nothing(saving))
    ]
    unsure = any(not saving.sure and not probably_nothing(saving) for saving in savings)
    perhaps = {_why_possibly(one, traces) for one in findings if may_save(one) and not one.settled}
    shared = [
        number
        for number, one in numbered.items()
        if costs_share(one) and not one.settled and IN_OTHERS in one.message
    ]
    rest = sorted({one.rule for one in findings if kind_of(one.rule) is Kind.REMAINDER})
    of_limit = _OF_LIMIT if len(traces) == 1 and traces[0].step else "."
    told = [_OF_FINDINGS + of_limit + _OF_IDLE * _profilers_idle(traces)] if findings else []
    told += [_OF_COSTS.format(f"finding{'s' * (len(shared) > 1)} {listed(shared)}")] if shared else []
    told += [OF_SAVINGS] * bool(savings) + [_NOT_SURE] * unsure
    told += [_MAY_SAVE.format(why=", or if ".join(sorted(perhaps, reverse=True)))] if perhaps else []
    told += [_REST.format(rule=one) for one in rest]
    return " ".join(told)


def _why_possibly(finding: Finding, traces: Sequence[TraceReport]) -> str:
    (count,) = (one.steps.every.count if one.steps else 1 for one in traces if one.rank == finding.rank)
    return _RECURS if 0 < finding.steps < _FEW * count else _ALLOWED


def _profilers_idle(traces: Sequence[TraceReport]) -> bool:
    """Whether the GPU sets the pace, and most of the idle time beside that is what the profiler costs."""
    one, step = traces[0], traces[0].step
    if len(traces) > 1 or step is None or step.open or step.bound != "gpu":
        return False
    count = one.steps.every.count if one.steps else 1
    idle_ns = max(time.classes_ns[IDLE] for time in one.accounting)
    added_ns = count * (step.traced_ns - step.unprofiled_ns)
    return added_ns >= _PROFILERS * idle_ns and idle_ns >= _IDLE * one.window.length_ns


MOST_LINES, MOST_OF_JOB = 60, 80  # lines of the screen at 80 columns: of a trace, of a job
_ROWS = 8  # of the table of time
_DEVICES, _RANKS = 4, 3  # more are named in one line
_FAILED = 3  # rules that are named
_OUTSIDE = 0.03  # of the window: less outside of the steps is not worth a word; chosen
_LOST = ("lost-work", "truncated-device-lane")  # causes of trace-health: what else is said rests on the rest
_LABEL = 7  # columns of `Step`, `Limit`, `Fix` and `Next`
_OPEN = "traceanalyzer open {source} --finding {number}"


def put_screen(page: Page, report: Report, parts: Triage, *, quiet: bool) -> None:
    """All of it in at most `MOST_LINES` lines, of a job `MOST_OF_JOB`; `quiet` keeps the findings alone."""
    head = Page(page.width, page.colour, page.ascii_only)
    tail = [] if quiet else _tail(page, report, parts, parts.others)
    if not quiet:
        _head(head, report, parts)
    page.lines += head.lines
    if parts.others:
        page.blank()
        most = MOST_LINES if len(report.traces) == 1 else MOST_OF_JOB
        shown = _findings(page, report, parts.others, most - len(head.lines) - len(tail) - 2)
        tail = [] if quiet else _tail(page, report, parts, shown)  # explains what is shown alone
    if tail:
        page.blank()
        page.lines += tail


def put_title(page: Page, report: Report, findings: Collection[Finding]) -> None:
    """Tool and file at the left, how many findings there are at the right."""
    counts = Counter(finding.severity for finding in findings)
    named = [f"{counts[severity]} {severity}" for severity in Severity if counts[severity]]
    judged = any(trace.accounting for trace in report.traces)
    right = f"severity: {', '.join(named)}" if named else "no findings" if judged else "no GPU work to judge"
    left = f"traceanalyzer {__version__}  "
    traces = report.traces
    name = Path(traces[0].meta.source).name if len(traces) == 1 else f"{len(traces)} ranks"
    page.sides(left + shortened(printable(name), page.width - len(left) - len(right) - 2), right)


def put_verdict(page: Page, trace: TraceReport) -> None:
    """Step, limit and fix, a line each."""
    for label, text in trace.summary.lines.items():
        page.pair(label, text, width=_LABEL - 1, style="bold")


def _head(page: Page, report: Report, parts: Triage) -> None:
    put_title(page, report, parts.others.values())
    if len(report.traces) == 1:
        put_fitted(page, _what(report.traces[0]), 1, style="dim")
    if report.job is not None:
        put_job(page, report.job)
    for trace, rank in _speaking(report.traces) if report.job is None else ():
        page.blank()
        if rank and trace.summary.lines:
            page.put(f"{rank}:", style="bold")
        put_verdict(page, trace)
        damage = [one.message for one in trace.meta.damage]
        damage += [one.message for one in report.findings if one.cause in _LOST and one.rank == trace.rank]
        if damage:
            put_fitted(page, f"{'Damage':<{_LABEL}}{'; '.join(damage)}", 3, hang=_LABEL, style="red")
    if report.iterations is not None:
        put_iterations(page, report.iterations)


def _what(trace: TraceReport) -> str:
    """The devices, the steps and how long it is: `NVIDIA H200, 5 steps in a window of 18.3 ms`."""
    known = Counter(device.name or "unknown GPU" for device in trace.meta.devices)
    devices = [name if count == 1 else f"{count} x {name}" for name, count in known.items()]
    steps = trace.steps
    count = 0 if steps is None or not steps.marked else steps.every.count
    whole, outside_ns = format_ns(trace.window.length_ns), 0
    if steps is not None and count:
        outside_ns = trace.window.length_ns - steps.every.total_ns
    many = f"{count:,} step{'s' * (count != 1)} in a window of {whole}" if count else f"a window of {whole}"
    if outside_ns >= _OUTSIDE * trace.window.length_ns:
        many += f" ({format_ns(outside_ns)} of it outside these steps)"
    return ", ".join([*devices, f"{many}, as asked for with --window" if trace.window.asked else many])


def _speaking(traces: Sequence[TraceReport]) -> list[tuple[TraceReport, str]]:
    """The traces whose verdicts are shown, each with what stands above: all of a few, of many the slowest."""
    if len(traces) == 1:
        return [(traces[0], "")]
    slowest = slowest_of(traces)
    shown = traces if len(traces) <= _RANKS else [slowest or max(traces, key=unprofiled_ns)]
    ordered = sorted(shown, key=lambda trace: trace is not slowest)
    return [(trace, rank_of(trace, slowest)) for trace in ordered]


def _findings(
    page: Page, report: Report, findings: Mapping[int, Finding], room: int
) -> Mapping[int, Finding]:
    """Those with something to do: a line of each at least, then as many as there is room for, first above `info`.

    Returns:
        those that are shown.
    """
    blocks = {
        number: [_block(page, number, found, report, detail) for detail in range(WHOLE + 1)]
        for number, found in findings.items()
    }
    wrong = [number for number in blocks if findings[number].severity is not Severity.INFO]
    shown = list(blocks)[: max(room - 2, 1)]
    shown = [number for number in shown if not findings[number].settled] or shown[:1]
    infos = [number for number in shown if number not in wrong]

    def with_infos(count: int) -> dict[int, int]:
        return _grown(blocks, [one for one in shown if one in wrong or one in infos[:count]], wrong, room)

    def has_bare(count: int) -> bool:  # of what is no fault, a title alone says nothing
        details = with_infos(count)
        return any(not details[number] for number in infos[:count])

    least = int(len(infos) == len(shown))
    count = least + bisect_left(range(least + 1, len(infos) + 1), True, key=has_bare)
    details = with_infos(count)
    page.lines += _laid_out(blocks, details)
    if len(details) < len(blocks):
        left = [number for number in blocks if number not in details]
        bare = [number for number, detail in details.items() if not detail]
        several = len(left) > 1
        page.put(
            f"... and finding{'s' * several} {listed(left)}: --verbose shows {'them' if several else 'it'}"
            + (f", and the text of finding{'s' * (len(bare) > 1)} {listed(bare)}" if bare else ""),
            style="dim",
        )
    return {number: findings[number] for number in details}


def _grown(
    blocks: Mapping[int, Sequence[Sequence[str]]], shown: Sequence[int], wrong: Sequence[int], room: int
) -> dict[int, int]:
    """The detail of each finding shown, such that all have room."""
    details = dict.fromkeys(shown, 0)
    first = [number for number in shown if number in wrong] or shown[:1]
    for numbers, detail in ((first, WHOLE), (shown, 1), (shown, WHOLE)):
        for number in numbers:
            grown = details | {number: max(detail, details[number])}
            details = grown if len(_laid_out(blocks, grown)) + 1 <= room else details
    return details


def _laid_out(blocks: Mapping[int, Sequence[Sequence[str]]], sizes: Mapping[int, int]) -> list[str]:
    """The blocks below one another, apart by a blank line where one has more than its title."""
    lines: list[str] = []
    last = 0
    for number, size in sizes.items():
        lines += [""] if lines and (size or last) else []
        lines += blocks[number][size]
        last = size
    return lines


def _block(page: Page, number: int, finding: Finding, report: Report, detail: int) -> list[str]:
    own = Page(page.width, page.colour, page.ascii_only)
    put_short(own, number, finding, report, detail)
    return own.lines


def _tail(whole: Page, report: Report, parts: Triage, shown: Mapping[int, Finding]) -> list[str]:
    """Where time goes, what the numbers of the findings shown are, and what to do next."""
    page = Page(whole.width, whole.colour, whole.ascii_only)
    several = len(report.traces) > 1
    devices = [(trace.rank, time) for trace in report.traces for time in trace.accounting]
    if report.job is not None:
        put_ranks(page, report.job)
        devices = []
    for number, (rank, time) in enumerate(devices[:_DEVICES]):
        rows = _ROWS if len(devices) == 1 else max(_ROWS // len(devices), 2)
        last = number == len(devices[:_DEVICES]) - 1
        also = legend(shown, report.traces) if last else ""
        device_bar(page, time, rank=rank if several else None, most=rows, apart=number == 0, also=also)
    if len(devices) > _DEVICES:
        more = len(devices) - _DEVICES
        page.put(f"... and {more} more device{'s' * (more != 1)}: --verbose shows all", style="dim")
    page.blank()
    _next(page, report, parts)
    for one in [one for one in report.outcomes if one.status is Status.FAILED][:_FAILED]:
        put_fitted(page, f"{'Failed':<{_LABEL}}{one.rule}: {one.why}", 2, hang=_LABEL)
    page.put(_left_out(report, parts), style="dim")
    return page.lines


def _next(page: Page, report: Report, parts: Triage) -> None:
    label = f"{'Next':<{_LABEL}}"
    lines = []
    first = next(iter(parts.others.items()), None)
    source = report.traces[0].meta.source
    if first is not None and len(report.traces) == 1 and source != "-":
        lines.append(_OPEN.format(source=shlex.quote(source), number=first[0]))
    if first is not None:
        lines.append(f"traceanalyzer explain {first[1].rule}")
    if any(trace.accounting for trace in report.traces):
        lines += sorted({f.advice for f in parts.profilers_own.values() if not f.cost_ns and f.advice})
    for line in lines:
        if line.startswith("traceanalyzer"):  # stays on one line, to be copied
            page.lines.append(printable(label + line))
        else:
            put_fitted(page, label + line, 2, hang=_LABEL)
        label = " " * _LABEL


def _left_out(report: Report, parts: Triage) -> str:
    idle = {one.rule for one in report.outcomes if one.status is Status.NOT_APPLICABLE}
    failed = {one.rule for one in report.outcomes if one.status is Status.FAILED}
    ran = {one.rule for one in report.outcomes if one.status in (Status.FOUND, Status.CLEAR)}
    judged = any(trace.accounting for trace in report.traces)
    told = [f"{len(ran)} rule{'s' * (len(ran) != 1)}{' about the recording' * (not judged)} ran"]
    if others := len(idle - ran):
        told += [f"{others} other{'s do' if others > 1 else ' does'} not apply to this trace"]
    told += [f"{len(failed)} failed"] if failed else []
    costly = any(finding.cost_ns for finding in parts.profilers_own.values())
    own = " Findings about the profiler itself are not shown." * costly
    return f"{', '.join(told)}.{own} --verbose shows all.{hidden_words(parts)}"


def hidden_words(parts: Triage) -> str:
    """How many findings are hidden, a sentence after a space; empty where none is."""
    count = len(parts.pedantic)
    return f" {count} finding{'s' * (count != 1)} of low confidence: --pedantic." if count else ""
