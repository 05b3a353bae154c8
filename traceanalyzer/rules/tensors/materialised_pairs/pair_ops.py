"""What ops do with numbers for each pair: make them, select among them, weigh them."""

from __future__ import annotations

import math
import re

from traceanalyzer.model.records import dataclass
from traceanalyzer.roofline.lower_bounds import bound_of
from traceanalyzer.rule import limit
from traceanalyzer.tensors.signatures import Signature, tensors

Shape = tuple[int, ...]
_PICKS = re.compile(r"^aten::(min|max|amin|amax)$")
_PRODUCTS = re.compile(r"^aten::(mm|bmm|baddbmm)$")
_FLOATS = ("float", "double", "c10::Half", "c10::BFloat16")


def product_size(op: Signature) -> tuple[int, int]:
    """How many numbers a product of matrices, or distances of rows, make, and how many each sums up; 0 of other ops."""
    left, right = (1, 2) if op.name == "aten::baddbmm" else (0, 1)
    try:
        if op.name == "aten::_cdist_forward":
            return math.prod(op.shape(0)[:-1]) * op.shape(1)[-2], op.shape(0)[-1]
        numbers = math.prod(op.shape(left)[:-1]) * op.shape(right)[-1] if _PRODUCTS.search(op.name) else 0
        return numbers, op.shape(left)[-1]
    except LookupError:
        return 0, 0


def picked(op: Signature) -> int:
    """How many numbers a selection along one dimension leaves."""
    shape = op.shape(0)
    try:
        along = op.scalar(1)
        return math.prod(shape) // int(shape[along[0] if isinstance(along, list) else along])
    except (LookupError, TypeError):
        return math.prod(shape) // max(shape)


def selects(op: Signature) -> bool:
    """Whether it leaves the least or largest along a dimension."""
    return bool(_PICKS.search(op.name)) and len(op.dims) > 1 and len(tensors(op)) == 1


def passes(op: Signature) -> bool:
    """Whether it selects, or makes of each number another one: then backward needs the selected ones alone."""
    needed = bound_of(op) if op.dims else None
    return selects(op) or (needed is not None and needed.kind == "elementwise")


def weighs(op: Signature, shape: Shape) -> bool:
    """Whether it makes floating numbers of a mask of that shape, with which products or sums then work."""
    return (
        op.name == "aten::copy_"
        and op.types[:1] != ()
        and op.types[0] in _FLOATS
        and op.types[1:2] == ("bool",)
        and shape in shapes_in(op)
    )


def shapes_in(op: Signature) -> set[Shape]:
    """Shapes of its tensors."""
    return {
        tuple(shape)
        for shape in op.dims
        if isinstance(shape, list) and shape and all(type(n) is int for n in shape)
    }


@dataclass(frozen=True, slots=True)
class Limits:
    min_times: float = limit(
        8.0,
        "reported only if the result for all pairs has at least this many times as many elements as all "
        "inputs together; if it has fewer, an input is probably a bias or a mask; chosen",
    )
    min_elements: int = limit(
        1 << 20,
        "reported only if there are at least this many pairs; fewer fit into a cache; chosen",
    )
    min_side_elements: int = limit(
        16,
        "reported only if each input has at least this many numbers; fewer are probably coefficients of a "
        "formula, not items to pair. Inputs of comparisons (==, <) may have fewer; chosen",
    )
    min_gpu_share: float = limit(0.05, "work on the pairs must take at least this share of GPU time; chosen")
    selected_passes: float = limit(
        14.0,
        "for `selected`: to gather the selected pairs and compute them again, kernels read or write the "
        "values of these pairs this many times in all (forward and backward); counted in a trace",
    )
    memory_share: float = limit(
        0.6,
        "for `selected`: the reads and writes of selected_passes reach this share of the memory's peak "
        "rate, as pointwise kernels do on an H200; not measured for gathers",
    )
    reached_share: float = limit(
        0.5,
        "for the saving: a fused kernel reaches this share of the float32 peak; chosen",
    )
    min_pairs_share: float = limit(
        0.25,
        "for `gathered`: reported only if the gathered pairs are at least this share of all pairs of "
        "rows; if they are fewer, a matrix product of all rows computes and writes too much; chosen",
    )
    min_pair_times: float = limit(
        4.0,
        "for `gathered`: reported only if the number of gathered pairs is at least this many times the "
        "number of rows; chosen",
    )
    max_listed_share: float = limit(
        0.05,
        "for `listed`: reported only if at most this share of the compared pairs is listed; if more are "
        "listed, a search that skips the other pairs saves little; chosen",
    )
    tests_per_listed: float = limit(
        8.0,
        "for `listed`: a search by cells compares this many pairs for each pair that it lists. It reads "
        "27 cells, and the sphere of the listed pairs has the volume of 4.2 cells. 27 / 4.2 is 6.4; the "
        "limit adds a margin",
    )
    max_columns: int = limit(
        3,
        "for `listed`: reported only if points have at most this many coordinates (n), because a search "
        "by cells reads 3**n cells for each point; chosen",
    )
    min_listed_rows: int = limit(
        128,
        "for `listed`: reported only if both sides have at least this many rows; with fewer, sorting "
        "costs as much as comparing; chosen",
    )
