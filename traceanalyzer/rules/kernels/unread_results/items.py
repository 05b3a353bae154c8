"""Loops over the items of a batch or sequence: each iteration has data of its own, and a result for it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct
from traceanalyzer.rule.loops import Loop
from traceanalyzer.tensors.signatures import Signature

_TAKES = re.compile(r"^aten::(select|slice|narrow)$")
_CUTS = re.compile(r"^aten::(unbind|chunk|(unsafe_)?split)$")


def takes_items(loop: Loop, before: Rows, number: Rows, signatures: Sequence[Signature]) -> bool:
    """Whether each iteration takes another part of a tensor, or the step cuts one into as many parts before the loop.

    What takes one number of a list of numbers, as of a schedule, takes no part.

    Args:
        before: numbers of the step's ops before the loop.
        number: of all ops, each the position of its signature.
    """
    iterations = number[loop.first : loop.first + loop.period * loop.repeats].reshape(loop.repeats, -1)
    for at in np.flatnonzero((iterations != iterations[0]).any(axis=0)).tolist():
        ops = [signatures[one] for one in distinct(iterations[:, at]).tolist()]
        if _TAKES.match(ops[0].name) and len({op.scalars for op in ops}) > 1 and not _of_a_list(ops[0]):
            return True
    return any(_pieces(signatures[one]) == loop.repeats for one in distinct(before).tolist())


def _of_a_list(op: Signature) -> bool:
    return op.name == "aten::select" and len(op.dims[0]) == 1


def _pieces(op: Signature) -> int:
    """How many an op cuts a tensor into; 0 for other ops, and where that is not known."""
    if not _CUTS.match(op.name):
        return 0
    try:
        shape = op.shape(0)
        if op.name == "aten::unbind":
            return shape[int(op.scalar(1))]
        many = int(op.scalar(1))
        return many if op.name == "aten::chunk" else -(-shape[int(op.scalar(2))] // many)
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return 0
