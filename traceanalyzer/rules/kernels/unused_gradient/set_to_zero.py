"""Tensors that the program sets to zero, as zero_grad(set_to_none=False) does."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Ns, Rows
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.rules.kernels.unused_gradient.optimizer_lists import blocks_of, chunks
from traceanalyzer.tensors.signatures import Shape, signatures_of, tensors

_ZEROES = r"^aten::(_foreach_)?zero_$"


@dataclass(frozen=True, slots=True)
class Zeroing:
    """Ops that set tensors to zero.

    Attributes:
        starts_ns: when each begins.
        tensors: shapes of its tensors; empty where they are not recorded.
        blocks: of its kernels, where it has a list of tensors.
    """

    starts_ns: Ns
    tensors: list[Counter[Shape]]
    blocks: Rows

    @classmethod
    def found(cls, calls: Calls, work: Work) -> Zeroing:
        """Those that the program calls itself."""
        ops = calls[calls.is_top_op & calls.name.matches(_ZEROES)]
        number, signatures = signatures_of(calls.events.trace, ops.rows)
        shapes = [Counter(tensors(one)) for one in signatures]
        return cls(ops.start_ns, [shapes[which] for which in number.tolist()], blocks_of(work, ops))

    def all_of(self, shapes: list[Shape], wanted: Rows, begin_ns: int, end_ns: int) -> bool:
        """Whether in that time they set so many tensors of such shapes to zero, or one of them as many blocks.

        Args:
            shapes: of all tensors.
            wanted: positions of those in question.
        """
        each = [shapes[at] for at in wanted.tolist()]
        within = np.flatnonzero((self.starts_ns >= begin_ns) & (self.starts_ns < end_ns))
        zeroed = sum((self.tensors[at] for at in within.tolist()), Counter[Shape]())
        return Counter(each) <= zeroed or bool((self.blocks[within] == chunks(each).sum()).any())
