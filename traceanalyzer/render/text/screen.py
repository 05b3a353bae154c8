"""The first screen: step, limit and fix, the findings, where the time goes, and what to do next."""

import re
import shlex
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path

from traceanalyzer.model.finding import Finding, Severity, Status
from traceanalyzer.model.report import Report, TraceReport, Verdict, fixed_along
from traceanalyzer.model.units import percent
from traceanalyzer.render.text.finding import WHOLE, put_fitted, put_short
from traceanalyzer.render.text.job import put_iterations, put_job_notes, put_ranks
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.words.escape import printable, shortened
from traceanalyzer.render.words.phrases import cpu_parts, parts_of_step, problem_words, recorded_words
from traceanalyzer.report.finding_order import Triage
from traceanalyzer.report.job_summary import rank_of, slowest_of, unprofiled_ns
from traceanalyzer.report.verdict import added_up, asked_first
from traceanalyzer.report.words import listed

LINES, LINES_OF_JOB = 24, 30
"""Lines of the screen at least, of a trace and of a job; a taller terminal shows more."""
RANKS = 3  # verdicts of as many ranks that do not communicate
_VERDICT_LINES = 2  # of Step, Limit and Fix each
_DETAILED = 2  # findings above `info` with what to do; they come before the titles of others and where the step goes
_FAILED = 3  # rules that are named
_JOB_ROWS = 6  # ranks in the table
_LOST = ("lost-work", "truncated-device-lane")  # causes of trace-health: what else is said rests on the rest
_OF_STEPS = re.compile(r" \((?:mean|one step) of [^()]*\)")  # --verbose shows which steps
Blocks = Mapping[int, Sequence[Sequence[str]]]
"""Number of a finding -> its lines in each detail."""
_LABEL = 7  # columns of `Step`, `Limit`, `Fix` and `Next`


def put_screen(page: Page, report: Report, parts: Triage, *, quiet: bool, height: int = LINES) -> None:
    """Verdict, findings (`quiet`: these alone), where the time goes and what to do next, in `height` lines or more."""
    head, tail = page.fresh(), page.fresh()
    if not quiet:
        _head(head, report, parts)
        _tail(tail, report, parts)
    page.lines += head.lines
    most = max(height, LINES if len(report.traces) == 1 else LINES_OF_JOB)
    room = most - len(head.lines) - len(tail.lines) - 2
    where = [] if quiet else _where(page, report.traces)
    if parts.others:
        page.blank()
        trial, without = page.fresh(), page.fresh()
        served = _findings(trial, report, parts.others, room - len(where))
        fits = served >= _findings(without, report, parts.others, room)
        tail.lines[:0] = where if fits else []
        page.lines += (trial if fits else without).lines
    elif not any(trace.accounting for trace in report.traces):
        tail.lines[:0] = where
    if tail.lines:
        page.blank()
        page.lines += tail.lines


def put_verdict(page: Page, verdict: Verdict, lines: int | None = None) -> None:
    """Step, limit and fix, each in at most so many lines."""
    for label, text in verdict.lines.items():
        if lines is None:
            page.pair(label, text, width=_LABEL - 1, style="bold")
        else:
            brief = _OF_STEPS.sub("", text)
            put_fitted(page, f"{label:<{_LABEL}}{brief}", lines, hang=_LABEL, style="bold")


def put_rank(page: Page, trace: TraceReport, rank: str) -> None:
    """The whole verdict of a trace; `rank` says which of several it is of."""
    if trace.summary.lines:
        page.blank()
        if rank:
            page.put(f"{rank}:", style="bold")
    put_verdict(page, trace.summary)


def _head(page: Page, report: Report, parts: Triage) -> None:
    put_source(page, report, parts.others)
    if report.job is not None:
        put_verdict(page, report.job.summary, _VERDICT_LINES)
        put_job_notes(page, report.job)
    for trace, rank in _speaking(report.traces) if report.job is None else ():
        if rank and trace.summary.lines:
            page.blank()
            page.put(f"{rank}:", style="bold")
        put_verdict(page, trace.summary, _VERDICT_LINES)
        damage = [one.message for one in trace.meta.damage]
        damage += [one.message for one in report.findings if one.cause in _LOST and one.rank == trace.rank]
        if damage:
            put_fitted(page, f"{'Damage':<{_LABEL}}{'; '.join(damage)}", 2, hang=_LABEL, style="red")
    if report.iterations is not None:
        put_iterations(page, report.iterations)


