"""The scores of a masked language model are computed for all positions, though few have a label."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.quicker_work import not_below, quicker
from traceanalyzer.tensors.signatures import Signature, signatures_of, tensors

_SCORES, _TABLE, _ATTENTION = "aten::_log_softmax", "aten::embedding", "aten::scaled_dot_product_attention"
_CAUSAL, _MASK = 5, 3  # places among the arguments of attention


@dataclass(frozen=True, slots=True)
class Limits:
    min_classes: int = limit(
        1_000,
        "reported only if there are at least this many classes, so that they are probably a vocabulary; "
        "chosen",
    )
    labelled_share: float = limit(
        0.15,
        "for the saving: this share of the positions is assumed to have a label; BERT, Devlin et al. 2018",
    )
    min_gpu_share: float = limit(0.05, "work on the scores must take at least this share of GPU time; chosen")
    floor_ns: int = limit(
        2_000,
        "for the saving: no kernel is predicted to take less than this time; H200, torch 2.11",
    )


@rule(since="0.2", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits)
def unlabelled_positions(calls: Calls, work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """The scores of a masked language model are computed for all positions, though few have a label.

    What it looks for: in training, scores (log_softmax) for all tokens, in a model without a causal mask.
    Such a model is usually trained to predict only hidden tokens, about 15 % of all tokens.
    Why it costs: positions without a label take as long as others, in the head, the loss and their backward
    pass.
    Bad: cross_entropy(head(hidden).flatten(0, 1), labels.flatten()), where most labels are -100. Good: select
    the hidden states of labelled positions before the head, with indices from the collator.
    How sure: labels are not recorded, so confidence is low.
    When it is wrong: every position has a label, as in models that correct or denoise a whole text.
    Saving: 85 % of the time of all work on the scores.
    Source: Devlin et al. 2018, BERT; torch.nn.functional.cross_entropy in PyTorch's documentation
    (ignore_index).
    """
    ops = calls[calls.is_op & calls.name.one_of(_SCORES, _TABLE, _ATTENTION)]
    _, signatures = signatures_of(ops.events.trace, ops.rows)
    if not any(one.dims for one in signatures):
        raise Unavailable("no shapes recorded: record_shapes=True shows how many scores there are")
    attention = [one for one in signatures if one.name == _ATTENTION]
    tables = {_looked_up(one) for one in signatures if one.name == _TABLE}
    scores = {tensors(one)[0] for one in signatures if one.name == _SCORES and tensors(one)} & tables
    backward = calls.name.matches(r"LogSoftmaxBackward\d*$").any()
    if not attention or not backward or any(map(_hides, attention)):
        return
    for positions, classes in sorted(one for one in scores if len(one) == 2 and one[1] >= limits.min_classes):
        on = inputs.meets(partial(_has_sizes, sizes={positions, classes})) & work.kind.one_of("compute")
        for device, found in work[on].by_device():
            share = found.total_ns / max(work[work.device == device].total_ns, 1)
            if share >= limits.min_gpu_share:
                needed = not_below(np.asarray(found.dur_ns * limits.labelled_share), found, limits.floor_ns)
                yield _hits(found, needed, share, positions, classes)


def _hits(found: Work, needed: np.ndarray, share: float, positions: int, classes: int) -> Hits:
    return Hits(
        **quicker(found, needed),
        message="the scores of {classes} tokens, and the loss over them, are computed for all {positions} "
        "positions. The model sees all tokens, so usually only hidden tokens (15 %) have a label; {gpu} of "
        "GPU time, in {ops}",
        advice="Select the hidden states of positions with a label before the head: hidden[indices]. Take the "
        "indices from the collator, so that the host does not wait for their number.",
        confidence=Confidence.LOW,
        evidence={**told(found), "gpu_share": share, "classes": classes, "positions": positions},
    )


def _looked_up(op: Signature) -> tuple[int, int]:
    """(indices, rows of the table) of an embedding, zeros where that is not recorded."""
    shapes = tensors(op)
    return (math.prod(shapes[1]), shapes[0][0]) if len(shapes) == 2 else (0, 0)


def _hides(op: Signature) -> bool:
    """Whether attention is causal, or has a mask of queries by keys, or is not recorded well enough."""
    try:
        mask = op.dims[_MASK]
        return op.scalars[_CAUSAL] != "False" or (len(mask) > 1 and mask[-2] > 1)
    except (LookupError, TypeError):
        return True


def _has_sizes(op: Signature, sizes: set[int]) -> bool:
    return sizes <= {size for shape in tensors(op) for size in shape}
