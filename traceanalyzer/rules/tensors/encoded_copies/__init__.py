"""A network runs on copies of the same items, so that each item is computed several times."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from traceanalyzer.model.records import dataclass
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import clamp_to_floor, reduce_to
from traceanalyzer.rules.tensors.encoded_copies.networks import (
    BY_ROW,
    FAR,
    Copied,
    Ops,
    data_shapes,
    networks,
    rows_read,
    types_read,
)
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.table import is_view, result_shape
from traceanalyzer.tensors.signatures import Signature, tensors
from traceanalyzer.tensors.top_ops import top_ops
from traceanalyzer.timeline.backward_nodes import recording_ops
from traceanalyzer.timeline.loops import step_edges

_BROADCASTS = re.compile(r"^aten::(expand|expand_as|broadcast_to|repeat|repeat_interleave|tile)$")
_REPEATS = ("aten::repeat", "aten::repeat_interleave")


@dataclass(frozen=True, slots=True)
class Limits:
    min_times: float = limit(
        2.0,
        "reported only if there are at least this many copies of each item on average, because gathering "
        "the results costs time, too; chosen",
    )
    min_gpu_share: float = limit(
        0.1,
        "reported only if the network takes at least this share of GPU time; chosen",
    )
    floor_ns: int = limit(
        2_000,
        "used for the predicted saving: no kernel is predicted to take less than this time, even with few "
        "bytes; measured on an H200 with torch 2.11",
    )


@rule(since="0.2", claims=Claims.WORK, min_share=0.03, limits=Limits)
def encoded_copies(calls: Calls, work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """A network runs on copies of the same items, so that each item is computed several times.

    What it looks for: an op that copies items, and layers that then work on each copy separately. Items are
    entries of the first dimension, such as images, frames or tokens. The op is a gather, overlapping windows
    (unfold), expand or repeat. The rule reports two more cases:
    - Indices are copied, and each copy is then looked up in an embedding table.
    - One vector per sample is copied along another dimension (for example, to all tokens of the sample), and
      layers then work on each copy.
    Why it costs: copies of an item give the same result.
    Bad: encode(video[:, windows].flatten(0, 2)). Good: encode(video.flatten(0, 1)), then cut the windows from
    the features. For a vector that is expanded to all tokens: modulate(c).expand(...) instead of
    modulate(c.expand(...)).
    How sure: shapes show the numbers of items. The trace does not record which tensor an op reads. The rule
    infers this from shapes and the order of ops, so confidence is medium.
    When it is wrong: the copies are changed before the network runs, so they are not equal.
    Saving: the time of the forward pass on all copies of an item except one. For copies along another
    dimension, the saving includes the backward pass.
    Source: shapes; measured on an H200 with torch 2.11.
    """
    ops, number, signatures = top_ops(calls, "shows which items are copies", in_steps=False)
    needed_share, copies, makers = np.ones(len(ops) + 1), np.zeros(len(ops) + 1, np.int64), {}
    trained = np.zeros(len(ops) + 1, bool)
    for find in (networks, equal_rows):
        for maker, copied, members in find(ops, number.tolist(), signatures, limits.min_times):
            needed_share[members], copies[members] = copied.items / copied.copies, copied.copies
            trained[members] = find is equal_rows
            makers.update(dict.fromkeys(members, (maker, copied)))
    launcher, recorder = work.op.index_of_enclosing(ops), recording_ops(calls, ops, work)
    owner = np.where(trained[recorder], recorder, launcher)
    owner[(needed_share[owner] == 1) | ~work.kind.one_of("compute")] = -1
    pairs = zip(copies[owner].tolist(), inputs.number.tolist(), strict=True)
    chosen = np.array([n > 0 and _has_all(inputs.signatures[which], n) for n, which in pairs], bool)
    for pieces, share in work[chosen].device_shares(limits.min_gpu_share):
        op = owner[pieces.entries]
        maker, copied = makers[int(op[np.argmax(pieces.dur_ns)])]
        yield Hits(
            **reduce_to(pieces, clamp_to_floor(pieces.dur_ns * needed_share[op], pieces, limits.floor_ns)),
            message="{maker} makes {copies} items of {items}, and a network runs on all of them: it computes each item "
            "{repeats} times on average; {gpu} of all GPU work, in {ops}{where}",
            advice="Run the network once on each item, then gather, expand or cut the windows from its results.",
            confidence=Confidence.MEDIUM,
            evidence={
                **gpu_time_evidence(pieces),
                "gpu_share": share,
                "maker": maker,
                "copies": copied.copies,
                "items": copied.items,
                "repeats": round(copied.copies / copied.items, 2),
            },
        )


def _has_all(op: Signature, copies: int) -> bool:
    """Whether one of an op's tensors has a part for each copy: not the weights, nor what only prepares them."""
    return any(n > 0 and n % copies == 0 for shape in tensors(op) for n in (shape[0], math.prod(shape[:-1])))