def put_source(page: Page, report: Report, findings: Mapping[int, Finding]) -> None:
    """File, devices and steps at the left, how many problems there are at the right."""
    traces = report.traces
    right = problem_words(report, findings.values())
    room = page.width - len(right) - 2
    if len(traces) > 1:
        page.sides(shortened(f"{len(traces)} ranks", room), right)
        return
    name, what = printable(Path(traces[0].meta.source).name), recorded_words(traces[0])
    left = f"{shortened(name, max(room - len(what) - 3, room // 2))}   {what}" if what else name
    page.sides(shortened(left, room), right)


def _speaking(traces: Sequence[TraceReport]) -> list[tuple[TraceReport, str]]:
    """The traces whose verdicts are shown, each with what stands above: all of a few, of many the slowest."""
    if len(traces) == 1:
        return [(traces[0], "")]
    slowest = slowest_of(traces)
    shown = traces if len(traces) <= RANKS else [slowest or max(traces, key=unprofiled_ns)]
    ordered = sorted(shown, key=lambda trace: trace is not slowest)
    return [(trace, rank_of(trace, slowest)) for trace in ordered]


def _findings(page: Page, report: Report, findings: Mapping[int, Finding], room: int) -> int:
    """Put those with something to do; returns how many say it or stand in Fix: other lines give way to these."""
    blocks = {
        number: [_block(page, number, found, report, detail) for detail in range(WHOLE + 1)]
        for number, found in findings.items()
    }
    asked = asked_first(findings)
    wrong = [number for number in blocks if number == asked or findings[number].severity is not Severity.INFO]
    ends = accumulate(len(block[0]) for block in blocks.values())
    shown = [number for number, end in zip(blocks, ends, strict=True) if end <= room - 2] or [*blocks][:1]
    shown = [number for number in shown if not findings[number].settled] or shown[:1]
    along = fixed_along(fault for trace in report.traces for fault in trace.faults)
    own = [number for number in wrong if number not in along and not findings[number].settled][:_DETAILED]
    first = list(dict.fromkeys(number for number in (shown[0], asked, *own) if number is not None))
    grown = partial(_grown, blocks, first=first, wrong=wrong, room=room)
    named = _named_by_fix(report, findings)
    # These say what to do, whatever room that leaves for titles: of those that Fix names last.
    for end, number in enumerate(first, 1):
        for kept in ({*first[:end], *named}, {*first[:end]}):
            trial = sorted({*shown, number})
            while {*trial} > kept and not grown(trial)[number]:
                trial.remove(max({*trial} - kept))
            if grown(trial)[number]:
                shown = trial
                break
    infos = [number for number in shown if number not in wrong]

    def with_infos(count: int) -> dict[int, int]:
        return grown([one for one in shown if one in wrong or one in infos[:count]])

    def has_bare(count: int) -> bool:  # of what is no fault, a title alone says nothing
        details = with_infos(count)
        return any(not details[number] for number in infos[:count])

    least = int(len(infos) == len(shown))
    count = least + bisect_left(range(least + 1, len(infos) + 1), True, key=has_bare)
    details = with_infos(count)
    page.lines += _laid_out(blocks, details, room - (len(details) < len(blocks)))
    if len(details) < len(blocks):
        left = [number for number in blocks if number not in details]
        bare = [number for number, detail in details.items() if not detail]
        findings_left = f"findings {listed(left)}" if len(left) > 1 else f"finding {left[0]}"
        about = f", and what to do about {listed(bare)}" if bare else ""
        page.put(f"... --verbose shows {findings_left}{about}", style="dim")
    return sum(details.get(number, 0) > 0 for number in first) + len(named & {*details})


def _named_by_fix(report: Report, findings: Mapping[int, Finding]) -> set[int]:
    """Numbers of the findings that **Fix** adds up; of a job it names the first alone."""
    wrong = {number: one for number, one in findings.items() if one.severity is not Severity.INFO and not one.pedantic}
    return {*added_up(report.traces[0], wrong)} if len(report.traces) == 1 else set()


