"""The timeline: its place in the page, and its data, packed for the script that draws it."""

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any

from traceanalyzer.model.device_times import IDLE
from traceanalyzer.model.report import Report
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.html.markup import Html, filled, packed, part, said, tag, together
from traceanalyzer.render.html.page_data import Page
from traceanalyzer.render.html.plots import CAUSE_COLORS, ranked_causes
from traceanalyzer.render.html.region_data import Region, RegionView
from traceanalyzer.render.html.timeline_data import Columns, Marks, Timeline, Track
from traceanalyzer.render.words.phrases import in_one_line, titled
from traceanalyzer.report.words import in_words

# Kinds of regions as the legend names them.
_REGION_KINDS = {
    "phase": "phase",
    "annotation": "annotation",
    "module": "module",
    "function": "function",
    "wrapper": "op of the program",
    "block": "repeated block",
    "op": "op",
    "backward": "backward of an op",
}
_NAME_LENGTH = 160  # characters of a region
_LONGEST = 200  # characters of an event's name
_OPTION = 60  # characters of a finding in the choice
# Kinds of events as the legend names them: of the CPU, and families of kernels.
_KINDS = {
    "annotation": "annotation",
    "op": "op",
    "call": "runtime call",
    "wait": "blocking call",
    "gemm": "GEMM, convolution",
    "attention": "attention",
    "elementwise": "elementwise",
    "reduction": "reduction, normalization",
    "moving": "copying kernel",
    "kernel": "other kernel",
    "copy": "copy",
    "memset": "memset",
    "communication": "communication",
}


def flame(i: int, view: RegionView) -> Html:
    kinds = set(flame_data(view, 0)["kinds"])
    colours = [(f"f-{kind}", words) for kind, words in _REGION_KINDS.items() if kind in kinds]
    table = part("tables.regions", view, format_ns(view.step_ns))
    return filled("flame.html", i=i, legend=part("shared.legend", colours), table=table)


def flame_data(view: RegionView, origin: int) -> dict[str, Any]:
    """Names once each; a node is [name, kind, CPU, GPU and idle ns, calls, start, length, nodes inside]."""
    names: dict[str, int] = {}
    kinds: dict[str, int] = {}

    def node(one: Region) -> list[Any]:
        name, kind = names.setdefault(one.name, len(names)), kinds.setdefault(one.kind, len(kinds))
        place = (one.start_ns - origin, one.end_ns - one.start_ns) if one.end_ns else (0, 0)
        costs = (one.cpu_ns, one.gpu_ns, one.idle_ns, round(one.calls, 2))
        return [name, kind, *costs, *place, [node(child) for child in one.inside]]

    root = node(view.root)
    return {"names": [said(name, _NAME_LENGTH) for name in names], "kinds": list(kinds), "root": root}


def timeline_section(page: Page) -> Html | None:
    """Where the script draws; one trace at a time where there are several. None where nothing can be drawn."""
    drawn = [(i, trace.timeline) for i, trace in enumerate(page.traces) if trace.timeline is not None]
    if not drawn:
        return None
    options = (tag("option", f"rank {page.traces[i].rank}", value=at) for at, (i, _) in enumerate(drawn))
    ranks = tag("select", *options, id="timeline-trace")
    choice = tag("label", "Rank ", ranks, class_="script-only tools drawn") if len(page.traces) > 1 else None
    causes = ranked_causes(page.report)
    boxes = (_box(page, i, timeline, causes) for i, timeline in drawn)
    return filled("timeline.html", choice=choice, timelines=together(boxes))


def _box(page: Page, i: int, timeline: Timeline, causes: Sequence[str]) -> Html:
    several = len(page.traces) > 1
    label = f"Timeline of rank {page.traces[i].rank}" if several else "Timeline of the trace"
    numbers = [mark.finding for mark in timeline.marks]
    titles = [f"{n + 1} {in_one_line(titled(page.report.findings[n]), _OPTION)}" for n in numbers]
    options = together(
        tag("option", title, value=k, data_finding=n + 1)
        for k, (n, title) in enumerate(zip(numbers, titles, strict=True))
    )
    shown, note = legend(timeline, causes), coverage(timeline)
    return filled("timeline_one.html", label=label, findings=options, legend=shown, note=note)


def coverage(timeline: Timeline) -> str:
    whole = sum(band.least_ns == 0 for band in timeline.bands)
    parts = [f"All events of {whole} step{'s' * (whole > 1)} (tinted)"] if whole else []
    thin = [band.least_ns for band in timeline.bands if band.least_ns]
    parts += [f"of one step the events from {format_ns(max(thin))}"] if thin else []
    far = f"from {format_ns(timeline.least_ns)}" if timeline.least_ns > 0 else "all"
    parts.append(f"the surroundings of each finding’s first occurrences; elsewhere events {far}")
    return f"{', '.join(parts)}."


