"""What no batch and no trained parameter enters is computed again: in each layer, or in each step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct
from traceanalyzer.model.trace import ints_at
from traceanalyzer.replay.edits import Drop
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import (
    Calls,
    Claims,
    Confidence,
    Hits,
    IdleTime,
    LostTime,
    limit,
    rule,
)
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.tensors.ops.table import is_view, result_shape
from traceanalyzer.tensors.signatures import ITEM_BYTES, Shape, Signature, shape_text, tensors
from traceanalyzer.tensors.top_ops import top_ops, with_inputs
from traceanalyzer.timeline.loops import step_edges

_BACKWARD = r"^autograd::engine"
_LAYER = re.compile(r"^aten::(linear|matmul|mm|addmm|bmm|baddbmm|\w*conv\w*|embedding\w*|einsum|lstm|gru)$")
# Ops on weights, losses, random numbers, optimizers, and custom ops.
_OTHER_CODE = re.compile(
    r"^(?!aten::)|_norm$|_loss\w*$|attention|^aten::(rand|normal|bernoulli|multinomial|uniform|exponential|dropout|"
    r"native_dropout|_foreach|_fused|_amp)|^aten::(copy_|item|_local_scalar_dense|is_nonzero)$"
)
_INTEGER = frozenset({"long int", "long", "int", "bool"})
_MAKES_INTEGERS = re.compile(
    r"^aten::(arg\w+|topk|sort|msort|kthvalue|mode|median|max|min|nonzero\w*|_?unique\w*|searchsorted|bucketize|"
    r"histc|bincount|arange|rand(int|perm)\w*|full\w*|zeros\w*|ones\w*|new_\w+|empty\w*|to|_to_copy|type_as|view|"
    r"eq|ne|lt|le|gt|ge|logical_\w+|is(nan|inf|finite|close|in)|greater\w*|less\w*|floor_divide|round|trunc|floor|"
    r"lift_fresh|scalar_tensor|tensor|ctc_\w+|max_pool\w*|grid_sampler\w*)_?$"
)


@dataclass(frozen=True, slots=True)
class Limits:
    min_ops: int = limit(
        5,
        "reported only if a sequence has at least this many ops, views not counted; shorter ones cost little; chosen",
    )
    min_steps: int = limit(3, "at least this many steps are needed, each with such a sequence; chosen")
    max_elements: int = limit(
        65_536, "a 1-D float tensor is taken as a constant if it has at most this many elements; chosen"
    )


@rule(since="0.2", claims=Claims.WORK, specificity=2, min_share=0.02, limits=Limits, causes=("layers",))
def unchanged_inputs(calls: Calls, gpus: Gpus, idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    """The same numbers are computed again in each layer.

    What it looks for: in training, ops that run several times a step on the same index tensors (edges,
    positions, lengths, masks). The ops use no trained parameter and no activation.
    Why it costs: each layer computes the same result again. Boolean masks and torch.unique also make the CPU
    wait for the GPU.
    Bad: edge weights computed in each layer of a graph network. Good: edge weights computed once, before the
    layers.
    How sure: tensors are known only by their shapes, so confidence is medium.
    When it is wrong: the layers get different graphs or masks that have the same shape.
    Saving: the time of these ops, except for the first run in each step. If the index tensors come from the
    data set, the ops can run when the data is prepared: then no run in the step is needed.
    Source: loop-invariant code motion (Aho, Lam, Sethi, Ullman: Compilers).
    """
    ops, _, _ = top_ops(calls, "tells the tensors of ops apart", by_step=True)
    nodes = ops[ops.name.matches(_BACKWARD)]
    ops, number, signatures = with_inputs(ops[~ops.name.matches(_BACKWARD)])
    steps = len(distinct(nodes.step))
    if steps < limits.min_steps:
        return
    launched, owner = ops.launched()
    spent = np.zeros(len(signatures))
    np.maximum.at(spent, number[owner], launched.dur_ns)
    written = spent * float(gpus.memory_gbps(launched.device[:1]).sum())
    program = _Program(signatures, written, limits.max_elements)
    runs_by_ops: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for begin, end in _runs(ops, number, program, limits):
        runs_by_ops.setdefault(tuple(number[begin:end].tolist()), []).append((begin, end))
    members: list[Rows] = []
    again: list[Rows] = []
    shapes: set[Shape] = set()
    times, always = [], True
    for key, runs in runs_by_ops.items():
        repeats = _repeats_per_step(runs, ops.step)
        if len(repeats) < steps or not (inputs := program.unchanging(key)):
            continue
        if any(_is_modified_between(each, ops, nodes, number, program, inputs) for each in repeats):
            continue
        of_step = (
            int(np.searchsorted(ops.step, ops.step[repeats[0][0][0]], side)) for side in ("left", "right")
        )
        stays = not program.may_make(_other_ops(number, repeats[0], *of_step), inputs)
        shapes |= inputs
        times += [len(each) for each in repeats]
        always &= stays
        members += [np.arange(*run) for each in repeats for run in each]
        again += [np.arange(*run) for each in repeats for run in each[0 if stays else 1 :]]
    if members:
        yield _hits(ops[np.concatenate(again)], ops, members, (max(times), steps), (shapes, always), idle)


def _hits(
    again: Calls,
    ops: Calls,
    members: Sequence[Rows],
    count: tuple[int, int],
    inputs: tuple[set[Shape], bool],
    idle: IdleTime,
) -> Hits:
    every = ops[np.concatenate(members)]
    spent, owner = again.launched()
    (times, steps), (shapes, always) = count, inputs
    lines = every.line.sums(every.dur_ns)
    largest = sorted(shapes, key=math.prod, reverse=True)[:3]
    return Hits(
        occurrences=again,
        cause="layers",
        lost=LostTime.joined([LostTime.launched_by(idle, again), LostTime.all_of(spent, owner)]),
        fix=Drop(again.rows),
        message="the same ops run {often} a step on the same index tensors ({shapes}) with the same result: "
        "{by_ops:of these ops' time}; {which} {gpu} of GPU time and {launches} launches a step"
        + (", at {lines}" if lines else ""),
        advice="Compute this once before the layers, and pass the result to each layer. If the tensors never change, "
        "compute it once for the whole run (cached=True in PyG's layers).",
        confidence=Confidence.MEDIUM,
        evidence={
            "repeats": times,
            "often": "twice" if times == 2 else f"{times} times",
            "which": "they take" if always else "all but the first take",
            "shapes": ", ".join(shape_text(shape) for shape in largest),
            "by_ops": every.name.sums(every.dur_ns),
            "gpu_ns": spent.total_ns // steps,
            "launches": round(len(spent) / steps),
            "lines": lines,
            "kernels": gpu_time_evidence(spent)["kernels"] if len(spent) else {},
        },
    )


def _runs(ops: Calls, number: Rows, program: _Program, limits: Limits) -> Iterator[tuple[int, int]]:
    """(first, past the last) of ops in a row that add no node to autograd's graph and take no weights."""
    sequence = ints_at(ops.events.trace.lanes.cpu, "sequence", ops.rows)
    edge = np.array(step_edges(ops)[1:], np.int64)
    ends = np.array([program.ends_a_run(op) for op in program.signatures])[number] | _nodes(sequence, edge)
    stops = distinct(np.concatenate([edge, np.flatnonzero(ends), np.flatnonzero(ends) + 1, [0]]))
    views = np.array([is_view(op.name) for op in program.signatures])[number]
    for begin, end in zip(stops[:-1].tolist(), stops[1:].tolist(), strict=True):
        members = np.flatnonzero(~views[begin:end])
        if len(members) >= limits.min_ops and not ends[begin]:
            yield begin + int(members[0]), begin + int(members[-1]) + 1