def equal_rows(
    ops: Calls, number: list[int], signatures: Sequence[Signature], min_times: float
) -> Iterator[tuple[str, Copied, list[int]]]:
    """(op that makes copies, what it makes, positions of ops that work on equal rows)."""
    makers = {result_shape(op): op.name for op in signatures if _BROADCASTS.search(op.name)}
    seeds = [_copied_by_strides(op, min_times) or _copied_by_repeat(op, min_times) for op in signatures]
    edges, done, sequence = step_edges(ops), -1, Ops.of(number, signatures)
    seen: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for position in np.flatnonzero(np.array([seed is not None for seed in seeds], bool)[number]).tolist():
        copied = seeds[number[position]]
        if copied is None or position <= done:
            continue
        group = int(np.searchsorted(edges, position, side="right"))
        low, high = max(edges[group - 1], position - FAR), min(edges[group], position + FAR)
        key = position - low, tuple(number[low:high])
        if key not in seen:
            seen[key] = [place - position for place in rows_read(sequence, position, low, high, copied)]
        members = [position + place for place in seen[key]]
        if members:
            members += _in_later_blocks(sequence, members, edges[group])
            done = max(members)
            yield makers.get(copied.shape, "aten::expand"), copied, members


def _copied_by_strides(op: Signature, min_times: float) -> Copied | None:
    """Rows that an op reads, of which strides say that each is there several times; None where one input has others."""
    if not BY_ROW.search(op.name) or not op.strides or op.name == "aten::cat":
        return None
    wanted = data_shapes(op)
    shape = max(wanted, key=math.prod, default=())
    repeated = set(range(1 - len(shape), -1)) | {-len(shape)} if len(shape) > 1 else set()
    for place, sizes in enumerate(op.dims):
        if sizes not in [list(size) for size in wanted]:
            continue
        steps = op.stride(place)
        if steps is None:
            return None
        repeated -= {i for i in repeated if len(sizes) >= -i and sizes[i] > 1 and steps[i] > 0}
    times, rows = math.prod(shape[i] for i in repeated), math.prod(shape[:-1])
    enough = times >= min_times and shape[-1] > 1
    return Copied(0, rows, rows // times, shape) if enough else None


def _copied_by_repeat(op: Signature, min_times: float) -> Copied | None:
    """Rows that an op writes several times, or numbers, each of which may become a row."""
    shape = result_shape(op) if op.name in _REPEATS else None
    source = next(iter(tensors(op)), ())
    if not shape or not source:
        return None
    wide = shape[-1] == source[-1] > 1
    if op.name == "aten::repeat" and not wide:
        return None
    end = -1 if wide else None
    rows, items = math.prod(shape[:end]), math.prod(source[:end])
    return Copied(1, rows, items, shape) if rows >= min_times * items else None


def _in_later_blocks(ops: Ops, members: Sequence[int], end: int) -> list[int]:
    """Positions in blocks of a network that repeat the first one's ops and read the same condition.

    Args:
        members: positions of the ops that are known to work on equal rows.
        end: of the thread's step.
    """
    number, last = ops.number, members[-1]
    for position, first in enumerate(members):
        later = _next_same(number, number[first], last + 1, end)
        size, repeats, begin = later - first, list[int](), later
        while begin + size <= end and number[begin : begin + size] == number[first:later]:
            repeats += [place - first + begin for place in members[position:]]
            begin += size
        if repeats:
            return repeats if _is_condition(ops, first, range(last + 1, later)) else []
    return []


def _next_same(number: Sequence[int], which: int, begin: int, end: int) -> int:
    try:
        return number.index(which, begin, end)
    except ValueError:
        return end


def _is_condition(ops: Ops, first: int, rest: range) -> bool:
    """Whether a block reads a condition first, and not what the block before it has made.

    Args:
        rest: positions of what follows in its block.
    """
    op = ops.signatures[ops.number[first]]
    shape = next(iter(data_shapes(op)))
    for place in reversed(rest):
        which = ops.number[place]
        if ops.results[which] == shape and not is_view(ops.signatures[which].name):
            kind = ops.types[which]
            return ops.modulates(first) or (kind is not None and kind not in types_read(op, shape))
    return True
