"""Loops of ops on the host that work on what was copied there, before anything else is launched."""

from __future__ import annotations

import numpy as np

from traceanalyzer.rule import Calls
from traceanalyzer.rule.views.cpu_gaps import HostCalls

_SHOWN = 3  # names of ops
_NEXT_NS = 10_000  # from the copy's op to the loop; launching a kernel in between takes more


def loops_after(found: Calls, stretches: HostCalls, many: int) -> HostCalls:
    """Stretches of so many ops on the host that begin right after one of these ops, on its thread.

    Args:
        found: ops that copy to the host.
        many: ops; a loop over the elements or rows of what was copied.
    """
    ops, stretch = stretches.ops()
    own = stretch[ops.thread == stretches.thread[stretch]]
    loops = stretches[np.bincount(own, minlength=len(stretches)) >= many]
    after = np.zeros(len(loops), bool)
    for thread in np.unique(found.thread).tolist():
        ends = np.append(-_NEXT_NS - 1, np.sort(found.end_ns[found.thread == thread]))
        since = loops.start_ns - ends[np.searchsorted(ends, loops.start_ns, side="right") - 1]
        after |= (loops.thread == thread) & (since <= _NEXT_NS)
    return loops[after]


def most_often(loops: HostCalls) -> str:
    """The ops that run most often in these stretches: `aten::to, aten::empty`."""
    name = loops.ops()[0].name
    counts = name.sums(np.ones(len(name.code), np.int64))
    return ", ".join(sorted(counts, key=lambda one: (-counts[one], one))[:_SHOWN])
