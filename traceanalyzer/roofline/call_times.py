"""What calls of ops need at the device's peaks, and what well-shaped ones take, by their inputs and kernels."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, distinct_pairs
from traceanalyzer.model.texts import Texts
from traceanalyzer.roofline.indexed import Indexed
from traceanalyzer.roofline.op_bounds import bound_of, least_ns, reached_ns
from traceanalyzer.roofline.op_work import arithmetic_of
from traceanalyzer.roofline.peaks import Peaks
from traceanalyzer.tensors.signatures import Signature


def call_times(
    number: Rows,
    kernels: Texts,
    signatures: list[Signature],
    peaks: Peaks,
    indexed: Indexed | None = None,
) -> tuple[Floats, Floats]:
    """(what well-shaped calls take, what each needs at the peaks), ns by signature; 0 where no model knows.

    Args:
        number: signature of each piece of work; those that do not occur are left out.
        kernels: name of each.
        indexed: what calls of each signature index.
    """
    reached, least = np.zeros(len(signatures)), np.zeros(len(signatures))
    for which, names in _kernels(number, kernels).items():
        op = signatures[which]
        needed = bound_of(op) or (indexed.work(op, which) if indexed else None)
        if needed is not None:
            arithmetic = arithmetic_of(needed, " ".join(names)) if needed.flops else None
            least[which] = least_ns(needed, peaks, arithmetic)
            reached[which] = reached_ns(needed, peaks, arithmetic)
    return reached, least


def _kernels(number: Rows, names: Texts) -> dict[int, list[str]]:
    """The names of all kernels of each signature."""
    together: dict[int, list[str]] = {}
    for which, code in zip(*distinct_pairs(number, names.code), strict=True):
        together.setdefault(int(which), []).append(str(names.names[code]))
    return together
