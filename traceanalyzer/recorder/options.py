"""What to record, and for how long."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

WARM_STEPS = 2  # under the profiler before the window: its first steps load its code
SETTLE_STEPS = 4  # after the window, before steps are timed again: the profiler's buffers are being freed
TENSOR_STEPS = 2  # with an execution trace
SHORT_S = 0.02  # steps that took less in all may differ by chance: they count as settled
LONG_S = 60.0  # after which fewer steps than wanted are skipped or timed
FEWEST = 3  # steps that are skipped or timed in any case
LONG_STEP_S = 10.0  # of such steps 2 are recorded
# A step that takes longer has no execution trace: the observer makes it 2 to 7 times longer.
TENSORS_MOST_S = 5.0


@dataclass(frozen=True)
class Options:
    """What to record.

    Attributes:
        path: the trace to write.
        steps, skip, timed: numbers of steps: recorded, left to warm-up, and timed before the window and again after it.
        tensors: whether to record an execution trace; None: where the program is a single process.
        max_wait: seconds to wait at most for step times to settle.
        stop: end the program once all is written.
        every_call_of: `pkg.module:function`, each call of which is a step.
        root: id of the process that all processes of the program descend from; 0: of this one.
    """

    path: str
    steps: int = 6
    skip: int = 10
    timed: int = 24
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    tensors: bool | None = None
    max_wait: float = 60.0
    stop: bool = False
    force: bool = False
    every_call_of: str | None = None
    notes: str | None = None
    root: int = 0

    def __post_init__(self) -> None:
        if min(self.steps, self.timed) < 1 or min(self.skip, self.max_wait) < 0:
            raise ValueError("steps and timed are at least 1, skip and max_wait at least 0")

    def wants_tensors(self, times_ms: Sequence[float], world: int) -> bool:
        """Whether an execution trace is recorded of steps that take so long, in a job of so many ranks."""
        if self.tensors is False or (self.tensors is None and world > 1):
            return False
        return not times_ms or median(times_ms) <= TENSORS_MOST_S * 1e3


def enough(steps: int, wanted: int, elapsed_s: float, *, alone: bool) -> bool:
    """Whether so many steps, which took so long, will do. Ranks of a job count steps only: all the same."""
    return steps >= wanted or (alone and elapsed_s >= LONG_S and steps >= FEWEST)
