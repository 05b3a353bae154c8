"""How an optimizer steps: one parameter after the other, or pass by pass over all of them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.timeline.calls_and_work import Work

FUSED = ("Adam", "AdamW", "SGD")  # torch 2.4 and later have a fused CUDA implementation of these
_FOREACH = ("ASGD", "Adadelta", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
# apex and DeepSpeed launch multi_tensor_apply without an op.
DONE = re.compile(
    r"_fused_|^void multi_tensor_apply|multi_tensor_apply_kernel|CompiledFunction|^triton_|^Torch-Compiled|^## Call"
)
LISTS = re.compile(r"_foreach_")
SPARSE = re.compile(r"^aten::(_?coalesce|sparse_mask|_sparse_coo_tensor\w*)$")

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

    def at_best(self, kind: str, tensors_per_launch: int) -> tuple[int, int]:
        """(kernels, foreach ops) of the better implementation: a fused one without such, else one for each pass."""
        passes = 1 if kind in FUSED else math.ceil(self.passes)
        kernels = passes * math.ceil(self.tensors / tensors_per_launch)
        return kernels, 0 if kind in FUSED else passes

    def advice(self, kind: str) -> str:
        """What makes the step of an optimizer of that class fewer kernels."""
        if kind in FUSED:
            return f"Pass {{fused=True to {kind}}}: each kernel then updates up to 36 parameter tensors."
        if kind in _FOREACH and not self.foreach:
            return f"Pass foreach=True to {kind}, or compile its step with {{torch.compile}}."
        by_hand = "" if self.foreach else ", or write it with torch._foreach_ ops"
        return f"Compile the optimizer's step with {{torch.compile}}{by_hand}."


def _every_tensor(work: Work) -> float:
    """How often the rarest op comes that is done for every tensor."""
    ops = work.op.name.sums(np.ones(len(work), np.int64)).values()
    counts = np.array(list(ops) or [len(work)])
    return max(float(counts[counts >= _RARE * len(work)].min(initial=len(work))), 1.0)
