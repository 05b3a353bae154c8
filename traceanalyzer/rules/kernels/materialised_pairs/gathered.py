"""Rows that are gathered twice for each of many pairs, combined and summed up again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Calls, Confidence, Hits, Work
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.quicker_work import quicker
from traceanalyzer.rules.kernels.materialised_pairs.limits import Limits
from traceanalyzer.rules.kernels.materialised_pairs.pair_ops import Shape
from traceanalyzer.tensors.signatures import Signature, number_bytes, signatures_of, tensors
from traceanalyzer.timeline.names import VIEWING_OP

_GATHERS = ("aten::index", "aten::index_select")
_COMBINES = ("aten::mul", "aten::sub")
_SQUARES = ("aten::pow", "aten::square", "aten::mul")
_SUMS = ("aten::sum", "aten::mean")
_NORMS = ("aten::linalg_vector_norm", "aten::norm")
_READERS = frozenset((*_COMBINES, *_SQUARES, *_SUMS, *_NORMS))
_BACKWARD = r"Backward\d*$"
_ADVICE = (
    "Multiply all rows with each other, x @ x.transpose(-1, -2), or use torch.cdist for distances, and take the needed "
    "pairs of the result by index: a gather of single numbers instead of whole rows."
)


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
    ops = calls[calls.is_top_op & ~calls.name.meets(VIEWING_OP.search)]
    ops = ops[np.lexsort((ops.start_ns, ops.thread))]
    backward = work.outer_op.name.matches(_BACKWARD)
    for one, places in _chains(ops, limits).items():
        forward = work.launch.index_of_enclosing(ops[places]) >= 0
        of_pairs = np.array([one.pairs in tensors(op) for op in inputs.signatures], bool)[inputs.number]
        reading = np.unique(inputs.number[of_pairs & ~backward & ~forward])
        if any(inputs.signatures[which].name not in _READERS for which in reading.tolist()):
            continue
        member = (forward | of_pairs) & work.kind.one_of("compute", "copy_d2d")
        for device, found in work[member].by_device():
            yield from _hits(one, found, len(places) // 4, work[work.device == device], gpus, limits)


def _hits(one: Gathered, found: Work, often: int, whole: Work, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    peaks, share = gpus[int(found.device[0])].peaks, found.total_ns / max(whole.total_ns, 1)
    if share < limits.min_gpu_share or peaks is None:
        return
    back = found.outer_op.name.matches(_BACKWARD)
    gram = one.all_pairs * one.item
    moved = np.where(back, 5 * gram + 4 * one.row_bytes, 3 * gram + one.row_bytes)
    summed = np.where(back, 4, 2) * one.all_pairs * one.rows[-1]
    by_compute = summed / (limits.reached_share * peaks.tflops["fp32"] * 1e3)
    each: Floats = np.maximum(moved / (limits.memory_share * peaks.gbps), by_compute) * often
    spent = np.where(back, found.dur_ns[back].sum(), found.dur_ns[~back].sum())
    yield Hits(
        **quicker(found, found.dur_ns * np.minimum(each / np.maximum(spent, 1), 1.0)),
        cause="gathered",
        named_by="x".join(map(str, one.rows)),
        message="rows of {by} are gathered twice, for each of {pair_count} pairs of {row_count} rows, combined and "
        "summed up again: {pairs} is written to memory where one product of the rows gives all sums; {gpu} of GPU "
        "time in {ops}" + (", at {lines}" if found.line.sums(found.dur_ns) else ""),
        advice=_ADVICE,
        confidence=Confidence.MEDIUM,
        evidence={
            **told(found),
            "gpu_share": share,
            "pairs": "x".join(map(str, one.pairs)),
            "pair_count": f"{one.pairs[-2]:,}",
            "row_count": f"{one.rows[-2]:,}",
        },
    )


def _chains(ops: Calls, limits: Limits) -> dict[Gathered, Rows]:
    """What is gathered -> positions of the two gathers, of what combines them and of the sum, in order of time."""
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    found: dict[Gathered, list[int]] = {}
    gathers = np.array([op.name in _GATHERS and len(tensors(op)) > 0 for op in signatures], bool)[number]
    for at in np.flatnonzero(gathers[:-3] & gathers[1:-2]).tolist():
        following = [signatures[which] for which in number[at : at + 5].tolist()]
        one = _gathered(following, limits)
        if one is not None:
            found.setdefault(one, []).extend(range(at, at + 4))
    return {one: np.array(places) for one, places in found.items()}


def _gathered(ops: list[Signature], limits: Limits) -> Gathered | None:
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
