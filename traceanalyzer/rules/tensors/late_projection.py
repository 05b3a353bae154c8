"""A layer that narrows comes after upsampling or summing neighbours, and could come before."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.records import dataclass
from traceanalyzer.roofline.lower_bounds import bound_of
from traceanalyzer.rule import Calls, Claims, Hits, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import clamp_to_floor, reduce_to
from traceanalyzer.tensors.flow import Flow, confidence_of
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import Signature, shape_text, tensors
from traceanalyzer.tensors.top_ops import top_ops, with_inputs

Shape = tuple[int, ...]

_UPSAMPLING = "aten::upsample_"
_GATHERS = r"^aten::(index_select|index|gather)$"
_SUMS = r"^aten::(index_add_?|scatter_add_?|index_reduce_?|scatter_reduce_?)$"
_SPARSE = ("aten::_sparse_mm", "aten::_sparse_addmm", "aten::spmm")
_LAYERS = frozenset(
    f"aten::{name}"
    for name in ("linear", "addmm", "mm", "matmul", "conv1d", "conv2d", "conv3d", "convolution")
)
_SCALING = ("aten::mul", "aten::mul_", "aten::div", "aten::div_")
_UNCHANGED = r"^aten::(to|_to_copy|contiguous|clone|zeros_like|zeros|new_zeros|empty_like|new_empty|dropout)$"


@dataclass(frozen=True, slots=True)
class Limits:
    max_width_share: float = limit(
        0.5,
        "reported only if the layer's output has at most this share of the channels of its input; with "
        "more output channels, the other order saves little; chosen",
    )
    min_times: float = limit(
        2.0,
        "reported only if the result of upsampling or gathering has at least this many times the elements "
        "of its input",
    )
    near_ops: int = limit(
        8,
        "the sum comes at most this many ops after the gathering, and the layer at most this many after the "
        "sum; views are not counted; chosen",
    )
    min_gpu_share: float = limit(
        0.05, "the work that would have fewer channels must take at least this share of GPU time; chosen"
    )
    floor_ns: int = limit(
        2_000,
        "for the saving: no kernel is predicted to take less than this time; H200, torch 2.11",
    )


@dataclass(frozen=True, slots=True)
class _Late:
    """A linear op that makes many rows or pixels of a wide tensor, with the layer that then narrows them.

    Attributes:
        maker: the op that makes them.
        wide: their shape, of which any work counts; empty for a sparse product, which makes none.
        narrower: width after the layer over width before.
        fewer: rows or pixels before over those after; 1 where the layer does not work on them.
    """

    cause: str
    maker: Signature
    wide: Shape
    widths: tuple[int, int]
    narrower: float
    fewer: float


@rule(
    since="0.1",
    claims=Claims.WORK,
    specificity=1,
    min_share=0.03,
    limits=Limits,
    causes=("upsampled", "aggregated"),
)
def late_projection(
    calls: Calls, work: Work, inputs: WorkInputs, flow: Flow | None, limits: Limits
) -> Iterator[Hits]:
    """A layer that reduces the channels runs after upsampling or after summing rows, not before.

    What it looks for: a 1x1 convolution or linear layer that at least halves the number of channels, in two
    cases.
    - The layer is the only op that reads an upsampled tensor.
    - The layer reads sums of gathered rows, as over the neighbours in a graph. The sums come from
      index_select and index_add, or from a sparse product.
    Why it costs: upsampling, gathering and summing are linear and treat each channel alike. So the other
    order gives the same result. If the layer comes first, all later work has fewer channels.
    Bad: classifier(interpolate(x, size)); linear(index_add(x[source])). Good: interpolate(classifier(x),
    size); for rows, compute linear(x) first, then gather and sum its rows. Add a bias once, after the sum.
    How sure: names, shapes and order of ops are recorded. The trace does not show which tensor an op reads,
    so
    confidence is medium. With an execution trace that shows it, confidence is high.
    When it is wrong: a custom kernel, which the trace does not show as an op, also reads the layer's input.
    Saving: the time of upsampling, gathering and summing shrinks with the number of channels.
    Source: calculated, not measured: (A X) W = A (X W).
    """
    ops, _, _ = top_ops(calls, "shows how wide tensors are", views=False)
    ops, number, signatures = with_inputs(ops[~ops.name.matches(_UNCHANGED)])
    late = [
        *_upsampled(ops, number, signatures, limits),
        *_aggregated(ops, number, signatures, limits),
    ]
    for case in late:
        part = np.array([_needed_share(case, op) for op in inputs.signatures])[inputs.number]
        for pieces, share in work[(part < 1) & work.kind.one_of("compute")].device_shares(
            limits.min_gpu_share
        ):
            needed = clamp_to_floor(pieces.dur_ns * part[pieces.entries], pieces, limits.floor_ns)
            yield _hits(case, pieces, needed, share, flow)


def _hits(late: _Late, pieces: Work, needed: np.ndarray, share: float, flow: Flow | None) -> Hits:
    upsampled = late.cause == "upsampled"
    return Hits(
        **reduce_to(pieces, needed),
        cause=late.cause,
        named_by=shape_text(late.wide or tensors(late.maker)[-1]),
        message=(
            "{maker} makes {by} with {wide} channels"
            if upsampled
            else "rows of {wide} numbers are gathered, {by}, and summed"
        )
        + ", and then a linear layer leaves {narrow} of {wide}: {gpu} of all GPU work in work that could be {times} "
        "times narrower{where}",
        advice=(
            "Apply the 1x1 convolution or linear layer before upsampling. Both are linear, so the result is the "
            "same."
        )
        if upsampled
        else "Apply the linear layer first, then gather and sum its narrow results; add its bias after the sum. The "
        "result is the same.",
        confidence=confidence_of(flow, pieces.op),
        evidence={
            **gpu_time_evidence(pieces),
            "gpu_share": share,
            "maker": late.maker.name,
            "wide": late.widths[0],
            "narrow": late.widths[1],
            "times": late.widths[0] / late.widths[1],
        },
    )


def _upsampled(ops: Calls, number: Rows, signatures: list[Signature], limits: Limits) -> Iterator[_Late]:
    """What is upsampled and narrowed by the next op, and read by no other."""
    for first, second in set(zip(number[:-1].tolist(), number[1:].tolist(), strict=True)):
        maker, layer = signatures[first], signatures[second]
        if not maker.name.startswith(_UPSAMPLING) or not (widths := _narrows(layer, limits)):
            continue
        small, wide = next(iter(tensors(maker)), ()), _data(layer)
        times = math.prod(wide) / max(math.prod(small), 1)
        readers = {which for which, op in enumerate(signatures) if wide in tensors(op)}
        only_reader = all(
            which == second or signatures[which].name.startswith("autograd::") for which in readers
        )
        if small[:2] == wide[:2] and times >= limits.min_times and only_reader:
            yield _Late("upsampled", maker, wide, widths, widths[1] / widths[0], 1 / times)


def _aggregated(ops: Calls, number: Rows, signatures: list[Signature], limits: Limits) -> Iterator[_Late]:
    """What is gathered, scaled row by row, summed, and narrowed; or multiplied by a sparse matrix, and narrowed."""
    gathers = ops.name.matches(_GATHERS)
    seen = set()
    for place in np.flatnonzero(ops.name.matches(_SUMS) | ops.name.one_of(*_SPARSE)).tolist():
        summed = signatures[number[place]]
        if not tensors(summed):
            continue
        following = [signatures[which] for which in number[place + 1 : place + 1 + limits.near_ops].tolist()]
        widths = _narrowed(_rows_of_sum(summed), following, limits)
        before = range(place - 1, max(place - limits.near_ops, 0) - 1, -1)
        source = next((position for position in before if gathers[position]), None)
        sparse = summed.name in _SPARSE
        if widths is None or (source is None and not sparse):
            continue
        between = () if sparse else tuple(number[source:place].tolist())
        if (number[place], widths, between) in seen:
            continue
        seen.add((number[place], widths, between))
        if sparse:
            yield _Late("aggregated", summed, (), widths, widths[1] / widths[0], 1.0)
        elif late := _gathered_and_summed([signatures[which] for which in between], summed, widths, limits):
            yield late


def _rows_of_sum(summed: Signature) -> Shape:
    """Shape of what a sum over rows, or a product with a sparse matrix, makes."""
    shapes = tensors(summed)
    return (*shapes[0][:1], *shapes[-1][1:]) if summed.name in _SPARSE else shapes[0]


def _narrowed(rows: Shape, following: list[Signature], limits: Limits) -> tuple[int, int] | None:
    """(width before, width after) of the layer that reads the rows first; None if something else does."""
    reader = next((op for op in following if rows in tensors(op) and not _scales(op)), None)
    return _narrows(reader, limits) if reader is not None and _data(reader) == rows else None


def _gathered_and_summed(
    ops: list[Signature], summed: Signature, widths: tuple[int, int], limits: Limits
) -> _Late | None:
    """Rows that the first of the ops gathers and the others at most scale, if they are many more than their sums."""
    maker, *rest = ops
    wide = _gathered_rows(maker, tensors(summed))
    if wide is None or not all(_scales(op) for op in rest if wide in tensors(op)):
        return None
    rows = max(tensors(summed)[0][0], tensors(maker)[0][0])
    if wide[1] != widths[0] or wide[0] < limits.min_times * rows:
        return None
    # twice: gathering and summing may then need a backward pass, too
    return _Late("aggregated", maker, wide, widths, min(2 * widths[1] / widths[0], 1.0), 1.0)


def _gathered_rows(maker: Signature, summed: list[Shape]) -> Shape | None:
    """Shape of the rows that are gathered, among what is summed; None where it is another."""
    source, rows = next(iter(tensors(maker)), ()), [math.prod(shape) for shape in tensors(maker)[1:]]
    wide = [shape for shape in summed[1:] if len(shape) == 2 and len(source) == 2]
    return next(
        (
            candidate
            for candidate in wide
            if candidate[1] == source[1] and {candidate[0], math.prod(candidate)} & set(rows)
        ),
        None,
    )


def _scales(op: Signature) -> bool:
    """Whether each row, at most, is multiplied by one number."""
    shapes = tensors(op)
    return op.name in _SCALING and (len(shapes) == 1 or shapes[1:2] in ([(shapes[0][0], 1)], [(1,)]))


def _operands(layer: Signature) -> list[Shape]:
    """Shapes of data and weight, and what else it takes; of addmm its bias comes first."""
    return tensors(layer)[1:] if layer.name == "aten::addmm" else tensors(layer)


def _data(layer: Signature) -> Shape:
    return next(iter(_operands(layer)), ())


def _narrows(op: Signature, limits: Limits) -> tuple[int, int] | None:
    """(width before, width after) of a linear layer or 1x1 convolution without padding; None for other ops."""
    if op.name not in _LAYERS:
        return None
    shapes = _operands(op)
    if len(shapes) < 2:
        return None
    data, weight = shapes[:2]
    if "conv" in op.name:
        if set(weight[2:]) - {1} or len(data) < 3 or data[1:2] != weight[1:2]:
            return None
        wide, narrow = weight[1], weight[0]
    else:
        wide, narrow = data[-1], weight[0] if op.name == "aten::linear" else weight[-1]
    return (wide, narrow) if 0 < narrow <= limits.max_width_share * wide else None


def _needed_share(late: _Late, op: Signature) -> float:
    """Share of an op's time that is left where the layer comes first."""
    shapes = tensors(op)
    same = op.name == late.maker.name and shapes[:1] == tensors(late.maker)[:1]
    makes = (same and _makes_as_many(late, op)) or (
        not late.wide and op.name in _SPARSE and tensors(late.maker)[-2:] == shapes[-2:]
    )
    if not makes and late.wide not in shapes:
        return 1.0
    needed = bound_of(op) if op.dims else None
    product = needed is not None and needed.kind in ("matmul", "conv", "thin conv")
    return late.fewer if product or "convolution" in op.name else late.narrower


def _makes_as_many(late: _Late, op: Signature) -> bool:
    """Whether an op on the same input makes as many rows or pixels as the maker.

    With scale_factor= the op that the user calls has no size, and the one inside, which launches, has.
    """
    size = op.scalars[1:2]
    if size == late.maker.scalars[1:2]:
        return True
    pixels = tuple(map(int, re.findall(r"\d+", size[0]))) if size else ()
    return late.cause == "upsampled" and bool(pixels) and pixels == late.wide[2:]
