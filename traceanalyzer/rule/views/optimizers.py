"""How an optimizer steps: one parameter after the other, or pass by pass over all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.rule.views.work import Work

_MOST = 0.5
_RARE = 0.05  # share of the launches below which an op is not done for every tensor


@dataclass(frozen=True, slots=True)
class Implementation:
    """What one step launches, on average.

    Attributes:
        foreach: ops that take all tensors at once.
        passes: kernels for each tensor, or foreach ops.
        tensors: how many there are; of foreach ops at most.
    """

    foreach: bool
    passes: float
    tensors: float

    @classmethod
    def of(cls, work: Work, steps: int, tensors_per_launch: int) -> Self:
        """From what all steps launched."""
        if work.op.name.matches("_foreach_").mean() > _MOST:
            passes = max(len(work.op.distinct()) / steps, 1.0)
            return cls(True, passes, len(work) / steps / passes * tensors_per_launch)
        tensors = _every_tensor(work)
        return cls(False, len(work) / tensors, tensors / steps)


def _every_tensor(work: Work) -> float:
    """How often the rarest op comes that is done for every tensor."""
    ops = work.op.name.sums(np.ones(len(work), np.int64)).values()
    counts = np.array(list(ops) or [len(work)])
    return max(float(counts[counts >= _RARE * len(work)].min(initial=len(work))), 1.0)
