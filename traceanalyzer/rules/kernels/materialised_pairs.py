"""Small tensors are combined each with each in memory, and summed up again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Floats
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.op_bounds import bound_of
from traceanalyzer.roofline.signatures import ITEM_BYTES, Signature
from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Claims, Confidence, Hits, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.quicker_work import quicker

Shape = tuple[int, ...]
_PICKS = re.compile(r"^aten::(min|max|amin|amax)$")
_BACKWARD = r"Backward\d*$"
_PICKED_BACK = r"\b(Min|Max|Amin|Amax)Backward\d*$"
_PRODUCTS = re.compile(r"^aten::(mm|bmm|baddbmm)$")
_PAIRING = r"^aten::(cdist|_euclidean_dist|matmul|mm|bmm|baddbmm|einsum)$"  # a linear layer is no pairing


@dataclass(frozen=True, slots=True)
class Limits:
    min_times: float = limit(
        8.0,
        "the pairs must have at least this many times the elements of all inputs together; less is a bias or a "
        "mask; chosen",
    )
    min_elements: int = limit(1 << 20, "at least this many pairs are needed; fewer fit into a cache; chosen")
    min_gpu_share: float = limit(0.05, "work on the pairs must take at least this share of GPU time; chosen")
    reached_share: float = limit(0.5, "a fused kernel reaches this share of the float32 peak; chosen")


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The shape that small inputs are broadcast to, the op that does it, and its inputs."""

    shape: Shape
    op: str
    inputs: tuple[Shape, ...]


