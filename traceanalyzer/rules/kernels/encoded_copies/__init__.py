"""A network runs on copies of the same items, so that each item is computed several times."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.quicker_work import not_below, quicker
from traceanalyzer.rule.recorders import recorders
from traceanalyzer.rules.kernels.encoded_copies.equal_rows import equal_rows
from traceanalyzer.rules.kernels.encoded_copies.networks import networks
from traceanalyzer.tensors.signatures import Signature, signatures_of, tensors


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
    ops = calls[calls.is_top_op]
    ops = ops[np.lexsort((ops.start_ns, ops.thread))]
    number, signatures = signatures_of(calls.events.trace, ops.rows)
    if not any(one.dims for one in signatures):
        raise Unavailable("no shapes recorded: record_shapes=True shows which items are copies")
    left, copies, makers = np.ones(len(ops) + 1), np.zeros(len(ops) + 1, np.int64), {}
    trained = np.zeros(len(ops) + 1, bool)
    for find in (networks, equal_rows):
        for maker, copied, members in find(ops, number.tolist(), signatures, limits.min_times):
            left[members], copies[members] = copied.items / copied.copies, copied.copies
            trained[members] = find is equal_rows
            makers.update(dict.fromkeys(members, (maker, copied)))
    own, recorder = work.op.index_of_enclosing(ops), recorders(calls, ops, work)
    owner = np.where(trained[recorder], recorder, own)
    owner[(left[owner] == 1) | ~work.kind.one_of("compute")] = -1
    pairs = zip(copies[owner].tolist(), inputs.number.tolist(), strict=True)
    chosen = np.array([n > 0 and _has_all(inputs.signatures[one], n) for n, one in pairs], bool)
    for device, found in work[chosen].by_device():
        mine = owner[found.entries]
        share = found.total_ns / max(work[work.device == device].total_ns, 1)
        if share < limits.min_gpu_share:
            continue
        maker, copied = makers[int(mine[np.argmax(found.dur_ns)])]
        yield Hits(
            **quicker(found, not_below(found.dur_ns * left[mine], found, limits.floor_ns)),
            message="{maker} makes {copies} items of {items}, and a network runs on all of them: it computes each item "
            "{repeats} times on average; {gpu} of all GPU work, in {ops}{where}",
            advice="Run the network once on each item, then gather, expand or cut the windows from its results.",
            confidence=Confidence.MEDIUM,
            evidence={
                **told(found),
                "gpu_share": share,
                "maker": maker,
                "copies": copied.copies,
                "items": copied.items,
                "repeats": round(copied.copies / copied.items, 2),
            },
        )


def _has_all(op: Signature, copies: int) -> bool:
    """Whether one of an op's tensors has a part for each copy: not the weights, nor what only prepares them."""
    return any(n > 0 and n % copies == 0 for one in tensors(op) for n in (one[0], math.prod(one[:-1])))
