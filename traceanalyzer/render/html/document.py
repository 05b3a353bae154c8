"""Page -> one HTML file: the template's slots filled, style and script put in, nothing loaded from anywhere."""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from traceanalyzer.model.finding import Outcome, Status
from traceanalyzer.model.report import JobReport, RankReport, Report
from traceanalyzer.model.units import format_bytes, format_ns, format_offset
from traceanalyzer.render.html import markup, plots
from traceanalyzer.render.html.cards import cards
from traceanalyzer.render.html.head import named, ranks, recorded, shown_first, step_bars, verdict
from traceanalyzer.render.html.markup import Html, filled, number, part, pointer, quoted, tag, together
from traceanalyzer.render.html.page_data import Inputs, OpTable, Page, thinner
from traceanalyzer.render.html.plot_data import STEP_PARTS, KernelTable, MemoryCurve, StepSeries, Stretch
from traceanalyzer.render.html.timelines import flame, flame_data, packed_timelines, timeline_section
from traceanalyzer.render.words.escape import joined_units
from traceanalyzer.render.words.phrases import problem_words, recorded_words
from traceanalyzer.report.facts import Fact
from traceanalyzer.report.finding_order import triage
from traceanalyzer.report.words import in_words
from traceanalyzer.version import __version__

_RANKS, _STEPS = 48, 40  # that are drawn: culprits first, then those that wait most; the first steps
_LONGEST_KERNEL = 100  # characters
_LEAST_DRAWN = 1 << 20  # bytes at the peak: what the host keeps for a few scalars is no curve worth a look
MOST_BYTES = 600_000  # of a page: what mail and chat take without asking
_WHOLE = "Of the whole trace, not only of the window."


def job_drawings(page: Page) -> Html | None:
    job = page.report.job
    if job is None:
        return None
    order = sorted(job.ranks, key=lambda one: (one.rank not in job.culprits, -one.waiting_ns, one.rank))
    chosen = {one.rank for one in order[:_RANKS]}
    ranks = [one for one in job.ranks if one.rank in chosen]
    if not any(one.step for one in ranks):
        return None
    left = len(job.ranks) - len(ranks)
    note = f"{left} rank{'s' * (left != 1)} with less waiting left out."
    numbers = sorted({step for one in ranks for step in one.step})[:_STEPS]
    most = max((ns for one in ranks for ns in (*one.waits_ns, *one.holds_up_ns)), default=0) or 1
    detailed = {trace.rank: i for i, trace in enumerate(page.traces) if trace.detailed}
    rows = [(one, detailed.get(one.rank), list(_cells(job, one, numbers, most))) for one in ranks]
    heat = part("jobs.heat", job, numbers, rows)
    return together((heat, tag("p", note, class_="note drawn") if left else None))


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


def ops(table: OpTable, i: int) -> Html:
    names = markup.told_apart([row.name for row in table.rows], 160)
    at = partial(pointer, f"ops-{i}", "inputs")

    def rate(one: Inputs) -> Html:
        rates = (("tflops", one.tflops, " TFLOP/s"), ("gbps", one.gbps, " GB/s"))
        known = [(number(at(one.position, name), rate, "rate"), unit) for name, rate, unit in rates if rate is not None]
        return Html(", ").join(map(together, known))

    def share(one: Inputs) -> Html | None:
        if one.peak_share is None:
            return None if one.why is None else quoted(at(one.position, "why"), one.why, class_="why")
        width = f"{100 * min(one.peak_share, 1.0):.1f}%"
        return part("tables.share", one, at(one.position, "peak_share"), width)

    return part("tables.ops", table, i, names, rate, share)


def steps(series: StepSeries, i: int) -> Html:
    used = [name for name in STEP_PARTS if any(name in step.parts_ns for step in series.steps)]
    rows = [(step, in_words(step.cause) if step.cause else "") for step in series.steps]
    looks = [(plots.STEP_LOOKS[name], name) for name in used]
    return part("tables.steps", series, i, used, rows, plots.steps_svg(series), looks)


def stretches(found: Sequence[Stretch], i: int, origin_ns: int) -> Html:
    several, rows = len({one.device for one in found}) > 1, []
    for one in found:
        start, end = one.start_ns - origin_ns, one.end_ns - origin_ns
        at = f"#span-{i}-{one.device}-{start}-{end}"
        rows.append((one, at, joined_units(format_offset(start)), in_words(one.cause)))
    names = ["longest idle stretches, from", "long", *["device"] * several, "step", "most of it by", "before or in"]
    return part("tables.stretches", rows, names, several)


def kernels(table: KernelTable) -> Html:
    names = markup.kernel_names([one.name for one in table.rows], _LONGEST_KERNEL)
    spreads = [one.spread and plots.spread_svg(one.spread) for one in table.rows]
    return part("tables.kernels", table, list(zip(table.rows, names, spreads, strict=True)))


def memory(curve: MemoryCurve, i: int, origin_ns: int) -> Html:
    at = partial(pointer, f"memory-{i}", "devices", curve.position)
    names = markup.told_apart([owner.op for owner in curve.owners], 120)
    picture = plots.memory_svg(curve) if curve.peak_bytes >= _LEAST_DRAWN else None
    others = format_bytes(curve.others_bytes)
    return part("tables.memory", curve, at, curve.peak_ns - origin_ns, picture, names, others)


def facts(found: Sequence[Fact], i: int) -> Html:
    done = [one for one in enumerate(found) if ": 0 TFLOP/s" not in one[1].text]  # too little to be judged
    groups = [(name.replace("-", " "), list(same)) for name, same in groupby(done, lambda one: one[1].name)]
    return part("tables.facts", groups, i)


