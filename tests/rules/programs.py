"""Small programs for tests of rules: what the CPU calls one after the other, and the device that follows."""

from collections.abc import Iterable

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding, diagnose

US = 1_000
STEP = 2_000 * US
TO_HOST, TO_DEVICE = "Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD (Pageable -> Device)"
PINNED_TO_HOST, PINNED_TO_DEVICE = "Memcpy DtoH (Device -> Pinned)", "Memcpy HtoD (Pinned -> Device)"


def found(trace: TraceBuilder, rule: str) -> list[Finding]:
    """What the rule says of a built trace."""
    return list(diagnose(trace.load(), select=[rule]).findings)


class Program:
    """Steps of 2 ms in which the CPU calls one thing after the other; the device follows each launch by 10 us."""

    def __init__(self) -> None:
        self.trace = TraceBuilder()
        self.now = self.device = self.correlation = 0

    def step(self, number: int) -> None:
        self.now = max(self.now, number * STEP)
        self.trace.step(number, number * STEP, STEP)

    def kernel(self, op: str = "aten::mm", dur: int = 100 * US, stream: int = 7) -> None:
        self.correlation += 1
        self.trace.op(op, self.now, 20 * US)
        self.trace.launch("cudaLaunchKernel", self.now + 5 * US, 5 * US, self.correlation)
        start = max(self.device, self.now + 15 * US)
        self.trace.kernel(start, dur, self.correlation, stream=stream)
        self.device, self.now = start + dur, self.now + 22 * US

    def copy(self, name: str, size: int, dur: int, ops: tuple[str, ...], *, sync: bool = True, stream: int = 7) -> None:
        """A copy in nested ops, and within them a call that waits for it."""
        self.correlation += 1
        start = max(self.device, self.now + 15 * US) if stream == 7 else self.now + 15 * US
        returned = start + dur + 3 * US if sync else self.now + 12 * US
        for depth, op in enumerate(ops):
            self.trace.op(op, self.now + depth * US, returned + 10 * US - self.now - 2 * depth * US)
        self.trace.launch("cudaMemcpyAsync", self.now + 5 * US, 4 * US, self.correlation)
        self.trace.memcpy(start, dur, self.correlation, name=name, size=size, stream=stream)
        if sync:
            at = self.now + 10 * US
            self.trace.launch("cudaStreamSynchronize", at, returned - at, self.correlation + 100_000)
        self.device = max(self.device, start + dur) if stream == 7 else self.device
        self.now = returned + 12 * US


def deciding(before: Iterable[str]) -> Program:
    """Four steps in which the CPU asks whether what these ops made is true."""
    program = Program()
    for number in range(4):
        program.step(number)
        program.kernel()
        for op in before:
            program.kernel(op, 2 * US)
        program.copy(PINNED_TO_HOST, 1, 2 * US, ("aten::is_nonzero", "aten::item"))
        program.kernel()
    return program
