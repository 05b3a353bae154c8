"""A job: its verdict, all ranks' steps on one axis with their waits, and who waits in which step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceanalyzer.model.report import JobReport, RankReport
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.html.markup import Html, number, part, pointer, prose, tag, together
from traceanalyzer.render.html.page_data import Page

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
    for ranks, step in (job.as_peers or {}).items():
        at = pointer("diagnose", "job", "as_peers", ranks, "unprofiled_ns")
        rows.append(("What if", part("jobs.what_if", ranks, number(at, step.unprofiled_ns, "ns"))))
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
