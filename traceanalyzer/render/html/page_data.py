"""Everything that a page shows: the report, and of each trace what is drawn beside it. Results only, no layout."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Self, TypeVar

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Finding
from traceanalyzer.model.report import Report
from traceanalyzer.render.html import plot_data
from traceanalyzer.render.html.redaction import NO_REDACTION, Redactor, redactor_of
from traceanalyzer.render.html.region_data import MOST_REGIONS, RegionView, region_view
from traceanalyzer.render.html.timeline_data import Timeline, timeline_of
from traceanalyzer.report.facts import Fact, facts_of
from traceanalyzer.report.summary import attempt
from traceanalyzer.roofline.op_rates import OpWork
from traceanalyzer.rule.registry import all_rules

MOST_OPS, MOST_INPUTS = 40, 4
Analysed = Sequence[tuple[int | None, Analysis]]

MOST_RANKS = 8  # that have sections of their own
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Inputs:
    """One op with inputs of one shape and type: its position in `OpWork.shapes`, and what is shown of that row."""

    position: int
    shapes: str
    dtypes: str
    calls: int
    gpu_ns: int
    tflops: float | None
    gbps: float | None
    peak_share: float | None
    limit: str | None
    why: str | None
    peak_tflops: float | None = None
    peak_gbps: float | None = None


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op: GPU time, share of the window, and its inputs with most time."""

    name: str
    calls: int
    gpu_ns: int
    share: float
    inputs: tuple[Inputs, ...]


@dataclass(frozen=True, slots=True)
class OpTable:
    """The ops with most GPU time, the number and time of the others, and where the peaks are from."""

    rows: tuple[OpRow, ...]
    others: int
    others_ns: int
    peaks: tuple[str, ...]


def op_table(analysis: Analysis, most: int) -> OpTable:
    work = analysis.index(OpWork)
    rest = work.ops.iloc[most:]
    columns = [work.ops[name].head(most).tolist() for name in ("op", "calls", "gpu_ns", "share")]
    names = [column.name for column in fields(Inputs) if column.name != "position"]
    inputs = []
    for op in columns[0]:
        top = work.shapes[work.shapes["op"] == op].head(MOST_INPUTS).astype(object)
        top = top.where(top.notna(), None)
        inputs.append(tuple(map(Inputs, top.index.tolist(), *(top[name].tolist() for name in names))))
    rows = map(OpRow, *columns, inputs)
    sources = tuple(f"{peaks.name}, {peaks.source}" for _, peaks in sorted(work.peaks.items()) if peaks)
    return OpTable(tuple(rows), len(rest), int(rest["gpu_ns"].sum()), tuple(dict.fromkeys(sources)))


@dataclass(frozen=True, slots=True)
class TracePage:
    """What is shown of one trace beside its `TraceReport`, where that is there; of large jobs few are `detailed`."""

    rank: int | None
    facts: tuple[Fact, ...] = ()
    flame: RegionView | None = None
    steps: plot_data.StepSeries | None = None
    kernels: plot_data.KernelTable | None = None
    memory: tuple[plot_data.MemoryCurve, ...] = ()
    ops: OpTable | None = None
    timeline: Timeline | None = None
    stretches: tuple[plot_data.Stretch, ...] = ()
    detailed: bool = True


@dataclass(frozen=True, slots=True)
class Page:
    """All that the renderer receives: the report, of each trace its page, and the pages of rules that found something.

    A `confidential` one has no files, lines of python and annotations.
    """

    report: Report
    traces: tuple[TracePage, ...]
    confidential: bool = False
    explained: Mapping[str, str] = field(default_factory=dict)

    def anchor(self, i: int) -> str:
        """Where the page speaks of the i-th trace: in sections of its own, or among all ranks."""
        return f"trace-{i}" if self.traces[i].detailed else "ranks"


