"""Collectives that one fewer or one larger would replace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import grouped
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Confidence
from traceanalyzer.model.trace import ints
from traceanalyzer.replay.edits import Drop, DropWork
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.rule.views.selection import Mask, Rows
from traceanalyzer.timeline.names import OPTIMIZER_MARK


@dataclass(frozen=True, slots=True)
class Limits:
    max_small: int = limit(1_024, "elements: a collective of so few is all latency, about 10 us on NVLink")
    min_small: int = limit(3, "a step and step's thread: two may be a loss and its count")


_FORWARD = r"^DistributedDataParallel\.forward"


@rule(since="0.2", claims=Claims.EVENT, limits=Limits)
def needless_collectives(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """Ranks reduce more often than the step needs.

    What it looks for: several DistributedDataParallel forward passes for one optimizer step, each of whose backward
    passes reduces the gradients (gradient accumulation without no_sync); and three or more collectives of a few
    elements by the same op in a step (values reduced one by one for logging).
    Why it costs: gradients that are only added up need one reduction; every small collective costs latency and makes
    all ranks wait for the slowest.
    Bad: `for micro in batch: loss(micro).backward()`. Good: `with model.no_sync():` around all but the last.
    Bad: `for x in metrics: dist.all_reduce(x)`. Good: torch.stack(metrics), reduced once, or every 100 steps.
    How sure: collectives and their sizes are recorded. That the small ones could be one is likely, hence medium.
    When it is wrong: FSDP may reduce every micro step on purpose, to keep no unsharded gradients.
    Source: PyTorch's DDP notes (no_sync); measured on two H200 with torch 2.11.
    """
    every = work.of_kind("communication")
    if len(every) == 0:
        raise Unavailable("no collectives in the trace")
    own = every[(every.step >= 0) & every.op.there]
    elements = ints(own.events.trace.cpu, "in_elements")[own.op.rows] if len(own) else np.empty(0, np.int64)
    yield from _every_micro_step(calls, own)
    yield from _one_by_one(own[(elements >= 0) & (elements <= limits.max_small)], limits)


def _every_micro_step(calls: Calls, own: Work) -> Iterator[Hits]:
    """Reductions of backward passes that are followed by another one before the optimizer's step."""
    forward = np.sort(calls[calls.name.matches(_FORWARD)].start_ns)
    updates = np.sort(calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)].start_ns)
    launched = own.launch.start_ns
    if len(updates) == 0 or len(forward) == 0:
        return
    another, update = (np.append(at, np.iinfo(np.int64).max) for at in (forward, updates))
    next_forward = another[np.searchsorted(forward, launched)]
    needless = next_forward < update[np.searchsorted(updates, launched)]
    needless &= own.outer_op.name.matches(r"^autograd::engine|Backward")
    found = own[needless]
    if len(found):
        yield Hits(
            at=found,
            cause="every-micro-step",
            lost=Lost.all_of(found),
            fix=DropWork(found.entries),
            message="gradients are reduced in every micro step: {times_a_step} more often than the optimizer needs, "
            "{total} in all",
            advice="Run all but the last micro step under model.no_sync().",
            evidence={"ops": found.outer_op.name.sums(found.dur_ns)},
        )


def _one_by_one(small: Work, limits: Limits) -> Iterator[Hits]:
    """Small collectives of one op, of which one would do in each step."""
    if len(small) == 0:
        return
    for op, found in small.by(small.outer_op.name):
        later = found[_later(found.step, found.launch.start_ns)]
        steps = max(len(np.unique(found.step)), 1)
        if op is not None and len(found) >= limits.min_small * steps:
            yield Hits(
                at=later,
                by=op,
                cause="one-by-one",
                lost=Lost.all_of(later),
                fix=Drop(later.outer_op.distinct().rows),
                confidence=Confidence.MEDIUM,
                message="{by} reduces {elements} elements or fewer, {times_a_step} more often than once: {total} "
                "in all",
                advice="Stack the values and reduce them once, or every hundred steps.",
                evidence={"elements": limits.max_small, "lines": later.line.sums(later.dur_ns)},
            )


def _later(step: Rows, at: Rows) -> Mask:
    """Which are not the first of their step."""
    order = np.lexsort((at, step))
    _, first = grouped([step[order]])
    later = np.ones(len(step), bool)
    later[order[first]] = False
    return later
