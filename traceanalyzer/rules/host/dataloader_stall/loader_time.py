"""Where the time of a data loader goes, as shares of all of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceanalyzer.rule.views import Calls

NO_LINE = "code without a recorded line"
_NO_OP = "code outside of ops"
_SAMPLES = 512  # instants: a function with a tenth of the time is met 51 times


def time_in_ops(waits: Calls, inside: Calls) -> dict[str, int]:
    """Op -> ns of its own within the waits, and what lies in no op; empty where no op was recorded.

    Args:
        waits: of a loader, one in no other.
        inside: what they contain.
    """
    ops = inside[inside.is_op & ~inside.is_annotation]
    if not len(ops):
        return {}
    own_ns = ops.name.sums(ops.self_ns)
    inner = inside[~inside.is_op & ~inside.is_annotation & (inside.parent.op.rows >= 0)]
    calls_ns = inner.op.name.sums(inner.self_ns)  # a call's time is its op's
    return _with_rest({op: ns + calls_ns.get(op, 0) for op, ns in own_ns.items()}, waits.total_ns, _NO_OP)


def time_in_functions(waits: Calls, inside: Calls) -> dict[str, int]:
    """The user's innermost function within the waits -> ns, and the rest; empty where no stacks were recorded.

    Read at instants that lie evenly in all waits; where only ops have stacks, from these.
    """
    code = waits.events.user_code
    if not len(code.start_ns):
        ops = inside[inside.is_op & ~inside.is_annotation]
        lines = ops.line.sums(ops.self_ns)
        return _with_rest(lines, waits.total_ns, NO_LINE) if lines else {}
    reached = np.cumsum(waits.dur_ns)
    within = ((np.arange(_SAMPLES) + 0.5) / _SAMPLES * reached[-1]).astype(np.int64)
    row = np.searchsorted(reached, within, side="right")
    frame = code.open_at(waits.end_ns[row] - (reached[row] - within), waits.thread[row])
    frame = frame[(frame >= 0) & (code.start_ns[frame] >= waits.start_ns[row])]
    names = code.names[code.code[frame]].tolist()
    each = int(reached[-1]) // _SAMPLES
    lines = {str(name): names.count(name) * each for name in dict.fromkeys(names)}
    return _with_rest(lines, int(reached[-1]), NO_LINE) if lines else {}


def _with_rest(parts: Mapping[str, int], whole_ns: int, rest: str) -> dict[str, int]:
    """The parts and what is left of the whole, largest first; a rest of less than a hundredth is left out."""
    left = whole_ns - sum(parts.values())
    every = {**parts, rest: left} if left * 100 >= whole_ns else dict(parts)
    return dict(sorted(every.items(), key=lambda part: -part[1]))
