"""Tensors that are sorted whole, of which only the first elements are used."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import sums_of
from traceanalyzer.model.records import dataclass
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import reduce_to
from traceanalyzer.tensors.ops.table import Kind, is_view, op_row
from traceanalyzer.tensors.signatures import ITEM_BYTES, Shape, Signature
from traceanalyzer.tensors.top_ops import with_inputs

_SORTS = ("aten::sort", "aten::argsort", "aten::msort")
_PARTS = ("aten::slice", "aten::select")
_INDEX, _INDEXES = "long int", (Kind.LOOKUP, Kind.SCATTER)


@dataclass(frozen=True, slots=True)
class Limits:
    max_used_share: float = limit(
        0.25,
        "later ops use at most this share of each sorted row; H100, torch 2.11: topk of more was not measured",
    )
    min_row_elements: int = limit(
        4_096,
        "reported only if rows have at least this many elements: topk of shorter rows saves little; H100",
    )
    bytes_times: float = limit(
        12.0, "for the saving: topk takes this many times as long as reading its input; H100: 11 to 15 times"
    )
    floor_ns: int = limit(110_000, "for the saving: topk takes at least this time; H100: 54 to 114 µs")
    max_time_share: float = limit(
        0.7,
        "topk is predicted to take at most this share of the sort's time; the prediction is off by up to 25 %",
    )
    unknown_share: float = limit(
        0.3, "for the saving without shapes: topk takes this share of the time of a sort; H100: 17 to 54 %"
    )


@rule(since="0.1", claims=Claims.EVENT, limits=Limits)
def full_sort(calls: Calls, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """A whole tensor is sorted, and only its first elements are used.

    What it looks for: sorts on the device (sort, argsort, msort) of long rows. The next op takes only the
    start or the end of each sorted row, at most a quarter of it.
    Why it costs: a sort makes many passes, and each pass reads and writes all values and indices. The passes
    of topk only read and count values, and topk writes only the requested part.
    Bad: scores.argsort(dim=1, descending=True)[:, :200]. Good: scores.topk(200, dim=1).indices.
    How sure: shapes and slice bounds are recorded. The rule reports nothing if another op reads a tensor of
    the shape and dtype of the sorted result. Without shapes, how much the next op takes is unknown: confidence is low.
    When it is wrong: a later op reads all of the sorted values. Or equal values must keep their order, as in
    a stable sort.
    Saving: the time of the sort, minus the predicted time of topk.
    Source: torch.topk in PyTorch's documentation; measured on an H100 with torch 2.11: on rows of 200,000
    float32, topk takes a sixth of the time of sort.
    """
    ops, number, signatures = with_inputs(calls[calls.is_top_op].in_order())
    if not ops.name.one_of(*_SORTS).any():
        return
    part_follows = np.append(ops.name.one_of(*_PARTS)[1:] & (ops.thread[1:] == ops.thread[:-1]), False)
    places = np.flatnonzero(ops.name.one_of(*_SORTS) & part_follows)
    sorts = ops[places]
    spent, owner = sorts.launched()
    sort_ns, gbps = sums_of(owner, spent.dur_ns, len(sorts)), np.ones(len(sorts))
    gbps[owner] = gpus.memory_gbps(spent.device)
    needed_ns = np.full(len(sorts), np.inf)
    for which in set(number[places].tolist()):
        members = np.flatnonzero(number[places] == which)
        sort = signatures[which]
        used = max(_used_share(sort, op) for op in signatures)
        if not sort.dims:
            needed_ns[members] = np.maximum(limits.unknown_share * sort_ns[members], limits.floor_ns)
        elif (
            0 < used <= limits.max_used_share and sort.shape(0)[_sorted_dim(sort)] >= limits.min_row_elements
        ):
            read_ns = math.prod(sort.shape(0)) * ITEM_BYTES.get(sort.types[0], 4) / gbps[members]
            needed_ns[members] = limits.floor_ns + limits.bytes_times * read_ns + used * sort_ns[members]
    quick = needed_ns < limits.max_time_share * sort_ns
    for name in sorts[quick].name.distinct():
        of_name = (quick & sorts.name.one_of(name))[owner]
        pieces, place = spent[of_name], owner[of_name]
        part = needed_ns[place] / np.maximum(sort_ns[place], 1)
        yield Hits(
            **reduce_to(pieces, pieces.dur_ns * part),
            named_by=str(name),
            message="{by} sorts whole tensors in {sort_a_step}, and the next op takes only the first or last elements"
            "{where}: topk needs about {topk_a_step}",
            advice="Call torch.topk(x, k), with largest=False for the smallest, and sorted=False if their order "
            "does not matter.",
            confidence=Confidence.MEDIUM if pieces.dims.there.any() else Confidence.LOW,
            evidence={
                **gpu_time_evidence(pieces),
                "sort_ns": pieces.total_ns,
                "topk_ns": int((pieces.dur_ns * part).sum()),
            },
        )


def _sorted_dim(sort: Signature) -> int:
    """LookupError if it is not recorded."""
    place = {"aten::msort": 0, "aten::argsort": 1, "aten::sort": 2}[sort.name]
    return int(sort.scalar(place)) % len(sort.shape(0)) if place else 0


def _used_share(sort: Signature, op: Signature) -> float:
    """Share of each sorted row that an op may use; tensors are known by shape and type alone."""
    try:
        shape, kind, dim = sort.shape(0), sort.types[0], _sorted_dim(sort)
    except (LookupError, ArithmeticError):
        return 1.0
    results = {"aten::argsort": {_INDEX}, "aten::msort": {kind}}.get(sort.name, {_INDEX, kind})
    inputs = list(zip(op.dims, op.types, strict=False))
    places = [place for place, (dims, type_) in enumerate(inputs) if dims == [*shape] and type_ in results]
    if any(isinstance(dims, list) and [*shape] in dims for dims, _ in inputs):
        return 1.0
    # Ops that index values read the scores that were sorted, not the result.
    of_scores = (
        places == [0] and op.types[0] != _INDEX and (op.name in _SORTS or op_row(op.name).kind in _INDEXES)
    )
    if not places or of_scores or (is_view(op.name) and op.name not in _PARTS):
        return 0.0
    return _end_share(op, shape, dim) if op.name in _PARTS and places == [0] else 1.0


def _end_share(op: Signature, shape: Shape, sorted_dim: int) -> float:
    """Share of each row that a view of its start or end has; 0 for a view of all, 1 for a view of other parts."""
    try:
        dim = int(op.scalar(1)) % len(shape)
        size = shape[dim]
        first = int(op.scalar(2)) if op.scalars[2] else 0
        last = first + 1 if op.name == "aten::select" else int(op.scalar(3)) if op.scalars[3] else size
    except (LookupError, TypeError):
        return 1.0
    first, last = (min(max(place + size if place < 0 else place, 0), size) for place in (first, last))
    if (first, last) == (0, size):
        return 0.0
    ends = first == 0 or last == size or op.scalars[2] == "-1"
    return (last - first) / size if dim == sorted_dim and ends else 1.0
