"""Page -> one HTML file: the template's slots filled, style and script put in, nothing loaded from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence

from traceanalyzer.model.finding import Outcome, Severity, Status
from traceanalyzer.model.report import Report
from traceanalyzer.render.html.cards import MARKS, cards
from traceanalyzer.render.html.head import fixes, ranks, recorded, shown_first, step_bars, verdicts
from traceanalyzer.render.html.jobs import job_drawings, job_verdict
from traceanalyzer.render.html.markup import (
    Html,
    filled,
    head,
    json_block,
    packed,
    part,
    script,
    style,
    tag,
    together,
)
from traceanalyzer.render.html.page_data import Page, thinner
from traceanalyzer.render.html.plots import accounting_bar, roofline
from traceanalyzer.render.html.tables import facts, kernels, memory, ops, steps, stretches
from traceanalyzer.render.html.timelines import flame, flame_data, packed_timelines, timeline_section
from traceanalyzer.report.finding_order import triage
from traceanalyzer.version import __version__

MOST_BYTES = 600_000  # of a page: what mail and chat take without asking
_WHOLE = "Of the whole trace, not only of the window."


def render_html(page: Page) -> bytes:
    """The page as UTF-8, with fewer drawings where it would be too large; the same page gives the same bytes."""
    rendered, less = _rendered(page), thinner(page)
    while len(rendered) > MOST_BYTES and less is not None:
        rendered, less = _rendered(less), thinner(less)
    return rendered


def _rendered(page: Page) -> bytes:
    code, job = script(), page.report.job
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    return filled(
        "report.html",
        head=head(title(page), style(), f"script-src 'sha256-{digest}'; "),
        heading=heading(page),
        step=_first_bars(page),
        version=__version__,
        script=Html(code),
        counts=counts(page.report),
        contents=contents(page),
        verdicts=(job_verdict(job) if job else None) or verdicts(page),
        fixes=fixes(page),
        skip=skip(page),
        timeline=timeline_section(page),
        leads="the rank that the others wait for, then " if job else "",
        findings=cards(page),
        timelines=packed_timelines(page),
        traces=together(_traces(page)),
        rules=rules(page.report),
        data=json_block("data", {"flames": [flame_data(one.flame) for one in page.traces]}),
        flames=packed(
            "flames", [[flame_data(one.cpu_flame), flame_data(one.idle_flame)] for one in page.traces]
        ),
    ).encode("utf-8", "backslashreplace")


def _first_bars(page: Page) -> Html | None:
    job, first = page.report.job, page.report.traces[0]
    if job is not None:
        return step_bars(job.step, job.together, "job")
    return step_bars(first.step, first.together, "traces", 0) if len(page.traces) == 1 else None


def title(page: Page) -> str:
    """What the window is called: the first file, and how many more there are."""
    if page.confidential:
        return "traceanalyzer report"
    sources = [trace.meta.source.rpartition("/")[2] for trace in page.report.traces]
    return f"{sources[0]}{f' and {len(sources) - 1} more' if len(sources) > 1 else ''}, traceanalyzer report"


def heading(page: Page) -> Html:
    """What the page is about."""
    return part("document.heading", page.report.traces, page.confidential)


def counts(report: Report) -> Html:
    """How many findings there are of each severity, as the text counts them; a chip leads to the first of them."""
    counted: dict[Severity, list[int]] = {level: [] for level in Severity}
    for position, finding in triage(report).others.items():
        counted[finding.severity].append(position)
    return part(
        "document.counts", [(level, MARKS[level], found) for level, found in counted.items() if found]
    )


def skip(page: Page) -> Html:
    """For who has no mouse: the first finding's place on the timeline, and the findings."""
    drawn = _has_timeline(page) and page.report.findings
    return part("document.skip", shown_first(page, 0) if drawn else None)


def _has_timeline(page: Page) -> bool:
    return any(trace.timeline is not None for trace in page.traces)


