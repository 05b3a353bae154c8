"""A sequence grows by one element at a time, and all of it is computed again for each."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Rows, sums_of
from traceanalyzer.model.records import dataclass
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import clamp_to_floor, reduce_to
from traceanalyzer.tensors.ops.table import is_view
from traceanalyzer.tensors.signatures import Signature, tensors
from traceanalyzer.tensors.top_ops import top_ops

_RECURRENT = ("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu")
_ATTENTION = "aten::scaled_dot_product_attention"
# Input is (batch, channels, positions): the last dimension grows.
_SIGNALS = "aten::conv1d"
_LAYERS = (*_RECURRENT, _ATTENTION, _SIGNALS, "aten::linear")
_CARRY = (
    "Keep the state: run the layer once on the known elements, keep what it returns (h, c), and then "
    "give it only the new element."
)
_CACHE = (
    "Keep the keys and values of earlier positions (a KV cache, use_cache=True), and give the layers "
    "only the new position. The earlier results do not change."
)

_REACH = (
    "Keep the last elements that the convolution kernels reach, and give the layers only these and the "
    "new element."
)


@dataclass(frozen=True, slots=True)
class Limits:
    min_lengths: int = limit(
        6,
        "reported only if there are at least this many lengths in a row, each longer than the one before "
        "by the same number; chosen",
    )
    joined_share: float = limit(
        0.5,
        "a sequence is regarded as growing only if cat or a slice makes tensors of at least this share of "
        "its lengths",
    )
    min_gpu_share: float = limit(
        0.05, "work on such sequences must take at least this share of GPU time; chosen"
    )
    floor_ns: int = limit(
        2_000,
        "for the saving: no kernel is predicted to take less than this time; H200, torch 2.11",
    )
    recurrent_floor_ns: int = limit(
        300_000,
        "for the saving: a call of a recurrent layer is predicted to take at least this time; measured: "
        "cuDNN's LSTM with one time step, a batch of 1,024 and 96 features; H200",
    )


@dataclass(frozen=True, slots=True)
class _Growth:
    """What grows: the lengths of one op's input along one dimension, and by how much each time."""

    op: Signature
    lengths: frozenset[int]
    by: int


