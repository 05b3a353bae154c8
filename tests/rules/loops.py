"""Loops of steps for tests: ops that launch a kernel each, and what comes between them."""

from collections.abc import Callable

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Trace


class Loop(TraceBuilder):
    """Steps of ops that launch a kernel each, with whatever comes between them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.steps = 0
        self.launches = 0
        self._begin = 0

    def begin(self) -> None:
        """A step begins."""
        self._begin = self.now
        self.now += 5_000

    def end(self) -> None:
        """It ends, and is marked."""
        self.step(self.steps, self._begin, self.now - self._begin)
        self.steps, self.now = self.steps + 1, self.now + 20_000

    def launched(
        self, name: str = "aten::mm", launch_ns: int = 5_000, kernel_ns: int = 20_000, tid: int = 1000
    ) -> None:
        """An op with its launch and kernel."""
        self.launches += 1
        self.op(name, self.now, launch_ns + 5_000, tid=tid)
        self.launch("cudaLaunchKernel", self.now + 2_000, launch_ns, self.launches, tid=tid)
        self.kernel(self.now + launch_ns + 4_000, kernel_ns, self.launches)
        self.now += launch_ns + 8_000

    def pause(self, ns: int, line: str | None = None) -> None:
        """Nothing but python, in a frame if a line is given."""
        if line:
            self.python(line, self.now, ns, python_id=self.launches + 1)
        self.now += ns

    def host_op(self, name: str, ns: int) -> None:
        """An op that makes no call."""
        self.op(name, self.now + 1_000, ns)
        self.now += ns + 2_000


def loop_of(body: Callable[[Loop, int], None], steps: int = 6) -> Trace:
    """Steps of four launches, the body and one launch more."""
    loop = Loop()
    for number in range(steps):
        loop.begin()
        for _ in range(4):
            loop.launched()
        body(loop, number)
        loop.launched()
        loop.end()
    return loop.load()


def annotated(name: str, ns: int) -> Callable[[Loop, int], None]:
    def body(loop: Loop, _: int) -> None:
        loop.annotation(name, loop.now, ns)
        loop.now += ns

    return body