def contents(page: Page) -> Html:
    """Links to the sections of the page."""
    several, first = len(page.traces) > 1, page.traces[0]
    links = [("timeline", "Timeline")] * _has_timeline(page) + [("findings", "Findings")]
    links += [("ranks", "Ranks")] * several
    for i, trace in enumerate(page.traces):
        if trace.detailed:
            links.append((f"trace-{i}", f"Rank {trace.rank}" if several else "Where the time went"))
    if not several:
        links += [("flame-0", "Flame graph")] * bool(first.flame or first.cpu_flame)
        links += [("steps-0", "Steps")] * bool(first.steps) + [("memory-0", "Memory")] * bool(first.memory)
        links += [("ops-0", "Ops")] * (first.ops is not None) + [("facts-0", "Facts")]
    return part("document.contents", [*links, ("rules", "Rules")])


def _traces(page: Page) -> Iterator[Html]:
    several = len(page.traces) > 1
    if several:
        yield _section("ranks", "Ranks", job_drawings(page), ranks(page))
    for i, (trace, drawn) in enumerate(zip(page.report.traces, page.traces, strict=True)):
        if drawn.detailed:
            name = f"Rank {trace.rank}" if several else "Where the time went"
            bars = (
                step_bars(trace.step, trace.together, "traces", i) if several else None
            )  # else in the verdict
            longest = stretches(drawn.stretches, i, trace.meta.origin_ns) if drawn.stretches else None
            parts = [recorded(trace, i, several), bars, *accounting_bar(page.report, i), longest]
            yield part("document.trace", i, name, parts)
            yield from _drawn(page, i)


def _drawn(page: Page, i: int) -> Iterator[Html]:
    """The sections of one trace that its `TracePage` has."""
    drawn, origin = page.traces[i], page.report.traces[i].meta.origin_ns
    rank = f" of rank {drawn.rank}" if len(page.traces) > 1 else ""
    whole = tag("p", _WHOLE, class_="note") if page.report.traces[i].window.asked else None
    flames = [one for one in (drawn.flame, drawn.cpu_flame, drawn.idle_flame) if one is not None]
    if flames:
        yield _section(f"flame-{i}", f"Time by module, op and kernel{rank}", flame(i, flames[0]))
    variance = [tag("h3", "Kernels across steps"), kernels(drawn.kernels)] if drawn.kernels else []
    if drawn.steps is not None or variance:
        series = [] if drawn.steps is None else [steps(drawn.steps, i)]
        yield _section(f"steps-{i}", f"Steps{rank}", *series, *variance)
    if drawn.memory:
        curves = (memory(curve, i, origin) for curve in drawn.memory)
        yield _section(f"memory-{i}", f"Memory{rank}", whole, *curves)
    if drawn.ops is not None:
        field = filled("filter.html", i=i)
        yield _section(f"ops-{i}", f"Ops{rank}", whole, roofline(drawn.ops), field, ops(drawn.ops, i))
    known = facts(drawn.facts, i) if drawn.facts else tag("p", "None known.")
    yield _section(f"facts-{i}", f"Facts{rank}", whole, known)


def _section(identifier: str, heading: str, *parts: Html | None) -> Html:
    return part("document.section", identifier, heading, parts)


def rules(report: Report) -> Html:
    """What became of every rule: a rule that does not apply has not looked. Each reason is printed once."""
    groups = []
    for status in Status:
        same = [(i, one) for i, one in enumerate(report.outcomes) if one.status is status]
        reasons: dict[str, list[tuple[int, Outcome]]] = {}
        for i, one in same:
            reasons.setdefault((one.why or "").partition(": ")[0], []).append((i, one))
        if same:
            shown = [_with_one_reason(alike, len(report.traces) > 1) for alike in reasons.values()]
            groups.append((status, len(same), shown))
    return part("document.rules", groups)


def _with_one_reason(
    outcomes: Sequence[tuple[int, Outcome]], several: bool
) -> tuple[int, str, list[tuple[int, str, str]]]:
    """(where its longest text stands, that text, the rules: where each stands, its name, its ranks)."""
    first, why = max(((i, one.why or "") for i, one in outcomes), key=lambda reason: len(reason[1]))
    by_rule: dict[str, list[tuple[int, Outcome]]] = {}
    for i, one in outcomes:
        by_rule.setdefault(one.rule, []).append((i, one))
    return (
        first,
        why,
        [
            (
                same[0][0],
                rule,
                ", ".join(str(one.rank) for _, one in same if one.rank is not None) if several else "",
            )
            for rule, same in by_rule.items()
        ],
    )
