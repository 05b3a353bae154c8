"""A library that plans an op anew for each new shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.replay.edits import DropSpans
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, Unavailable, limit, rule
from traceanalyzer.tensors.signatures import signatures_of
from traceanalyzer.timeline.stalled_calls import StalledCalls
from traceanalyzer.timeline.steps import Steps

_ATTENTION = r"_cudnn_attention|_cudnn_attention_backward"
_BUCKETS = "Make shapes repeat: pad inputs or caches to a few lengths, or allocate them at full length. "
_OTHER_KERNEL = (
    "Or use a kernel that needs no plan: with "
    "torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION), or "
    "torch.backends.cuda.enable_cudnn_sdp(False)."
)


@dataclass(frozen=True, slots=True)
class Limits:
    min_stall_ns: int = limit(
        1_000_000,
        "a stalled call takes at least this time without a call of the CUDA runtime; a plan of cuDNN's "
        "attention takes 20 to 40 ms, H200, torch 2.11",
    )
    min_new_share: float = limit(
        0.8,
        "reported only if at least this share of the stalled calls are the first calls with their shapes; "
        "else the stalls have another reason; chosen",
    )
    min_steps_share: float = limit(
        0.5,
        "reported only if at least this share of the steps after the first have such a stall; fewer are a "
        "warm-up; chosen",
    )


@rule(since="0.2", claims=Claims.ONCE, specificity=1, limits=Limits)
def planned_anew(
    stalls: StalledCalls, calls: Calls, idle: IdleTime, steps: Steps, limits: Limits
) -> Iterator[Hits]:
    """A library plans an op anew for each new shape.

    What it looks for: an op that stalls the CPU when its input shapes are new, but is fast when they occurred
    before. The rule reports the op if it stalls in most steps.
    Why it costs: the library chooses and builds kernels on the CPU, and the GPU waits.
    Bad: decoding with cuDNN's attention and a cache that grows by one position a step. Good: a cache of full
    length with a mask. Or padding to a few lengths. Or flash attention.
    How sure: stalls and shapes are recorded, but not the planning itself.
    When it is wrong: something else stalls the CPU at each new shape.
    Source: measured with cuDNN's attention on an H200, torch 2.11.
    """
    long = stalls.end_ns - stalls.start_ns >= limits.min_stall_ns
    at = Calls(calls.events, stalls.row[long])
    ops, start, end = at.op, stalls.start_ns[long], stalls.end_ns[long]
    keep = ops.there & (ops.step >= 0)
    for name, found in ops[keep].by(ops[keep].name):
        mine = np.flatnonzero(keep)[ops[keep].name.one_of(name)]
        every = calls[calls.is_op & calls.name.one_of(name)]
        number, signatures = signatures_of(calls.events.trace, every.rows)
        if not any(one.dims for one in signatures):
            raise Unavailable("no shapes recorded: record_shapes=True shows whether they are new")
        new = np.isin(found.rows, every.rows[_first_of(number, every.start_ns)])
        later = found.step > 0
        often = len(np.unique(found.step[new & later])) >= max(limits.min_steps_share * (len(steps) - 1), 2)
        if not often or new.mean() < limits.min_new_share or len(every) < 2 * len(found):
            continue
        chosen = np.flatnonzero(new & later)
        spans = start[mine][chosen], end[mine][chosen]
        once = np.sort(np.unique(found.rows[chosen], return_index=True)[1])  # an op may stall twice
        occurrences = found[chosen[once]]
        yield Hits(
            occurrences=occurrences,
            named_by=name,
            lost=LostTime.idle_within(idle, occurrences.start_ns, occurrences.end_ns),
            fix=DropSpans(*spans),
            message="{by} takes {stall} (median) when it gets new shapes, {times_a_step}, because a library plans it "
            "anew; with shapes that it had before it takes {usual}",
            advice=_BUCKETS + _OTHER_KERNEL * bool(found.name.matches(_ATTENTION).any()),
            evidence={
                "stall_ns": int(np.median(spans[1] - spans[0])),
                "usual_ns": int(np.median(every.dur_ns[~np.isin(every.rows, found.rows)])),
            },
        )


def _first_of(number: Rows, start_ns: Rows) -> Mask:
    """Whether a call is the first with its shapes."""
    order = np.lexsort((start_ns, number))
    first = np.zeros(len(number), bool)
    first[order[np.flatnonzero(np.diff(number[order], prepend=-1))]] = True
    return first