@rule(since="0.1", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits)
def recomputed_prefix(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """A sequence grows from call to call, and all of it is computed again each time.

    What it looks for: layers (linear, conv1d, LSTM, GRU, attention) whose input gets longer by the same
    number in each call. The cost includes all work on tensors of these lengths.
    Why it costs: the results for the earlier elements are the same as in the call before.
    Bad: text generation without a KV cache. Good: a KV cache, which keeps keys and values of earlier
    positions.
    Bad: for _ in range(n): out, _ = lstm(history); history = cat([history, sample(out[:, -1:])], 1). Good:
    out, state = lstm(last, state).
    How sure: lengths are recorded. The rule concludes from cat or slices that one sequence grows. Confidence
    is low if only linear layers show this, else medium.
    When it is wrong: the earlier elements, or the weights, change from call to call.
    Saving: in the prediction, the first call of a step computes everything, and each later call only the new
    elements.
    Source: "KV cache" in Hugging Face's documentation; nn.LSTM in PyTorch's documentation, on the state.
    """
    ops, number, signatures = top_ops(calls, "shows what grows")
    order = np.argsort(ops.start_ns, kind="stable")
    ops, number = ops[order], number[order]
    grown = _growing_inputs(number, signatures, limits)
    lengths = {size: growth.by / size for growth in grown for size in growth.lengths}
    # without a causal mask a new element changes the earlier results, as in layers of both directions
    if not lengths or any(growth.op.name == _ATTENTION and not _causal(growth.op) for growth in grown):
        return
    length, part = _parts(signatures, lengths, limits)
    first = _first_of_steps(ops, length[number])
    chosen = np.flatnonzero((part[number] < 1) & ~first)
    owner = work.op.index_of_enclosing(ops[chosen])
    recurrent = ops[chosen].name.one_of(*_RECURRENT)
    for pieces, share in work[owner >= 0].device_shares(limits.min_gpu_share):
        call = owner[pieces.entries]
        needed = clamp_to_floor(pieces.dur_ns * part[number[chosen]][call], pieces, limits.floor_ns)
        whole = sums_of(call, pieces.dur_ns, len(chosen))[call]
        least = np.minimum(limits.recurrent_floor_ns / np.maximum(whole, 1), 1.0) * pieces.dur_ns
        needed = np.where(recurrent[call], np.maximum(needed, least), needed)
        yield _hits(pieces, needed, grown, share)


def _hits(pieces: Work, needed: np.ndarray, grown: list[_Growth], share: float) -> Hits:
    names = [growth.op.name for growth in grown]
    recurrent = any(name in _RECURRENT for name in names)
    sure = recurrent or _ATTENTION in names or _SIGNALS in names
    most = max(
        grown, key=lambda growth: (_LAYERS.index(growth.op.name) < len(_RECURRENT), len(growth.lengths))
    )
    return Hits(
        **reduce_to(pieces, needed),
        message="{layer} runs on a sequence that grows by {new} from call to call, from {shortest} to {longest}, and "
        "computes all of it again each time: {gpu} of all GPU work in work on such sequences{where}",
        advice=_CARRY if recurrent else _REACH if _SIGNALS in names else _CACHE,
        confidence=Confidence.MEDIUM if sure else Confidence.LOW,
        evidence={
            **gpu_time_evidence(pieces),
            "gpu_share": share,
            "layer": most.op.name,
            "new": most.by,
            "shortest": min(most.lengths),
            "longest": max(most.lengths),
        },
    )


def _growing_inputs(number: Rows, signatures: list[Signature], limits: Limits) -> list[_Growth]:
    """Inputs of layers that grow by as much at each call, and are seen to be extended."""
    groups: dict[tuple[object, ...], dict[int, int]] = {}
    for which, op in enumerate(signatures):
        shapes = tensors(op)
        if op.name in _LAYERS and shapes and not (op.name in _RECURRENT and op.scalars[-2:-1] == ("True",)):
            last = len(shapes[0]) - 1
            for axis in (last,) if op.name == _SIGNALS else range(last):
                rest = str([_masked(shape, shapes[0][axis]) for shape in shapes])
                groups.setdefault((op.name, axis, rest), {})[which] = shapes[0][axis]
    growths = []
    for lengths in groups.values():
        if len(set(lengths.values())) < limits.min_lengths:
            continue
        size = np.array([lengths.get(which, 0) for which in range(len(signatures))])[number]
        changes = np.diff(size[size > 0])
        more = changes[changes > 0]
        if len(more) < limits.min_lengths - 1 or (more != more[0]).any():
            continue
        if np.count_nonzero(changes < 0) * (limits.min_lengths - 1) > len(more):
            continue
        growth = _Growth(signatures[next(iter(lengths))], frozenset(lengths.values()), int(more[0]))
        if _count_extended(growth, signatures) >= limits.joined_share * len(growth.lengths):
            growths.append(growth)
    return growths


def _masked(shape: tuple[int, ...], length: int) -> list[int | None]:
    return [None if size == length else size for size in shape]


def _count_extended(growth: _Growth, signatures: list[Signature]) -> int:
    """How many of the lengths are joined to what is new by cat, or are the end of a slice."""
    seen = set()
    for op in signatures:
        parts = tensors(op) if op.name == "aten::cat" else []
        for size in growth.lengths:
            pairs = zip(parts[0], parts[-1], strict=True) if parts and len(parts[0]) == len(parts[-1]) else ()
            extends = any(a > b and a * growth.by == b * size for a, b in pairs)
            sliced = op.name == "aten::slice" and op.scalars[3:4] == (str(size),)
            if extends or sliced:
                seen.add(size)
    return len(seen)


def _causal(op: Signature) -> bool:
    """Attention of as many queries as keys in which no position reads later ones, as far as the inputs tell."""
    masked = len(op.dims) > 3 and bool(op.dims[3])
    return masked or op.scalars[5:6] == ("True",)


def _parts(signatures: list[Signature], lengths: dict[int, float], limits: Limits) -> tuple[Rows, np.ndarray]:
    """(length in each op's inputs, 0 for none; the part of it that is new), of ops that have most lengths."""
    groups: dict[tuple[str, str], dict[int, int]] = {}
    for which, op in enumerate(signatures):
        shapes = [] if is_view(op.name) or re.match("autograd::", op.name) else tensors(op)
        for size in {size for shape in shapes for size in shape} & lengths.keys():
            key = op.name, str([_masked(shape, size) for shape in shapes])
            groups.setdefault(key, {})[which] = size
    lengths_of, part = np.zeros(len(signatures), np.int64), np.ones(len(signatures))
    for group in groups.values():
        if len(set(group.values())) >= limits.joined_share * len(lengths):
            for which, size in group.items():
                lengths_of[which], part[which] = size, lengths[size]
    return lengths_of, part


def _first_of_steps(ops: Calls, length: Rows) -> np.ndarray:
    """Which calls take the shortest length of a step that has several: it must be computed once."""
    most = int(ops.step.max()) + 1
    shortest = np.full(most, np.iinfo(np.int64).max)
    longest = np.zeros(most, np.int64)
    has = length > 0
    np.minimum.at(shortest, ops.step[has], length[has])
    np.maximum.at(longest, ops.step[has], length[has])
    first: np.ndarray = has & (length == shortest[ops.step]) & (longest[ops.step] > length)
    return first