@rule(since="0.1", claims=Claims.WORK, min_share=0.03, limits=Limits, causes=("selected",))
def materialised_pairs(work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Small tensors are broadcast to all of their pairs, which are written to memory and reduced again.

    What it looks for: a pointwise op on broadcast or expanded inputs whose result has at least eight times as
    many numbers as all inputs together, and a reduction of that result. All work on tensors of that shape
    counts, also in the backward pass.
    A second case (cause `selected`) is distances or products of all pairs, of which forward uses only the
    smallest or largest along a dimension, while backward passes over all of them. An example is a Chamfer
    distance by torch.cdist.
    Why it costs: every op reads or writes all pairs in memory, though inputs and results are small.
    Bad: F.cosine_similarity(a[:, None], b[None], dim=-1); (a[:, None] - b).pow(2).sum(-1). Good: a product of
    the normalised matrices; torch.cdist; the few needed candidates, selected before pairing.
    How sure: shapes and strides are recorded. The trace does not show whether fewer pairs, or a product, are
    enough, so confidence is medium.
    When it is wrong: all pairs are the needed result. Then let a compiler fuse the ops in between.
    Saving: down to the arithmetic of the same ops in one kernel that writes only the reduced result. If later
    ops need one number for each pair, these ops stay, and each op on the pairs still takes the time to write
    such a result.
    Source: PyTorch's documentation of broadcasting; roofline model.
    """
    if not any(op.dims for op in inputs.signatures):
        raise Unavailable("no shapes recorded: record_shapes=True shows what is broadcast")
    found = [_pairs_of(op, limits) for op in inputs.signatures]
    origins = {one.shape: one for one in found if one is not None}
    reduced = {shape for op in inputs.signatures if _reduces(op) for shape in _shapes(op)}
    yield from _selected(work, inputs, limits)
    within = {shape for one in origins.values() for shape in _rest(one, limits)}
    for shape, pairs in origins.items():
        if shape in reduced and shape not in within:
            yield from _of(pairs, work, inputs, gpus, limits)


def _of(pairs: _Pairs, work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    rest = _rest(pairs, limits)
    member = inputs.meets(
        lambda op: _streams(op) and ({pairs.shape, *rest} & _shapes(op) or _pairs_of(op, limits) == pairs)
    )
    stays = _staying(pairs, rest, inputs.signatures, limits)[inputs.number]
    for device, members in work[member & work.kind.one_of("compute", "copy_d2d")].by_device():
        share = members.total_ns / max(work[work.device == device].total_ns, 1)
        peaks = gpus[device].peaks
        if share < limits.min_gpu_share or peaks is None:
            continue
        each = math.prod(pairs.shape) / (limits.reached_share * peaks.tflops["fp32"] * 1e3)
        least = members.dur_ns * stays[members.entries]
        texts = [_text(shape) for shape in pairs.inputs]
        yield Hits(
            **quicker(members, np.maximum(np.minimum(members.dur_ns, each), least)),
            named_by=pairs.op,
            message=(
                "{by} broadcasts {inputs} to all pairs, {pairs}: {ratio} times as many numbers are written to "
                "memory and reduced again; {gpu} of GPU time in {ops}"
            )
            + (", at {lines}" if members.line.sums(members.dur_ns) else ""),
            advice="Use a matrix product for sums of products (matmul, einsum), torch.cdist for distances, and the "
            "product of normalised rows for cosine similarity. If few pairs are needed, select them first. Else "
            "{torch.compile} fuses the ops with the reduction.",
            confidence=Confidence.MEDIUM,
            evidence={
                **told(members),
                "gpu_share": share,
                "inputs": " and ".join(dict.fromkeys(texts)),
                "pairs": _text(pairs.shape),
                "ratio": round(math.prod(pairs.shape) / max(sum(map(math.prod, pairs.inputs)), 1)),
            },
        )


def _selected(work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """Pairs of which forward only selects, while backward passes over all of them."""
    names, signatures = work.outer_op.name, inputs.signatures
    backward, pairing = names.matches(_BACKWARD), names.matches(_PAIRING)
    made = {
        size
        for which in np.unique(inputs.number[work.entries][pairing & ~backward]).tolist()
        if (size := _product_size(signatures[which])) >= limits.min_elements
    }
    picked_back = np.unique(inputs.number[work.entries][names.matches(_PICKED_BACK)])
    read = [signatures[which] for which in np.unique(inputs.number[work.entries][~backward]).tolist()]
    for shape in {one for which in picked_back.tolist() for one in _shapes(signatures[which])}:
        readers = [op for op in read if shape in _shapes(op)]
        picks = [op for op in readers if _selects(op)]
        if math.prod(shape) not in made or not picks or not all(map(_passes, readers)):
            continue
        passing = np.array([shape in _shapes(op) for op in signatures], bool)
        member = passing[inputs.number[work.entries]] & backward
        for device, members in work[member & work.kind.one_of("compute", "copy_d2d")].by_device():
            share = members.total_ns / max(work[work.device == device].total_ns, 1)
            if share >= limits.min_gpu_share:
                yield Hits(
                    **quicker(members, np.zeros(len(members))),
                    cause="selected",
                    named_by=picks[0].name,
                    message="forward selects the least or largest of {pairs} pairs with {by}, but backward passes over "
                    "all of them: {gpu} of GPU time in {ops}",
                    advice="Find the indices under torch.no_grad() (i = torch.cdist(a, b).argmin(-1)), and compute "
                    "only the selected pairs with gradient: (a - b[i]).norm(dim=-1).",
                    confidence=Confidence.MEDIUM,
                    evidence={**told(members), "gpu_share": share, "pairs": _text(shape)},
                )


def _product_size(op: Signature) -> int:
    """Numbers that a product of matrices, or distances of rows, make; 0 of other ops."""
    left, right = (1, 2) if op.name == "aten::baddbmm" else (0, 1)
    try:
        if op.name == "aten::_cdist_forward":
            return math.prod(op.shape(0)[:-1]) * op.shape(1)[-2]
        return math.prod(op.shape(left)[:-1]) * op.shape(right)[-1] if _PRODUCTS.search(op.name) else 0
    except LookupError:
        return 0


def _selects(op: Signature) -> bool:
    """Whether it leaves the least or largest along a dimension."""
    return bool(_PICKS.search(op.name)) and len(op.dims) > 1 and len(_shapes(op)) == 1


def _passes(op: Signature) -> bool:
    """Whether it selects, or makes of each number another one: then backward needs the selected ones alone."""
    needed = bound_of(op) if op.dims else None
    return _selects(op) or (needed is not None and needed.kind == "elementwise")


def _pairs_of(op: Signature, limits: Limits) -> _Pairs | None:
    """What a pointwise op broadcasts its inputs to, where that is many times as much as they are."""
    needed = bound_of(op) if op.dims else None
    if needed is None or needed.kind != "elementwise":
        return None
    try:
        tensors = [i for i, kind in enumerate(op.types) if kind in ITEM_BYTES and op.dims[i]]
        shape = tuple(np.broadcast_shapes(*(op.shape(i) for i in tensors)))
        small = sum(op.elements(i) for i in tensors)
    except (LookupError, ValueError):
        return None
    size = math.prod(shape)
    if len(tensors) < 2 or size < limits.min_elements or size < limits.min_times * small:
        return None
    return _Pairs(shape, op.name, tuple(_unexpanded(op, i) for i in tensors))


def _unexpanded(op: Signature, position: int) -> Shape:
    """Its shape with 1 where it is expanded."""
    shape = op.shape(position)
    strides = op.stride(position) or (1,) * len(shape)
    return tuple(size if step else 1 for size, step in zip(shape, strides, strict=True))


def _rest(pairs: _Pairs, limits: Limits) -> set[Shape]:
    """Shapes of results that are reduced over one dimension, and are still all pairs."""
    small, shape = sum(map(math.prod, pairs.inputs)), pairs.shape
    rest = {shape[:at] + more + shape[at + 1 :] for at in range(len(shape)) for more in ((), (1,))}
    least = max(limits.min_times * small, limits.min_elements)
    return {one for one in rest if math.prod(one) >= least}


def _staying(pairs: _Pairs, rest: set[Shape], signatures: Sequence[Signature], limits: Limits) -> Floats:
    """Share of each op's time that stays, because later ops read a number for each pair: a product writes it, too."""
    read = rest & {shape for op in signatures if _streams(op) for shape in _shapes(op)}
    if not read:
        return np.zeros(len(signatures))
    share = max(map(math.prod, read)) / math.prod(pairs.shape)
    of_pairs = (pairs.shape in _shapes(op) or _pairs_of(op, limits) == pairs for op in signatures)
    return np.array([share if own else 1.0 for own in of_pairs])


def _streams(op: Signature) -> bool:
    """Whether memory bounds it, so that one kernel could do it with its neighbours: no product, no factorisation."""
    needed = bound_of(op) if op.dims else None
    return needed is not None and needed.kind in ("elementwise", "reduction", "softmax", "norm")


def _reduces(op: Signature) -> bool:
    needed = bound_of(op) if op.dims else None
    return needed is not None and needed.kind in ("reduction", "softmax")


def _shapes(op: Signature) -> set[Shape]:
    """Shapes of its tensors."""
    return {
        tuple(one) for one in op.dims if isinstance(one, list) and one and all(type(n) is int for n in one)
    }


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))
