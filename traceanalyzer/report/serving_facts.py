"""Steps of inference servers by phase and batch size: a median over all of them would mix what is not alike."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import sums_of
from traceanalyzer.model.units import format_ns
from traceanalyzer.report.fact import Fact, Facts, Value, ids_of
from traceanalyzer.rule.views import Calls
from traceanalyzer.timeline.serving import ServingStep


def serving_steps(analysis: Analysis) -> Facts:
    """How long steps of each phase and batch size take on the CPU, and the GPU time that they launch."""
    calls = analysis.index(Calls)
    marks = calls[calls.is_annotation & calls.name.meets(ServingStep.parsed)]
    marks = marks[~marks.parent.inside(marks)]
    gpu_ns = np.zeros(len(marks), np.int64)
    if marks.events.work is not None:
        work, owner = marks.launched()
        gpu_ns = sums_of(owner, work.dur_ns, len(marks))
    kinds = [ServingStep.parsed(str(name)) for name in marks.name.values()]
    for kind in sorted({kind for kind in kinds if kind}, key=lambda kind: (kind.phase, kind.batch or 0)):
        own = np.flatnonzero([one == kind for one in kinds])
        cpu, gpu = int(np.median(marks.dur_ns[own])), int(np.median(gpu_ns[own]))
        batch = "" if kind.batch is None else f" of {kind.batch} request{'s' * (kind.batch != 1)}"
        times = f"median {format_ns(cpu)} on the CPU, {format_ns(gpu)} of GPU work"
        text = f"{kind.phase}{batch}: {len(own):,} steps, {times}"
        values: dict[str, Value] = {
            "phase": kind.phase,
            "batch": kind.batch,
            "steps": len(own),
            "cpu_ns": cpu,
            "gpu_ns": gpu,
        }
        yield Fact("serving-steps", text, values, ids_of(marks[own[:1]]))
