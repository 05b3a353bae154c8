"""What is done with loops of chance and a few other traces, so that functions have much to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.numbers.loops import loop
from tests.numbers.programs import traces_of
from tests.numbers.returned import Returned
from traceanalyzer.allocator.memory_view import MemoryView, ops_by_memory
from traceanalyzer.comparison.baseline import baseline_bytes, load_baseline
from traceanalyzer.comparison.compare import compare, side_of
from traceanalyzer.comparison.gates import broken, gates_of
from traceanalyzer.job.cross_rank_indexes import introduce
from traceanalyzer.job.ranks import Here
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import TraceAnalyzerError, Unavailable
from traceanalyzer.model.trace import Trace
from traceanalyzer.render.data.comparison import comparison_document
from traceanalyzer.render.data.json import document
from traceanalyzer.render.data.results import rank_tables
from traceanalyzer.render.data.speedscope import render_speedscope
from traceanalyzer.render.data.views import memory_fields, ops_fields
from traceanalyzer.render.perfetto.chrome import to_chrome_events
from traceanalyzer.render.perfetto.track_events import to_track_events
from traceanalyzer.render.text.collectives import render_collectives
from traceanalyzer.render.text.comparison import render_comparison
from traceanalyzer.render.text.facts import render_facts
from traceanalyzer.render.text.memory import render_memory
from traceanalyzer.render.text.ops import render_ops
from traceanalyzer.render.text.report import render_text
from traceanalyzer.replay import edits, rewrites
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.report.collectives import collectives_of_job
from traceanalyzer.report.diagnosis import analyses_of, report_of
from traceanalyzer.report.facts import facts_of
from traceanalyzer.report.overlay.build import overlays_of
from traceanalyzer.report.page.page import page_of
from traceanalyzer.report.tables import idle_gaps, kernels, queue_depth
from traceanalyzer.roofline.op_work import OpWork
from traceanalyzer.torch_table.key_averages import key_averages
from traceanalyzer.torch_table.printed import printed_table, sorted_rows

RULES = (
    *(
        "implicit-sync",
        "long-device-sync",
        "exposed-communication",
        "exposed-copy",
        "launch-bound",
        "load-imbalance",
    ),
    *(
        "low-occupancy",
        "far-from-bound",
        "no-tensor-cores",
        "cold-start",
        "host-gap",
        "scheduler-gap",
        "straggler",
    ),
    *("kernel-variance", "allocator-thrash", "unfused-optimizer", "hotspot", "small-buckets", "slow-link"),
)  # a few, so that a new one changes nothing here
LOOPS, OTHER_JOBS = 2, ("no marks", "mesh_tp")
_EDITS = 1  # of each kind, of each trace
Work = Callable[[], Any]


def outcomes() -> dict[str, str]:
    """Module and name of each function -> digest of what it returned while all this was done."""
    returned = Returned()
    for name, work in works():
        with returned.of(name):
            work()
    return returned.digests()


def works() -> Iterator[tuple[str, Work]]:
    """Name, and what is to be done."""
    for seed in range(LOOPS):
        yield f"loop {seed}", partial(_alone, loop(seed, steps=4 + seed)[0].load)
        yield f"edits {seed}", partial(_edited, loop(seed, steps=4)[0].load, seed)
    for seed, ranks, slow in ((0, 3, 1.25), (3, 4, 1.0)):
        yield f"ranks {seed}", partial(_job, partial(_ranks, seed, ranks, slow))
    for name in OTHER_JOBS:
        yield f"job {name}", partial(_job, partial(traces_of, name))
    for name, (base, new) in _pairs().items():
        yield f"compared {name}", partial(_compared, base, new)


def _ranks(seed: int, ranks: int, slow: float, steps: int = 5) -> dict[int, Trace]:
    return {rank: one.load() for rank, one in enumerate(loop(seed, ranks=ranks, slow=slow, steps=steps))}


def _pairs() -> Mapping[str, tuple[Work, Work]]:
    def captures(*seeds: int, **changed: Any) -> list[Trace]:
        return [loop(4, chance=seed, **changed)[0].load() for seed in seeds]

    return {
        "slower": (lambda: captures(1, marked=False)[0], lambda: captures(2, slow=1.5, marked=False)[0]),
        "captures": (lambda: captures(1, 2, steps=4), lambda: captures(4, steps=6, slow=1.3)),
        "ranks": (lambda: _ranks(3, 3, 1.0, 3), lambda: _ranks(3, 3, 1.4, 4)),
    }


def _alone(load: Callable[[], Trace]) -> None:
    """A trace by itself, and two parts of it that cut steps."""
    trace = load()
    analysed = analyses_of(trace)
    analysis = analysed[0][1]
    report = report_of(analysed, select=RULES)
    document(report)
    render_text(report, width=100, verbose=True)
    for one in (_page, _overlay):
        one(report, analysed)
    for look in (_ops, _memory, _facts, _table, kernels, queue_depth, idle_gaps, _results, _flames):
        with suppress(TraceAnalyzerError, Unavailable):
            look(analysis)
    whole = report.traces[0].window
    for first, last, step_ms in ((0.2, 0.7, 0.5), (0.45, 1.0, None)):
        start = whole.start_ns - trace.meta.origin_ns
        window = (start + int(first * whole.length_ns), start + int(last * whole.length_ns))
        with suppress(TraceAnalyzerError, Unavailable):
            report_of(analyses_of(trace, window), select=RULES, step_ms=step_ms)


def _page(report: Any, analysed: Any) -> None:
    page_of(report, analysed)


def _overlay(report: Any, analysed: Any) -> None:
    for overlay in overlays_of(report, analysed):
        list(to_track_events(overlay))
        list(to_chrome_events(overlay))


def _ops(analysis: Analysis) -> None:
    ops_fields(analysis.index(OpWork))
    render_ops(analysis.index(OpWork), width=120)


def _memory(analysis: Analysis) -> None:
    view, ops = analysis.index(MemoryView), ops_by_memory(analysis.trace)
    memory_fields(view, ops)
    render_memory(view, ops, origin_ns=analysis.trace.meta.origin_ns)


def _facts(analysis: Analysis) -> None:
    render_facts(facts_of(analysis), width=120)


def _table(analysis: Analysis) -> None:
    averages = key_averages(analysis.trace, by_input_shape=True, by_stack=2)
    printed_table(averages, "cpu_time_total")
    sorted_rows(key_averages(analysis.trace).rows, "self_cpu_time_total")


def _results(analysis: Analysis) -> None:
    rank_tables(analysis, None, {analysis.trace.meta.source: ""})


def _flames(analysis: Analysis) -> None:
    render_speedscope({None: analysis.trace})


def _job(load: Callable[[], dict[int, Trace]]) -> None:
    """Ranks that know of each other, and what the last would be as its peers."""
    analysed = analyses_of(load())
    peers = [analysed[-1][0]]
    with suppress(TraceAnalyzerError, Unavailable):
        report = report_of(analysed, select=RULES, as_peers=[one for one in peers if one is not None])
        document(report)
        render_text(report, width=100)
        _page(report, analysed)
        _overlay(report, analysed)
    with suppress(TraceAnalyzerError, Unavailable):
        render_collectives(collectives_of_job(Here(dict(analysed)), introduce(Here(dict(analysed)))))


def _compared(base: Work, new: Work) -> None:
    """Two sides, and the first as a baseline that was kept."""
    side = base()
    found = compare(side, new())
    comparison_document(found)
    render_comparison(found, width=120)
    broken(found, gates_of(["step=1%", "launches=0"]))
    with TemporaryDirectory() as folder, suppress(TraceAnalyzerError, Unavailable):
        path = Path(folder, "kept.parquet")
        path.write_bytes(baseline_bytes(side_of(side)))
        load_baseline(str(path))


def _edited(load: Callable[[], Trace], seed: int) -> None:
    """Edits by chance: what each saves alone, and on top of the one before."""
    rng, analysis = Random(seed), Analysis(load())
    with suppress(Unavailable):
        forecast = analysis.index(Forecast)
        before: list[edits.Edit] = []
        for _ in range(_EDITS):
            for edit in _edits(rng, forecast):
                forecast.saving([edit], before[-1:])
                before = [*before[-2:], edit]
        forecast.fixed(before)
        forecast.pinned(forecast.step.unprofiled_ns / 1.3e6).saving(before[:1])


def _edits(rng: Random, forecast: Forecast) -> Sequence[edits.Edit]:
    """One of each kind."""
    program = forecast.program
    rows = np.flatnonzero(program.row_end_ns > program.row_start_ns).tolist()
    some = sorted({rows[rng.randrange(len(rows))] for _ in range(4)})
    work = np.unique([program.work.entry[rng.randrange(len(program.work.entry))] for _ in range(6)])
    starts = program.row_start_ns[some]
    ends = np.minimum(starts + 30_000, np.append(starts[1:], starts[-1] + 30_000))
    starts, ends = starts[ends > starts], ends[ends > starts]
    factor, us = rng.random(), 1_000.0 * (1 + rng.randrange(40))
    return (
        edits.Drop(some),
        edits.DropSpans(starts, ends, leaving_ns=us),
        edits.ShrinkGaps(starts, ends),
        edits.ShrinkSpans(starts, ends, factor),
        edits.Insert(some, us),
        edits.Wait(some, us),
        edits.DropWork(work),
        edits.Resize(work, [us] * len(work)),
        edits.Scale(work, factor),
        edits.SplitAcrossRanks(work, factor),
        edits.MoveToSideStream(work),
        edits.CapOps(us),
        rewrites.Fuse(work, np.arange(len(work)) // 3),
        rewrites.Replace(starts, ends, [us, 2 * us], us),
        rewrites.GraphLaunch(),
        rewrites.Compile(work),
        rewrites.Batch(starts, ends, np.arange(len(starts)) // 2),
    )
