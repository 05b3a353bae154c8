"""Steps of inference servers by phase and batch size: a median over all of them would mix what is not alike."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import sums_of
from traceanalyzer.model.units import format_ns
from traceanalyzer.report.fact import Fact, Facts, Value, ids_of
from traceanalyzer.rule.views import Calls
from traceanalyzer.timeline.mark_search import phase_and_batch


def serving_steps(analysis: Analysis) -> Facts:
    """How long steps of each phase and batch size take on the CPU, and the GPU time that they launch."""
    calls = analysis.index(Calls)
    marks = calls[calls.is_annotation & calls.name.meets(lambda name: phase_and_batch(name)[0])]
    marks = marks[~marks.parent.inside(marks)]
    gpu_ns = np.zeros(len(marks), np.int64)
    if marks.events.work is not None:
        work, owner = marks.launched()
        gpu_ns = sums_of(owner, work.dur_ns, len(marks))
    kinds = [phase_and_batch(str(name)) for name in marks.name.values()]
    for phase, batch in sorted(set(kinds), key=str):
        own = np.flatnonzero([kind == (phase, batch) for kind in kinds])
        cpu, gpu = int(np.median(marks.dur_ns[own])), int(np.median(gpu_ns[own]))
        requests = "" if batch < 0 else f" of {batch} request{'s' * (batch != 1)}"
        times = f"median {format_ns(cpu)} on the CPU, {format_ns(gpu)} of GPU work"
        text = f"{phase}{requests}: {len(own):,} steps, {times}"
        values: dict[str, Value] = {
            "phase": phase,
            "batch": batch if batch >= 0 else None,
            "steps": len(own),
            "cpu_ns": cpu,
            "gpu_ns": gpu,
        }
        yield Fact("serving-steps", text, values, ids_of(marks[own[:1]]))
