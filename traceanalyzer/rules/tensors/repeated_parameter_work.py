"""A parameter is converted or looked up again and again within one step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows, grouped
from traceanalyzer.replay.edits import DropWork
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, LostTime, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.tensors.signatures import Signature

_GRADIENT = "torch::autograd::AccumulateGrad"
_CASTS, _CAST_BACK = ("aten::_to_copy",), r"ToCopyBackward0$"
_LOOKUPS, _LOOKED_UP = ("aten::embedding",), r"EmbeddingBackward0$"


@dataclass(frozen=True, slots=True)
class Limits:
    min_times: float = limit(
        3.0,
        "reported only if there are at least this many casts or reads for each gradient, which stands for "
        "one parameter; activation checkpointing makes 2",
    )
    min_gpu_share: float = limit(0.03, "the repeated work must take at least this share of GPU time; chosen")


@rule(since="0.1", claims=Claims.WORK, min_share=0.02, limits=Limits, causes=("casts", "lookups"))
def repeated_parameter_work(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """The same weight is cast, or the same table is looked up, several times a step.

    What it looks for: three or more casts of each weight in a step. Or three or more reads of an embedding
    table, with index tensors of the same shape.
    Why it costs: each cast gives the same result. In the backward pass, each cast adds a cast of a gradient.
    Each read of a table adds a gradient of the whole table.
    Bad: torch.autocast entered in each iteration of a loop. Good: one autocast block around the forward pass,
    which keeps converted weights.
    Bad: the same position bias computed in each layer. Good: the bias computed once and given to all layers.
    How sure: the rule knows weights only by shape and dtype, so confidence is medium. Confidence is low for
    reads of tables, because the indices may differ.
    When it is wrong: activations happen to have a parameter's shape and dtype.
    Saving: the time of all casts or reads in a step, except for one cast or read of each parameter, which is
    necessary.
    Source: "Automatic Mixed Precision" in PyTorch's documentation, on autocast's cache of weights.
    """
    gradients = calls[calls.name.one_of(_GRADIENT) & (calls.step >= 0)]
    if not len(gradients):
        raise Unavailable("no gradients of parameters in the trace")
    if not any(gradients.text("input_dims").distinct()):
        raise Unavailable("no shapes recorded: record_shapes=True tells parameters from activations")
    gradient_count: dict[object, int] = {}
    number, keys = _keys(gradients, of_two=False)
    for key, count in zip(keys, np.bincount(number, minlength=len(keys)).tolist(), strict=True):
        gradient_count[key] = gradient_count.get(key, 0) + count
    for cause, names, back in (("casts", _CASTS, _CAST_BACK), ("lookups", _LOOKUPS, _LOOKED_UP)):
        yield from _repeated_hits(
            cause, calls[calls.name.one_of(*names) & (calls.step >= 0)], work, back, gradient_count, limits
        )


def _repeated_hits(
    cause: str, ops: Calls, work: Work, back: str, gradient_count: dict[object, int], limits: Limits
) -> Iterator[Hits]:
    number, keys = _keys(ops, of_two=cause == "lookups")
    count = np.bincount(number, minlength=len(keys))
    gradients = np.array([gradient_count.get(key[:2], 0) for key in keys], np.int64)
    frequent = (gradients > 0) & (count >= limits.min_times * gradients)
    if not frequent.any():
        return
    ratio = np.where(frequent, count / np.maximum(gradients, 1), 0.0)
    ops, number = ops[frequent[number]], number[frequent[number]]
    owner = work.op.index_of_enclosing(ops)
    mirrored = work.outer_op.name.matches(back)
    shapes = {key[0] for key, chosen in zip(keys, frequent, strict=True) if chosen}
    mirrored &= _has_shapes(work, shapes, cause)
    times = float(np.median(ratio[number]))
    again = np.where(mirrored, 1 - 1 / times, 0.0)
    again[owner >= 0] = 1 - 1 / ratio[number[owner[owner >= 0]]]
    for device, pieces in work[again > 0].by_device():
        part = again[pieces.entries]
        spent = int((pieces.dur_ns * part).sum())
        gone = _but_first(pieces, part)
        if gone.any() and spent >= limits.min_gpu_share * work[work.device == device].total_ns:
            yield _hits(cause, ops, pieces, part, gone, round(times), spent)


def _hits(
    cause: str, ops: Calls, pieces: Work, part: np.ndarray, gone: np.ndarray, times: int, spent_ns: int
) -> Hits:
    casts = cause == "casts"
    return Hits(
        occurrences=pieces,
        cause=cause,
        lost=LostTime.excess(pieces, np.asarray(pieces.dur_ns * part, np.int64)),
        fix=DropWork(pieces.entries[gone]),
        message=(
            "each weight is converted {repeats} times a step, and its gradient is converted back as often"
            if casts
            else "one table is looked up {repeats} times a step with the same number of indices, and gets {repeats} "
            "gradients"
        )
        + ": GPU time is {again_a_step} longer than with one conversion or lookup{where}",
        advice=(
            "Convert each weight once: use one torch.autocast around the whole forward pass (leaving autocast "
            "drops the converted weights), or keep the weights in that dtype."
        )
        if casts
        else "If the indices are the same, look up once and reuse the result; else look up all of them in one call.",
        confidence=Confidence.MEDIUM if casts else Confidence.LOW,
        evidence={**gpu_time_evidence(pieces), "repeats": times, "again_ns": spent_ns, "calls": len(ops)},
    )


def _but_first(pieces: Work, part: np.ndarray) -> np.ndarray:
    """Of the pieces of each op and shape the share that is needless, evenly over them; bool (work,)."""
    phase = np.cumsum(part)
    gone: np.ndarray = np.floor(phase) > np.floor(np.append(0.0, phase[:-1]))
    return gone


def _has_shapes(work: Work, shapes: set[object], cause: str) -> np.ndarray:
    """Whether the op has a tensor of these shapes, or a gradient of a lookup of the table."""
    dims = work.op.text("input_dims").or_else(work.outer_op.text("input_dims"))
    if cause == "lookups":
        widths = {shape[-1] for shape in shapes if isinstance(shape, tuple) and shape}
        return dims.meets(lambda text: (_sizes(text) or (0,))[-1] in widths)
    return dims.meets(lambda text: _sizes(text) in shapes)


def _keys(calls: Calls, *, of_two: bool) -> tuple[Rows, list[tuple[object, ...]]]:
    """(number of each call's key, the keys): shape and type of the first input, and the second's shape if asked."""
    dims, kinds = calls.text("input_dims"), calls.text("input_type")
    number, first = grouped([dims.code, kinds.code]) if len(calls) else (calls.rows, calls.rows)
    by_first = [_key(dims[int(position)], kinds[int(position)], of_two=of_two) for position in first]
    keys = list(dict.fromkeys(by_first))
    place = {key: position for position, key in enumerate(keys)}
    return np.array([place[key] for key in by_first], np.int64)[number], keys


def _key(dims: str | None, kinds: str | None, *, of_two: bool) -> tuple[object, ...]:
    op = Signature.parsed("", dims, kinds, None)
    key = (_sizes(dims or ""), op.types[0] if op.types else "")
    return (*key, str(op.dims[1:2])) if of_two else key


def _sizes(dims: str) -> tuple[int, ...] | None:
    dims_read = Signature.parsed("", dims, None, None).dims
    first = dims_read[0] if dims_read else None
    return tuple(first) if isinstance(first, list) and first and all(type(n) is int for n in first) else None
