"""How much of the CPU's time per step is the profiler's own: an estimate, and labelled as one.

Recording a row costs time on the thread that it is about, and no row says how much. What is known is how long the
steps of some loops took with and without the profiler; `Costs` is fitted to those, so that the rows of a trace
give an estimate. What the profiler's own rows say (buffers that it asked for inside a call) is added as measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.model import intervals
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.lazy import pd
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.trace import Trace, ints, matching
from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.profiler_rows import ProfilerRows
from traceanalyzer.timeline.steps import Steps

Ns = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Costs:
    """Nanoseconds per recorded row, and how far the truth lies off.

    Fitted on 18 CPU-bound traces of an NVIDIA H200 (torch 2.11, CUDA 13.0): the bad and fixed pairs device_sync,
    graph_break, item_sync, malloc_thrash and optimizer_loop, the pairs launch_bound.bad, nchw_conv.fixed and
    recompile.fixed, and the real cnn_lab, gcn, gpt2_train.compile, llama_decode, resnet50 and fsdp. Truth is the
    median step under the profiler less the median step without it. Of the 18, 17 lie between 0.4 and 2.5 times the
    estimate and 15 between a half and twice; of ten traces that were not fitted, ten and nine. Shapes made no
    difference that stands out from this spread.
    """

    step_ns: int = 50_000  # prof.step() and the mark itself
    op_ns: int = 1_300  # cpu_op or user_annotation
    call_ns: int = 4_500  # runtime or driver call, with the kernel record that it leads to
    python_ns: int = 500  # python_function, with stacks on; the least certain: at most 0.8 us
    memory_ns: int = 3_000  # [memory], with memory on
    low_factor: float = 0.4
    high_factor: float = 2.5
    max_share: float = 0.6  # no CPU-bound loop ran more than 2.3 times slower, which is a share of 0.57
    min_idle_share: float = 0.25  # below it the device sets the pace: such steps grew by a quarter at most


COSTS = Costs()


@dataclass(frozen=True, slots=True)
class Inflation:
    """How much of each step is the profiler's doing, as an estimate.

    Arrays of shape (steps,), parallel to `Steps`.

    Attributes:
        cpu_ns: int64, the step on the CPU, from mark to mark.
        rows: recorded rows per step, float64 columns step, op, call, python, memory.
        stalled_ns: int64, of the step, stalls by the profiler that its own rows show: measured, not estimated.
        estimate_ns, low_ns, high_ns: int64, the profiler's part of the step, its stalls included.
    """

    cpu_ns: Ns
    rows: pd.DataFrame
    stalled_ns: Ns
    estimate_ns: Ns
    low_ns: Ns
    high_ns: Ns

    @property
    def share(self) -> float:
        """The estimate over the CPU's time of all steps."""
        return self._share_of(self.estimate_ns)

    @property
    def share_range(self) -> tuple[float, float]:
        """The range of that share."""
        return self._share_of(self.low_ns), self._share_of(self.high_ns)

    @property
    def basis(self) -> str:
        """One sentence: what the estimate rests on."""
        mean = self.rows.mean()
        costs = {
            "op": COSTS.op_ns,
            "call": COSTS.call_ns,
            "python": COSTS.python_ns,
            "memory": COSTS.memory_ns,
        }
        named = [
            f"{mean[kind]:.0f} {kind} rows at {format_ns(ns)}"
            for kind, ns in costs.items()
            if mean[kind] >= 0.5
        ]
        return (
            f"estimated from {', '.join([*named, f'prof.step() at {format_ns(COSTS.step_ns)}'])} per step; fitted on an"
            f" H200 with torch 2.11, where 53 of 66 loops lay within {COSTS.low_factor} to {COSTS.high_factor} times it"
        )

    def _share_of(self, ns: Ns) -> float:
        return float(ns.sum() / max(int(self.cpu_ns.sum()), 1))

    @classmethod
    def build(
        cls, trace: Trace, steps: Steps, nesting: Nesting, profiler: ProfilerRows, books: Accounting | None
    ) -> Self:
        if not steps.marked:
            raise Unavailable("no step marks to count the profiler's rows by: call prof.step()")
        _refuse_gpu_bound(books, steps)
        cpu = steps.durations_ns()
        rows = _rows(trace, steps, nesting)
        stalled = _stalled(profiler, steps)
        per_row = np.array([COSTS.step_ns, COSTS.op_ns, COSTS.call_ns, COSTS.python_ns, COSTS.memory_ns])
        recording = rows.to_numpy(dtype=np.float64) @ per_row
        most = COSTS.max_share * cpu
        bounds = [
            np.minimum(factor * recording + stalled, np.maximum(most, stalled)).astype(np.int64)
            for factor in (1.0, COSTS.low_factor, COSTS.high_factor)
        ]
        return cls(cpu, rows, stalled, *bounds)


def _refuse_gpu_bound(books: Accounting | None, steps: Steps) -> None:
    """Only where the CPU sets the pace does its time make the step. Without a device it always does."""
    if books is None:
        return
    idle = min(
        sum(ns for name, ns in row["parts_ns"].items() if name.startswith("idle")) for row in books.summaries
    )
    if idle < COSTS.min_idle_share * steps.window_ns:
        share = format_share(1 - idle / max(steps.window_ns, 1))
        raise Unavailable(f"the device is busy for {share} of the window and sets the pace, not the CPU")


def _rows(trace: Trace, steps: Steps, nesting: Nesting) -> pd.DataFrame:
    """Recorded rows of each kind per step."""
    on_thread = nesting.thread >= 0
    op = on_thread & matching(trace.cpu, "category", ("cpu_op", "user_annotation").__contains__)
    call = on_thread & matching(trace.cpu, "category", CALL_CATEGORIES.__contains__)
    return pd.DataFrame(
        {
            "step": np.ones(len(steps)),
            "op": _counted(steps, nesting.start_ns[op]),
            "call": _counted(steps, nesting.start_ns[call]),
            "python": _counted(steps, _starts(trace, "python")),
            "memory": _counted(steps, _starts(trace, "memory")),
        }
    )


def _starts(trace: Trace, frame: str) -> Ns:
    """Starts of a frame's rows; a frame without rows is not made."""
    if not trace.meta.rows.get(frame):
        return np.empty(0, np.int64)
    return ints(getattr(trace, frame), "start_ns")


def _counted(steps: Steps, instants: Ns) -> NDArray[np.float64]:
    """How many instants lie in each step on the CPU."""
    at = steps.at_cpu(instants)
    inside = at[(at >= 0) & (instants < steps.cpu_end_ns[-1])]
    return np.bincount(inside, minlength=len(steps)).astype(np.float64)


def _stalled(profiler: ProfilerRows, steps: Steps) -> Ns:
    """How long the profiler stalled a thread in each step."""
    edges = np.append(steps.cpu_start_ns, steps.cpu_end_ns[-1:])
    return intervals.covered(profiler.stalls, edges[:-1], edges[1:])
