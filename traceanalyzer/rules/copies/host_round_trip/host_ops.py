"""What the host works on while data is there that came from the device and goes back to it."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import grouped, pick
from traceanalyzer.model.texts import Texts
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.host_round_trips import HostRoundTrips

# Ops that bring data into another form on its way, and are not what the host does with it.
_MOVES = (
    r"^aten::(to|_to_copy|copy_|clone|contiguous|empty\w*|detach|lift_fresh|resolve_\w+|set_|view|reshape)$"
)


def op_on_host(calls: Calls, trips: HostRoundTrips, min_share: float) -> Texts:
    """The op on which the host spends most in trips of the same sizes, none where that is less than `min_share`."""
    nesting = calls.events.nesting
    ops = calls[calls.is_top_op & ~calls.name.matches(_MOVES)]
    trip = np.searchsorted(trips.fetched_ns, ops.start_ns, side="right") - 1
    inside = (trip >= 0) & (ops.end_ns <= pick(trips.sent_ns, trip))
    inside &= nesting.thread[ops.rows] == pick(trips.thread, trip)
    ops, trip = ops[inside], trip[inside]
    copied = Work(calls.events, trips.down).bytes, Work(calls.events, trips.up).bytes
    sizes, first = grouped(copied)
    names: list[str | None] = []
    for number in range(len(first)):
        mine = sizes[trip] == number
        spent = ops[mine].name.sums(ops[mine].dur_ns)
        op = next(iter(spent), None)
        total = (trips.sent_ns - trips.fetched_ns)[sizes == number].sum()
        names.append(op if op and spent[op] >= min_share * total else None)
    known = sorted({name for name in names if name})
    code = np.array([known.index(name) if name else -1 for name in names], np.int64)
    return Texts(code[sizes], np.array(known, object))
