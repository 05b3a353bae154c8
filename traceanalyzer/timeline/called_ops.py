"""Which op the user called: the outermost that is reached through ops of libraries, below compilers and autograd."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, Small, pick
from traceanalyzer.model.containment import followed
from traceanalyzer.model.trace import Trace, matching
from traceanalyzer.timeline.nesting import Nesting

# Names of ops of a library, such as aten::mm; autograd:: and torch:: are nodes and wrappers that hold other ops.
_LIBRARY_OP = re.compile(r"^(?!autograd::|torch::)\w+::\w")


@dataclass(frozen=True, slots=True)
class CalledOps:
    """For every row of `trace.cpu` the op that the user called, int32 (rows,), -1 where it is in none.

    The outermost op may be a wrapper that holds half of the step: a compiled region, a node of autograd.

    Attributes:
        row: the outermost op above the innermost one that is or contains the row, with only library ops between.
    """

    row: Small

    def of(self, rows: Rows) -> Rows:
        """The op of some rows; -1 stays."""
        return pick(self.row, rows)

    def or_self(self, rows: Rows) -> Rows:
        """The op of some rows, and the row itself where it is in none."""
        op = self.of(rows)
        return np.where(op >= 0, op, rows)

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting) -> Self:
        library: Mask = matching(trace.lanes.cpu, "name", _LIBRARY_OP.match)
        above = pick(nesting.op, nesting.parent)
        ops = np.flatnonzero((nesting.op == np.arange(len(library))) & library & (above >= 0))
        ops = ops[library[above[ops]]]
        return cls(pick(followed(len(library), ops, above[ops]), nesting.op).astype(np.int32))
