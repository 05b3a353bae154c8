"""What stands first: the verdict, the step in three bars, and what was recorded."""

from collections.abc import Iterator, Mapping
from functools import partial

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import TraceReport
from traceanalyzer.model.step_times import StepEstimate
from traceanalyzer.model.trace import Meta
from traceanalyzer.model.units import format_offset, percent
from traceanalyzer.render.html import markup
from traceanalyzer.render.html.markup import Html, code, number, part, pointer, prose, quoted, said, tag
from traceanalyzer.render.html.page_data import Page
from traceanalyzer.render.html.plots import CAUSE_COLORS, look_of, ordered, parts_bar, ranked_causes, whiskers
from traceanalyzer.render.words.escape import joined_units
from traceanalyzer.render.words.phrases import cpu_parts, parts_of_step
from traceanalyzer.report.job_summary import rank_of, slowest_of
from traceanalyzer.report.words import in_words

_BARS = 40  # ranks with a bar: a page of more ranks stays small
# Parts of the step that are classes of time have their colors.
_LOOKS = {
    "compute": "c-compute",
    "communication without compute": "c-communication",
    "waiting for other ranks": "c-communication-waiting",
    "copies": "c-copy",
    "idle": "p-6",
    "GPU idle": "p-6",
    "other": "p-5",
}
_SILENT = Html("The step is not known.")


def verdict(page: Page) -> Html:
    """Step, limit, fix and where the step goes, of a trace or of a job; of ranks of no job a line each."""
    job, traces = page.report.job, page.report.traces
    if job is None and len(traces) > 1:
        return _verdicts(page)
    where: tuple[object, ...] = ("traces", 0) if job is None else ("job",)
    at = partial(pointer, "diagnose", *where, "summary")
    one = traces[0] if job is None else job
    rows: list[tuple[str, Html]] = []
    for name, text in one.summary.lines.items():
        bars = step_bars(one.step, one.together, *where) if name == "Step" else None
        rows.append((name, bars or prose(at(name.lower()), text)))
    base, parts = parts_of_step(traces)
    if parts:
        rows.append(("Where", _parts(base, parts)))
    if job is None and (uses := cpu_parts(traces[0])):
        rows.append(("CPU", _parts("time", uses)))
    for named, step in (job.as_peers or {}).items() if job else ():
        where_if = pointer("diagnose", "job", "as_peers", named, "unprofiled_ns")
        rows.append(("What if", part("jobs.what_if", named, number(where_if, step.unprofiled_ns, "ns"))))
    if job is not None and job.missing:
        rows.append(("Missing", part("jobs.missing", ", ".join(map(str, job.missing)))))
    if job is None and traces[0].meta.damage:
        rows.append(("Not read", part("head.damage", traces[0].meta, 0)))
    return part("shared.descriptions", rows, "verdict") if rows else tag("p", _SILENT, class_="verdict")


def _parts(base: str, shares: Mapping[str, float]) -> Html:
    named = [
        (_LOOKS.get(name, f"p-{place}"), (said(name), share, percent(share)))
        for place, (name, share) in enumerate(shares.items())
    ]
    return part("head.parts", base, named)


def _verdicts(page: Page) -> Html:
    slowest, ranks = slowest_of(page.report.traces), []
    for i, trace in sorted(enumerate(page.report.traces), key=lambda one: one[1] is not slowest):
        where = pointer("diagnose", "traces", i, "verdict")
        text = prose(where, trace.verdict) if trace.verdict else _SILENT
        ranks.append((rank_of(trace, slowest), page.anchor(i), text))
    return part("head.verdicts", ranks)


def ranks(page: Page) -> Html:
    """The ranks of a job one below the other: where the time of each went, its step, and what is to fix."""
    rows, causes = [], ranked_causes(page.report)
    for i, trace in enumerate(page.report.traces):
        wrong = sum(f.rank == trace.rank and f.severity is not Severity.INFO for f in page.report.findings)
        device = trace.accounting[0] if trace.accounting else None
        label = f"Where the time of rank {trace.rank} went"
        bar = parts_bar(ordered(device), label, causes, 16) if device and i < _BARS else None
        cause = in_words(device.idle_causes[0].cause) if device and device.idle_causes else ""
        busy = _busy_share(trace, i, 0) if trace.busy else None
        rows.append((i, trace.rank, page.anchor(i), bar, trace.step, busy, cause, wrong))
    times = (time for trace in page.report.traces for time in trace.accounting)
    names = {name for time in times for name, ns in time.parts_ns.items() if ns}
    looks = {look_of(name, causes): in_words(name) for name in sorted(names - set(causes))}
    looks |= {look_of(name, causes): f"idle: {in_words(name)}" for name in causes[:CAUSE_COLORS]}
    looks |= {f"i-{CAUSE_COLORS}": "idle: other causes"} if len(causes) > CAUSE_COLORS else {}
    return part("head.ranks", rows, list(looks.items()))


