"""Page -> one HTML file: the template's slots filled, style and script put in, nothing loaded from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence

from traceanalyzer.model.finding import Outcome, Severity, Status
from traceanalyzer.model.report import Report
from traceanalyzer.render.html.books import books
from traceanalyzer.render.html.cards import MARKS, cards
from traceanalyzer.render.html.flames import flame, flame_data
from traceanalyzer.render.html.head import fixes, ranks, recorded, shown_first, step_bars, verdicts
from traceanalyzer.render.html.jobs import job_drawings, job_verdict
from traceanalyzer.render.html.markup import Html, json_block, number, packed, pointer, quoted, tag, together
from traceanalyzer.render.html.roofline import roofline
from traceanalyzer.render.html.tables import facts, kernels, memory, ops, steps
from traceanalyzer.render.html.templates import filled, script, style
from traceanalyzer.render.html.timelines import packed_timelines, timeline_section
from traceanalyzer.report.apart import apart
from traceanalyzer.report.page.page import Page
from traceanalyzer.version import __version__

_WHOLE = "Of the whole trace, not of the window alone."


def render_html(page: Page) -> bytes:
    """The page as UTF-8; the same page gives the same bytes."""
    code = script()
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    slots = {
        "title": _title(page),
        "heading": _heading(page),
        "step": _first_bars(page) or "",
        "script-hash": f"sha256-{digest}",
        "version": __version__,
        "style": Html(style()),
        "script": Html(code),
        "counts": _counts(page.report),
        "contents": _contents(page),
        "verdicts": (job_verdict(page.report.job) if page.report.job else None) or verdicts(page),
        "fixes": fixes(page) or "",
        "skip": _skip(page),
        "timeline": timeline_section(page) or "",
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
        return Html("A report without files, lines of python, modules and annotations")
    return tag("code", quoted(pointer("diagnose", "traces", 0, "source"), traces[0].meta.source))


def number_of(count: int) -> Html:
    """A number that no document has: of what is on the page."""
    return tag("data", f"{count:,}", value=count, class_="derived")


def _counts(report: Report) -> Html:
    """How many findings there are of each severity, as the text counts them; a chip leads to the first of them."""
    counted: dict[Severity, list[int]] = {level: [] for level in Severity}
    for position, finding in apart(report).others.items():
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
        links.append((f"trace-{i}", f"Rank {trace.rank}" if several else "Where the time went"))
    if not several:
        there = {
            "flame": page.traces[0].flame,
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
        yield _section("ranks", "Ranks", job_drawings(page), ranks(page.report))
    for i, trace in enumerate(page.report.traces):
        heading = f"Rank {trace.rank}" if several else "Where the time went"
        bars = step_bars(trace.step, trace.together, "traces", i) if several else None  # else in the verdict
        parts = [tag("h2", heading), recorded(trace, i), bars, *books(page.report, i)]
        yield tag("section", *parts, id=f"trace-{i}", class_="trace")
        yield from _drawn(page, i)


def _drawn(page: Page, i: int) -> Iterator[Html]:
    """The sections of one trace that its `TracePage` has."""
    drawn, origin = page.traces[i], page.report.traces[i].meta.origin_ns
    rank = f" of rank {drawn.rank}" if len(page.traces) > 1 else ""
    whole = tag("p", _WHOLE, class_="note") if page.report.traces[i].window.asked else None
    if drawn.flame is not None:
        yield _section(f"flame-{i}", f"Time by module, op and kernel{rank}", flame(i, drawn.flame))
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
    known = facts(drawn.facts, i) if drawn.facts else tag("p", "None are known.")
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
            rows = [
                part
                for why in dict.fromkeys(one.why for _, one in same)
                for part in _alike(same, why, several)
            ]
            parts.append(tag("div", tag("dt", number_of(len(same)), f" {status}"), tag("dd", *rows)))
    return tag("dl", *parts, class_="rules")


def _alike(same: Sequence[tuple[int, Outcome]], why: str | None, several: bool) -> Iterator[Html]:
    """Rules with one reason, which is said once."""
    rules = [(i, one) for i, one in same if one.why == why]
    if why is not None:
        yield quoted(pointer("diagnose", "outcomes", rules[0][0], "why"), why, "p", class_="why")
    yield tag("ul", *(_outcome(i, one.rule, one.rank if several else None) for i, one in rules))


def _outcome(i: int, rule: str, rank: int | None) -> Html:
    name = quoted(pointer("diagnose", "outcomes", i, "rule"), rule)
    of_rank = (
        None
        if rank is None
        else together((" (rank ", number(pointer("diagnose", "outcomes", i, "rank"), rank, "number"), ")"))
    )
    return tag("li", name, of_rank)
