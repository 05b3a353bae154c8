"""Memory that is asked of the driver and given back in every step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.idle.recurrence import standing_out
from traceanalyzer.model.arrays import distinct
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Calls, IdleTime, Work
from traceanalyzer.timeline.names import ALLOCATOR
from traceanalyzer.timeline.steps import Steps


@dataclass(frozen=True, slots=True)
class Limits:
    min_steps: int = limit(3, "fewer steps cannot tell what recurs from what happens once")
    spike: float = limit(
        5.0, "times the median step: more than that in leading steps is a start, not the loop"
    )


_STREAM_ORDERED = re.compile(r"Async")  # cudaMallocAsync and its kin take from a pool, and stop nobody
_HOST = re.compile(r"Host")
_GIVES_BACK = re.compile(r"Free|Release|Unmap|Unregister")

# cause -> (what happens, remedy)
_TEXTS = {
    "emptied": (
        "the cache is emptied between ops, and what the next step needs is asked of the driver again",
        "Remove torch.cuda.empty_cache() from the loop: freed tensors stay in the cache and are reused.",
    ),
    "full": (
        "the cache gives blocks back within ops to make room: memory is nearly full or in pieces",
        "Use less memory (smaller batch, checkpointing), or PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against "
        "fragmentation.",
    ),
    "growing": (
        "no cached block fits, and none is given back: sizes change, or memory that is kept grows",
        "Pad inputs to a few sizes, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; and keep no tensors from "
        "step to step (losses with their graph).",
    ),
    "pinned": (
        "pinned host memory is allocated in the loop, which stops the driver for long",
        "Pin buffers once and reuse them; let DataLoader(pin_memory=True) do it for batches.",
    ),
}


@rule(since="0.2", claims=Claims.EVENT, limits=Limits)
def allocator_thrash(
    calls: Calls, work: Work, idle: IdleTime, steps: Steps, limits: Limits
) -> Iterator[Hits]:
    """Memory is allocated from the driver in every step.

    What it looks for: cudaMalloc, cudaFree, cudaHostAlloc, their HIP spellings and the driver's virtual memory calls,
    by threads that launch work, in more than half of the steps. Leading steps that take far more are left out.
    Why it costs: such a call takes 50 us to milliseconds, cudaFree waits for the device, and nothing is launched
    meanwhile. PyTorch's caching allocator needs none of them once a loop runs.
    Bad: torch.cuda.empty_cache() in the loop. Good: leave the cache alone.
    How sure: the calls are recorded; which of them recur, and whether memory is given back inside ops or between
    them, tells why. The cost is the GPU's idle time within the calls.
    When it is wrong: one-off calls are the first use of memory, and no thrash: with fewer than three steps nobody can
    tell, and the rule does not apply.
    Source: PyTorch's notes on CUDA semantics, "Memory management".
    """
    found = calls[calls.is_call & calls.name.matches(ALLOCATOR) & ~calls.name.matches(_STREAM_ORDERED)]
    if len(found) == 0:
        return
    found = _one_by_one(found[np.isin(found.thread, np.unique(work.launch.thread))])
    if len(found) and (not steps.marked or len(steps) < limits.min_steps):
        raise Unavailable(f"memory is allocated, but fewer than {limits.min_steps} steps are marked")
    for host, group in [(flag, found[found.name.matches(_HOST) == flag]) for flag in (False, True)]:
        steady = _steady(group, steps, limits.spike)
        if len(steady) == 0:
            continue
        cause = "pinned" if host else _cause(steady)
        what, advice = _TEXTS[cause]
        lines = steady.line.sums(steady.dur_ns)
        names = steady.name.sums(steady.dur_ns)
        yield Hits(
            at=steady,
            by=next(iter(names)),
            cause=cause,
            lost=Lost.idle_within(idle, steady.start_ns, steady.end_ns),
            fix=Drop(group.rows),
            message=f"{{calls}} {{times_a_step}}: {what}; the GPU is idle for {{total}} within the calls"
            + (", at {lines}" if lines else ""),
            advice=advice,
            evidence={"calls": names, "called_ns": steady.total_ns, "lines": lines},
        )


def _one_by_one(found: Calls) -> Calls:
    """Without calls inside or beside an earlier one, as the driver's within the runtime's."""
    found = found[np.lexsort((-found.end_ns, found.start_ns))]
    least = np.iinfo(np.int64).min
    before = np.maximum.accumulate(np.append(least, found.end_ns))[:-1]
    return found[found.start_ns >= before]


def _steady(found: Calls, steps: Steps, spike: float) -> Calls:
    """The calls of the loop: without those of steps that stand out, and none unless most steps have them."""
    found = found[found.step >= 0]
    once = standing_out(np.zeros_like(found.step), found.step, found.dur_ns, len(steps), spike)
    left = found[~once.leading & ~once.alone]
    recurring = 2 * len(distinct(left.step)) > len(steps)
    return left if recurring else left[np.empty(0, np.int64)]


def _cause(found: Calls) -> str:
    given = found[found.name.matches(_GIVES_BACK)]
    if len(given) == 0:
        return "growing"
    return "full" if given.op.there.mean() > 0.5 else "emptied"
