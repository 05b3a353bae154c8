"""Small tensors are combined each with each in memory, and summed up again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from traceanalyzer.model.arrays import Floats
from traceanalyzer.model.records import dataclass
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.lower_bounds import bound_of
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import reduce_to
from traceanalyzer.rule.messages import times
from traceanalyzer.rules.tensors.materialised_pairs.listed import gathered_pairs, listed_pairs
from traceanalyzer.rules.tensors.materialised_pairs.pair_ops import (
    Limits,
    Shape,
    passes,
    picked,
    product_size,
    selects,
    shapes_in,
    weighs,
)
from traceanalyzer.tensors.flow import Flow, confidence_of
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.table import Kind, op_row, result_shape
from traceanalyzer.tensors.signatures import ITEM_BYTES, Signature, number_bytes, shape_text
from traceanalyzer.tensors.top_ops import require_shapes

_BACKWARD = r"Backward\d*$"
_PICKED_BACK = r"\b(Min|Max|Amin|Amax)Backward\d*$"
_SHARED_BACK = r"\b(Amin|Amax)Backward\d*$"
_COMPARES = re.compile(r"^aten::(eq|ne|lt|le|gt|ge)$")
_ADVICE = (
    "Use a matrix product for sums of products (matmul, einsum), torch.cdist for distances, and the product of "
    "normalised rows for cosine similarity. If few pairs are needed, select them first. Else {torch.compile} fuses the "
    "ops with the reduction."
)
_OF_MASKS = (
    "Instead of a mask of all pairs, read and write by index: x.gather(1, index), scatter_, index_add_, bincount for "
    "counts; else {torch.compile} fuses the comparison with what reads it."
)
_SELECTED = (
    "Find the indices under torch.no_grad() (i = torch.cdist(a, b).argmin(-1)), and compute only the selected pairs "
    "with gradient: (a - b[i]).norm(dim=-1), or (a * b[i]).sum(-1) for products."
)
_ONE_PLACE = (
    "Use x.max(dim).values, x.min(dim).values: backward writes the gradient to the place that forward found. amax and "
    "amin share it among equal numbers, for which backward compares all of them again."
)
_MIXING = (Kind.GEMM, Kind.CONVOLUTION, Kind.ATTENTION, Kind.LOOKUP)
_LISTS = re.compile(r"^aten::(nonzero\w*|masked_select|argwhere)$")
_LIST = (
    "Build the list of close pairs seldom: with a margin (a skin) around the cut-off it holds for several iterations. "
    "Or look for neighbours in cells of that size. "
)
# Ops that pair rows; a linear layer does not.
_PAIRING = r"^aten::(cdist|_euclidean_dist|matmul|mm|bmm|baddbmm|einsum)$"


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The shape that small inputs are broadcast to, the op that does it, and its inputs."""

    shape: Shape
    op: str
    inputs: tuple[Shape, ...]


@rule(
    since="0.1", claims=Claims.WORK, min_share=0.03, limits=Limits, causes=("selected", "gathered", "listed")
)
def materialised_pairs(
    calls: Calls, work: Work, inputs: WorkInputs, gpus: Gpus, flow: Flow | None, limits: Limits
) -> Iterator[Hits]:
    """Two tensors are broadcast to all pairs of their rows, and the large result is written only to be reduced.

    What it looks for: a pointwise op of two broadcast tensors, such as a[:, None] - b[None], whose large
    result is then reduced (sum, min). The result has at least eight times as many numbers as the inputs.
    A second case (cause `selected`, named in the finding's title): distances or products of all pairs are
    computed. The forward pass uses only the smallest or largest value along a dimension. The backward pass
    computes with all values. An example is a Chamfer distance by torch.cdist.
    A third case (cause `gathered`): index tensors say which rows form pairs, and two index ops gather both
    rows of each pair. The rows are multiplied or subtracted, and then summed over the last dimension.
    A fourth case (cause `listed`): an N x N mask tells which pairs of N points are close enough, or have the
    same id. Then nonzero or a boolean index lists these few pairs.
    Why it costs: every op reads or writes all pairs in memory, though inputs and results are small.
    Bad: F.cosine_similarity(a[:, None], b[None], dim=-1); (a[:, None] - b).pow(2).sum(-1). Good: a matrix
    product of the normalised matrices; torch.cdist; or compute only the few pairs that are needed.
    How sure: shapes and strides are recorded. The trace does not show whether fewer pairs would be enough, so
    confidence is medium.
    When it is wrong: all pairs are needed, and no matrix product computes them. Then let a compiler fuse the
    ops.
    Saving: one kernel is assumed to do the arithmetic, and to write only the reduced result. For `selected`,
    the backward pass computes only the selected pairs. For `gathered`, one matrix product computes all pairs,
    and the wanted pairs are picked from its result. The product writes one number for each pair, not a whole
    row. For `listed`, each point is compared only with points in cells of a grid around it, or with points
    that are next to it after sorting by id.
    Source: PyTorch's documentation of broadcasting; the saving is calculated with a roofline model, not
    measured.
    """
    require_shapes(inputs.signatures, "shows what is broadcast")
    pairs_of_ops = [_pairs_of(op, limits) for op in inputs.signatures]
    origins = {origin.shape: origin for origin in pairs_of_ops if origin is not None}
    reduced = {shape for op in inputs.signatures if _reduces(op) for shape in shapes_in(op)}
    yield from gathered_pairs(calls, work, inputs, gpus, limits)
    yield from _selected_hits(work, inputs, gpus, limits)
    within = {shape for origin in origins.values() for shape in _reduced_pairs(origin, limits)}
    reduced_shapes = {shape for shape in origins if shape in reduced and shape not in within}
    listed, hits = listed_pairs(calls, work, inputs, limits, within)
    yield from hits
    for shape, pairs in origins.items():
        if shape in reduced_shapes - listed:
            yield from _pair_hits(pairs, work, inputs, gpus, flow, limits)