def _nodes(sequence: Rows, edge: Rows) -> Mask:
    """Which ops add a node: the next op of the thread with a number has a higher one."""
    created = np.zeros(len(sequence), bool)
    low = 0
    for high in edge.tolist():
        numbered = low + np.flatnonzero(sequence[low:high] >= 0)
        created[numbered[:-1]] = np.diff(sequence[numbered]) > 0
        low = high
    return created


def _repeats_per_step(runs: Sequence[tuple[int, int]], step: Rows) -> list[list[tuple[int, int]]]:
    """The runs of each step that has two or more."""
    by_step: dict[int, list[tuple[int, int]]] = {}
    for run in runs:
        by_step.setdefault(int(step[run[0]]), []).append(run)
    return [each for each in by_step.values() if len(each) > 1]


def _is_modified_between(
    runs: Sequence[tuple[int, int]],
    ops: Calls,
    nodes: Calls,
    number: Rows,
    program: _Program,
    inputs: set[Shape],
) -> bool:
    """Whether anything from the first run to the last may have made such integers, or is backward: micro-batches."""
    low, high = runs[0][0], runs[-1][1]
    span = ops.start_ns[low], ops.end_ns[high - 1]
    if ((nodes.start_ns < span[1]) & (nodes.end_ns > span[0])).any():
        return True
    return program.may_make(_other_ops(number, runs, low, high), inputs)


