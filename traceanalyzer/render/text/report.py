"""Report -> text for people: one screen, or with `--verbose` verdict, findings, time, trace, and every rule."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from traceanalyzer.model.device_times import IDLE, DeviceTime
from traceanalyzer.model.finding import Finding, Outcome, Status
from traceanalyzer.model.report import Report, StepsSummary, StepTimes, TraceReport
from traceanalyzer.model.short_names import short_ops
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import STANDS_OUT
from traceanalyzer.model.trace import Device
from traceanalyzer.model.units import format_bytes, format_ns, format_offset, format_share
from traceanalyzer.render.text.finding import put_finding
from traceanalyzer.render.text.job import put_iterations, put_job_notes, put_ranks, slowdown_lines
from traceanalyzer.render.text.page import Page, bar
from traceanalyzer.render.text.screen import LINES, RANKS, hidden_words, put_rank, put_screen, put_source, put_verdict
from traceanalyzer.render.words.escape import printable, shortened
from traceanalyzer.render.words.phrases import OF_SAVINGS, titled
from traceanalyzer.report.finding_order import Triage, triage
from traceanalyzer.report.job_summary import rank_of, slowest_of, unprofiled_ns
from traceanalyzer.report.words import in_words

_LEGEND = "The outer rows add up to 100 %, the indented ones to the idle time."
LARGEST_CAUSES = 5
NAMED_OPS = 3
_MOST = 0.5  # of a cause: what is named beside it has at least this share together
_GLYPHS = {
    "compute": "█",
    "compute_over_communication": "▓",
    "compute_over_copy": "▚",
    "communication": "▒",
    "communication_transfer": "▤",
    "communication_waiting": "◌",
    "copy_h2d": "▼",
    "copy_d2h": "▲",
    "copy_d2d": "◆",
    "copy_p2p": "▶",
    "memset": "░",
    IDLE: "·",
}
_OTHER_GLYPH = "■"
_STYLES = {"compute": "green", "communication": "magenta", "copy": "cyan", "memset": "cyan", IDLE: "dim"}
_LAUNCH = regex("(cuda|cu|hip|hipExt)(Module)?Launch")  # the work's own launch says nothing of it
_BEFORE = ("dispatching", "launch-latency")  # causes whose op is the one that the device waited for
_OTHER_CAUSES = "other causes"
_LABELS = 22  # columns of the names at least: with these, those of two devices stand below one another


def device_bar(page: Page, time: DeviceTime, *, rank: int | None) -> None:
    """One device's accounting: the bar, a line per class, a line per large cause of idle time."""
    page.blank()
    label = f"shares of recorded time, {f'rank {rank}, ' * (rank is not None)}device {time.device}"
    classes = [(name, ns) for name, ns in time.classes_ns.items() if ns]
    causes = list(_causes(time))
    cells = bar([ns for _, ns in classes], page.width - len(label) - 2)
    glyphs = {name: _GLYPHS.get(name, _OTHER_GLYPH) for name, _ in classes}
    drawn = (page.styled(glyphs[name] * n, _style(name)) for (name, _), n in zip(classes, cells, strict=True))
    page.lines.append(f"{label}  {''.join(drawn)}")
    rows = [(in_words(name), name, ns, list[str]()) for name, ns in classes]
    rows += [(cause, "", ns, ops) for cause, ns, ops in causes]
    room = max([_LABELS, *(len(label) for label, *_ in rows)])
    for label, name, ns, ops in rows:
        text = f" {label:<{room}}{format_share(ns / max(time.length_ns, 1)):>8}  {format_ns(ns):>8}"
        text += _named(ops, page.width - len(text) - 5)
        page.lines.append(f"  {page.styled(glyphs[name], _style(name)) if name else ' '}{text}")
    if rank is None and causes:
        page.put(_LEGEND, indent=2, style="dim")