def _pair_hits(
    pairs: _Pairs, work: Work, inputs: WorkInputs, gpus: Gpus, flow: Flow | None, limits: Limits
) -> Iterator[Hits]:
    mixed = any(_mixes(op, pairs.shape) for op in inputs.signatures)
    rest = set() if mixed else _reduced_pairs(pairs, limits)
    masks = bool(_COMPARES.search(pairs.op)) and not any(weighs(op, pairs.shape) for op in inputs.signatures)
    member = inputs.meets(
        lambda op: (
            _streams(op)
            and (
                _pairs_of(op, limits) == pairs
                or (not mixed and {pairs.shape, *rest} & shapes_in(op) and (not masks or "bool" in op.types))
            )
        )
    )
    lists = inputs.meets(
        lambda op: bool(_LISTS.search(op.name)) and bool({pairs.shape, *rest} & shapes_in(op))
    )
    stays = _remaining_shares(pairs, rest, inputs.signatures, limits)[inputs.number]
    member &= work.kind.one_of("compute", "copy_d2d")
    for members, share in work[member].device_shares(limits.min_gpu_share):
        if (peaks := gpus[int(members.device[0])].peaks) is None:
            continue
        each = math.prod(pairs.shape) / (limits.reached_share * peaks.tflops["fp32"] * 1e3)
        least = members.dur_ns * stays[members.entries]
        texts = [shape_text(shape) for shape in pairs.inputs]
        listing = work[lists & (work.device == members.device[0])].op
        count = round(len(np.unique(listing.rows)) / max(len(np.unique(listing.step)), 1), 1)
        often = times(int(count)) if count.is_integer() else f"{count} times"
        yield Hits(
            **reduce_to(members, np.maximum(np.minimum(members.dur_ns, each), least)),
            named_by=pairs.op,
            message=(
                "{by} broadcasts {inputs} to all pairs, {pairs}: {ratio} times as many numbers are written to "
                "memory and reduced again; {gpu} of all GPU work in {ops}"
            )
            + (f"; {{lister}} lists those that pass a test, {often} a step" if count else "")
            + (", at {lines}" if members.line.sums(members.dur_ns) else ""),
            advice=_OF_MASKS if masks else (_LIST if count else "") + _ADVICE,
            confidence=confidence_of(flow, members.op),
            evidence={
                **gpu_time_evidence(members),
                "gpu_share": share,
                "inputs": " and ".join(dict.fromkeys(texts)),
                "pairs": shape_text(pairs.shape),
                "ratio": round(math.prod(pairs.shape) / max(sum(map(math.prod, pairs.inputs)), 1)),
            }
            | ({"lister": listing.name.values()[0], "lists_a_step": count} if count else {}),
        )