def legend(timeline: Timeline, causes: Sequence[str]) -> Html:
    there = {kind.partition("_")[0] for kind in timeline.kinds}
    items = [(f"b-{kind}", words) for kind, words in _KINDS.items() if kind in there]
    items += [(f"i-{k}", f"idle: {in_words(name)}") for k, name in enumerate(causes[:CAUSE_COLORS])]
    items += [(f"i-{CAUSE_COLORS}", "idle: other causes")] * (len(causes) > CAUSE_COLORS)
    return part("shared.legend", items, "legend script-only")


def packed_timelines(page: Page) -> Html | None:
    """The data of all timelines, deflated: most of it are small differences that repeat."""
    causes, offsets, job = ranked_causes(page.report), shifts(page.report), page.report.job
    known = []
    for i, trace in enumerate(page.traces):
        if trace.timeline is not None:
            origin = page.report.traces[i].meta.origin_ns
            gaps = [
                (one.device, one.start_ns - origin, one.end_ns - origin, f"{IDLE}: {in_words(one.cause)}", one.line)
                for one in trace.stretches
            ]
            first = trace.rank in (job.culprits[:1] if job else ())
            where = {"trace": i, "gaps": gaps, "rank": trace.rank, "shift": offsets[i], "first": first}
            known.append(_data(trace.timeline, page.report, origin, causes) | where)
    return packed("timelines", known) if known else None


def shifts(report: Report) -> list[int | None]:
    """What is added to each trace's offsets so that all ranks have one axis; None where that is not known."""
    ranks = {} if report.job is None else {one.rank: one for one in report.job.ranks}
    found: dict[int, int] = {}
    for place, trace in enumerate(report.traces):
        one = ranks.get(-1 if trace.rank is None else trace.rank)
        if one is not None and one.clock is not None:
            window = trace.window.start_ns + one.base_ns, trace.window.end_ns + one.base_ns
            found[place] = trace.meta.origin_ns + one.base_ns - one.clock.ahead_within_ns(*window)
    least = min(found.values(), default=0)
    return [found[place] - least if place in found else None for place in range(len(report.traces))]


def _data(timeline: Timeline, report: Report, origin: int, causes: list[str]) -> dict[str, Any]:
    """Times count from `origin`, which is no number that JavaScript can hold."""
    return {
        "origin": str(origin),
        "from": timeline.start_ns - origin,
        "to": timeline.end_ns - origin,
        "bands": [[one.start_ns - origin, one.end_ns - origin, one.least_ns] for one in timeline.bands],
        "steps": [[number, start - origin, end - origin] for number, start, end in timeline.steps],
        "causes": causes,
        "labels": {name: f"{IDLE}: {in_words(name)}" for name in causes},
        "over": timeline.overviews,
        "tracks": [astuple(one) for one in timeline.tracks],
        "kinds": timeline.kinds,
        "texts": [said(text, _LONGEST) for text in timeline.texts],
        "ev": _events(timeline.events, timeline.tracks, origin),
        "waits": [[start - origin, ns, last] for start, ns, last in timeline.waits],
        "marks": [mark_data(one, report, origin) for one in timeline.marks if one.position],
    }


def _events(events: Columns, tracks: Sequence[Track], origin: int) -> dict[str, Any]:
    spans = [(one.first, one.first + one.size) for one in tracks]
    return {
        "n": events.name,
        "k": events.kind,
        "s": [by for a, b in spans for by in _steps([at - origin for at in events.start_ns[a:b]])],
        "d": events.dur_ns,
        "l": events.level,
        "p": events.launch,
        "w": events.delay_ns,
        "o": events.op,
        "h": events.shapes,
        "i": events.line,
        "g": events.launched,
        "e": [by for a, b in spans for by in _steps(events.event_id[a:b])],
    }


def _steps(values: Sequence[int]) -> Iterable[int]:
    return (value - before for value, before in zip(values, (0, *values[:-1]), strict=True))


def mark_data(marks: Marks, report: Report, origin: int) -> dict[str, Any]:
    found = report.findings[marks.finding]
    return {
        "f": marks.finding,
        "rule": found.rule,
        "severity": str(found.severity),
        "count": found.count,
        "j": marks.position,
        "s": list(_steps([start - origin for start in marks.start_ns])),
        "t": [end - start for start, end in zip(marks.start_ns, marks.end_ns, strict=True)],
        "c": [found.occurrences[j].cost_ns for j in marks.position],
        "e": marks.event,
    }
