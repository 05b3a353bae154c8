"""Small programs for the tests of the replay: steps of ops that launch kernels, as long as they are told."""

from collections.abc import Sequence
from typing import Any

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.trace import Trace
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.edits import Edit
from traceanalyzer.replay.program import Program
from traceanalyzer.replay.run import Step, run
from traceanalyzer.replay.saving import Forecast

STEP_NS = 1_000_000
OP_NS, CALL_NS, EVERY_NS = 20_000, 5_000, 30_000  # an op, its launch within, and from op to op


def program(trace: Trace) -> Program:
    """The program of a trace."""
    return Analysis(trace).index(Program)


def forecast(trace: Trace) -> Forecast:
    """The replays of a trace."""
    return Analysis(trace).index(Forecast)


def replay(program: Program, edits: Sequence[Edit] = (), slowdown: float | None = None) -> Step:
    """The step without the profiler, after the edits.

    Args:
        program: the sampled steps.
        edits: applied in this order, each to what the one before left.
        slowdown: by which factor the profiler slowed the CPU; the typical one unless given.
    """
    edited = EditedProgram(program)
    for edit in edits:
        edit.apply(edited)
    return run(edited, program.segments.slowed.typical if slowdown is None else slowdown)


class Loop:
    """Steps of one loop; what a step does is added to all of them alike.

    Work is launched at its op and runs at once, or after what its stream still has to do.
    """

    def __init__(self, steps: int = 4, step_ns: int = STEP_NS) -> None:
        self.trace = TraceBuilder()
        self.begins = [number * step_ns for number in range(steps)]
        for number, begin in enumerate(self.begins):
            self.trace.step(number, begin, step_ns)
        self._correlation = 0
        self._queued: list[tuple[int, int, int, int]] = []  # launch's end, stream, duration, correlation

    def op(self, name: str, at: int, kernel_ns: int, *, stream: int = 7, dur: int = OP_NS, **args: Any) -> list[int]:
        """An op of `dur` in every step that launches a kernel in its middle; event ids of the ops."""
        found = []
        for begin in self.begins:
            found.append(self.trace.op(name, begin + at, dur, **args))
            self.launch("cudaLaunchKernel", begin + at + dur // 2, kernel_ns, stream=stream)
        return found

    def launch(self, name: str, start: int, work_ns: int, *, stream: int = 7) -> None:
        """One call, and the kernel that it starts."""
        self._correlation += 1
        self.trace.launch(name, start, CALL_NS, correlation=self._correlation)
        self._queued.append((start + CALL_NS, stream, work_ns, self._correlation))

    def sync(self, at: int, dur: int, name: str = "cudaDeviceSynchronize") -> None:
        """A synchronisation in every step."""
        for begin in self.begins:
            self._correlation += 1
            self.trace.launch(name, begin + at, dur, correlation=self._correlation)

    def load(self) -> Trace:
        """The trace: what was launched runs in the order of its launches."""
        free: dict[int, int] = {}
        for launched, stream, work_ns, correlation in sorted(self._queued):
            begin = max(launched, free.get(stream, 0) + 1_000)
            free[stream] = begin + work_ns
            self.trace.kernel(begin, work_ns, correlation=correlation, stream=stream)
        self._queued.clear()
        return self.trace.load()
