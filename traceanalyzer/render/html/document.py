"""Page -> one HTML file: the template's slots filled, style and script put in, nothing loaded from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from traceanalyzer.model.finding import Outcome, Severity, Status
from traceanalyzer.model.report import JobReport, RankReport, Report
from traceanalyzer.model.units import format_bytes, format_ns, format_offset
from traceanalyzer.render.html.cards import MARKS, cards
from traceanalyzer.render.html.head import fixes, ranks, recorded, shown_first, step_bars, verdicts
from traceanalyzer.render.html.markup import (
    Html,
    filled,
    head,
    json_block,
    kernel_names,
    number,
    packed,
    part,
    pointer,
    prose,
    quoted,
    script,
    style,
    tag,
    together,
    told_apart,
)
from traceanalyzer.render.html.page_data import Inputs, OpTable, Page, thinner
from traceanalyzer.render.html.plot_data import KernelSpread, MemoryCurve, StepSeries, Stretch
from traceanalyzer.render.html.plots import (
    accounting_bar,
    class_of,
    memory_svg,
    roofline,
    spread_svg,
    steps_svg,
)
from traceanalyzer.render.html.timelines import flame, flame_data, packed_timelines, timeline_section
from traceanalyzer.render.words.escape import joined_units
from traceanalyzer.report.facts import Fact
from traceanalyzer.report.finding_order import triage
from traceanalyzer.report.words import in_words
from traceanalyzer.version import __version__

_RANKS, _STEPS = 48, 40  # that are drawn: culprits first, then those that wait most; the first steps
_ROW, _BAR = 26, 18  # pixels


def job_verdict(job: JobReport) -> Html | None:
    """Limit and fix of the job in a line each, the step where no bars show it, and what-ifs."""
    lines = {"step": "" if job.step else job.summary.step, "limit": job.summary.limit, "fix": job.summary.fix}
    rows = [
        (name.capitalize(), prose(pointer("diagnose", "job", "summary", name), text))
        for name, text in lines.items()
        if text
    ]
    for named, step in (job.as_peers or {}).items():
        at = pointer("diagnose", "job", "as_peers", named, "unprofiled_ns")
        rows.append(("What if", part("jobs.what_if", named, number(at, step.unprofiled_ns, "ns"))))
    if job.missing:
        rows.append(("Missing", part("jobs.missing", ", ".join(map(str, job.missing)))))
    return part("shared.descriptions", rows, "verdict") if rows else None


def job_drawings(page: Page) -> Html | None:
    """The ranks one above the other, and the heat map; None where no steps of ranks are known."""
    job = page.report.job
    ranks = _shown(job) if job else []
    if job is None or not any(one.step for one in ranks):
        return None
    left = len(job.ranks) - len(ranks)
    note = f"{left} rank{'s' * (left != 1)} with less waiting left out."
    left_out = tag("p", note, class_="note drawn") if left else None
    return together((_axis(job, ranks), _heat(page, job, ranks), left_out))


def _shown(job: JobReport) -> list[RankReport]:
    order = sorted(job.ranks, key=lambda one: (one.rank not in job.culprits, -one.waiting_ns, one.rank))
    chosen = {one.rank for one in order[:_RANKS]}
    return [one for one in job.ranks if one.rank in chosen]


def _begin(one: RankReport, k: int) -> int:
    """Where a step begins on the clock of the job's reference."""
    at = one.start_ns[k] + one.base_ns
    if one.clock is None:
        return at
    elapsed = at - one.clock.offset_ns - one.clock.at_ns
    return at - one.clock.offset_ns - round(elapsed * one.clock.drift_ppm * 1e-6)


def _axis(job: JobReport, ranks: Sequence[RankReport]) -> Html:
    spans = [
        (begin, begin + one.dur_ns[k])
        for one in ranks
        for k in range(min(len(one.step), _STEPS))
        for begin in (_begin(one, k),)
    ]
    low, high = min(begin for begin, _ in spans), max(end for _, end in spans)
    clocks = [one.clock.uncertainty_ns for one in ranks if one.clock is not None]
    rows = [(one, _bars(one, low, high)) for one in ranks]
    return part("jobs.axis", job, rows, format_ns(high - low), format_ns(max(clocks)) if clocks else None)


def _bars(one: RankReport, low: int, high: int) -> Html:
    whole, drawn = max(high - low, 1), []
    for k in range(min(len(one.step), _STEPS)):
        x, width = 100 * (_begin(one, k) - low) / whole, 100 * one.dur_ns[k] / whole
        waits = width * min(one.waits_ns[k] / max(one.dur_ns[k], 1), 1.0)
        look = "late" if one.holds_up_ns[k] > one.waits_ns[k] else "works"
        boxes = [(look, x, width), ("waits", x + width - waits, waits)]
        for class_, left, length in boxes if waits > 0.05 else boxes[:1]:
            title, place = tag("title", _title(one, k)), {"x": f"{left:.3f}%", "width": f"{length:.3f}%"}
            drawn.append(tag("rect", title, class_=class_, **place, y=4, height=_BAR, rx=2))
    label = f"Steps of rank {one.rank}"
    return tag("svg", *drawn, class_="rank-steps", width="100%", height=_ROW, role="img", aria_label=label)