def _busy_share(trace: TraceReport, i: int, position: int) -> Html:
    where = pointer("diagnose", "traces", i, "busy", position, "share")
    return number(where, trace.busy[position].share, "share")


def step_bars(step: StepEstimate | None, together: StepEstimate | None, *where: object) -> Html | None:
    """The step as recorded, without the profiler, and after the fixes, on one scale; `where` both are in the JSON."""
    if step is None:
        return None
    at, after = partial(pointer, "diagnose", *where, "step"), partial(pointer, "diagnose", *where, "together")
    most = max(step.traced_ns, step.high_ns, 1)
    name = "measured" if step.measured else "predicted, without the profiler"
    rows: list[tuple[object, ...]] = [
        ("recorded", _bar(step, "traced_ns", most), at, step, "traced_ns", None),
        (name, _bar(step, "unprofiled_ns", most), at, step, "unprofiled_ns", None),
    ]
    if together is not None and together.unprofiled_ns != step.unprofiled_ns:
        change = together.unprofiled_ns / step.unprofiled_ns - 1 if step.unprofiled_ns else None
        bar = _bar(together, "unprofiled_ns", most)
        rows.append(("predicted, after the fixes", bar, after, together, "unprofiled_ns", change))
    return part("head.step_bars", rows)


def _bar(estimate: StepEstimate, field: str, most: int) -> Html:
    value = getattr(estimate, field)
    low, high = (f"{100 * side / most:.2f}%" for side in (estimate.low_ns, estimate.high_ns))
    shape = tag("rect", class_=f"bar {field}", width=f"{100 * value / most:.2f}%", height=14, y=3, rx=2)
    ends = whiskers(low, high, 10) if field != "traced_ns" else []
    return tag("svg", shape, *ends, width="100%", height=20, class_="range", aria_hidden="true")


def named(source: str) -> str:
    """The file's name without its folders: a page is sent to others."""
    return said(source.rstrip("/").rpartition("/")[2] or source)


def shown_first(page: Page, i: int) -> str:
    """Where on the timeline a finding is met first; of a job, whose recordings begin apart, typically."""
    place = 0 if page.report.job is None else typical_place(page.report.findings[i])
    return f"#at-{i + 1}-{place + 1}"


def typical_place(finding: Finding) -> int:
    """Position of the typical occurrence among all; 0 where it is none of those listed."""
    starts = [one.start_ns for one in finding.occurrences]
    return starts.index(finding.start_ns) if finding.start_ns in starts else 0


def recorded(trace: TraceReport, i: int, several: bool) -> Html:
    return part("shared.descriptions", list(_recorded(trace, i, several)), "recorded")


def _recorded(trace: TraceReport, i: int, several: bool) -> Iterator[tuple[str, Html]]:
    meta, at = trace.meta, partial(pointer, "diagnose", "traces", i)
    yield "trace", code(named(meta.source), class_="drawn")
    busy = {entry.device: position for position, entry in enumerate(trace.busy)}
    for position, device in enumerate(meta.devices):
        where = at("meta", "devices", position, "name")
        name = Html("unnamed") if device.name is None else quoted(where, device.name)
        if device.ordinal in busy:
            share = _busy_share(trace, i, busy[device.ordinal])
            yield f"device {device.ordinal}", name + part("head.busy", share)
        elif not busy:
            yield f"device {device.ordinal}", name
    window = trace.window
    length = number(at("window", "length_ns"), window.length_ns, "ns")
    start, end = (format_offset(side - meta.origin_ns) for side in (window.start_ns, window.end_ns))
    asked = joined_units(f"from {start} to {end}") if window.asked else None
    yield "window", part("head.window", length, asked)
    if trace.steps is not None:
        source = quoted(at("steps", "source"), trace.steps.source)
        places = partial(at, "steps")
        yield "steps", part("head.steps", trace.steps, places, source) if trace.steps.marked else source
    yield "events", number(at("events"), meta.events, "count")
    if trace.missing:
        yield "not recorded", tag("span", ", ".join(trace.missing))
    yield from _not_understood(meta, i, several)
    missing = trace.unavailable or {} if trace.accounting else {}  # else the verdict says it
    for why in dict.fromkeys(missing.values()):
        parts = [part for part, reason in missing.items() if reason == why]
        yield "not known", markup.together((", ".join(parts), ": ", prose(at("unavailable", parts[0]), why)))


def _not_understood(meta: Meta, i: int, several: bool) -> Iterator[tuple[str, Html]]:
    """Where the file is damaged, and kinds of events that were counted but not analysed."""
    if several and meta.damage:  # of a trace alone the verdict says it
        yield "not read", part("head.damage", meta, i)
    kinds = (
        ("counted", meta.not_understood, "not understood"),
        ("unknown_categories", meta.unknown_categories, "unknown kinds"),
        ("anomalies", meta.anomalies, "mended"),
    )
    for field, counts, name in kinds:
        if counts:
            where = partial(pointer, "diagnose", "traces", i, "meta", field)
            yield name, part("head.counted", sorted(counts.items()), where)
