"""What torch.compile's regions cost the CPU, and where its graph breaks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.errors import Unavailable
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Calls
from traceanalyzer.timeline.steps import Steps


@dataclass(frozen=True, slots=True)
class Limits:
    min_times: float = limit(
        2.0, "the GPU's work in the regions: then the CPU in them is the longer of the two"
    )


_REGION = r"^Torch-Compiled Region"
_LOOKUP = r"^TorchDynamo Cache Lookup"
_CALLED = r"^## Call CompiledFxGraph"
_FRAME = re.compile(r"(\d+)/\d+")


@rule(since="0.2", claims=Claims.NET, limits=Limits)
def compile_overhead(calls: Calls, steps: Steps, limits: Limits) -> Iterator[Hits]:
    """Entering compiled regions takes longer than the work in them.

    What it looks for: `Torch-Compiled Region` blocks: how many a step (each after the first is a graph break), what
    the lookup of the guards and the wrapper take, and the GPU time of what they launch.
    Why it costs: each entry checks guards and runs a Python wrapper, 50 us without the profiler, and 13 us for each
    kernel. Around tiny ops that is more than eager dispatch costs.
    Bad: torch.compile of a function with four small matrix products. Good: a larger region, or a CUDA graph around
    it, mode="reduce-overhead".
    How sure: it says what the regions cost, not that removing a break pays: guards of a larger region cost, too, and
    breaks may be cheaper. So it is info; whether the step is launch-bound is said by launch-bound.
    When it is wrong: regions that run ahead of a busy GPU cost nothing.
    Source: torch.compile's profiling guide; measured on an H200 with torch 2.11 (four linear layers of 0.03 ms took
    0.12 ms eager and 0.15 ms compiled).
    """
    regions = calls[calls.name.matches(_REGION) & (calls.step >= 0)]
    if len(regions) == 0:
        raise Unavailable("no compiled regions in the trace")
    outer = regions[~regions.parent.inside(regions)]
    launched, _ = regions.launched()
    lookups, graphs = calls[calls.name.matches(_LOOKUP)], calls[calls.name.matches(_CALLED)]
    inside = graphs[graphs.inside(regions) & ~graphs.parent.inside(graphs)]
    tax = outer.total_ns >= limits.min_times * max(launched.total_ns, 1)
    frames = {found[1] for name in regions.name.distinct() if (found := _FRAME.search(name))}
    breaks = len(frames) - 1
    if not tax and not breaks:
        return
    count = max(len(np.unique(regions.step)), 1)
    yield Hits(
        at=regions,
        cause="tiny-regions" if tax else "graph-breaks",
        lost=Lost.none(),
        message="{frames} compiled "
        + ("region" if len(frames) == 1 else "regions")
        + ", entered {times_a_step}: {cpu} of the CPU a step under the profiler ({lookup} of it looking up guards, "
        "{wrapper} around the compiled code) for {gpu} of GPU work in {launches} launches",
        advice="mode='reduce-overhead' or a CUDA graph takes the wrapper away; more in one region spreads it. "
        "TORCH_LOGS=graph_breaks names the breaks; measure before removing one, it may not pay.",
        evidence={
            "frames": len(frames),
            "regions": regions.name.sums(regions.dur_ns),
            "cpu_ns": outer.total_ns // count,
            "lookup_ns": lookups.total_ns // count,
            "wrapper_ns": max(outer.total_ns - inside.total_ns, 0) // count if len(inside) else 0,
            "gpu_ns": launched.total_ns // count,
            "launches": round(len(launched) / count),
        },
        info=True,
    )