def _grown(
    blocks: Blocks, shown: Sequence[int], *, first: Sequence[int], wrong: Sequence[int], room: int
) -> dict[int, int]:
    """The detail of each finding shown, such that all have room: more of one only if all that can say what to do."""
    details = dict.fromkeys(shown, 0)
    faults = [number for number in shown if number in wrong]
    for numbers, detail in ((first, 1), (faults, 1), (faults, WHOLE), (shown, 1), (shown, WHOLE)):
        for number in [one for one in numbers if one in details]:
            grown = details | {number: max(detail, details[number])}
            details = grown if sum(len(blocks[one][size]) for one, size in grown.items()) < room else details
    return details


def _laid_out(blocks: Blocks, sizes: Mapping[int, int], room: int) -> list[str]:
    """The blocks below one another; apart by a blank line, where one has more than its title, if that has room."""
    chosen = [blocks[number][size] for number, size in sizes.items()]
    apart: list[str] = []
    for before, block in pairwise([[], *chosen]):
        apart += [""] * (bool(before) and max(len(before), len(block)) > 2)
        apart += block
    return apart if len(apart) <= room else [line for block in chosen for line in block]


def _block(page: Page, number: int, finding: Finding, report: Report, detail: int) -> list[str]:
    own = page.fresh()
    put_short(own, number, finding, report, detail)
    return own.lines


def _where(page: Page, traces: Sequence[TraceReport]) -> list[str]:
    own = page.fresh()
    base, parts = parts_of_step(traces)
    parts = {"the rest" if name == "other" else name: share for name, share in parts.items()}
    named = [f"{printable(name)} {percent(share)}" for name, share in parts.items()]
    while named and not own.lines:
        own.put(f"Where the step goes ({base}): {'; '.join(named)}", hang=3)
        if len(own.lines) > _VERDICT_LINES:
            own.lines.clear()
            named.pop()
    uses = [f"{name} {percent(share)}" for name, share in cpu_parts(traces[0]).items()] if len(traces) == 1 else []
    if uses:
        own.put(f"What the CPU does: {', '.join(uses)}", hang=3)
    return own.lines


def _tail(page: Page, report: Report, parts: Triage) -> None:
    if report.job is not None:
        put_ranks(page, report.job, most=_JOB_ROWS, legend=False)
    _next(page, report, parts)
    rules = {status: [one for one in report.outcomes if one.status is status] for status in Status}
    for one in rules[Status.FAILED][:_FAILED]:
        put_fitted(page, f"{'Failed':<{_LABEL}}{one.rule}: {one.why}", 1, hang=_LABEL)
    failed, idle, found, clear = (
        {one.rule for one in rules[status]}
        for status in (Status.FAILED, Status.NOT_APPLICABLE, Status.FOUND, Status.CLEAR)
    )
    ran, judged = found | clear, any(trace.accounting for trace in report.traces)
    counts = [f"{len(ran)} rule{'s' * (len(ran) != 1)}{' about the recording' * (not judged)} ran"]
    if others := len(idle - ran):
        counts += [f"{others} {'do' if others > 1 else 'does'} not apply"]
    counts += [f"{len(failed)} failed"] if failed else []
    costly = any(finding.cost_ns for finding in parts.profilers_own.values())
    own = ", and what the profiler itself costs" * costly
    page.put(f"{', '.join(counts)}. --verbose shows all{own}.{hidden_words(parts)}", style="dim")


def _next(page: Page, report: Report, parts: Triage) -> None:
    """The command that shows the first finding, on a line of its own to be copied, and how to record more."""
    first = next(iter(parts.others.items()), None)
    source = report.traces[0].meta.source
    if first is not None:
        number, finding = first
        ways = [f"traceanalyzer open {shlex.quote(source)} --finding {number}"]
        ways *= len(report.traces) == 1 and source != "-"
        ways += [f"explain {finding.rule}" if ways else f"traceanalyzer explain {finding.rule}"]
        both = " | ".join(ways)
        line = both if len(both) <= page.width - _LABEL else ways[0]
        page.lines.append(printable(f"{'More':<{_LABEL}}{line}"))
    if any(trace.accounting for trace in report.traces):
        for advice in sorted({f.advice for f in parts.profilers_own.values() if not f.cost_ns and f.advice}):
            put_fitted(page, f"{'Record':<{_LABEL}}{advice.removeprefix('Record ')}", 1, hang=_LABEL)


def hidden_words(parts: Triage) -> str:
    """How many findings are hidden, a sentence after a space; empty where none is."""
    count = len(parts.pedantic)
    return f" {count} finding{'s' * (count != 1)} of low confidence: --pedantic." if count else ""
