"""How long collectives move data, and how long they wait for other ranks, as far as one rank's trace tells."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Rows, grouped
from traceanalyzer.model.trace import Trace, codes_at, ints
from traceanalyzer.timeline.device_work import DeviceWork

_LATENCY_NS = 100_000  # of a collective, however little it moves: 5 us on NVLink, tens of us between hosts


def transfer_ns(trace: Trace, work: DeviceWork, entries: Rows) -> Rows:
    """What moving the data takes at most, of collectives; int64 (entries,). The rest of each is waiting.

    The quickest execution of the same kernel with as many elements; and no longer than at the best rate that the kernel
    reaches with any number of elements: where few take as long as many, all of them waited.
    """
    name, grid = (codes_at(trace.lanes.gpu, column, work.row[entries]) for column in ("name", "grid"))
    took, device = (work.end_ns - work.start_ns)[entries], work.device[entries]
    return at_most(name, grid, device, _elements(trace, work.op[entries]), took)


def at_most(name: Rows, grid: Rows, device: Rows, elements: Rows, took: Rows) -> Rows:
    """The same of collectives of those kernels, grids, devices, numbers of elements (-1: unknown) and durations."""
    number, first = grouped([name, grid, elements, device])
    least = np.full(len(first), np.iinfo(np.int64).max)
    np.minimum.at(least, number, took)
    kernel, _ = grouped([name[first], device[first]])
    rate = elements[first] / np.maximum(least, 1)
    best = np.zeros(len(first))
    np.maximum.at(best, kernel, rate)
    at_best = _LATENCY_NS + elements[first] / np.maximum(best[kernel], 1e-9)
    known = elements[first] > 0
    shortest: Rows = np.where(known, np.minimum(least, at_best), least).astype(np.int64)
    return np.minimum(shortest[number], took)


def _elements(trace: Trace, op: Rows) -> Rows:
    """Sent or received, the larger; -1 where the op is not in the trace."""
    sent, received = (
        np.append(ints(trace.lanes.cpu, column), -1)[op] for column in ("in_elements", "out_elements")
    )
    either: Rows = np.maximum(np.maximum(sent, received), -1)
    return either
