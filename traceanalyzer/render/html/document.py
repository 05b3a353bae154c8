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
    pointer,
    quoted,
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
    made, less = _rendered(page), thinner(page)
    while len(made) > MOST_BYTES and less is not None:
        made, less = _rendered(less), thinner(less)
    return made


def _rendered(page: Page) -> bytes:
    code = script()
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    slots = {
        "head": head(_title(page), style(), f"script-src 'sha256-{digest}'; "),
        "heading": _heading(page),
        "step": _first_bars(page) or "",
        "version": __version__,
        "script": Html(code),
        "counts": _counts(page.report),
        "contents": _contents(page),
        "verdicts": (job_verdict(page.report.job) if page.report.job else None) or verdicts(page),
        "fixes": fixes(page) or "",
        "skip": _skip(page),
        "timeline": timeline_section(page) or "",
        "leads": "the rank that the others wait for, then " if page.report.job else "",
        "findings": cards(page),
        "timelines": packed_timelines(page) or "",
        "traces": together(_traces(page)),
        "rules": _rules(page.report),
        "data": json_block("data", {"flames": [flame_data(one.flame) for one in page.traces]}),
        "flames": packed(
            "flames", [[flame_data(one.cpu_flame), flame_data(one.idle_flame)] for one in page.traces]
        ),
    }
    return filled("report.html", slots).encode("utf-8", "backslashreplace")


def _first_bars(page: Page) -> Html | None:
    """The step of the trace, or of the job."""
    job, first = page.report.job, page.report.traces[0]
    if job is not None:
        return step_bars(job.step, job.together, "job")
    return step_bars(first.step, first.together, "traces", 0) if len(page.traces) == 1 else None


def _title(page: Page) -> str:
    if page.confidential:
        return "traceanalyzer report"
    sources = [trace.meta.source.rpartition("/")[2] for trace in page.report.traces]
    return f"{sources[0]}{f' and {len(sources) - 1} more' if len(sources) > 1 else ''}, traceanalyzer report"


def _heading(page: Page) -> Html:
    """What the page is about."""
    traces = page.report.traces
    if len(traces) > 1:
        return together((number_of(len(traces)), " ranks of one job"))
    if page.confidential:
        return Html("A report without files, Python lines, modules and annotations")
    return tag("code", quoted(pointer("diagnose", "traces", 0, "source"), traces[0].meta.source))


def number_of(count: int) -> Html:
    """A number that no document has: of what is on the page."""
    return tag("data", f"{count:,}", value=count, class_="derived")


def _counts(report: Report) -> Html:
    """How many findings there are of each severity, as the text counts them; a chip leads to the first of them."""
    counted: dict[Severity, list[int]] = {level: [] for level in Severity}
    for position, finding in triage(report).others.items():
        counted[finding.severity].append(position)
    chips = (
        tag(
            "li",
            tag("a", f"{MARKS[level]} {len(found)} {level}", href=f"#finding-{found[0]}"),
            class_=f"chip {level}",
        )
        for level, found in counted.items()
        if found
    )
    return tag("ul", *chips, class_="counts drawn", aria_label="Findings by severity")


def _skip(page: Page) -> Html | None:
    """For who has no mouse: the first finding's place on the timeline, and the findings."""
    findings = tag("a", "To the findings", class_="skip", href="#findings")
    if not (_there(page) and page.report.findings):
        return findings
    text = "To the first finding on the timeline"
    return together((tag("a", text, class_="skip", href="#timeline", data_at=shown_first(page, 0)), findings))


def _there(page: Page) -> bool:
    return any(trace.timeline is not None for trace in page.traces)


def _contents(page: Page) -> Html:
    links = [("timeline", "Timeline")] * _there(page) + [("findings", "Findings")]
    several = len(page.traces) > 1
    links += [("ranks", "Ranks")] * several
    for i, trace in enumerate(page.traces):
        if trace.detailed:
            links.append((f"trace-{i}", f"Rank {trace.rank}" if several else "Where the time went"))
    if not several:
        there = {
            "flame": page.traces[0].flame or page.traces[0].cpu_flame,
            "steps": page.traces[0].steps,
            "memory": page.traces[0].memory,
        }
        names = {"flame": "Flame graph", "steps": "Steps", "memory": "Memory"}
        links += [(f"{part}-0", names[part]) for part, found in there.items() if found]
        links += [("ops-0", "Ops")] * (page.traces[0].ops is not None) + [("facts-0", "Facts")]
    links.append(("rules", "Rules"))
    return tag("ul", *(tag("li", tag("a", text, href=f"#{anchor}")) for anchor, text in links))


def _traces(page: Page) -> Iterator[Html]:
    """A section per trace."""
    several = len(page.traces) > 1
    if several:
        yield _section("ranks", "Ranks", job_drawings(page), ranks(page))
    for i, trace in enumerate(page.report.traces):
        if not page.traces[i].detailed:
            continue
        heading = f"Rank {trace.rank}" if several else "Where the time went"
        bars = step_bars(trace.step, trace.together, "traces", i) if several else None  # else in the verdict
        gaps = page.traces[i].stretches
        longest = stretches(gaps, i, trace.meta.origin_ns) if gaps else None
        parts = [
            tag("h2", heading),
            recorded(trace, i, several),
            bars,
            *accounting_bar(page.report, i),
            longest,
        ]
        yield tag("section", *parts, id=f"trace-{i}", class_="trace")
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
        field = filled("filter.html", {"i": i})
        yield _section(f"ops-{i}", f"Ops{rank}", whole, roofline(drawn.ops), field, ops(drawn.ops, i))
    known = facts(drawn.facts, i) if drawn.facts else tag("p", "None known.")
    yield _section(f"facts-{i}", f"Facts{rank}", whole, known)


def _section(identifier: str, heading: str, *parts: object) -> Html:
    return tag("section", tag("h2", heading), *parts, id=identifier)


def _rules(report: Report) -> Html:
    """What became of every rule: a rule that does not apply has not looked."""
    several = len(report.traces) > 1
    parts = []
    for status in Status:
        same = [(i, one) for i, one in enumerate(report.outcomes) if one.status is status]
        if same:
            reasons: dict[str, list[tuple[int, Outcome]]] = {}
            for i, one in same:
                reasons.setdefault((one.why or "").partition(": ")[0], []).append((i, one))
            rows = [part for alike in reasons.values() for part in _alike(alike, several)]
            parts.append(tag("div", tag("dt", number_of(len(same)), f" {status}"), tag("dd", *rows)))
    return tag("dl", *parts, class_="rules")


def _alike(rules: Sequence[tuple[int, Outcome]], several: bool) -> Iterator[Html]:
    """Rules with one reason, which is said once, with what to do about it where one of them says that."""
    first, why = max(((i, one.why or "") for i, one in rules), key=lambda reason: len(reason[1]))
    if why:
        yield quoted(pointer("diagnose", "outcomes", first, "why"), why, "p", class_="why")
    ranks: dict[str, list[tuple[int, Outcome]]] = {}
    for i, one in rules:
        ranks.setdefault(one.rule, []).append((i, one))
    yield tag("ul", *(_outcome(found, several) for found in ranks.values()))


def _outcome(found: Sequence[tuple[int, Outcome]], several: bool) -> Html:
    """A rule, and the ranks of which that is so."""
    first, one = found[0]
    name = quoted(pointer("diagnose", "outcomes", first, "rule"), one.rule)
    ranks = ", ".join(str(other.rank) for _, other in found if other.rank is not None)
    return tag("li", name, tag("span", f" (rank {ranks})", class_="rank") if several and ranks else None)
