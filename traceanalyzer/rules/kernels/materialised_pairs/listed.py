"""Pairs of all points that are compared, and of which a list of the few that pass is made."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.roofline.op_bounds import bound_of
from traceanalyzer.roofline.results import product_of
from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Calls, Confidence, Hits, Work
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.quicker_work import quicker
from traceanalyzer.rules.kernels.materialised_pairs.limits import Limits
from traceanalyzer.rules.kernels.materialised_pairs.pair_ops import Shape, shapes_in
from traceanalyzer.tensors.signatures import Signature, signatures_of, tensors

_LISTS = "aten::nonzero"
_DISTANCES = ("aten::cdist", "aten::_euclidean_dist", "aten::_cdist_forward")
_KEEPS = re.compile(  # makes a mask of a mask, or takes single numbers
    r"^aten::(nonzero\w*|argwhere|masked_select|index|tri[lu]_?|fill_diagonal_|fill_|zero_|copy_|where|count_nonzero)$"
)
_COUNTS = re.compile(r"^aten::(sum|any|all)$")
_BACKWARD = r"Backward\d*$"
_FOLLOWING = 8  # ops after the one that lists, one of which has the size of the list
_ADVICE = (
    "Search only within each item of a batch: torch.cdist of (items, rows, columns), or torch_cluster.radius(batch_x=) "
    "does it. In a large item, sort points into cells of the size of the cut-off, and compare neighbouring cells only."
)
_BY_KEY = (
    "Sort one side by its key, and look the other one up: torch.sort, torch.searchsorted, repeat_interleave."
)


class _Pairs(NamedTuple):
    """Pairs that are compared and listed; `equal` where they are the equal keys of two lists, without distances."""

    shape: Shape
    kept: int
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
    for shape, kept in _kept(number, signatures, limits).items():
        makers = np.array([_measures(op, shape, limits) for op in signatures], bool)[number]
        equal = any(_equals(op, shape) for op in signatures) and all(map(_of_masks, read.get(shape, [])))
        if shape in elsewhere or not all(map(_keeps, read.get(shape, []))) or not (makers.any() or equal):
            continue
        of_pairs = np.array([shape in shapes_in(op) or _equals(op, shape) for op in inputs.signatures], bool)[
            inputs.number[work.entries]
        ]
        measured = work.launch.index_of_enclosing(ops[makers]) >= 0
        pairs = _Pairs(shape, kept, not makers.any())
        found = list(_hits(pairs, work, of_pairs | measured, limits))
        shapes |= {shape} if found else set()
        hits += found
    return shapes, hits


def _hits(pairs: _Pairs, work: Work, member: Mask, limits: Limits) -> Iterator[Hits]:
    few = pairs.kept / math.prod(pairs.shape)
    tests = 1.0 if pairs.equal else limits.tests_per_listed
    for device, found in work[member & work.kind.one_of("compute", "copy_d2d")].by_device():
        share = found.total_ns / max(work[work.device == device].total_ns, 1)
        if share < limits.min_gpu_share:
            continue
        yield Hits(
            **quicker(found, np.asarray(found.dur_ns * min(tests * few, 1.0))),
            cause="listed",
            named_by="x".join(map(str, pairs.shape)),
            message="all {by} pairs are compared, and "
            + _LISTS
            + " lists {pairs_listed} of them, {listed}: {gpu} of all GPU work in {ops}"
            + (", at {lines}" if found.line.sums(found.dur_ns) else ""),
            advice=_BY_KEY if pairs.equal else _ADVICE,
            confidence=Confidence.MEDIUM,
            evidence={
                **told(found),
                "gpu_share": share,
                "pairs_listed": f"{pairs.kept:,}",
                "listed_share": few,
            },
        )


def _kept(number: Rows, signatures: Sequence[Signature], limits: Limits) -> dict[Shape, int]:
    """Shapes of many pairs of which few are listed -> the most that a call lists.

    Args:
        number: of each op, in order of thread and time, its position in `signatures`.
    """
    found: dict[Shape, int | None] = {}
    for which, op in enumerate(signatures):
        shape = next(iter(tensors(op)), ()) if op.name == _LISTS else ()
        if (
            len(shape) < 2
            or min(shape[-2:]) < limits.min_listed_rows
            or math.prod(shape) < limits.min_elements
        ):
            continue
        for at in np.flatnonzero(number == which).tolist():
            following = [signatures[one] for one in number[at + 1 : at + 1 + _FOLLOWING].tolist()]
            size, most = _size(following, len(shape)), found.get(shape, 0)
            found[shape] = None if size is None or most is None else max(size, most)
    return {
        shape: kept
        for shape, kept in found.items()
        if kept and kept <= limits.max_listed_share * math.prod(shape)
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
            one, other = op.shape(0), op.shape(1)
            made = (*np.broadcast_shapes(one[:-2], other[:-2]), one[-2], other[-2])
            return made == shape and one[-1] <= limits.max_columns
        at = 1 if op.name in ("aten::addmm", "aten::baddbmm") else 0
        return product_of(op) == shape and op.shape(at)[-1] <= limits.max_columns
    except (LookupError, ValueError):
        return False


def _equals(op: Signature, shape: Shape) -> bool:
    """Whether it compares each key of one list with each of another: (n, 1) == (1, m)."""
    sides = [(1,) * (len(shape) - len(one)) + one for one in tensors(op)]
    if op.name != "aten::eq" or len(sides) != 2 or any(len(one) != len(shape) for one in sides):
        return False
    ends = {one[-2:] for one in sides}
    return ends == {(shape[-2], 1), (1, shape[-1])} and all(
        wide in (1, size) for one in sides for wide, size in zip(one[:-2], shape[:-2], strict=True)
    )


def _keeps(op: Signature) -> bool:
    """Whether it makes of each number another one, or lists or counts those that pass: then the others need none."""
    needed = bound_of(op) if op.dims else None
    counts = bool(_COUNTS.search(op.name)) and op.types[:1] == ("bool",)
    return counts or bool(_KEEPS.search(op.name)) or (needed is not None and needed.kind == "elementwise")


def _of_masks(op: Signature) -> bool:
    """Whether its tensors are masks."""
    return {kind for dims, kind in zip(op.dims, op.types, strict=False) if dims} <= {"bool"}
