"""A tensor that nothing in a step changes is normalised or reduced again in every step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.op_bounds import bound_of
from traceanalyzer.roofline.signatures import Signature, signatures_of
from traceanalyzer.roofline.tensor_types import tensors
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.quicker_work import quicker
from traceanalyzer.timeline.names import VIEWING_OP

Shape = tuple[int, ...]

_REDUCES = r"^aten::(linalg_vector_norm|norm|sum|mean|amax|amin|aminmax|var|std|var_mean|std_mean|logsumexp)$"
_SCALES = r"^aten::(div|mul|sub|clamp_min|clamp|add|sqrt|rsqrt|reciprocal)$"
_WRITES = r"_$|::(slice|select|narrow|unbind|split\w*|chunk|tensor_split)$"
_SMALLER = r"^aten::(topk|argmax|argmin|max|min|index_select|gather|embedding|nll_loss\w*)$"


@dataclass(frozen=True, slots=True)
class Limits:
    min_bytes: int = limit(
        128 << 20,
        "the tensor must have at least this size, so that it does not fit into caches and writing it takes a "
        "known time; chosen",
    )
    writing_share: float = limit(
        0.8,
        "a kernel may have written the tensor if it runs for at least this share of the time needed to write that "
        "many bytes at the memory's peak; chosen",
    )
    min_steps: int = limit(
        3, "there must be at least this many steps, and all of them must do this work; chosen"
    )
    min_gpu_share: float = limit(0.05, "this work must take at least this share of GPU time; chosen")


@rule(since="0.1", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits)
def repeated_preparation(calls: Calls, work: Work, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """A tensor that nothing in a step changes is normalised or reduced again in every step.

    What it looks for: a norm, sum or mean of a tensor of 128 MiB or more, and the ops right after it that scale
    the tensor, in every step. No op changes or slices a tensor of that shape, no copy writes it, and no kernel
    without recorded shapes runs long enough to have written it.
    Why it costs: the result is the same each time, and each time the whole tensor is read from memory.
    Bad: query @ F.normalize(index, dim=-1).T in every request. Good: index = F.normalize(index, dim=-1) where
    it is loaded.
    How sure: shapes, times and the device's peak are known. The tensor itself is known only by its shape, so
    confidence is medium.
    When it is wrong: several kernels each write a part of the tensor, and no op shows it.
    Saving: all of this work.
    Source: loop-invariant code motion (Aho, Lam, Sethi, Ullman: Compilers).
    """
    ops = calls[calls.is_top_op & (calls.step >= 0)]
    if not any(ops.text("input_dims").distinct()):
        raise Unavailable("no shapes recorded: record_shapes=True tells the tensors of ops apart")
    ops = ops[np.lexsort((ops.start_ns, ops.thread))]
    touched = _touched(ops)
    ops = ops[~ops.name.meets(VIEWING_OP.search)]
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    reduces = ops.name.matches(_REDUCES)
    for which in distinct(number[reduces]).tolist():
        shape, size = _tensor(signatures[which])
        if size < limits.min_bytes or shape in touched:
            continue
        first = np.flatnonzero(number == which)
        steps = distinct(ops.step).tolist()
        if len(steps) < limits.min_steps or len(distinct(ops.step[first])) < len(steps):
            continue
        chain = ops[_chains(first, number, signatures, shape)]
        yield from _hits(chain, work, shape, size, gpus, limits)


def _hits(chain: Calls, work: Work, shape: Shape, size: int, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    inside = work.op.index_of_enclosing(chain) >= 0
    for device, found in work[inside].by_device():
        others = work[(work.device == device) & ~inside]
        least_ns = limits.writing_share * size / gpus.memory_gbps(np.array([device]))[0]
        long = others[(others.dur_ns >= least_ns) | (others.bytes >= size)]
        share = found.total_ns / max(found.total_ns + others.total_ns, 1)
        if share < limits.min_gpu_share or _may_write(long, math.prod(shape)):
            continue
        yield Hits(
            **quicker(found, np.zeros(len(found))),
            named_by="x".join(map(str, shape)),
            message="a tensor of {by} ({tensor}) goes through {ops} in every step, and no other kernel of a step "
            "runs long enough to have written it, so the result is the same each time: {gpu} of GPU time{where}",
            advice="Do this once, where the tensor is made or loaded, and keep the result.",
            confidence=Confidence.MEDIUM,
            evidence={**told(found), "gpu_share": share, "tensor_bytes": size},
        )


def _touched(ops: Calls) -> set[Shape]:
    """Shapes of tensors that some op changes in place, or of which it takes a part, which may be written to."""
    writing = ops[ops.name.matches(_WRITES)]
    return {shape for op in signatures_of(ops.events.trace, writing.rows)[1] for shape in tensors(op)}


def _tensor(op: Signature) -> tuple[Shape, int]:
    """(shape, bytes) of the first input; nothing where it is not known."""
    try:
        return op.shape(0), op.bytes(0)
    except LookupError:
        return (), 0


def _chains(first: Rows, number: Rows, signatures: list[Signature], shape: Shape) -> Rows:
    """Positions of the reductions and of the ops after each that take the tensor and what was made of it alone."""
    scales = np.array([_scales(op, shape) for op in signatures])
    found: list[int] = []
    for at in first.tolist():
        end = at + 1
        while end < len(number) and scales[number[end]]:
            end += 1
        found += range(at, end)
    return np.array(found, np.int64)


def _scales(op: Signature, shape: Shape) -> bool:
    """Scaling of the tensor, or of one number per row of it, by such numbers."""

    return bool(re.match(_SCALES, op.name)) and all(_of_rows(one, shape) for one in tensors(op))


def _of_rows(one: Shape, shape: Shape) -> bool:
    """The tensor's shape, with some dimensions reduced to one or left out."""
    if len(one) == len(shape):
        return all(size in (1, whole) for size, whole in zip(one, shape, strict=True))
    return one in (shape[:-1], shape[1:])


def _may_write(long: Work, elements: int) -> bool:
    """Whether one of these kernels may have made a tensor of that many elements, as far as its op tells."""
    number, signatures = signatures_of(long.events.trace, long.op.rows)
    return any(_results(signatures[which]) in (None, elements) for which in distinct(number).tolist())


def _results(op: Signature) -> int | None:
    """Elements of a product's result, 0 of what is less than its inputs; None where that is not known."""

    if re.match(_REDUCES, op.name) or re.match(_SMALLER, op.name):
        return 0
    needed = bound_of(op) if op.dims else None
    shapes = [shape for shape in tensors(op) if len(shape) >= 2]
    if needed is None or needed.kind != "matmul" or len(shapes) < 2:
        return None
    return math.prod(shapes[-2][:-1]) * shapes[-1][-1]
