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
from traceanalyzer.rule.evidence import called_ops, told
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Work
from traceanalyzer.rule.views.selection import Mask, Rows
from traceanalyzer.timeline import kernel_families as families

_MIRRORS = r"ToCopyBackward"
_OF_INPUTS = (
    "Keep weights in the type of the product (model.to(torch.bfloat16), master weights in the optimizer), "
    "or put one torch.autocast around the whole forward so that it converts each weight once."
)
_OF_RESULTS = (
    "Convert only the part that is needed (slice first), or let the op that reads it convert as it goes: "
    "softmax(dtype=torch.float32); losses and norms take the product's type and compute in float."
)


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
    attention on their stream, with at most other conversions between, and, as `results`, those right after one.
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
    after, before, following = _beside(ordered, cast, product)
    for chosen, is_result in ((before, False), (after & ~before, True)):
        at = np.flatnonzero(cast & ~mirrors & chosen)
        for device, mine in ordered[at].by(ordered.device[at]):
            share = mine.total_ns / max(work[work.device == device].total_ns, 1)
            if share >= least:
                own = at[ordered.device[at] == device]
                readers = called_ops(ordered[following[own]]).sums(ordered.dur_ns[own])
                yield _hits(mine, share, readers if is_result else None)


def _hits(found: Work, share: float, readers: dict[str, int] | None) -> Hits:
    """Of what goes into products, or of their results, with the ops that read them."""
    number, signatures = signatures_of(found.events.trace, found.op.rows)
    pairs = [" from ".join(_short(kind) for kind in one.types[:2]) for one in signatures]
    kinds: dict[str, int] = {}
    for which, ns in zip(number.tolist(), found.dur_ns.tolist(), strict=True):
        kinds[pairs[which]] = kinds.get(pairs[which], 0) + ns
    into = next(iter(sorted(kinds, key=lambda pair: -kinds[pair])), "")
    what = "a tensor is converted right before a matrix product"
    mostly = f" (mostly to {into})" if into else ""
    if readers is not None:
        what = "the result of a matrix product is converted"
        mostly += ", which {readers} reads" if readers else ""
    return Hits(
        at=found,
        cause="" if readers is None else "results",
        lost=Lost.all_of(found),
        fix=DropWork(found.entries),
        message="{times_a_step} " + what + mostly + ", {gpu} of GPU time{where}",
        advice=_OF_INPUTS if readers is None else _OF_RESULTS,
        confidence=Confidence.MEDIUM,
        evidence={**told(found), "gpu_share": share, "spent_ns": found.total_ns, "conversions": kinds}
        | ({"readers": readers} if readers else {}),
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


def _beside(ordered: Work, cast: Mask, product: Mask) -> tuple[Mask, Mask, Rows]:
    """(which come right after a product, right before one, the entry after them that is no cast), on their stream."""
    solid = np.flatnonzero(~cast & ordered.kind.one_of("compute"))
    beside = [np.zeros(len(ordered), bool), np.zeros(len(ordered), bool)]
    following = np.zeros(len(ordered), np.int64)
    if len(solid) == 0:
        return beside[0], beside[1], following
    at = np.searchsorted(solid, np.arange(len(ordered)))
    for side, place in enumerate((at - 1, at)):
        following = solid[np.clip(place, 0, len(solid) - 1)]
        beside[side] = (place >= 0) & (place < len(solid)) & product[following]
        for column in (ordered.device, ordered.stream, ordered.step):
            beside[side] &= column[following] == column
    return beside[0], beside[1], following