def _causes(time: DeviceTime) -> Iterator[tuple[str, int, list[str]]]:
    """The largest causes of idle time, each with the ops that much of it befell, and the rest as one."""
    ops: dict[str, dict[str, int]] = {}
    for part in time.idle_causes:
        cause = part.cause.removeprefix(f"{IDLE}:")
        if part.op and part.ns >= STANDS_OUT * time.idle_ns.get(cause, 0):
            ops.setdefault(cause, {})[part.op] = part.ns
    largest = sorted(time.idle_ns.items(), key=lambda found: (-found[1], found[0]))
    for name, ns in largest[:LARGEST_CAUSES]:
        if ns:
            known = {op: of_op for op, of_op in ops.get(name, {}).items() if not _LAUNCH.match(op)}
            named = list(known)[:NAMED_OPS] if sum(known.values()) >= _MOST * ns else []
            if named and name in _BEFORE and "GraphLaunch" not in named[0]:
                # Before its kernels; the launch of a CUDA graph comes before that.
                named[0] = f"before {named[0]}"
            yield in_words(name), ns, named
    rest = sum(ns for _, ns in largest[LARGEST_CAUSES:])
    if rest:
        yield _OTHER_CAUSES, rest, []


def _named(ops: list[str], room: int) -> str:
    names = [printable(short_ops(op)) for op in ops]
    for count in range(len(names), 1, -1):
        text = ", ".join(names[:count])
        if len(text) <= room:
            return f"  {text}"
    return f"  {shortened(names[0], room)}" if names else ""


def _style(name: str) -> str:
    return _STYLES.get(name.partition("_")[0], "")


def footer(page: Page, report: Report, parts: Triage) -> None:
    own, minor = parts.profilers_own, parts.minor
    page.blank()
    page.lines.append(page.styled("-" * page.width, "dim"))
    several = len(report.traces) > 1
    if own:
        _recording(page, own, several=several)
    if minor:
        page.pair("also", f"too small to act on: {_priced(minor)}")
    listed = {finding.rule for finding in parts.others.values()}
    _rules(page, report.outcomes, listed, several=several)
    for trace in report.traces:
        prefix = f"{trace.meta.source}: " if several else ""
        meta = trace.meta
        kinds = (meta.not_understood, "not understood"), (meta.unknown_categories, "of unknown categories")
        for counts, kind in (*kinds, (meta.anomalies, "mended")):
            if counts:
                named = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
                page.pair("events", f"{prefix}{sum(counts.values()):,} {kind}: {named}")
        for damage in trace.meta.damage:
            page.pair("damage", prefix + damage.message)
    if any(finding.saving is not None for finding in report.findings):
        page.put(OF_SAVINGS, style="dim")
    page.put(times_count_from(report) + hidden_words(parts), style="dim")


def times_count_from(report: Report) -> str:
    """Where the offsets of a report begin, how far that is from where Perfetto's ruler does, and what it takes."""
    metas = [trace.meta for trace in report.traces]
    marked = [meta.origin_ns - meta.window_ns[0] for meta in metas if meta.window_ns is not None]
    before = sorted({format_offset(ns) for ns in marked if format_offset(ns) != format_offset(0) and ns > 0})
    ruler = ""
    if before:
        several = len(before) > 1 or len(marked) < len(metas)
        begins = f"{'up to ' * several}{format_offset(max(marked))} earlier"
        ruler = f"; Perfetto's ruler begins {begins}, at the profiler's own mark"
    start = "Times count from the first op, annotation, call or kernel"
    return f'{start}{ruler}. A timestamp goes into Perfetto\'s command "Pan to timestamp".'


def _recording(page: Page, own: Mapping[int, Finding], *, several: bool) -> None:
    costly = {number: finding for number, finding in own.items() if finding.cost_ns}
    if costly:
        page.pair("profiler", f"done by the profiler, not by the program: {_priced(costly)}")
    said: dict[str, list[int | None]] = {}
    for finding in own.values():
        if not finding.cost_ns:
            said.setdefault(f"{finding.message}. {finding.advice}", []).append(finding.rank)
    for text, ranks in said.items():
        page.pair("recording", (_ranks(ranks) + ": " if several else "") + text)


