"""Programs of annotations, functions, repeated ops and backward nodes, for tests of regions."""

from collections.abc import Sequence
from typing import Any

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.regions.regions import Regions

US = 1_000
_OP, _WAY, _KERNEL, _BETWEEN_STEPS = 10 * US, 4 * US, 2 * US, 50 * US
MAIN, AUTOGRAD = 1, 2


class CodeProgram:
    """Steps in which each op takes 10 us and launches a kernel, of 2 us; the next op comes 4 us later."""

    def __init__(self, kernel: int = _KERNEL) -> None:
        self.trace, self.kernel = TraceBuilder(), kernel
        self.now = self.number = self.steps = self.functions = 0
        self._begin = 0

    def op(
        self, name: str, *, sequence: int | None = None, thread: int = MAIN, forward: int | None = None, **args: Any
    ) -> None:
        """An op; `forward` is the profiler's number of the thread of a node's forward op."""
        self.number += 1
        if sequence is not None:
            args |= {
                "Sequence number": sequence,
                "Fwd thread id": int(thread == AUTOGRAD) if forward is None else forward,
            }
        self.trace.op(name, self.now, _OP, tid=thread, **args)
        self.trace.launch("cudaLaunchKernel", self.now + 4 * US, 5 * US, self.number, tid=thread)
        self.trace.kernel(self.now + 9 * US, self.kernel, self.number)
        self.now += _OP + _WAY

    def ops(self, names: Sequence[str]) -> None:
        for name in names:
            self.op(name)

    def node(self, name: str, sequence: int, forward: int = 1) -> None:
        """A node of backward, in the engine's row around it."""
        self.trace.op(f"autograd::engine::evaluate_function: {name}", self.now, _OP + 2 * US, tid=AUTOGRAD)
        self.now += US
        self.op(name, sequence=sequence, thread=AUTOGRAD, forward=forward)

    def pause(self, dur: int) -> None:
        self.now += dur

    def annotate(self, name: str, start: int) -> None:
        """An annotation from `start` to now."""
        self.trace.annotation(name, start, self.now - start, tid=MAIN)

    def function(self, name: str, start: int, file: str = "train.py", thread: int = MAIN) -> None:
        """A Python function of the user's, or of a package, from `start` to now."""
        self._python(f"{file}(10): {name}", start, thread)

    def module(self, name: str, start: int) -> None:
        """A module from `start` to now."""
        self._python(f"nn.Module: {name}_0", start)

    def _python(self, name: str, start: int, thread: int = MAIN) -> None:
        self.functions += 1
        self.trace.python(name, start, self.now - start, tid=thread, python_id=self.functions)

    def end_step(self) -> None:
        self.trace.step(self.steps, self._begin, self.now - self._begin, tid=MAIN)
        self.steps += 1
        self.now += _BETWEEN_STEPS
        self._begin = self.now


def cached_gradients(layers: int = 4, pause: int = 0) -> CodeProgram:
    """Each step runs `encode()` without gradients, a loss, and `encode()` again in a hook of the loss's backward.

    The hook begins with a pause.
    """
    program = CodeProgram()
    for step in range(4):
        sequence = 100 * step
        for thread in (MAIN, AUTOGRAD):
            hook = begin = program.now
            program.pause(pause if thread == AUTOGRAD else 0)
            for layer in range(layers):
                numbers = {} if thread == MAIN else {"sequence": sequence + layer, "forward": 0}
                for name in ("aten::linear", "aten::gelu"):
                    program.op(name, thread=thread, **{"Input Dims": [[8, 16 + layer]]}, **numbers)
            program.function("encode", begin, thread=thread)
            if thread == MAIN:
                program.op("aten::logsumexp", sequence=sequence + 50, **{"Input Dims": [[8, 8]]})
                program.node("LogsumexpBackward0", sequence + 50)
        for layer in reversed(range(layers)):
            program.node("AddmmBackward0", sequence + layer, forward=2)
        name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
        program.trace.op(name, hook, program.now - hook, tid=AUTOGRAD)
        program.end_step()
    return program


def regions_of(program: CodeProgram) -> Regions:
    """The regions of a built trace."""
    return Analysis(program.trace.load()).index(Regions)


def calls_of(regions: Regions) -> dict[str, float]:
    """`parent > child` by names -> calls per step, of all nodes but the step."""
    tree, paths = regions.tree, [""]
    for node in range(1, len(tree.parent)):
        above = paths[int(tree.parent[node])]
        paths.append(f"{above} > {tree.name[node]}" if above else tree.name[node])
    return {path: tree.calls[node] / regions.steps for node, path in enumerate(paths) if node}


def modules_above_ops() -> TraceBuilder:
    """A linear layer within a model, with python's frames; and work of no op."""
    made = TraceBuilder(with_stack=1)
    made.python("train.py(3): step", 0, 1_000_000, python_id=1)
    made.python("nn.Module: Model_0", 1_000, 900_000, python_id=2, parent=1)
    made.python("nn.Module: Linear_0", 2_000, 300_000, python_id=3, parent=2)
    made.annotation("forward", 500, 950_000)
    for i, start in enumerate((5_000, 400_000)):
        made.op("aten::linear", start, 100_000)
        made.launched((start + 10_000, 5_000), (start + 50_000, 10_000 * (i + 1)), i + 1, name="gemm")
    made.kernel(960_000, 7_000, 99, name="lost")
    return made
