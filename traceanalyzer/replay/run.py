"""The replay: one pass over launches and waits in their order, again and again until a step takes as long as the last.

Between waits a stream's recurrence end_i = max(ready_i, end_(i-1) + gap_i) + dur_i is a running maximum over
cumulative sums, and CPU time is a cumulative sum; so what is left for the loop is a few numbers per wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.recurrence import Block
from traceanalyzer.replay.schedule import Schedule, Schedules

Bound = Literal["gpu", "cpu", "wait", "communication"]

_MIN_STEPS = 12  # so often does the block of steps run that a GPU-bound program has filled its queue
_SETTLED = 1e-3  # two blocks in a row that differ by less
_MIN_COMMUNICATION_SHARE = (
    0.5  # of the busiest stream's work: minimum communication for it to limit the step; chosen
)
_BOUND = 0.97  # share of the step that a side must be busy for it to be what bounds the step


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the steady state.

    Attributes:
        ns: from step to step.
        cpu_ns: the CPU's own time in it, without waiting.
        gpu_ns: time of the busiest stream in it, the gaps between queued work included.
        bound: which of these is the step, "communication" where the busiest stream mostly communicates; "wait" where
            neither is, because each waits for the other.
    """

    ns: float
    cpu_ns: float
    gpu_ns: float
    bound: Bound


def run(edited: EditedProgram, slowdown: float) -> Step:
    """Replay what the edits left."""
    (step,) = run_at(edited, (slowdown,))
    return step


def run_at(edited: EditedProgram, slowdowns: Sequence[float]) -> list[Step]:
    """Replay what the edits left at each of the slowdowns."""
    schedules = Schedules(edited)
    return [_run(edited, schedules.at(slowdown)) for slowdown in slowdowns]


def _run(edited: EditedProgram, schedule: Schedule) -> Step:
    sample = edited.program.sample
    blocks = max(-(-_MIN_STEPS // len(sample)), 3)
    period = Block.of(schedule).period_ns(blocks, _SETTLED)
    steps = len(sample) * sample.part
    gpu = float(schedule.taken_ns.max(initial=0.0))
    return Step(period / steps, schedule.cpu_ns / steps, gpu / steps, _bound(edited, schedule, period))


def _bound(edited: EditedProgram, schedule: Schedule, period: float) -> Bound:
    gpu = float(schedule.taken_ns.max(initial=0.0))
    if schedule.cpu_ns >= max(_BOUND * period, gpu):
        return "cpu"
    if gpu < _BOUND * period and edited.waits.any():
        return "wait"
    mine = edited.alive & (edited.stream == int(np.argmax(schedule.taken_ns)))
    communicating = edited.dur_ns[mine & edited.program.work.communication].sum()
    return "communication" if communicating > _MIN_COMMUNICATION_SHARE * edited.dur_ns[mine].sum() else "gpu"
