"""Pairs of all points that are compared, and of which a list of the few that pass is made."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.lower_bounds import bound_of
from traceanalyzer.rule import Calls, Confidence, Hits, Work
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import reduce_to
from traceanalyzer.rules.tensors.materialised_pairs.pair_ops import Limits, Shape, shapes_in
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.table import Kind, op_row, result_shape
from traceanalyzer.tensors.signatures import Signature, number_bytes, shape_text, signatures_of, tensors
from traceanalyzer.tensors.top_ops import without_views

_LISTS = "aten::nonzero"
_DISTANCES = ("aten::cdist", "aten::_euclidean_dist", "aten::_cdist_forward")
# Ops that make a mask of a mask, or read single numbers.
_KEEPS = re.compile(
    r"^aten::(nonzero\w*|argwhere|masked_select|index|tri[lu]_?|fill_diagonal_|fill_|zero_|copy_|where|count_nonzero)$"
)
_COUNTS = re.compile(r"^aten::(sum|any|all)$")
_BACKWARD = r"Backward\d*$"
# One of this many ops after the listing op has the size of the list.
_FOLLOWING = 8
_LISTED_ADVICE = (
    "Search only within each item of a batch: torch.cdist of (items, rows, columns), or torch_cluster.radius(batch_x=) "
    "does it. In a large item, sort points into cells of the size of the cut-off, and compare neighbouring cells only."
)
_BY_KEY = (
    "Sort one side by its key, and look the other one up: torch.sort, torch.searchsorted, repeat_interleave."
)
_GATHERS = ("aten::index", "aten::index_select")
_COMBINES = ("aten::mul", "aten::sub")
_SQUARES = ("aten::pow", "aten::square", "aten::mul")
_SUMS = ("aten::sum", "aten::mean")
_NORMS = ("aten::linalg_vector_norm", "aten::norm")
_CHAIN_LENGTH = 4  # ops: two gathers, what combines them, and the op after it
_READERS = frozenset((*_COMBINES, *_SQUARES, *_SUMS, *_NORMS))
_GATHERED_ADVICE = (
    "Multiply all rows with each other, x @ x.transpose(-1, -2), or use torch.cdist for distances, and take the needed "
    "pairs of the result by index: a gather of single numbers instead of whole rows."
)


class _Pairs(NamedTuple):
    """Pairs that are compared and listed; `equal` where they are the equal keys of two lists, without distances."""

    shape: Shape
    listed: int
    equal: bool


def listed_pairs(
    calls: Calls, work: Work, inputs: WorkInputs, limits: Limits, elsewhere: set[Shape]
) -> tuple[set[Shape], list[Hits]]:
    """(shapes of the pairs, hits): few pairs are listed of many that are compared.

    Args:
        elsewhere: shapes that another cause speaks of.
    """
    ops = calls[calls.is_op]
    ops = ops[np.lexsort((ops.start_ns, ops.thread))]
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    read: dict[Shape, list[Signature]] = {}
    backward = work.outer_op.name.matches(_BACKWARD)
    for which in np.unique(inputs.number[work.entries][~backward]).tolist():
        for shape in shapes_in(inputs.signatures[which]):
            read.setdefault(shape, []).append(inputs.signatures[which])
    hits: list[Hits] = []
    shapes: set[Shape] = set()
    for shape, count in _pairs_listed(number, signatures, limits).items():
        makers = np.array([_measures(op, shape, limits) for op in signatures], bool)[number]
        equal = any(_equals(op, shape) for op in signatures) and all(
            map(_has_only_masks, read.get(shape, []))
        )
        if shape in elsewhere or not all(map(_keeps, read.get(shape, []))) or not (makers.any() or equal):
            continue
        of_pairs = np.array([shape in shapes_in(op) or _equals(op, shape) for op in inputs.signatures], bool)[
            inputs.number[work.entries]
        ]
        measured = work.launch.index_of_enclosing(ops[makers]) >= 0
        pairs = _Pairs(shape, count, not makers.any())
        direct = list(_listed_hits(pairs, work, of_pairs | measured, limits))
        shapes |= {shape} if direct else set()
        hits += direct
    return shapes, hits


def _listed_hits(pairs: _Pairs, work: Work, member: Mask, limits: Limits) -> Iterator[Hits]:
    few = pairs.listed / math.prod(pairs.shape)
    tests = 1.0 if pairs.equal else limits.tests_per_listed
    for pieces, share in work[member & work.kind.one_of("compute", "copy_d2d")].device_shares(
        limits.min_gpu_share
    ):
        yield Hits(
            **reduce_to(pieces, np.asarray(pieces.dur_ns * min(tests * few, 1.0))),
            cause="listed",
            named_by=shape_text(pairs.shape),
            message="all {by} pairs are compared, and "
            + _LISTS
            + " lists {pairs_listed} of them, {listed}: {gpu} of all GPU work in {ops}"
            + (", at {lines}" if pieces.line.sums(pieces.dur_ns) else ""),
            advice=_BY_KEY if pairs.equal else _LISTED_ADVICE,
            confidence=Confidence.MEDIUM,
            evidence={
                **gpu_time_evidence(pieces),
                "gpu_share": share,
                "pairs_listed": f"{pairs.listed:,}",
                "listed_share": few,
            },
        )


def _pairs_listed(number: Rows, signatures: Sequence[Signature], limits: Limits) -> dict[Shape, int]:
    """Shapes of many pairs of which few are listed -> the most that a call lists.

    Args:
        number: of each op, in order of thread and time, its position in `signatures`.
    """
    listed: dict[Shape, int | None] = {}
    for which, op in enumerate(signatures):
        shape = next(iter(tensors(op)), ()) if op.name == _LISTS else ()
        if (
            len(shape) < 2
            or min(shape[-2:]) < limits.min_listed_rows
            or math.prod(shape) < limits.min_elements
        ):
            continue
        for place in np.flatnonzero(number == which).tolist():
            following = [
                signatures[follower] for follower in number[place + 1 : place + 1 + _FOLLOWING].tolist()
            ]
            size, most = _size(following, len(shape)), listed.get(shape, 0)
            listed[shape] = None if size is None or most is None else max(size, most)
    return {
        shape: count
        for shape, count in listed.items()
        if count and count <= limits.max_listed_share * math.prod(shape)
    }


def _size(following: list[Signature], rank: int) -> int | None:
    """How long a list of indices is that the next ops read: one column, or row, for each dimension."""
    for op in following:
        if op.name == _LISTS:
            return None
        for shape in tensors(op):
            if len(shape) == 2 and rank in shape:
                return shape[0] if shape[1] == rank else shape[1]
    return None


def _measures(op: Signature, shape: Shape, limits: Limits) -> bool:
    """Whether it makes distances, or products, of points of few coordinates, each with each."""
    try:
        if op.name in _DISTANCES:
            first, other = op.shape(0), op.shape(1)
            pairs = (*np.broadcast_shapes(first[:-2], other[:-2]), first[-2], other[-2])
            return pairs == shape and first[-1] <= limits.max_columns
        position = 1 if op.name in ("aten::addmm", "aten::baddbmm") else 0
        is_product = op_row(op.name).kind is Kind.GEMM
        return is_product and result_shape(op) == shape and op.shape(position)[-1] <= limits.max_columns
    except (LookupError, ValueError):
        return False


def _equals(op: Signature, shape: Shape) -> bool:
    """Whether it compares each key of one list with each of another: (n, 1) == (1, m)."""
    sides = [(1,) * (len(shape) - len(side)) + side for side in tensors(op)]
    if op.name != "aten::eq" or len(sides) != 2 or any(len(side) != len(shape) for side in sides):
        return False
    ends = {side[-2:] for side in sides}
    return ends == {(shape[-2], 1), (1, shape[-1])} and all(
        wide in (1, size) for side in sides for wide, size in zip(side[:-2], shape[:-2], strict=True)
    )


def _keeps(op: Signature) -> bool:
    """Whether it makes of each number another one, or lists or counts those that pass: then the others need none."""
    needed = bound_of(op) if op.dims else None
    counts = bool(_COUNTS.search(op.name)) and op.types[:1] == ("bool",)
    return counts or bool(_KEEPS.search(op.name)) or (needed is not None and needed.kind == "elementwise")


def _has_only_masks(op: Signature) -> bool:
    """Whether its tensors are masks."""
    return {kind for dims, kind in zip(op.dims, op.types, strict=False) if dims} <= {"bool"}


class Gathered(NamedTuple):
    """Rows of a tensor, and the pairs of them that two gathers and a product or difference write."""

    rows: Shape
    pairs: Shape
    item: int

    @property
    def row_bytes(self) -> int:
        """Of the tensor."""
        return math.prod(self.rows) * self.item

    @property
    def all_pairs(self) -> int:
        """How many numbers a product of all rows with each other has."""
        return math.prod(self.rows[:-1]) * self.rows[-2]


def gathered_pairs(
    calls: Calls, work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits
) -> Iterator[Hits]:
    """Pairs of gathered rows that nothing reads but the sum over each pair."""
    ops = without_views(calls[calls.is_top_op]).in_order()
    backward = work.outer_op.name.matches(_BACKWARD)
    for pairs, places in _chains(ops, limits).items():
        place = work.launch.index_of_enclosing(ops[places])
        forward = place >= 0
        of_pairs = np.array([pairs.pairs in tensors(op) for op in inputs.signatures], bool)[inputs.number]
        reading = np.unique(inputs.number[of_pairs & ~backward & ~forward])
        if any(inputs.signatures[which].name not in _READERS for which in reading.tolist()):
            continue
        member = (forward | of_pairs) & work.kind.one_of("compute", "copy_d2d")
        for device, pieces in work[member].by_device():
            on_device = work.device == device
            count = len(np.unique(place[member & on_device & forward] // _CHAIN_LENGTH))
            yield from _gathered_hits(pairs, pieces, count, work[on_device], gpus, limits)


def _gathered_hits(
    pairs: Gathered, pieces: Work, count: int, whole: Work, gpus: Gpus, limits: Limits
) -> Iterator[Hits]:
    peaks, share = gpus[int(pieces.device[0])].peaks, pieces.total_ns / max(whole.total_ns, 1)
    if count == 0 or share < limits.min_gpu_share or peaks is None:
        return
    back = pieces.outer_op.name.matches(_BACKWARD)
    gram = pairs.all_pairs * pairs.item
    moved = np.where(back, 5 * gram + 4 * pairs.row_bytes, 3 * gram + pairs.row_bytes)
    summed = np.where(back, 4, 2) * pairs.all_pairs * pairs.rows[-1]
    by_compute = summed / (limits.reached_share * peaks.tflops["fp32"] * 1e3)
    each: Floats = np.maximum(moved / (limits.memory_share * peaks.gbps), by_compute) * count
    spent = np.where(back, pieces.dur_ns[back].sum(), pieces.dur_ns[~back].sum())
    yield Hits(
        **reduce_to(pieces, pieces.dur_ns * np.minimum(each / np.maximum(spent, 1), 1.0)),
        cause="gathered",
        named_by=shape_text(pairs.rows),
        message="rows of {by} are gathered twice, for each of {pair_count} pairs of {row_count} rows, combined and "
        "summed up again: {pairs} is written to memory where one product of the rows gives all sums; {gpu} of GPU "
        "time in {ops}" + (", at {lines}" if pieces.line.sums(pieces.dur_ns) else ""),
        advice=_GATHERED_ADVICE,
        confidence=Confidence.MEDIUM,
        evidence={
            **gpu_time_evidence(pieces),
            "gpu_share": share,
            "pairs": shape_text(pairs.pairs),
            "pair_count": f"{pairs.pairs[-2]:,}",
            "row_count": f"{pairs.rows[-2]:,}",
        },
    )


def _chains(ops: Calls, limits: Limits) -> dict[Gathered, Rows]:
    """What is gathered -> positions of the two gathers, of what combines them and of the sum, in order of time."""
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    chains: dict[Gathered, list[int]] = {}
    gathers = np.array([op.name in _GATHERS and len(tensors(op)) > 0 for op in signatures], bool)[number]
    for place in np.flatnonzero(gathers[:-3] & gathers[1:-2]).tolist():
        following = [signatures[which] for which in number[place : place + 5].tolist()]
        pairs = _gathered_by(following, limits)
        if pairs is not None:
            chains.setdefault(pairs, []).extend(range(place, place + _CHAIN_LENGTH))
    return {pairs: np.array(places) for pairs, places in chains.items()}


def _gathered_by(ops: list[Signature], limits: Limits) -> Gathered | None:
    """What two gathers, the op that combines their results and those after it make; None for other ops."""
    first, second, combines, *after = ops
    (rows, *_), pairs = tensors(first), tensors(combines)
    if len(rows) < 2 or tensors(second)[0] != rows or len(pairs) != 2 or pairs[0] != pairs[1]:
        return None
    whole = pairs[0]
    alike = len(whole) == len(rows) and whole[:-2] == rows[:-2] and whole[-1] == rows[-1]
    few = not alike or whole[-2] < max(
        limits.min_pairs_share * rows[-2] ** 2, limits.min_pair_times * rows[-2]
    )
    if few or math.prod(whole) < limits.min_elements or not _sums_up(combines, after, whole):
        return None
    return Gathered(rows, whole, number_bytes(first))


def _sums_up(combines: Signature, after: list[Signature], whole: Shape) -> bool:
    """Whether products, or squares of differences, are summed over the last dimension right after."""
    if combines.name not in _COMBINES or not after:
        return False
    if combines.name == "aten::mul":
        return after[0].name in _SUMS and _over_last(after[0], whole)
    if after[0].name in _NORMS:
        return _over_last(after[0], whole, 2)
    squares = after[0].name in _SQUARES and tensors(after[0])[:1] == [whole]
    return squares and len(after) > 1 and after[1].name in _SUMS and _over_last(after[1], whole)


def _over_last(op: Signature, whole: Shape, position: int = 1) -> bool:
    try:
        dims = op.scalar(position)
    except LookupError:
        return False
    return tensors(op) == [whole] and dims in ([-1], [len(whole) - 1])