@dataclass(frozen=True, slots=True)
class Room:
    """How much of each trace is drawn, less of more traces, so that a page stays below 600 kB.

    Nodes, steps and ops take 60 bytes, 500 bytes and 4 kB each, events and marks of the timeline 8 bytes.
    """

    nodes: int
    steps: int
    ops: int
    events: int
    marks: int

    @classmethod
    def of(cls, traces: int) -> Self:
        return cls(
            nodes=min(MOST_REGIONS, 3_000 // max(traces, 1)),
            steps=max(min(plot_data.MOST_STEPS, 120 // max(traces, 1)), 20),
            ops=max(min(MOST_OPS, 80 // max(traces, 1)), 5),
            events=max(14_000 // max(traces, 1), 1_000),
            marks=max(5_000 // max(traces, 1), 500),
        )


def page_of(report: Report, analysed: Analysed, *, confidential: bool = False) -> Page:
    """The page of a report and the analyses that it was made of, as `analyses_of` returned them."""
    redactor = redactor_of(one.trace for _, one in analysed) if confidential else NO_REDACTION
    detailed, numbered = _detailed(report), list(enumerate(report.findings))
    room = Room.of(len(detailed))
    return Page(
        report=redactor.report(report),
        traces=tuple(
            _trace_page(rank, one, room, redactor, [pair for pair in numbered if pair[1].rank == rank])
            if rank in detailed
            else TracePage(rank, detailed=False)
            for rank, one in analysed
        ),
        confidential=confidential,
        explained={
            rule.slug: redactor.text("\n".join(rule.paragraphs))
            for rule in all_rules()
            if rule.slug in {f.rule for f in report.findings}
        },
    )


def _detailed(report: Report) -> list[int | None]:
    """Ranks that are shown one by one: culprits first, then those with findings, as far as a page has room."""
    job = report.job
    first = [*(job.culprits if job else ()), *(finding.rank for finding in report.findings)]
    every = dict.fromkeys([*first, *(trace.rank for trace in report.traces)])
    return list(every)[:MOST_RANKS]


def thinner(page: Page) -> Page | None:
    told = {one.rank for one in page.traces if one.detailed}
    ranks = [rank for rank in _detailed(page.report) if rank in told]
    if len(ranks) < 2:
        return None
    fewer = ranks[: len(ranks) // 2]
    traces = (one if one.rank in fewer else TracePage(one.rank, detailed=False) for one in page.traces)
    return replace(page, traces=tuple(traces))


def _trace_page(
    rank: int | None, one: Analysis, room: Room, redactor: Redactor, findings: Sequence[tuple[int, Finding]]
) -> TracePage:
    """Each part by itself: one that fails costs no other; ops, memory and facts are of the whole trace."""
    whole = one.within(None) if one.window.asked_ns else one
    none: tuple[Any, ...] = ()
    stretches = _part(partial(plot_data.longest_stretches, one), none)
    spans = [(stretch.start_ns, stretch.end_ns) for stretch in stretches]
    said = redactor.text if redactor.on else None
    facts = _part(partial(facts_of, whole), none)
    made = TracePage(
        rank=rank,
        facts=tuple(replace(fact, text=redactor.text(fact.text), values={}) for fact in facts),
        flame=_part(partial(region_view, one, redactor, room.nodes), None),
        steps=_part(partial(plot_data.step_series, one, room.steps), None),
        kernels=_part(partial(plot_data.kernel_table, one), None),
        memory=_part(partial(plot_data.memory_curves, whole), none),
        ops=_part(partial(op_table, whole, room.ops), None),
        stretches=stretches,
        timeline=_part(partial(timeline_of, one, findings, spans, room.events, room.marks, said), None),
    )
    return redacted_page(made, redactor) if redactor.on else made


def _part(make: Callable[[], T], otherwise: T) -> T:
    return attempt({}, "", make, otherwise)


def redacted_page(page: TracePage, redactor: Redactor) -> TracePage:
    """Without lines of python, and with the kinds of annotations in the place of their names."""
    series = page.steps and replace(
        page.steps,
        steps=tuple(
            replace(step, ops=tuple((redactor.text(name), ns) for name, ns in step.ops)) for step in page.steps.steps
        ),
    )
    memory = [
        replace(curve, owners=tuple(replace(one, op=redactor.text(one.op), line=None) for one in curve.owners))
        for curve in page.memory
    ]
    stretches = [replace(one, op=one.op and redactor.text(one.op), line=None) for one in page.stretches]
    return replace(page, steps=series, memory=tuple(memory), stretches=tuple(stretches))
