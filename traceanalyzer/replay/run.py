"""The replay: one pass over launches and waits in their order, again and again until a step takes as long as the last.

Between waits a stream's recurrence end_i = max(ready_i, end_(i-1) + gap_i) + dur_i is a running maximum over
cumulative sums, and CPU time is a cumulative sum; so what is left for the loop is a few numbers per wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.recurrence import Block, Layout
from traceanalyzer.replay.schedule import Schedule, Schedules

Bound = Literal["gpu", "cpu", "wait", "communication"]

_MIN_STEPS = 12  # so often does the block of steps run that a GPU-bound program has filled its queue
_SETTLED = 1e-3  # two blocks in a row that differ by less
# Of the busiest stream's work: minimum communication for it to limit the step; chosen.
_MIN_COMMUNICATION_SHARE = 0.5
_BOUND = 0.97  # share of the step that a side must be busy for it to be what bounds the step

# Share of the recorded step that its own replay, on the CPU as recorded, lacks: at most 0.17 in 269 recordings of known
# steps and 0.04 in 44 jobs. What is lacking beyond is no model's error: nothing in the trace explains it.
_MOST_LACKING = 0.25
RECORDED = 1.0
"""The slowdown at which the CPU is as slow as recorded."""
LEAST = 0.005  # of a share: no saving is known better than the step itself from run to run; noise/
# Of what is left, by what bounds the step: another process may take so much less. The error in the median of 81
# replayed steps that the CPU or waits limit, and on average of 87 that the GPU does; H200, nothing was fitted on them.
# Of rounds left out no more would be held if it might take so much more as well.
PROCESS = {"gpu": 0.02, "communication": 0.02, "cpu": 0.08, "wait": 0.08}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the steady state.

    Attributes:
        cpu_ns: the CPU's own time in it, without waiting.
        gpu_ns: time of the busiest stream in it, the gaps between queued work included.
        gap_ns: these gaps, in which nothing runs.
        bound: which of these is the step, "communication" where the busiest stream mostly communicates; "wait" where
            neither is, because each waits for the other.
    """

    ns: float
    cpu_ns: float
    gpu_ns: float
    gap_ns: float
    bound: Bound

    @property
    def on_device(self) -> tuple[int, int]:
        """(work of the busiest stream, gaps between what is queued there), in whole ns."""
        return round(self.gpu_ns - self.gap_ns), round(self.gap_ns)


def run(edited: EditedProgram, slowdown: float) -> Step:
    (step,) = run_at(edited, (slowdown,))
    return step


def unexplained_ns(traced_ns: float, replayed_ns: float) -> float:
    """What of the recorded step its own replay lacks, where that is much; else 0."""
    lacking = traced_ns - replayed_ns
    return lacking if lacking > _MOST_LACKING * traced_ns else 0.0


def run_at(edited: EditedProgram, slowdowns: Sequence[float]) -> list[Step]:
    """Replay what the edits left at each of the slowdowns."""
    schedules = list(map(Schedules(edited).at, slowdowns))
    layout = Layout(schedules[0])
    return [_run(edited, schedule, layout.block(schedule)) for schedule in schedules]


def _run(edited: EditedProgram, schedule: Schedule, block: Block) -> Step:
    sample = edited.program.sample
    blocks = max(-(-_MIN_STEPS // len(sample)), 3)
    period = block.period_ns(blocks, _SETTLED)
    steps = len(sample) * sample.part
    gpu = max(block.taken_ns, default=0.0)
    busiest = schedule.stream == (int(np.argmax(block.taken_ns)) if block.taken_ns else -1)
    gap = float(schedule.gap_ns[busiest].sum())
    bound = step_bound(edited, block, period)
    return Step(period / steps, block.cpu_ns / steps, gpu / steps, gap / steps, bound)


def step_bound(edited: EditedProgram, block: Block, period: float) -> Bound:
    gpu = max(block.taken_ns, default=0.0)
    if block.cpu_ns >= max(_BOUND * period, gpu):
        return "cpu"
    if gpu < _BOUND * period and edited.waits.any():
        return "wait"
    busiest = edited.alive & (edited.stream == int(np.argmax(block.taken_ns)))
    communicating = edited.dur_ns[busiest & edited.program.work.communication].sum()
    return "communication" if communicating > _MIN_COMMUNICATION_SHARE * edited.dur_ns[busiest].sum() else "gpu"


def unknown(share: float, process: float) -> float:
    """How far off any saving may be: the step from run to run, and what is left in another process."""
    return LEAST + process * abs(1 - share)
