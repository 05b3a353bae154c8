"""Whether a step could be captured in one CUDA graph, as far as the recorded steps show."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline.step_similarity import same_steps
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls

_DIFFERENT = "all steps launch the same kernels and grids (pad inputs, and use caches of a fixed size)"

_IN_TWO = (
    " Between the step's launches the CPU waits for the GPU once, and no graph can contain this wait: move it to the "
    "end of the step, or capture the step in two graphs, one before and one after it."
)


def obstacles(
    eager: Work, steps: Steps, syncs: SyncCalls, max_syncs: float, min_same_share: float
) -> list[str]:
    """Conditions for one CUDA graph that the step does not meet yet; empty where it is known to miss none.

    Args:
        eager: the work in the steps that no graph launched.
        max_syncs: waits for the device in a step that do not cut it in two.
        min_same_share: of the steps, that launch the same kernels on the same grids where shapes are static.
    """
    stops = _stops(eager, steps, syncs.start_ns[~syncs.profiler])
    same = same_steps(eager.events.trace, eager.events.work, steps) if len(steps) > 1 else 1.0
    reasons = {
        "the CPU waits for the GPU only at the end of a step (at present it also waits between launches, "
        f"{stops:.0f} times a step)": stops > max_syncs,
        "all ranks capture the collectives in the same way": len(eager.of_kind("communication")) > 0,
        _DIFFERENT: same < min_same_share,
    }
    return [reason for reason, holds in reasons.items() if holds]


def in_parts(eager: Work, steps: Steps, syncs: SyncCalls) -> str:
    """What a graph of the step asks for besides: a single wait between its launches is no obstacle, but cuts it."""
    return _IN_TWO if _stops(eager, steps, syncs.start_ns[~syncs.profiler]) >= 1 else ""


def _stops(eager: Work, steps: Steps, waits_ns: Rows) -> float:
    """How often the CPU waits between the first and the last launch of a step, as a rule."""
    launched = eager.launch.start_ns[eager.launch.there]
    step = steps.at_cpu(launched)
    first, last = np.full(len(steps), np.iinfo(np.int64).max), np.zeros(len(steps), np.int64)
    np.minimum.at(first, step[step >= 0], launched[step >= 0])
    np.maximum.at(last, step[step >= 0], launched[step >= 0])
    at = steps.at_cpu(waits_ns)
    between = (at >= 0) & (waits_ns > first[at]) & (waits_ns < last[at])
    return float(np.median(np.bincount(at[between], minlength=len(steps))))


def is_compiled(eager: Work) -> bool:
    """Whether torch.compile is in use already."""
    return bool(eager.outer_op.name.matches(r"^Torch-Compiled Region|CompiledFunction").any())
