"""Training steps of a recommender with embedding tables."""

from collections.abc import Sequence
from typing import Any

from tests.rules.programs import US
from tests.support.trace_builder import TraceBuilder

STEP = 300 * US
ROWS, WIDTH = 1_000_000, 64


class Training:
    """Steps of 0.3 ms on the CPU; the device follows each launch when it can."""

    def __init__(self, step_ns: int = STEP) -> None:
        self.trace, self.step_ns = TraceBuilder(), step_ns
        self.now = self.device = self.correlation = 0

    def step(self, number: int) -> None:
        self.now = max(self.now, number * self.step_ns)
        self.trace.step(number, number * self.step_ns, self.step_ns)

    def args(self, name: str, start: int, dur: int, dims: Sequence[Any], scalars: Sequence[str] = ()) -> None:
        """An op that launches nothing itself, with the arguments that it was called with."""
        recorded: dict[str, Any] = {"Input Dims": list(dims), "Concrete Inputs": list(scalars)}
        self.trace.op(name, start, dur, **(recorded if dims else {}))

    def op(self, name: str, *dims: Any, kernels: tuple[int, ...] = (50 * US,), scalars: tuple[str, ...] = ()) -> None:
        """An op on tensors of these shapes that launches kernels of these durations."""
        self.args(name, self.now, 20 * US * len(kernels) + 5 * US, dims, scalars)
        for dur in kernels:
            self.correlation += 1
            self.trace.launch("cudaLaunchKernel", self.now + 5 * US, 5 * US, self.correlation)
            self.device = max(self.device, self.now + 15 * US)
            self.trace.kernel(self.device, dur, self.correlation)
            self.device, self.now = self.device + dur, self.now + 20 * US
        self.now += 6 * US


def recommender(
    looked_up: int = 4096,
    *,
    bag: bool = False,
    tied: bool = False,
    shapes: bool = True,
    optimizer: str = "SGD",
    micro_steps: int = 1,
    long_list: bool = False,
    accumulates: bool = False,
    lookup_us: int = 0,
    summed_us: int = 0,
) -> TraceBuilder:
    """Three steps of an embedding with a dense gradient and a linear layer."""
    run, table = Training(STEP * micro_steps), [ROWS, WIDTH]
    for number in range(3):
        run.step(number)
        for _ in range(micro_steps):
            run.op("aten::mm", [4096, WIDTH], [WIDTH, ROWS if tied else 512])
            if lookup_us:
                run.op("aten::embedding", kernels=(lookup_us * US,))
            if summed_us:
                start = run.now
                run.op("aten::add", kernels=(summed_us * US,))
                run.args("autograd::engine::evaluate_function: EmbeddingBackward0", start, run.now - start, ())
            start = run.now
            run.now += 5 * US
            run.op("aten::fill_", table, [], kernels=(300 * US,))
            run.op("aten::sort", [looked_up])
            name = "aten::embedding_dense_backward"
            scalars: tuple[str, ...] = ("", "", str(ROWS), "-1", "False")
            dims: tuple[Any, ...] = ([looked_up, WIDTH], [looked_up], [], [], [])
            if bag:
                name = "aten::_embedding_bag_dense_backward"
                scalars = ("", "", "", "", "", str(ROWS), "False", "0")
                dims = ([512, WIDTH], [looked_up], [looked_up], [512], [512], [], [], [])
            run.args(name, start, run.now - start, dims if shapes else (), scalars)
        start = run.now
        run.now += 5 * US
        params = [table, [512, WIDTH], [512]]
        for shape in params:
            before = run.now
            if accumulates and shape is table:
                run.op("aten::add_", shape, shape, [], kernels=(150 * US,))
            run.args("torch::autograd::AccumulateGrad", before, run.now - before + US, [shape])
            run.now += 2 * US
        lists = {"Input Dims": [[], [], []], "Input type": ["TensorList", "TensorList", "Scalar"]}
        run.op("aten::_foreach_add_", params, params, [], kernels=(200 * US,) * 4)
        if long_list:
            next(e for e in reversed(run.trace.events) if e["name"] == "aten::_foreach_add_")["args"] |= lists
        run.trace.annotation(f"Optimizer.step#{optimizer}.step", start, run.now - start)
    return run.trace
