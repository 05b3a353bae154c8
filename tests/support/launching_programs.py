"""Programs that launch many short kernels."""

from collections.abc import Collection

from tests.rules.launches import GEMM, loop
from tests.rules.programs import US, Program
from tests.support.trace_builder import TraceBuilder

STACKED = "If the repetitions are independent"


def stepped(
    *, waits: Collection[tuple[int, int]] = (), kernel: str = GEMM, grows: int = 0, trained: int | None = None
) -> TraceBuilder:
    """Five steps of 40 products.

    Args:
        waits: (step, number of launches before it) of each wait for the device.
        grows: so many launches more in each step.
        trained: in which step an optimizer's step is; -1 before the first.
    """
    trace, number, at = TraceBuilder(), 0, 0
    if trained == -1:
        trace.annotation("Optimizer.step#Adam.step", 0, 15 * US)
        trace.op("aten::add_", 1 * US, 5 * US)
        trace.launched((2 * US, 2 * US), (5 * US, 2 * US), 9_000, name=GEMM)
        at = 20 * US
    for step in range(5):
        begin, count = at, 40 + grows * step
        for piece in range(count + 1):
            if (step, piece) in waits:
                trace.launch("cudaStreamSynchronize", at, 4 * US, 100_000 + number)
                at += 6 * US
            if piece < count:
                number += 1
                trace.op("aten::mm", at, 10 * US)
                trace.launched((at + 4 * US, 5 * US), (at + 9 * US, 1 * US), number, name=kernel)
                at += 12 * US
        if trained == step:
            trace.annotation("Optimizer.step#Adam.step", at - 24 * US, 24 * US)
        trace.step(step, begin, at - begin)
    return trace


def layers(*counts: int) -> TraceBuilder:
    """Steps of so many layers each."""
    trace, at = TraceBuilder(), 0
    for step, count in enumerate(counts):
        begin = at
        for _ in range(count):
            trace.op("aten::linear", at, 10 * US)
            trace.launched((at + 4 * US, 5 * US), (at + 9 * US, 1 * US), name=GEMM)
            at += 12 * US
        trace.step(step, begin, at - begin)
    return trace


def compiling(steps: list[int]) -> TraceBuilder:
    trace = loop(["aten::mm"], 30, steps=4, kernel=GEMM)
    for step in steps:
        trace.op("dynamo", 360 * US * step + 1 * US, 105 * US, tid=7)
        trace.op("entire_frame_compile", 360 * US * step + 2 * US, 100 * US, tid=7)
    return trace


def rollout(repeats: int, names: tuple[str, ...], steps: int = 4, extra: bool = True) -> Program:
    """Steps of short kernels: a head, a loop with a branch, a tail."""
    made = Program()
    for step in range(steps):
        made.step(step)
        made.kernel("aten::embedding", dur=2 * US)
        for number in range(repeats):
            for name in names:
                made.kernel(name, dur=2 * US)
            if extra and number % 4 == 0:
                made.kernel("aten::where", dur=2 * US)
        made.kernel("aten::sum", dur=2 * US)
    return made