def _priced(findings: Mapping[int, Finding]) -> str:
    parts = []
    for number, one in findings.items():
        rank = "" if one.rank is None else f" (rank {one.rank})"
        cost = f": {format_ns(one.cost_ns)}, {format_share(one.cost_share)}" if one.cost_ns else ""
        parts.append(f"#{number} {titled(one)}{rank}{cost}")
    return "; ".join(parts)


def _ranks(ranks: Sequence[int | None]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _rules(page: Page, outcomes: Sequence[Outcome], listed: Collection[str], *, several: bool) -> None:
    """How many rules ran and what they found; which say nothing, do not apply, or failed, each reason once."""
    by_status = {status: [one for one in outcomes if one.status is status] for status in Status}
    found, clear = ({one.rule for one in by_status[status]} for status in (Status.FOUND, Status.CLEAR))
    if found or clear:
        noted = len(found - set(listed))
        also = f", {noted} noted above in this footer" if noted else ""
        counts = f"{len(found) - noted} with findings{also}, {len(clear - found)} clear"
        page.pair("rules", f"{len(found | clear)} ran: {counts}")
    unsaid = (one for one in by_status[Status.CLEAR] if one.why and one.rule not in found)
    _reasons(page, unsaid, several=several)
    for status in (Status.NOT_APPLICABLE, Status.FAILED):
        if by_status[status]:
            page.pair("rules", f"{len({one.rule for one in by_status[status]})} {status}")
        _reasons(page, by_status[status], several=several)


def _reasons(page: Page, outcomes: Iterable[Outcome], *, several: bool) -> None:
    by_reason: dict[str | None, list[Outcome]] = {}
    for outcome in outcomes:
        by_reason.setdefault(outcome.why, []).append(outcome)
    for why, same in by_reason.items():
        rules, ranks = dict.fromkeys(one.rule for one in same), list(dict.fromkeys(one.rank for one in same))
        where = f" ({_ranks(ranks)})" if several and None not in ranks else ""
        page.put(f"{', '.join(rules)}{where}: {why}", indent=11, hang=3)


def put_trace(page: Page, trace: TraceReport, *, several: bool) -> None:
    page.blank()
    meta, unavailable = trace.meta, trace.unavailable or {}
    rank = f"rank {trace.rank}: " if several or meta.rank is not None else ""
    page.pair("trace", f"{rank}{meta.source}")
    busy = {entry.device: entry.share for entry in trace.busy}
    known = {device.ordinal: device for device in meta.devices}
    for ordinal in sorted({*known, *busy}):
        page.pair(f"device {ordinal}", _device(known.get(ordinal, Device(ordinal)), busy.get(ordinal)))
    if not known and not busy:
        page.pair("device", f"none: {unavailable.get('busy', 'no event of a GPU')}")
    window = trace.window
    start, end = (format_offset(side - meta.origin_ns) for side in (window.start_ns, window.end_ns))
    asked = ", as asked for with --window" * window.asked
    page.pair("window", f"{format_ns(window.length_ns)}, from {start} to {end}{asked}")
    page.pair("steps", _steps(trace.steps, unavailable.get("steps", "unknown")) + _recorded(trace))
    if trace.steps is not None and (cold := trace.steps.cold) is not None:
        first = "the first step" if cold.count == 1 else f"the first {cold.count} steps"
        page.pair("cold start", f"apart from these: {first} took {format_ns(cold.total_ns)}{_while_busy(cold)}")
    page.pair("events", f"{meta.events:,} read")
    if trace.missing:
        page.pair("without", f"{', '.join(trace.missing)} (not recorded)")
    for part, why in unavailable.items():
        if why.startswith("failed"):
            page.pair("failed", f"{part}: {why}")


def _device(device: Device, busy: float | None) -> str:
    known = [device.name or "name not recorded"]
    known += [f"{device.sms} SMs"] if device.sms else []
    known += [format_bytes(device.memory_bytes)] if device.memory_bytes else []
    return ", ".join(known) + ("" if busy is None else f"; busy {format_share(busy)} of the window")


def _steps(steps: StepsSummary | None, why: str) -> str:
    if steps is None:
        return f"none: {why}"
    if not steps.marked:
        return steps.source
    times = steps.every if steps.steady is None else steps.steady
    median, least, most = (format_ns(ns) for ns in (times.median_ns, times.min_ns, times.max_ns))
    lengths = f"median {median}, from {least} to {most}" if times.count > 1 else median
    busy = "" if steps.steady is None else _while_busy(times)
    empty = f"; {steps.empty} more launched nothing" if steps.empty else ""
    cut = f"; {steps.cut} more cut by --window" if steps.cut else ""
    return f"{times.count:,}; {lengths}{busy} ({steps.source}){empty}{cut}"


def _recorded(trace: TraceReport) -> str:
    """What the recorded step of the verdict is, where it is another number than the median."""
    steps, step = trace.steps, trace.step
    if steps is None or step is None or step.traced_ns == (steps.steady or steps.every).median_ns:
        return ""
    sampled = step.basis.partition(" replayed")[0]
    return f"; the recorded step of {format_ns(step.traced_ns)} is the mean of those replayed, {sampled}"


def _while_busy(times: StepTimes) -> str:
    return "" if times.busy_share is None else f", device busy {format_share(times.busy_share)}"


def render_text(
    report: Report,
    *,
    width: int = 80,
    colour: bool = False,
    ascii_only: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    pedantic: bool = False,
    height: int = LINES,
) -> str:
    """The report as text: one screen for a terminal of `height` lines, or with `verbose` all that is known.

    `quiet` has the findings alone, `pedantic` those of low confidence, too.
    """
    page = Page(width, colour, ascii_only)
    parts = triage(report, pedantic=pedantic)
    if verbose:
        _all(page, report, parts, quiet=quiet)
    else:
        put_screen(page, report, parts, quiet=quiet, height=height)
    return page.text() if page.lines else ""


def _all(page: Page, report: Report, parts: Triage, *, quiet: bool) -> None:
    findings = parts.others
    if not quiet:
        put_source(page, report, findings)
        if report.job is not None:
            page.blank()
            put_verdict(page, report.job.summary)
            put_job_notes(page, report.job)
            put_ranks(page, report.job)
            page.lines += slowdown_lines(report.job.slowdown) if report.job.slowdown else ()
        else:
            slowest = _speaking(report.traces)
            for trace in report.traces if slowest is None else [slowest]:
                role = ", the slowest" * (trace is slowest and trace.step is not None)
                put_rank(page, trace, f"rank {trace.rank}{role}" if len(report.traces) > 1 else "")
        if report.iterations is not None:
            put_iterations(page, report.iterations)
    for number, finding in findings.items():
        put_finding(page, number, finding, report)
    if not quiet:
        _time(page, report.traces)
        footer(page, report, parts)


def _speaking(traces: Sequence[TraceReport]) -> TraceReport | None:
    """The one whose verdict is told first; None for all of a few."""
    return slowest_of(traces) or (max(traces, key=unprofiled_ns) if len(traces) > RANKS else None)


def _time(page: Page, traces: Sequence[TraceReport]) -> None:
    several, spoken = len(traces) > 1, _speaking(traces)
    for trace in traces:
        if spoken is not None and trace is not spoken:
            put_rank(page, trace, rank_of(trace, slowest_of(traces)))
        for time in trace.accounting:
            device_bar(page, time, rank=trace.rank if several else None)
    for trace in traces:
        put_trace(page, trace, several=several)
