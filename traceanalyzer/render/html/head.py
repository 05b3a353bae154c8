"""What stands first: the verdict, the step in three bars, and what was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import StepsSummary, TraceReport
from traceanalyzer.model.step_times import StepEstimate
from traceanalyzer.model.trace import Meta
from traceanalyzer.model.units import format_offset
from traceanalyzer.render.html.markup import Html, number, pointer, prose, quoted, scrolled, tag, together
from traceanalyzer.render.html.page_data import Page
from traceanalyzer.render.words.escape import joined_units
from traceanalyzer.report.job_summary import rank_of, slowest_of
from traceanalyzer.report.words import in_words

_FIXES = 3  # that are named below the verdict
_SILENT = Html("The step is not known.")


def verdicts(page: Page) -> Html:
    """Limit and fix of a trace alone; a list of verdicts where there are several, of a job with the slowest first."""
    traces = page.report.traces
    if len(traces) == 1:
        return _verdict(traces[0])
    said = [
        prose(pointer("diagnose", "traces", i, "verdict"), trace.verdict) if trace.verdict else _SILENT
        for i, trace in enumerate(traces)
    ]
    slowest = slowest_of(traces)
    order = sorted(range(len(traces)), key=lambda i: traces[i] is not slowest)
    items = (
        tag(
            "li",
            tag("a", rank_of(traces[i], slowest), href=f"#{page.anchor(i)}", class_="rank"),
            " ",
            said[i],
        )
        for i in order
    )
    return tag("ul", *items, class_="verdicts")


def _verdict(trace: TraceReport) -> Html:
    """Limit and fix in a line each; the step, too, where no bars show it."""
    lines = {
        "step": "" if trace.step else trace.summary.step,
        "limit": trace.summary.limit,
        "fix": trace.summary.fix,
    }
    where = ("diagnose", "traces", 0, "summary")
    rows = [
        tag("div", tag("dt", name.capitalize()), tag("dd", prose(pointer(*where, name), text)))
        for name, text in lines.items()
        if text
    ]
    if trace.meta.damage:
        rows.append(tag("div", tag("dt", "Not read"), tag("dd", *_damage(trace.meta, 0))))
    return tag("dl", *rows, class_="verdict") if rows else tag("p", _SILENT, class_="verdict")


def _damage(meta: Meta, i: int) -> Iterator[Html]:
    """Where the file is damaged, so that nothing there is judged."""
    for position, damage in enumerate(meta.damage):
        where = pointer("diagnose", "traces", i, "meta", "damage", position, "message")
        yield tag("div", prose(where, damage.message))


def ranks(page: Page) -> Html:
    """The ranks of a job beside each other."""
    rows = [_rank(page, i) for i in range(len(page.traces))]
    names = ("rank", "step as recorded", "without the profiler", "busy", "most of the idle time", "to fix")
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in names)))
    return scrolled("Ranks", tag("table", head, tag("tbody", *rows), class_="ranks"))


def _rank(page: Page, i: int) -> Html:
    trace = page.report.traces[i]
    wrong = sum(f.rank == trace.rank and f.severity is not Severity.INFO for f in page.report.findings)
    fields = ("traced_ns", "unprofiled_ns")
    step = [tag("td", "") if trace.step is None else _of_step(trace.step, i, field) for field in fields]
    share = tag("td", *_busy(trace, i, 0)[1:2]) if trace.busy else tag("td", "")
    causes = trace.accounting[0].idle_causes[:1] if trace.accounting else ()
    return tag(
        "tr",
        tag("th", tag("a", f"rank {trace.rank}", href=f"#{page.anchor(i)}"), scope="row"),
        *step,
        share,
        tag("td", *(in_words(cause.cause) for cause in causes)),
        tag("td", tag("data", wrong, value=wrong, class_="derived")),
    )


def _of_step(step: StepEstimate, i: int, field: str) -> Html:
    return tag("td", number(pointer("diagnose", "traces", i, "step", field), getattr(step, field), "ns"))


def step_bars(step: StepEstimate | None, together: StepEstimate | None, *where: object) -> Html | None:
    """The step as recorded, without the profiler, and after the fixes, on one scale; `where` both are in the JSON."""
    if step is None:
        return None
    rows = [
        _row("recorded", step, (*where, "step"), "traced_ns"),
        _row("measured" if step.measured else "predicted, without the profiler", step, (*where, "step")),
    ]
    if together is not None and together.unprofiled_ns != step.unprofiled_ns:
        rows.append(_row("predicted, after the fixes", together, (*where, "together")))
    most = max(step.traced_ns, step.high_ns, 1)
    lines = [
        tag(
            "tr",
            tag("th", name, scope="row"),
            tag("td", _bar(one, field, most)),
            tag("td", text, _change(step, one)),
        )
        for name, one, field, text in rows
    ]
    caption = tag("caption", "One step of the loop")
    return tag("table", caption, tag("tbody", *lines), class_="step-bars")


def _change(before: StepEstimate, after: StepEstimate) -> Html | None:
    """By how much the fixes change the step, in percent."""
    if after is before or not before.unprofiled_ns:
        return None
    share = after.unprofiled_ns / before.unprofiled_ns - 1
    text = f"{round(100 * share):+d} %".replace("-", "\N{MINUS SIGN}")
    return tag("data", text, value=f"{share:.4f}", class_="derived change")


def fixes(page: Page) -> Html | None:
    """The findings that are worth a fix, the largest first: their saving, their card, their place in time."""
    wrong = [(i, f) for i, f in enumerate(page.report.findings) if f.severity is not Severity.INFO]
    if not wrong:
        return None
    places = {trace.rank: i for i, trace in enumerate(page.report.traces)}
    items = [_fix(page, i, finding, places[finding.rank]) for i, finding in wrong[:_FIXES]]
    more = len(wrong) - len(items)
    rest = (
        tag("p", tag("a", f"{more} more to fix", href=f"#finding-{_FIXES + 1}"), class_="derived")
        if more
        else None
    )
    return tag("div", tag("ol", *items, class_="fixes"), rest)


def shown_first(page: Page, i: int) -> str:
    """The place on the timeline where a finding is met: its first occurrence; of a job a typical one, since the ranks'
    recordings begin at unlike times."""
    finding, place = page.report.findings[i], 0
    if page.report.job is not None:
        starts = [one.start_ns for one in finding.occurrences]
        place = starts.index(finding.start_ns) if finding.start_ns in starts else 0
    return f"#at-{i + 1}-{place + 1}"


def _fix(page: Page, i: int, finding: Finding, trace: int) -> Html:
    where = ("diagnose", "findings", i)
    saved: tuple[object, ...] = ()
    if finding.saving is not None and finding.saving.step_ns > 0:
        at = pointer(*where, "saving", "step_ns")
        saved = (" saves ", tag("strong", number(at, finding.saving.step_ns, "ns")), " a step")
    named = quoted(pointer(*where, "by"), finding.by) if finding.by else None
    card = tag("a", quoted(pointer(*where, "rule"), finding.rule), href=f"#finding-{i + 1}")
    link = None
    if page.traces[trace].timeline is not None:
        link = tag(
            "a",
            "timeline",
            href="#timeline",
            data_at=shown_first(page, i),
            class_="script-only",
            aria_label=f"Finding {i + 1} on the timeline",
        )
    rank = tag("span", f" rank {finding.rank}", class_="rank") if len(page.traces) > 1 else None
    parts = (card, rank, *((" ", tag("code", named)) if named else ()), *saved, " ", link)
    return tag("li", *parts, value=i + 1)


def _row(
    name: str, estimate: StepEstimate, where: tuple[object, ...], field: str = "unprofiled_ns"
) -> tuple[str, StepEstimate, str, Html]:
    def at(what: str) -> Html:
        return number(pointer("diagnose", *where, what), getattr(estimate, what), "ns")

    unsure = field == "unprofiled_ns" and not estimate.measured
    interval = (" (", at("low_ns"), " to ", at("high_ns"), ")") if unsure else ()
    text = together((tag("strong", at(field)), tag("span", *interval, class_="interval")))
    return name, estimate, field, text


def _bar(estimate: StepEstimate, field: str, most: int) -> Html:
    value = getattr(estimate, field)
    low, high = (f"{100 * side / most:.2f}%" for side in (estimate.low_ns, estimate.high_ns))
    hidden: dict[str, object] = {"aria-hidden": "true"}
    shape = tag("rect", class_=f"bar {field}", width=f"{100 * value / most:.2f}%", height=14, y=3, rx=2)
    ends = (
        ()
        if field == "traced_ns"
        else (
            tag("line", class_="whisker", x1=low, x2=high, y1=10, y2=10),
            *(tag("line", class_="whisker", x1=x, x2=x, y1=4, y2=16) for x in (low, high)),
        )
    )
    return tag("svg", shape, *ends, width="100%", height=20, class_="range", **hidden)


def recorded(trace: TraceReport, i: int, several: bool) -> Html:
    """Device, window, steps, what was not recorded: a list of names and values."""
    rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in _recorded(trace, i, several)]
    return tag("dl", *rows, class_="recorded")


def _recorded(trace: TraceReport, i: int, several: bool) -> Iterator[tuple[str, Html]]:
    meta = trace.meta
    yield "trace", quoted(pointer("diagnose", "traces", i, "source"), meta.source, "code")
    busy = {entry.device: position for position, entry in enumerate(trace.busy)}
    for position, device in enumerate(meta.devices):
        where = pointer("diagnose", "traces", i, "meta", "devices", position, "name")
        name = Html("unnamed") if device.name is None else quoted(where, device.name)
        share = _busy(trace, i, busy[device.ordinal]) if device.ordinal in busy else ()
        if share or not busy:
            yield f"device {device.ordinal}", together((name, *share))
    yield "window", _window(trace, i)
    if trace.steps is not None:
        yield "steps", _steps(trace.steps, i)
    yield "events", number(pointer("diagnose", "traces", i, "events"), meta.events, "count")
    if trace.missing:
        yield "not recorded", tag("span", ", ".join(trace.missing))
    yield from _not_understood(meta, i, several)
    if trace.accounting:  # else the verdict says it
        yield from _unavailable(trace.unavailable or {}, i)


def _unavailable(missing: Mapping[str, str], i: int) -> Iterator[tuple[str, Html]]:
    """What could not be told: each reason once."""
    for why in dict.fromkeys(missing.values()):
        parts = [part for part, reason in missing.items() if reason == why]
        said = prose(pointer("diagnose", "traces", i, "unavailable", parts[0]), why)
        yield "not known", together((", ".join(parts), ": ", said))


def _window(trace: TraceReport, i: int) -> Html:
    """How long it is, and where the user asked for it."""
    window = trace.window
    length = number(pointer("diagnose", "traces", i, "window", "length_ns"), window.length_ns, "ns")
    if not window.asked:
        return length
    start, end = (format_offset(side - trace.meta.origin_ns) for side in (window.start_ns, window.end_ns))
    part = tag("span", joined_units(f"from {start} to {end}"), class_="drawn")
    return together((length, ", ", part, ", as asked for with ", tag("span", "--window", class_="whole")))


def _not_understood(meta: Meta, i: int, several: bool) -> Iterator[tuple[str, Html]]:
    """Where the file is damaged, and kinds of events that were counted but not analysed."""
    where = ("diagnose", "traces", i, "meta")
    if several and meta.damage:  # of a trace alone the verdict says it
        yield "not read", together(_damage(meta, i))
    kinds = (
        ("counted", meta.not_understood, "not understood"),
        ("unknown_categories", meta.unknown_categories, "unknown kinds"),
        ("anomalies", meta.anomalies, "mended"),
    )
    for field, counts, said in kinds:
        parts = [
            together((tag("span", name), " ", number(pointer(*where, field, name), count, "count")))
            for name, count in sorted(counts.items())
        ]
        if parts:
            yield said, tag("ul", *(tag("li", part) for part in parts))


def _busy(trace: TraceReport, i: int, position: int) -> tuple[object, ...]:
    where = pointer("diagnose", "traces", i, "busy", position, "share")
    return ", busy ", number(where, trace.busy[position].share, "share"), " of the window"


def _steps(steps: StepsSummary, i: int) -> Html:
    where = ("diagnose", "traces", i, "steps")
    source = quoted(pointer(*where, "source"), steps.source)
    if not steps.marked:
        return source
    return together(
        (
            number(pointer(*where, "count"), steps.every.count, "count"),
            ", median ",
            number(pointer(*where, "median_ns"), steps.every.median_ns, "ns"),
            ", from ",
            number(pointer(*where, "min_ns"), steps.every.min_ns, "ns"),
            " to ",
            number(pointer(*where, "max_ns"), steps.every.max_ns, "ns"),
            " (",
            source,
            ")",
        )
    )