def _other_ops(number: Rows, runs: Sequence[tuple[int, int]], low: int, high: int) -> list[int]:
    """Signatures of the ops from `low` to `high` that are in none of the runs."""
    outside = np.ones(high - low, bool)
    for begin, end in runs:
        outside[begin - low : end - low] = False
    return list(map(int, distinct(number[low:high][outside])))


@dataclass(frozen=True, slots=True)
class _Program:
    """What ops take and make, by their signatures.

    Attributes:
        written: bytes that the longest kernel of each signature can have written at the memory's peak; 0 without one.
    """

    signatures: Sequence[Signature]
    written: Floats
    max_elements: int

    def ends_a_run(self, op: Signature) -> bool:
        return bool(_LAYER.search(op.name) or _OTHER_CODE.search(op.name))

    def unchanging(self, key: Sequence[int]) -> set[Shape]:
        """Shapes of the integers that the ops take and none of them is known to make; nothing where floats enter."""
        results: set[Shape] = set()
        inputs: set[Shape] = set()
        every = [self.signatures[which] for which in key]
        for op in every:
            for shape, kind in _types_of_tensors(op) or _types_of_list(op, every):
                if shape in results:
                    continue
                if kind in _INTEGER:
                    inputs.add(shape)
                elif len(shape) > 1 or math.prod(shape) > self.max_elements:
                    return set()
            if (result := result_shape(op)) is not None:
                results.add(result)
        return inputs

    def may_make(self, rest: Sequence[int], shapes: set[Shape]) -> bool:
        """Whether any of these ops may have made such integers, or reads them as towers do."""
        return any(self._may_make(which, shapes) for which in rest)

    def _may_make(self, which: int, shapes: set[Shape]) -> bool:
        op = self.signatures[which]
        typed = _types_of_tensors(op)
        if op.name.startswith("aten::embedding"):
            return any(shape in shapes for shape, _ in typed)
        integers = bool(typed) and typed[0][1] in _INTEGER
        if not integers and not _MAKES_INTEGERS.search(op.name):
            return False
        if op.name.endswith("_") and typed:
            return integers and typed[0][0] in shapes
        views = is_view(op.name)
        if views and typed and typed[0][0] in shapes:
            # A part of an unchanged tensor, for the next run.
            return False
        result = result_shape(op)
        if result is not None:
            return result in shapes
        if views:
            sizes = [math.prod(shape) for shape, _ in typed]
            return any(size % max(math.prod(shape), 1) == 0 for shape in shapes for size in sizes)
        most = (self.written[which] or math.inf) / ITEM_BYTES[typed[0][1] if integers else "bool"]
        return any(math.prod(shape) <= most for shape in shapes)


def _types_of_tensors(op: Signature) -> list[tuple[Shape, str]]:
    """(shape, type) of each tensor; those in lists have the type of the list's first, or none."""
    typed = zip(op.dims, op.types, strict=False)
    return [
        (tuple(dims), kind) for dims, kind in typed if kind in ITEM_BYTES and isinstance(dims, list) and dims
    ]


def _types_of_list(op: Signature, rest: Sequence[Signature]) -> list[tuple[Shape, str]]:
    """(shape, type) of each tensor that an op joins: the type is that of the result, where another op reads it."""
    result = result_shape(op)
    kinds = [kind for other in rest for shape, kind in _types_of_tensors(other) if shape == result]
    return [(shape, kinds[0] if kinds else "") for shape in tensors(op)]
