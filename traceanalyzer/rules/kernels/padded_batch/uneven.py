"""Batches of sequences of unlike lengths: what is left of the padding once sequences are sorted by length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.rule.views import Calls
from traceanalyzer.tensors.signatures import signatures_of

_PADS, _COPIES = "aten::pad_sequence", "aten::copy_"
_STRIDES = (1, 2, 4, 8)  # by which an encoder shortens its sequences
_EDGE = 2  # positions by which the windows of its convolutions may change that


@dataclass(frozen=True, slots=True)
class Uneven:
    """Lengths of the sequences that pad_sequence joins.

    Attributes:
        batches: how many there are.
        used: share of the padded positions that sequences fill (0 to 1).
        sorted_share: positions that are padded once all sequences of the recording are sorted by length, of those
            that are now (0 to 1).
        sizes: (sequences, positions) of padded tensors, also after an encoder has shortened them.
    """

    batches: int
    used: float
    sorted_share: float
    sizes: frozenset[tuple[int, int]]


def uneven_batches(calls: Calls) -> Uneven | None:
    """By what each pad_sequence copies; None where no lengths are recorded."""
    ops = calls[calls.is_op]
    pads, copies = ops[ops.name.one_of(_PADS)], ops[ops.name.one_of(_COPIES)]
    owner = copies.index_of_enclosing(pads)
    copies, owner = copies[owner >= 0], owner[owner >= 0]
    number, signatures = signatures_of(copies.events.trace, copies.rows)
    known = [one.dims[0] if one.dims else [] for one in signatures]
    lengths = np.array([shape[0] if shape and isinstance(shape[0], int) else 0 for shape in known], np.int64)[
        number
    ]
    if len(lengths) == 0 or not lengths.all():
        return None
    order = np.lexsort((lengths, owner))
    of, first = np.unique(owner[order], return_index=True)
    members = np.split(lengths[order], first[1:])
    padded = sum(len(one) * int(one[-1]) for one in members)
    sizes = {size for one in members for size in _sizes(len(one), int(one[-1]))}
    return Uneven(len(of), int(lengths.sum()) / padded, _sorted(members) / padded, frozenset(sizes))


def _sorted(members: list[Rows]) -> int:
    """Positions that are padded once the sequences of all batches of one size are sorted by length."""
    whole = 0
    for size in {len(one) for one in members}:
        alike = np.sort(np.concatenate([one for one in members if len(one) == size]))
        whole += size * int(alike[size - 1 :: size].sum())
    return whole


def _sizes(batch: int, length: int) -> list[tuple[int, int]]:
    near = range(-_EDGE, _EDGE + 1)
    return [(batch, length // by + more) for by in _STRIDES for more in (near if by > 1 else (0,))]
