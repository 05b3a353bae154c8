"""Conversions of weights and activations around matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import DropWork
from traceanalyzer.roofline.op_model import ITEM_BYTES
from traceanalyzer.roofline.signatures import signatures_of
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Work
from traceanalyzer.rule.views.selection import Mask
from traceanalyzer.timeline import kernel_families as families

_MIRRORS = r"ToCopyBackward"


@dataclass(frozen=True, slots=True)
class Limits:
    min_gpu_share: float = limit(
        0.03, "of GPU time in inference, where weights can be stored as they are used"
    )
    min_training_share: float = limit(
        0.10, "in training under autocast, which must cast weights once a step; H200: 9 %"
    )


@rule(since="0.2", claims=Claims.PATTERN, limits=Limits)
def dtype_casts(work: Work, limits: Limits) -> Iterator[Hits]:
    """Weights or activations are converted around matrix products.

    What it looks for: conversions from one element type to another that come right before a product, convolution or
    attention on their stream, with at most other conversions between, and conversions right after one.
    Why it costs: each reads and writes the whole tensor, for nothing that the product needs: it could have been stored
    in that type.
    Bad: x @ w.bfloat16() with float32 weights in each forward; autocast without its cache of weights, or around code
    that leaves it again and again. Good: weights in bfloat16 (with a float32 copy in the optimizer), one autocast
    around the whole forward.
    How sure: types or kernels' names say that it is a conversion, and the product comes next.
    When it is wrong: casts of weights that an optimizer keeps in float32 must happen once a step.
    Saving: without these conversions.
    Source: "Automatic Mixed Precision" in PyTorch's documentation.
    """
    ordered = work.in_order()
    cast = _casts(ordered)
    name = ordered.name
    product = (
        name.matches(families.GEMM) | name.matches(families.CONVOLUTION) | name.matches(families.ATTENTION)
    )
    mirrors = ordered.outer_op.name.matches(
        _MIRRORS
    )  # gradients back to float32, as forward went to bfloat16
    least = limits.min_training_share if mirrors.any() else limits.min_gpu_share
    found = ordered[cast & ~mirrors & _next_to(ordered, cast, product)]
    for device, mine in found.by(found.device):
        share = mine.total_ns / max(work[work.device == device].total_ns, 1)
        if share >= least:
            yield _hits(mine, share)


def _hits(found: Work, share: float) -> Hits:
    number, signatures = signatures_of(found.events.trace, found.op.rows)
    pairs = [" from ".join(_short(kind) for kind in one.types[:2]) for one in signatures]
    kinds: dict[str, int] = {}
    for which, ns in zip(number.tolist(), found.dur_ns.tolist(), strict=True):
        kinds[pairs[which]] = kinds.get(pairs[which], 0) + ns
    into = next(iter(sorted(kinds, key=lambda pair: -kinds[pair])), "")
    return Hits(
        at=found,
        lost=Lost.all_of(found),
        fix=DropWork(found.entries),
        message="{times_a_step} a tensor is converted right beside a matrix product"
        + (f" (mostly to {into})" if into else "")
        + ", {gpu} of GPU time{where}",
        advice="Keep weights in the type of the product (model.to(torch.bfloat16), master weights in the optimizer), "
        "or put one torch.autocast around the whole forward so that it converts each weight once.",
        confidence=Confidence.MEDIUM,
        evidence={**told(found), "gpu_share": share, "spent_ns": found.total_ns, "conversions": kinds},
    )


def _casts(ordered: Work) -> Mask:
    """Conversions: by the recorded types of copies, else by the kernels' names."""
    number, signatures = signatures_of(ordered.events.trace, ordered.op.rows)
    known = np.array([_types(one.types) > 0 and one.name == "aten::copy_" for one in signatures], bool)[
        number
    ]
    differ = np.array([_types(one.types) > 1 for one in signatures], bool)[number]
    named = ordered.name.matches(families.CONVERSION)
    return np.asarray((known & differ & ordered.kind.one_of("compute")) | (named & ~known))


def _types(types: tuple[str, ...]) -> int:
    """How many element types target and source of a copy have; 0 where they were not recorded."""
    return len({kind for kind in types[:2] if kind in ITEM_BYTES})


def _short(kind: str) -> str:
    return kind.removeprefix("c10::")


def _next_to(ordered: Work, cast: Mask, product: Mask) -> Mask:
    """Which entries have a product as their neighbour that is no cast, on their stream: the next, or the one before."""
    solid = np.flatnonzero(~cast & ordered.kind.one_of("compute"))
    if len(solid) == 0:
        return np.zeros(len(ordered), bool)
    at = np.searchsorted(solid, np.arange(len(ordered)))
    beside: Mask = np.zeros(len(ordered), bool)
    for place in (at, at - 1):
        neighbour = solid[np.clip(place, 0, len(solid) - 1)]
        same = (place >= 0) & (place < len(solid)) & product[neighbour]
        for column in (ordered.device, ordered.stream, ordered.step):
            same &= column[neighbour] == column
        beside |= same
    return beside
