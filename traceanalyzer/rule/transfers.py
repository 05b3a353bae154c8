"""How long collectives move data, and how long they wait for other ranks, as far as one rank's trace tells."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Rows, grouped
from traceanalyzer.model.trace import ints
from traceanalyzer.rule.views import Work

_LATENCY_NS = 100_000  # of a collective, however little it moves: 5 us on NVLink, tens of us between hosts


def transfer_ns(every: Work) -> Rows:
    """What moving the data takes at most; int64 (collectives,). The rest of each is waiting.

    The quickest execution of the same kernel with as many elements; and no longer than at the best rate that the kernel
    reaches with any number of elements: where few take as long as many, all of them waited.
    """
    elements = _elements(every)
    number, first = grouped([every.name.code, every.text("grid").code, elements, every.device])
    least = np.full(len(first), np.iinfo(np.int64).max)
    np.minimum.at(least, number, every.dur_ns)
    kernel, _ = grouped([every.name.code[first], every.device[first]])
    rate = elements[first] / np.maximum(least, 1)
    best = np.zeros(len(first))
    np.maximum.at(best, kernel, rate)
    at_best = _LATENCY_NS + elements[first] / np.maximum(best[kernel], 1e-9)
    known = elements[first] > 0
    shortest: Rows = np.where(known, np.minimum(least, at_best), least).astype(np.int64)
    return shortest[number]


def _elements(every: Work) -> Rows:
    """Sent or received, the larger; -1 where the op is not in the trace."""
    cpu, op = every.events.trace.lanes.cpu, every.op.rows
    sent, received = (np.append(ints(cpu, column), -1)[op] for column in ("in_elements", "out_elements"))
    either: Rows = np.maximum(np.maximum(sent, received), -1)
    return either
