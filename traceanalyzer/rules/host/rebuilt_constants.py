"""Constants that are computed again in every step, or in every call of a function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import (
    Calls,
    Claims,
    Confidence,
    Hits,
    IdleTime,
    LostTime,
    Unavailable,
    Work,
    limit,
    rule,
)
from traceanalyzer.tensors.ops.table import constant_shape, is_view
from traceanalyzer.tensors.signatures import Shape, Signature, signatures_of, tensors
from traceanalyzer.timeline.loops import step_edges
from traceanalyzer.timeline.names import DATA_LOADING


@dataclass(frozen=True, slots=True)
class Limits:
    min_ops: int = limit(
        3,
        "reported only if at least this many ops make the constant, views not counted; two ops, such as "
        "zeros() and a fill, make a buffer, not a constant",
    )
    min_steps: int = limit(
        3,
        "reported only if there are at least this many steps, and each of them makes the constant; chosen",
    )


@rule(since="0.2", claims=Claims.PATTERN, specificity=1, min_share=0.02, limits=Limits)
def rebuilt_constants(calls: Calls, work: Work, idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    """Constants are computed again in every step, or in every call of a function.

    What it looks for: ops that compute the same constant in every step, on the GPU or on the CPU. They form a
    chain. It begins with an op that has no input tensor (arange, zeros, hann_window), and each later op uses
    only results of earlier ops of the chain.
    Why it costs: each call pays again for ops, launches and copies, with the same result.
    Bad: window = torch.hann_window(400).pow(0.85).to(device) in forward(). Good: compute the constant once.
    Keep the constant with register_buffer, as an attribute, or in functools.cache.
    How sure: the trace does not record all scalar arguments of ops, so confidence is medium.
    When it is wrong: from call to call, a scalar argument changes, and the trace does not show it.
    Saving: the time of these ops and of everything that they launch.
    Source: loop-invariant code motion (Aho, Lam, Sethi, Ullman: Compilers).
    """
    ops = calls[calls.is_top_op & (calls.step >= 0)]
    if not any(ops.text("input_dims").distinct()):
        raise Unavailable("no shapes recorded: record_shapes=True shows what ops are made of")
    loading = calls[
        calls.is_annotation & calls.name.meets(DATA_LOADING.search)
    ]  # what a loader makes is a batch
    ops = ops[~ops.inside(loading)]
    ops = ops[np.lexsort((ops.start_ns, ops.thread))]
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    steps = len(np.unique(ops.step))
    if steps < limits.min_steps:
        return
    runs: dict[tuple[int, ...], list[int]] = {}
    for begin, end in _runs(ops, number, signatures, limits):
        runs.setdefault(tuple(number[begin:end].tolist()), []).append(begin)
    chosen = [
        np.array(begins)[:, None] + np.arange(len(key))
        for key, begins in runs.items()
        if len(np.unique(ops.step[begins])) == steps
    ]
    if chosen:
        yield _hits(ops, chosen, work, idle)


def _hits(ops: Calls, chosen: list[np.ndarray], work: Work, idle: IdleTime) -> Hits:
    members = ops[np.concatenate([each.ravel() for each in chosen])]
    spent, owner = members.launched()
    lost = LostTime.joined([LostTime.launched_by(idle, members), LostTime.all_of(spent, owner)])
    steps, lines = len(np.unique(ops.step)), members.line.sums(members.dur_ns)
    return Hits(
        occurrences=members,
        lost=lost,
        fix=Drop(members.rows),
        confidence=Confidence.MEDIUM,
        message=(
            "the same constants are made {made} times a step, by {ops:of these ops' time}, with the same "
            "shapes and numbers in every step: {launches} launches and {cpu} of CPU time a step"
        )
        + (", at {lines}" if lines else ""),
        advice="Make them once and keep them: register_buffer(), an attribute, or a cache by sizes and device.",
        evidence={
            "made": round(sum(map(len, chosen)) / steps, 1),
            "ops": members.name.sums(members.dur_ns),
            "launches": round(len(spent) / steps),
            "cpu_ns": members.total_ns // steps,
            "lines": lines,
        },
    )


def _runs(ops: Calls, number: Rows, signatures: list[Signature], limits: Limits) -> Iterator[tuple[int, int]]:
    """(first, last + 1) of ops in a row, in one thread and step, that take only each other's results."""
    results = [constant_shape(op) for op in signatures]
    views = [is_view(op.name) for op in signatures]
    op_inputs = [set(tensors(op)) for op in signatures]
    edges = {*step_edges(ops)}
    begin = -1
    constant_shapes: set[Shape] = set()
    for place in range(len(number) + 1):
        which = int(number[place]) if place < len(number) else -1
        result = None
        if which >= 0:
            follows = begin >= 0 and place not in edges and op_inputs[which] <= constant_shapes
            result = results[which] if follows or not op_inputs[which] else None
        if begin >= 0 and (result is None or place in edges):
            if sum(not views[which] for which in number[begin:place].tolist()) >= limits.min_ops:
                yield begin, place
            begin, constant_shapes = -1, set()
        if result is not None:
            begin = place if begin < 0 else begin
            constant_shapes.add(result)
