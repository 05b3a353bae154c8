"""Weights that are computed again and again within a step, though their parameters get one gradient in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, grouped, no_rows
from traceanalyzer.model.trace import ints, matching
from traceanalyzer.replay.segments import rank_within
from traceanalyzer.rule.views import Calls
from traceanalyzer.rules.kernels.computed_weight.weight_chains import Chain
from traceanalyzer.tensors.signatures import Shape, Signature, tensors

_NORMED = re.compile(r"^aten::_weight_norm(_interface)?$")
_PARAMETERS_OF_NORM = 2  # a direction and a length
_FRAMES = re.compile(
    r"torch/nn/utils/(parametrize\.py\(\d+\): forward|(weight|spectral)_norm\.py\(\d+\): compute_weight)$"
)
_UNKNOWN = -1


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """Spans of ops that compute a weight for the second time in a step, or later.

    Attributes:
        first, last: int64 (spans,), positions in the ops.
        times: of all, how often a weight is computed in a step.
        weights: the most weights that there can be in a step.
    """

    first: Rows
    last: Rows
    times: int
    weights: int


@dataclass(frozen=True, slots=True, eq=False)
class _Spans:
    """What computes a weight each.

    Attributes:
        first, last: positions in the ops; `shape`: number of the weight's shape, -1 where that is not known.
        parameters: of each weight.
    """

    first: Rows
    last: Rows
    shape: Rows
    parameters: int = 1


def computed_again(
    ops: Calls,
    number: Rows,
    signatures: Sequence[Signature],
    chains: Sequence[Chain],
    leaves: Calls,
    leaf_shapes: Sequence[Shape],
    min_times: float,
) -> Computed | None:
    """Of the kind of evidence that has most spans: python frames, weight norm by its name, or shapes.

    A parameter gets one gradient in each backward pass, however often it is used. As many gradients as there are, so
    many weights may be different; of one shape where shapes are recorded.

    Args:
        ops: outermost ops in order, without views; `number` and `signatures` are theirs.
        chains: what makes the weights of layers, by shapes.
        leaves: what adds up the gradients of parameters, and the shape of each, empty where it is not known.
        min_times: fewer times per gradient may be several networks, or passes.
    """
    known = [shape for shape in leaf_shapes if shape]
    shapes = {shape: at for at, shape in enumerate(dict.fromkeys([*known, *(one.weight for one in chains)]))}
    if not known:
        shapes = dict.fromkeys(shapes, _UNKNOWN)
    kinds = (
        _in_frames(ops),
        _normed(ops, number, signatures, shapes),
        _of_chains(chains, shapes),
    )
    given = leaves.step, np.array([shapes[shape] if shape else _UNKNOWN for shape in leaf_shapes], np.int64)
    found = (_again(ops, spans, *given, min_times) for spans in kinds if len(spans.first))
    return max((one for one in found if one is not None), key=lambda one: len(one.first), default=None)


def _again(ops: Calls, spans: _Spans, leaf_step: Rows, leaf_shape: Rows, min_times: float) -> Computed | None:
    step = ops.step[spans.first]
    own, _ = grouped([np.append(step, leaf_step), np.append(spans.shape, leaf_shape)])
    of_step, _ = grouped([np.append(step, leaf_step)])
    count = len(step)
    size = len(own) + 1
    of_shape = np.bincount(own[count:], minlength=size)[own[:count]]
    of_any = np.bincount(of_step[count:], minlength=size)[of_step[:count]] // spans.parameters
    weights = np.where(spans.shape == _UNKNOWN, of_any, of_shape)
    kind = np.where(spans.shape == _UNKNOWN, size + of_step[:count], own[:count])
    _, kind, times = np.unique(kind, return_inverse=True, return_counts=True)
    often = (weights > 0) & (times[kind] >= min_times * weights)
    again = often & (rank_within(kind) >= weights)
    if not again.any():
        return None
    steps = len(np.unique(step[often]))
    _, first = np.unique(kind[often], return_index=True)
    return Computed(
        spans.first[again],
        spans.last[again],
        round(int(often.sum()) / steps),
        round(int(weights[often][first].sum()) / steps),
    )


def _in_frames(ops: Calls) -> _Spans:
    """Ops that run in a frame of a parametrization."""
    trace = ops.events.trace
    python = trace.lanes.python
    rows = np.flatnonzero(matching(python, "name", _FRAMES.search))
    starts, dur, tid = (ints(python, column)[rows] for column in ("start_ns", "dur_ns", "tid"))
    each = [
        _within(ops, starts[tid == one], (starts + dur)[tid == one], one) for one in np.unique(tid).tolist()
    ]
    first, last = (np.concatenate([no_rows(), *(pair[at] for pair in each)]) for at in (0, 1))
    return _Spans(first, last, np.full(len(first), _UNKNOWN))


def _within(ops: Calls, starts: Rows, ends: Rows, tid: int) -> tuple[Rows, Rows]:
    """First and last op within each frame of one thread, of the outer frames that hold any."""
    starts, ends = starts[order := np.lexsort((-ends, starts))], ends[order]
    outer = np.append(True, ends[1:] > np.maximum.accumulate(ends)[:-1]) if len(ends) else ends.astype(bool)
    starts, ends = starts[outer], ends[outer]
    own = np.flatnonzero(_of_thread(ops, tid))
    first = np.searchsorted(ops.start_ns[own], starts)
    last = np.searchsorted(ops.start_ns[own], ends) - 1
    there = last >= first
    return own[first[there]], own[last[there]]


def _of_thread(ops: Calls, tid: int) -> Mask:
    return np.asarray(ints(ops.events.trace.lanes.cpu, "tid")[ops.rows] == tid)


def _normed(ops: Calls, number: Rows, signatures: Sequence[Signature], shapes: dict[Shape, int]) -> _Spans:
    at = np.flatnonzero(ops.name.meets(_NORMED.search))
    given = [next(iter(tensors(signatures[which])), ()) for which in number[at].tolist()]
    return _Spans(
        at, at, np.array([shapes.get(shape, _UNKNOWN) for shape in given], np.int64), _PARAMETERS_OF_NORM
    )


def _of_chains(chains: Sequence[Chain], shapes: dict[Shape, int]) -> _Spans:
    ordered = sorted(chains, key=lambda one: one.first)
    first, last = (
        np.array(part, np.int64)
        for part in ([one.first for one in ordered], [one.layer - 1 for one in ordered])
    )
    return _Spans(first, last, np.array([shapes[one.weight] for one in ordered], np.int64))
