"""A job: its verdict, all ranks' steps on one axis with their waits, and who waits in which step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceanalyzer.model.report import JobReport, RankReport
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.html.markup import Html, number, pointer, prose, scrolled, tag, together
from traceanalyzer.render.html.page_data import Page

_RANKS, _STEPS = 48, 40  # that are drawn: culprits first, then those that wait most; the first steps
_ROW, _BAR = 26, 18  # pixels


def job_verdict(job: JobReport) -> Html | None:
    """Limit and fix of the job in a line each, the step where no bars show it, and what-ifs."""
    lines = {"step": "" if job.step else job.summary.step, "limit": job.summary.limit, "fix": job.summary.fix}
    rows = [
        tag(
            "div",
            tag("dt", name.capitalize()),
            tag("dd", prose(pointer("diagnose", "job", "summary", name), text)),
        )
        for name, text in lines.items()
        if text
    ]
    for ranks, step in (job.as_peers or {}).items():
        at = pointer("diagnose", "job", "as_peers", ranks, "unprofiled_ns")
        said = ("with rank ", tag("span", ranks, class_="rank"), " as its peers: predicted ")
        rows.append(
            tag(
                "div", tag("dt", "What if"), tag("dd", *said, number(at, step.unprofiled_ns, "ns"), " a step")
            )
        )
    if job.missing:
        missing = ", ".join(map(str, job.missing))
        rows.append(tag("div", tag("dt", "Missing"), tag("dd", "rank ", tag("span", missing, class_="rank"))))
    return tag("dl", *rows, class_="verdict") if rows else None


def job_drawings(page: Page) -> Html | None:
    """The ranks one above the other, and the heat map; None where no steps of ranks are known."""
    job = page.report.job
    if job is None:
        return None
    ranks = _shown(job)
    if not any(one.step for one in ranks):
        return None
    left_out = len(job.ranks) - len(ranks)
    note = (
        tag("p", f"{left_out} rank{'s' * (left_out != 1)} with less waiting left out.", class_="note drawn")
        if left_out
        else None
    )
    return together((_axis(page, job, ranks), _heat(page, job, ranks), note))


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


def _name(one: RankReport, job: JobReport) -> str:
    return f"rank {one.rank}" + ", and the others wait for it" * (one.rank in job.culprits)


def _axis(page: Page, job: JobReport, ranks: Sequence[RankReport]) -> Html:
    """One row per rank: a bar for each step, what it waits at its end, hatched."""
    begins = [_begin(one, k) for one in ranks for k in range(min(len(one.step), _STEPS))]
    ends = [_begin(one, k) + one.dur_ns[k] for one in ranks for k in range(min(len(one.step), _STEPS))]
    low, high = min(begins), max(ends)
    rows = [
        tag(
            "tr",
            tag("th", _name(one, job), scope="row", class_="culprit" if one.rank in job.culprits else None),
            tag("td", _bars(page, job, one, low, high)),
        )
        for one in ranks
    ]
    clocks = [one.clock.uncertainty_ns for one in ranks if one.clock is not None]
    unsure = f" Clocks are aligned to within {format_ns(max(clocks))}." if clocks else ""
    long = format_ns(high - low)
    caption = (
        f"Steps of all ranks on one axis, {long} long; hatched: waits; orange: the others wait for it. "
        f"As recorded; the verdict is about the run without the profiler.{unsure}"
    )
    table = tag("table", tag("caption", caption), tag("tbody", *rows), class_="axis-table drawn")
    return scrolled("Steps of all ranks", table)


def _bars(page: Page, job: JobReport, one: RankReport, low: int, high: int) -> Html:
    whole = max(high - low, 1)
    drawn = []
    for k in range(min(len(one.step), _STEPS)):
        x, width = 100 * (_begin(one, k) - low) / whole, 100 * one.dur_ns[k] / whole
        waits = width * min(one.waits_ns[k] / max(one.dur_ns[k], 1), 1.0)
        text = _said(one, k)
        place: dict[str, object] = {"y": 4, "height": _BAR, "rx": 2}
        look = "late" if one.holds_up_ns[k] > one.waits_ns[k] else "works"
        drawn.append(
            tag("rect", tag("title", text), class_=look, x=f"{x:.3f}%", width=f"{width:.3f}%", **place)
        )
        if waits > 0.05:
            drawn.append(
                tag(
                    "rect",
                    tag("title", text),
                    class_="waits",
                    x=f"{x + width - waits:.3f}%",
                    width=f"{waits:.3f}%",
                    **place,
                )
            )
    named: dict[str, object] = {"role": "img", "aria-label": f"Steps of rank {one.rank}"}
    return tag("svg", *drawn, class_="rank-steps", width="100%", height=_ROW, **named)


def _said(one: RankReport, k: int) -> str:
    held = f", the others wait {format_ns(one.holds_up_ns[k])} for it" if one.holds_up_ns[k] else ""
    return (
        f"rank {one.rank}, step {one.step[k]}: {format_ns(one.dur_ns[k])}, "
        f"waits {format_ns(one.waits_ns[k])} for others{held}"
    )


def _heat(page: Page, job: JobReport, ranks: Sequence[RankReport]) -> Html:
    """Steps x ranks: how long each waits; a cell leads to the step on the rank's timeline."""
    numbers = sorted({step for one in ranks for step in one.step})[:_STEPS]
    most = max((ns for one in ranks for ns in (*one.waits_ns, *one.holds_up_ns)), default=0) or 1
    head = tag(
        "tr",
        tag("th", "rank", scope="col"),
        *(tag("th", step, scope="col", class_="drawn") for step in numbers),
    )
    rows = [
        tag(
            "tr",
            tag("th", _name(one, job), scope="row", class_="culprit" if one.rank in job.culprits else None),
            *_cells(page, one, numbers, most),
        )
        for one in ranks
    ]
    caption = tag("figcaption", tag("b", "Waiting by step and rank"), "; framed: the others wait for it")
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="heat")
    return tag("figure", caption, scrolled("Waiting by step and rank", table))


def _cells(page: Page, one: RankReport, numbers: Sequence[int], most: int) -> Iterator[Html]:
    place = next(
        i for i, known in enumerate(page.report.job.ranks if page.report.job else ()) if known is one
    )
    trace = next((i for i, known in enumerate(page.traces) if known.rank == one.rank), None)
    at = {step: k for k, step in enumerate(one.step)}
    for step in numbers:
        k = at.get(step)
        if k is None:
            yield tag("td", "")
            continue
        value = number(pointer("diagnose", "job", "ranks", place, "waits_ns", k), one.waits_ns[k], "ns")
        held = format_ns(one.holds_up_ns[k]) if one.holds_up_ns[k] else None
        at_step = f"#step-{trace}-{step}"
        link = (
            value
            if trace is None or not page.traces[trace].detailed
            else tag("a", value, href=f"#trace-{trace}", data_at=at_step, data_holds=held)
        )
        share = one.waits_ns[k] / most
        look = "holds" if one.holds_up_ns[k] > one.waits_ns[k] else None
        yield tag("td", link, class_=look, style=f"--share: {round(100 * share)}%")