def _selected_hits(work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Pairs of which forward only selects, while backward passes over all of them."""
    names, signatures = work.outer_op.name, inputs.signatures
    backward, pairing = names.matches(_BACKWARD), names.matches(_PAIRING)
    numbers_made: dict[int, int] = {}
    for which in np.unique(inputs.number[work.entries][pairing & ~backward]).tolist():
        size, summed = product_size(signatures[which])
        if size >= limits.min_elements:
            numbers_made[size] = max(summed, numbers_made.get(size, 0))
    picked_back = np.unique(inputs.number[work.entries][names.matches(_PICKED_BACK)])
    read = [signatures[which] for which in np.unique(inputs.number[work.entries][~backward]).tolist()]
    for shape in {pairs for which in picked_back.tolist() for pairs in shapes_in(signatures[which])}:
        readers = [op for op in read if shape in shapes_in(op)]
        picks = [op for op in readers if selects(op)]
        if math.prod(shape) not in numbers_made or not picks or not all(map(passes, readers)):
            continue
        passing = np.array([shape in shapes_in(op) for op in signatures], bool)
        member = passing[inputs.number[work.entries]] & backward
        member &= work.kind.one_of("compute", "copy_d2d")
        for members, share in work[member].device_shares(limits.min_gpu_share):
            peaks = gpus[int(members.device[0])].peaks
            pass_ns = 0.0 if peaks is None else number_bytes(picks[0]) / (limits.memory_share * peaks.gbps)
            numbers = sum(picked(pairs) for pairs in picks) * numbers_made[math.prod(shape)]
            needed, advice = _least_of_two(members, shape, numbers * limits.selected_passes, pass_ns)
            yield Hits(
                **reduce_to(members, needed),
                cause="selected",
                named_by=picks[0].name,
                message="forward selects the least or largest of {pairs} pairs with {by}, but backward passes over "
                "all of them: {gpu} of all GPU work in {ops}",
                advice=advice,
                confidence=Confidence.MEDIUM,
                evidence={**gpu_time_evidence(members), "gpu_share": share, "pairs": shape_text(shape)},
            )


def _least_of_two(members: Work, shape: Shape, numbers: float, pass_ns: float) -> tuple[Floats, str]:
    """What the work takes after the better of the two changes, and that change in words.

    Args:
        numbers: that selected pairs read and write, once each.
        pass_ns: of one number through memory.
    """
    calls = max(len(np.unique(members.step)), 1)
    remaining = np.full(len(members), min(numbers * pass_ns * calls / max(members.total_ns, 1), 1.0))
    shares = members.outer_op.name.matches(_SHARED_BACK)
    one_pass = math.prod(shape) * pass_ns * calls / max(members[shares].total_ns, 1)
    scattered = np.where(shares, min(one_pass, 1.0), 1.0)
    gather, scatter = (float((members.dur_ns * part).sum()) for part in (remaining, scattered))
    better, advice = (scattered, _ONE_PLACE) if scatter < gather else (remaining, _SELECTED)
    return np.asarray(members.dur_ns * better, np.float64), advice


def _pairs_of(op: Signature, limits: Limits) -> _Pairs | None:
    """What a pointwise op broadcasts its inputs to, where that is many times as much as they are."""
    needed = bound_of(op) if op.dims else None
    if needed is None or needed.kind != "elementwise":
        return None
    try:
        tensors = [i for i, kind in enumerate(op.types) if kind in ITEM_BYTES and op.dims[i]]
        shape = tuple(np.broadcast_shapes(*(op.shape(i) for i in tensors)))
        small = sum(math.prod(_unexpanded(op, i)) for i in tensors)
    except (LookupError, ValueError):
        return None
    size = math.prod(shape)
    if len(tensors) < 2 or size < limits.min_elements or size < limits.min_times * small:
        return None
    sides = tuple(_unexpanded(op, i) for i in tensors)
    few = min(map(math.prod, sides)) < limits.min_side_elements and not _COMPARES.search(op.name)
    return None if few else _Pairs(shape, op.name, sides)


def _unexpanded(op: Signature, position: int) -> Shape:
    """Its shape with 1 where it is expanded."""
    shape = op.shape(position)
    strides = op.stride(position) or (1,) * len(shape)
    return tuple(size if step else 1 for size, step in zip(shape, strides, strict=True))


def _reduced_pairs(pairs: _Pairs, limits: Limits) -> set[Shape]:
    """Shapes of results that are reduced over one dimension, and are still all pairs."""
    small, shape = sum(map(math.prod, pairs.inputs)), pairs.shape
    rest = {shape[:place] + more + shape[place + 1 :] for place in range(len(shape)) for more in ((), (1,))}
    least = max(limits.min_times * small, limits.min_elements)
    return {other_shape for other_shape in rest if math.prod(other_shape) >= least}


def _remaining_shares(
    pairs: _Pairs, rest: set[Shape], signatures: Sequence[Signature], limits: Limits
) -> Floats:
    """Share of each op's time that stays, because later ops read a number for each pair: a product writes it, too."""
    read = rest & {shape for op in signatures if _streams(op) for shape in shapes_in(op)}
    if not read:
        return np.zeros(len(signatures))
    share = max(map(math.prod, read)) / math.prod(pairs.shape)
    of_pairs = (pairs.shape in shapes_in(op) or _pairs_of(op, limits) == pairs for op in signatures)
    return np.array([share if on_pairs else 1.0 for on_pairs in of_pairs])


def _streams(op: Signature) -> bool:
    """Whether memory bounds it, so that one kernel could do it with its neighbours: no product, no factorisation."""
    needed = bound_of(op) if op.dims else None
    return needed is not None and needed.kind in ("elementwise", "reduction", "softmax", "norm")


def _mixes(op: Signature, shape: Shape) -> bool:
    """Whether it mixes other data into a tensor of that shape: then other tensors have the shape of all pairs, too."""
    if op_row(op.name).kind is Kind.NORM:
        return shape in shapes_in(op)
    return not _streams(op) and op_row(op.name).kind in _MIXING and result_shape(op) == shape


def _reduces(op: Signature) -> bool:
    needed = bound_of(op) if op.dims else None
    return needed is not None and needed.kind in ("reduction", "softmax")