def _title(one: RankReport, k: int) -> str:
    held = f", the others wait {format_ns(one.holds_up_ns[k])} for it" if one.holds_up_ns[k] else ""
    return (
        f"rank {one.rank}, step {one.step[k]}: {format_ns(one.dur_ns[k])}, "
        f"waits {format_ns(one.waits_ns[k])} for others{held}"
    )


def _heat(page: Page, job: JobReport, ranks: Sequence[RankReport]) -> Html:
    """Steps x ranks: how long each waits; a cell leads to the step on the rank's timeline."""
    numbers = sorted({step for one in ranks for step in one.step})[:_STEPS]
    most = max((ns for one in ranks for ns in (*one.waits_ns, *one.holds_up_ns)), default=0) or 1
    detailed = {trace.rank: i for i, trace in enumerate(page.traces) if trace.detailed}
    rows = [(one, detailed.get(one.rank), list(_cells(job, one, numbers, most))) for one in ranks]
    return part("jobs.heat", job, numbers, rows)


def _cells(
    job: JobReport, one: RankReport, numbers: Sequence[int], most: int
) -> Iterator[tuple[int, Html | None, bool, str | None, int]]:
    """(step, its wait, whether others wait longer for it, how long they do, share of the longest wait in percent)."""
    at, place = {step: k for k, step in enumerate(one.step)}, job.ranks.index(one)
    for step in numbers:
        k = at.get(step)
        if k is None:
            yield step, None, False, None, 0
            continue
        waits, held = one.waits_ns[k], one.holds_up_ns[k]
        shown = number(pointer("diagnose", "job", "ranks", place, "waits_ns", k), waits, "ns")
        yield step, shown, held > waits, format_ns(held) if held else None, round(100 * waits / most)


_LONGEST_KERNEL = 100  # characters
_LEAST_DRAWN = 1 << 20  # bytes at the peak: what the host keeps for a few scalars is no curve worth a look


def ops(table: OpTable, i: int) -> Html:
    """Ops, most GPU time first, below each its inputs."""
    names = told_apart([row.name for row in table.rows], 160)
    at = partial(pointer, f"ops-{i}", "inputs")
    return part("tables.ops", table, i, names, partial(_rate, at=at), partial(_share, at=at))


def _rate(one: Inputs, at: partial[str]) -> Html:
    rates = (("tflops", one.tflops, " TFLOP/s"), ("gbps", one.gbps, " GB/s"))
    shown = [
        (number(at(one.position, name), rate, "rate"), unit) for name, rate, unit in rates if rate is not None
    ]
    return Html(", ").join(map(together, shown))


def _share(one: Inputs, at: partial[str]) -> Html | None:
    """The bar of an op's share of its peak, else why that is not known."""
    if one.peak_share is not None:
        width = f"{100 * min(one.peak_share, 1.0):.1f}%"
        return part("tables.share", one, at(one.position, "peak_share"), width)
    return None if one.why is None else quoted(at(one.position, "why"), one.why, class_="why")


def steps(series: StepSeries, i: int) -> Html:
    """Steps as bars, and as numbers for those who want them."""
    names = {name for step in series.steps for name in step.parts_ns}
    classes = [
        (class_of(name), in_words(name)) for name in sorted(names, key=lambda name: (name == "idle", name))
    ]
    rows = [
        (step, step.parts_ns.get("idle", 0), in_words(step.cause) if step.cause else "")
        for step in series.steps
    ]
    return part("tables.steps", series, i, rows, steps_svg(series), classes)


def stretches(found: Sequence[Stretch], i: int, origin_ns: int) -> Html:
    """The longest idle stretches of a trace, which lead to their places on the timeline."""
    several = len({one.device for one in found}) > 1
    rows = []
    for one in found:
        start, end = one.start_ns - origin_ns, one.end_ns - origin_ns
        at = f"#span-{i}-{one.device}-{start}-{end}"
        rows.append((one, at, joined_units(format_offset(start)), in_words(one.cause)))
    names = (
        "longest idle stretches, from",
        "long",
        *["device"] * several,
        "step",
        "most of it by",
        "before or in",
    )
    return part("tables.stretches", rows, names, several)


def kernels(spreads: Sequence[KernelSpread]) -> Html:
    """How long the executions of each kernel take, over what is usual at their place of the step."""
    names = kernel_names([one.name for one in spreads], _LONGEST_KERNEL)
    return part("tables.kernels", list(zip(spreads, names, map(spread_svg, spreads), strict=True)))


def memory(curve: MemoryCurve, i: int, origin_ns: int) -> Html:
    """The curve of one allocator, and who was alive at the peak."""
    at = partial(pointer, f"memory-{i}", "devices", curve.position)
    names = told_apart([owner.op for owner in curve.owners], 120)
    picture = memory_svg(curve) if curve.peak_bytes >= _LEAST_DRAWN else None
    others = format_bytes(curve.others_bytes)
    return part("tables.memory", curve, at, curve.peak_ns - origin_ns, picture, names, others)


def facts(found: Sequence[Fact], i: int) -> Html:
    """Facts by kind, a paragraph each."""
    done = [one for one in enumerate(found) if ": 0 TFLOP/s" not in one[1].text]  # too little to be judged
    groups = [(name.replace("-", " "), list(same)) for name, same in groupby(done, lambda one: one[1].name)]
    return part("tables.facts", groups, i)


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
            # Those of a single rank are in the verdict.
            bars = step_bars(trace.step, trace.together, "traces", i) if several else None
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
