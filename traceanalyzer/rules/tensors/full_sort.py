"""Tensors that are sorted whole, of which only the first elements or the ranks are used."""

import math
from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import sums_of
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, gpu_time_evidence, reduce_to, rule
from traceanalyzer.tensors.flow import Flow, confidence_of
from traceanalyzer.tensors.ops.table import Kind, is_view, op_row, result_shape
from traceanalyzer.tensors.signatures import ITEM_BYTES, Shape, Signature, tensors
from traceanalyzer.tensors.top_ops import with_inputs

_SORTS = ("aten::sort", "aten::argsort", "aten::msort")
_PARTS = ("aten::slice", "aten::select")
_INDEX, _INDEXES = "long int", (Kind.LOOKUP, Kind.SCATTER)


class Limits:
    max_used_share: float = 0.25
    """later ops use at most this share of each sorted row; H100, torch 2.11: topk of more was not measured"""
    min_row_elements: int = 4_096
    """reported only if rows have at least this many elements: topk of shorter rows saves little; H100"""
    bytes_times: float = 12.0
    """for the saving: topk takes this many times as long as reading its input; H100: 11 to 15 times"""
    floor_ns: int = 110_000
    """for the saving: topk takes at least this time; H100: 54 to 114 µs"""
    max_time_share: float = 0.7
    """topk is predicted to take at most this share of the sort's time; the prediction is off by up to 25 %"""
    rank_times: float = 16.0
    """for the saving of ranks: a comparison with its sum, or a scatter, takes this many times as long as
    reading what is sorted; H200, torch 2.11: 10 and 16 times"""
    unknown_share: float = 0.3
    """for the saving without shapes: topk takes this share of the time of a sort; H100: 17 to 54 %"""


_ONE_RANK = (
    "Count the elements before it, without a sort: own = x.gather(dim, index), then (x > own).sum(dim) for descending "
    "order, or x < own."
)
_RANKS = (
    "Sort once, and write the ranks: torch.empty_like(order).scatter_(dim, order, torch.arange(n).expand_as(order)), "
    "with the arange on the device."
)


@rule(since="0.1", claims=Claims.EVENT, limits=Limits, causes=("rank",))
def full_sort(calls: Calls, gpus: Gpus, flow: Flow | None, limits: Limits) -> Iterator[Hits]:
    """A whole tensor is sorted, and only its first elements or the ranks are used.

    What it looks for: sorts on the device (sort, argsort, msort) of long rows. The next op takes only the
    start or the end of each sorted row, at most a quarter of it. Cause `rank`: the next op sorts the indices of the
    sort, which gives the rank of each element.
    Why it costs: a sort makes many passes, and each pass reads and writes all values and indices. The passes
    of topk only read and count values, and topk writes only the requested part.
    Bad: scores.argsort(dim=1, descending=True)[:, :200]. Good: scores.topk(200, dim=1).indices.
    How sure: shapes and slice bounds are recorded. The rule reports nothing if another op reads a tensor of
    the shape and dtype of the sorted result. Without shapes, how much the next op takes is unknown: confidence is low.
    When it is wrong: a later op reads all of the sorted values. Or equal values must keep their order, as in
    a stable sort.
    Saving: the time of the sort, minus the predicted time of topk. Of ranks, the time of the second sort minus that of
    a scatter, or of both sorts minus that of a comparison and a sum if one rank of each row is read.
    Source: torch.topk in PyTorch's documentation; measured on an H100 with torch 2.11: on rows of 200,000
    float32, topk takes a sixth of the time of sort.
    """
    ops, number, signatures = with_inputs(calls[calls.is_top_op].in_order())
    if not ops.name.one_of(*_SORTS).any():
        return
    yield from _rank_hits(ops, [signatures[which] for which in number.tolist()], gpus, flow, limits)
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
        elif 0 < used <= limits.max_used_share and sort.shape(0)[_sorted_dim(sort)] >= limits.min_row_elements:
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
            evidence=gpu_time_evidence(pieces)
            | {"sort_ns": pieces.total_ns, "topk_ns": int((pieces.dur_ns * part).sum())},
        )


