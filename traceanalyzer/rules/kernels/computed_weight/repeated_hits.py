"""What is said of weights that are computed again within a step, and what computing them once would save."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.replay.edits import DropSpans
from traceanalyzer.rule import Calls, Confidence, Hits, IdleTime, LostTime, Work
from traceanalyzer.rule.recorders import recorded_nodes
from traceanalyzer.rules.kernels.computed_weight.repeated_weights import Computed


def repeated_hits(again: Computed, ops: Calls, calls: Calls, work: Work, idle: IdleTime | None) -> Hits:
    """Of the ops of all but the first times, with the nodes of backward that they recorded."""
    spans = ops[again.first]
    starts, ends, owner = _with_backward(again, ops, calls)
    lost = [LostTime.spent_within(work, starts, ends)]
    if idle is not None:
        lost.append(LostTime.launched_within(idle, starts, ends))
    inside = np.zeros(len(ops) + 1, np.int64)
    np.add.at(inside, again.first, 1)
    np.add.at(inside, again.last + 1, -1)
    makes = ops[np.cumsum(inside[:-1]) > 0]
    lines = spans.line.or_else(spans.annotation).sums(ends[: len(spans)] - spans.start_ns)
    return Hits(
        occurrences=spans,
        cause="repeated",
        lost=LostTime.joined(lost).owned_by(owner),
        fix=DropSpans(starts, ends),
        confidence=Confidence.MEDIUM,
        message="weights of layers are computed {computed} times a step, by {ops}, but there are at most {weights} "
        "different ones: parameters change once a step"
        + ("; backward goes through each" if len(starts) > len(spans) else "")
        + (", at {lines}" if lines else ""),
        advice="Compute each weight once a step: run the loop within torch.nn.utils.parametrize.cached(), which works "
        "with weight_norm and spectral_norm of torch.nn.utils.parametrizations. A mask, a scale or a cast: apply it "
        "before the loop, and pass on the result.",
        evidence={
            "computed": again.times,
            "weights": again.weights,
            "ops": makes.name.sums(makes.dur_ns),
            "lines": lines,
        },
    )


def _with_backward(again: Computed, ops: Calls, calls: Calls) -> tuple[Rows, Rows, Rows]:
    """(starts, ends, position of the span that each belongs to) of spans, then of what backward does for them."""
    starts, ends = ops.start_ns[again.first], ops.end_ns[again.last]
    nodes, recorder = recorded_nodes(calls, ops)
    at = np.searchsorted(again.first, recorder, side="right") - 1
    own = (recorder >= 0) & (at >= 0)
    own[own] = recorder[own] <= again.last[at[own]]
    nodes, at = nodes[own].outer_op, at[own]
    _, once = np.unique(nodes.rows, return_index=True)
    nodes, at = nodes[once], at[once]
    owner = np.concatenate([np.arange(len(starts)), at])
    return np.append(starts, nodes.start_ns), np.append(ends, nodes.end_ns), owner