def render_html(page: Page) -> bytes:
    """The page as UTF-8, with fewer drawings where it would be too large; the same page gives the same bytes."""
    rendered, less = _rendered(page), thinner(page)
    while len(rendered) > MOST_BYTES and less is not None:
        rendered, less = _rendered(less), thinner(less)
    return rendered


def _rendered(page: Page) -> bytes:
    code, several = markup.script(), len(page.traces) > 1
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    pairs = zip(page.traces, page.report.traces, strict=True)
    flames = [one.flame and flame_data(one.flame, trace.meta.origin_ns) for one, trace in pairs]
    ranks_of_job = part("document.section", "ranks", "Ranks", (job_drawings(page), ranks(page)))
    return filled(
        "report.html",
        head=markup.head(title(page), markup.style(), f"script-src 'sha256-{digest}'; "),
        heading=heading(page),
        version=__version__,
        script=Html(code),
        contents=contents(page),
        verdict=verdict(page),
        ranks=ranks_of_job if several else None,
        skip=skip(page),
        timeline=timeline_section(page),
        findings=cards(page),
        timelines=packed_timelines(page),
        traces=together(
            part("document.folded", f"trace-{i}", f"Rank {page.traces[i].rank}", 2, False, list(sections(page, i)))
            if several
            else together(sections(page, i))
            for i in _detailed(page)
        ),
        rules=part("document.folded", "rules", "Rules", 2, False, (rules(page.report),)),
        flames=markup.packed("flames", flames),
    ).encode("utf-8", "backslashreplace")


def title(page: Page) -> str:
    if page.confidential:
        return "traceanalyzer report"
    sources = [named(trace.meta.source) for trace in page.report.traces]
    return f"{sources[0]}{f' and {len(sources) - 1} more' if len(sources) > 1 else ''}, traceanalyzer report"


def heading(page: Page) -> Html:
    """What the page is about, as the first line of the text: file or ranks, devices, steps, and how many problems."""
    traces = page.report.traces
    problems = problem_words(page.report, triage(page.report).others.values())
    what = recorded_words(traces[0]) if len(traces) == 1 else ""
    name = None if page.confidential else named(traces[0].meta.source)
    return part("document.heading", len(traces), name, what, problems)


def skip(page: Page) -> Html:
    """For who has no mouse: the first finding's place on the timeline, and the findings."""
    drawn = any(trace.timeline for trace in page.traces) and page.report.findings
    return part("document.skip", shown_first(page, 0) if drawn else None)


def _detailed(page: Page) -> list[int]:
    return [i for i, trace in enumerate(page.traces) if trace.detailed]


def contents(page: Page) -> Html:
    several = len(page.traces) > 1
    links = [("ranks", "Ranks")] * several + [("findings", "Findings")]
    links += [("timeline", "Timeline")] * any(trace.timeline for trace in page.traces)
    if several:
        links += [(f"trace-{i}", f"Rank {page.traces[i].rank}") for i in _detailed(page)]
    else:
        links += [(anchor, name) for anchor, name, _, _ in _sections(page, 0)]
    return part("document.contents", [*links, ("rules", "Rules")])


def sections(page: Page, i: int) -> Iterator[Html]:
    """The sections of one trace; of a job they are one level deeper, and the first stands open with its rank."""
    several = len(page.traces) > 1
    for place, (anchor, name, shown, parts) in enumerate(_sections(page, i)):
        yield part("document.folded", anchor, name, 2 + several, shown and not (several and place), parts)


def _sections(page: Page, i: int) -> Iterator[tuple[str, str, bool, Sequence[Html | None]]]:
    """(anchor, heading, whether it stands open, its parts) of each section that the trace has something for."""
    drawn, trace, several = page.traces[i], page.report.traces[i], len(page.traces) > 1
    origin = trace.meta.origin_ns
    whole = tag("p", _WHOLE, class_="note") if trace.window.asked else None
    bars = step_bars(trace.step, trace.together, "traces", i) if several else None
    if bars or trace.accounting:
        yield f"time-{i}", "Time", True, [bars, *plots.accounting_bar(page.report, i)]
    if drawn.flame is not None:
        yield f"flame-{i}", "Regions", True, [flame(i, drawn.flame)]
    if drawn.steps is not None:
        yield f"steps-{i}", "Steps", False, [steps(drawn.steps, i)]
    if drawn.stretches:
        yield f"idle-{i}", "Idle", False, [stretches(drawn.stretches, i, origin)]
    if drawn.kernels is not None:
        yield f"kernels-{i}", "Kernels", False, [kernels(drawn.kernels)]
    if drawn.ops is not None:
        parts = [whole, plots.roofline(drawn.ops), filled("filter.html", i=i), ops(drawn.ops, i)]
        yield f"ops-{i}", "Ops", False, parts
    if drawn.memory:
        yield f"memory-{i}", "Memory", False, [whole, *(memory(curve, i, origin) for curve in drawn.memory)]
    if drawn.facts:
        yield f"facts-{i}", "Observations", False, [whole, facts(drawn.facts, i)]
    yield f"recorded-{i}", "Recording", False, [recorded(trace, i, several)]


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
    shown = []
    for rule, same in by_rule.items():
        ranks = ", ".join(str(one.rank) for _, one in same if one.rank is not None)
        shown.append((same[0][0], rule, ranks * several))
    return first, why, shown