def _rank_hits(ops: Calls, inputs: list[Signature], gpus: Gpus, flow: Flow | None, limits: Limits) -> Iterator[Hits]:
    """Sorts of the indices of the sort before, once for those of which one rank in each row is read."""
    sorts = np.flatnonzero(ops.name.one_of(*_SORTS))
    pairs = sorts[1:][(np.diff(sorts) == 1) & (ops.thread[sorts[1:]] == ops.thread[sorts[:-1]])]
    second = [place for place in pairs.tolist() if _sorts_indices(inputs[place - 1], inputs[place], limits)]
    single = np.array([_reads_one_rank(inputs, place) for place in second], bool)
    for one, chosen in ((True, single), (False, ~single)):
        places = np.array(second, np.int64)[chosen]
        both = ops[np.sort(np.append(places, places - 1))]
        members = both if one else ops[places]
        pieces, owner = members.launched()
        if not len(pieces):
            continue
        sort_ns = sums_of(owner, pieces.dur_ns, len(members))
        read = [inputs[place - one] for place in places.tolist()]
        read_bytes = np.array([math.prod(op.shape(0)) * ITEM_BYTES.get(op.types[0], 4) for op in read])
        instead_ns = limits.rank_times * np.repeat(read_bytes, 1 + one) / gpus.memory_gbps(pieces.device).max()
        part = np.minimum(instead_ns / (1 + one) / np.maximum(sort_ns, 1), 1.0)[owner]
        yield Hits(
            **reduce_to(pieces, pieces.dur_ns * part),
            cause="rank",
            message="a sort of the indices of a sort gives the rank of each element, in {sort_a_step}{where}"
            + ("; later ops read one rank of each row, and counting takes" if one else "; a scatter takes")
            + " about {instead_a_step}",
            advice=_ONE_RANK if one else _RANKS,
            confidence=confidence_of(flow, both),
            evidence=gpu_time_evidence(pieces)
            | {"sort_ns": pieces.total_ns, "instead_ns": int((pieces.dur_ns * part).sum())},
        )


def _sorts_indices(first: Signature, second: Signature, limits: Limits) -> bool:
    """Whether a sort may sort the indices that another one has made: long integers of the same shape and dimension."""
    try:
        shape, dim = first.shape(0), _sorted_dim(first)
        alike = shape == second.shape(0) and dim == _sorted_dim(second)
        return alike and shape[dim] >= limits.min_row_elements and first.types[0] != _INDEX == second.types[0]
    except (LookupError, ArithmeticError):
        return False


def _reads_one_rank(inputs: list[Signature], place: int) -> bool:
    """Whether the first op after a sort that reads long integers of its shape takes one of each row at most."""
    shape, dim = inputs[place].shape(0), _sorted_dim(inputs[place])
    for at, op in enumerate(inputs[place + 1 :], place + 1):
        if op.dims[:1] == ([*shape],) and op.types[0] == _INDEX:
            following = tensors(inputs[min(at + 1, len(inputs) - 1)])[:1]
            taken = result_shape(op) or next(iter(following), shape)
            return op_row(op.name).kind is Kind.LOOKUP and math.prod(taken) * shape[dim] <= math.prod(shape)
    return False


def _sorted_dim(sort: Signature) -> int:
    """LookupError if it is not recorded."""
    if sort.name == "aten::msort":
        return 0
    # The variant with `stable` has it before the dimension.
    stable = sort.name == "aten::sort" and len(sort.dims) > 3
    return int(sort.scalar(1 + stable)) % len(sort.shape(0))


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
    of_scores = places == [0] and op.types[0] != _INDEX and (op.name in _SORTS or op_row(op.name).kind in _INDEXES)
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
