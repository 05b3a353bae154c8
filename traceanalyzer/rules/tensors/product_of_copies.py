"""A matrix product works on rows that were copied several times before."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, distinct, pick
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.trace import NULL_INT, ints
from traceanalyzer.replay.edits import Resize
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.lower_bounds import REACHED, bound_of
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import reduce_to
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import ITEM_BYTES, Signature, tensors
from traceanalyzer.tensors.top_ops import require_shapes, with_inputs, without_views

_GATHER = r"^aten::(index_select|index)$"
_CONVERTS = ("aten::copy_", "aten::_to_copy", "aten::clone")
_LAYERS = ("aten::linear", "aten::addmm", "aten::mm", "aten::matmul")
_BACKWARD = r"Backward\d*$"
# Nodes that sum the gradients of copies.
_SUMS = r"\b(IndexSelect|Index|Expand)Backward"
# Ops that commute with a linear layer.
_LINEAR_OPS = r"^aten::(sub|add|neg)$|\b(Sub|Add|Neg)Backward"
# Sequence numbers before and after a copy within which its parts are made and it is read; chosen.
_BEFORE, _AFTER = (
    6,
    4,
)


@dataclass(frozen=True, slots=True)
class Limits:
    min_times: int = limit(
        4,
        "reported only if each row is copied at least this many times; fewer save less than gathering costs; chosen",
    )
    min_rows: int = limit(
        4_096,
        "reported only if the product has at least this many rows; launching limits smaller ones; chosen",
    )
    min_gpu_share: float = limit(
        0.05, "products on copied rows must take at least this share of GPU time; chosen"
    )


# Rows and width of a matrix.
Size = tuple[int, int]


class Copied(NamedTuple):
    """How often each row is there, and the widths of the parts that are joined; none where they are not."""

    times: int
    parts: tuple[int, ...]


@rule(since="0.1", claims=Claims.WORK, min_share=0.03, limits=Limits)
def product_of_copies(
    calls: Calls, work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits
) -> Iterator[Hits]:
    """A linear layer is applied to copies of the same rows.

    What it looks for: a linear layer whose input consists of copied rows. The copies come from cat with an
    expanded tensor, or from a gather (index_select, x[index]).
    Why it costs: all copies of a row give the same product.
    Bad: linear(torch.cat([x[:, None].expand(-1, k, -1), x[neighbours]], -1)). Good: split the weight w into
    two parts. y = x @ w1, z = x @ w2, and the result is y[:, None] + z[neighbours].
    How sure: strides and numbers of rows show the copies. Another op may change the copies before the layer,
    so confidence is medium.
    When it is wrong: a non-linear op runs between the copies and the product.
    Saving: the recorded time of forward and backward pass, minus the predicted time of the good code.
    Source: calculated from the linearity of products; measured on an H200 with torch 2.11.
    """
    require_shapes(inputs.signatures, "shows which rows are copies")
    expanded = _expanded_copies(inputs, limits)
    copied = {**expanded, **_gathered_copies(calls, limits)}
    names, compute = work.outer_op.name, work.kind.one_of("compute")
    backward = names.matches(_BACKWARD)
    forward = ~backward & inputs.meets(lambda op: _product(op, copied))
    wide = _widths(
        _product(inputs.signatures[which], copied) for which in distinct(inputs.number[forward]).tolist()
    )
    products, only_weight = _backward_products(inputs, wide, backward)
    gradients = backward & inputs.meets(lambda op: op.dims and _sizes(op) in products)
    joins = inputs.meets(lambda op: _joined(op) in wide)
    chosen = (forward | gradients | joins) & compute
    near_parts, near_copy = _around(work, chosen & ~backward)
    times_wider = np.array([_widens(op, copied, wide) for op in inputs.signatures])[inputs.number]
    on_parts = near_parts & (times_wider > 0)
    gradients |= _bias_gradients(work) & compute & backward & near_copy
    moves = inputs.meets(lambda op: _moves_copies(op, expanded)) | _copies_parts(work, inputs, expanded)
    # the other order needs no work on copies but these: they become narrower, or go
    fewer = (chosen | moves & ~joins & near_copy | on_parts & names.matches(_LINEAR_OPS)) & compute
    longer = on_parts & names.matches(_SUMS) | forward & chosen
    for pieces, share in work[chosen].device_shares(limits.min_gpu_share):
        on_device = work.device == pieces.device[0]
        (rows, _), (times, _) = max(copied.items(), key=lambda item: item[0][0])
        spent, resized = work[fewer & on_device], work[longer & on_device]
        added_ns = _added_ns(inputs, copied, only_weight, gpus.memory_gbps(pieces.device[:1]).item())
        needed_ns = np.where(forward | gradients, work.dur_ns / times, 0.0) + np.where(forward, added_ns, 0.0)
        resized_ns = np.where(forward, needed_ns, work.dur_ns * times_wider)[resized.entries]
        quick = reduce_to(spent, np.minimum(needed_ns[spent.entries], spent.dur_ns))
        yield Hits(
            occurrences=quick["occurrences"],
            lost=quick["lost"],
            fix=(*quick["fix"], Resize(resized.entries, resized_ns)),
            message="matrix products work on up to {rows} rows, in which each row is repeated {copies} times: {gpu} of "
            "GPU time{where}",
            advice="Apply the linear layer before the rows are gathered: multiply the rows once by each part of its "
            "weight, then gather and add the results. The result is the same.",
            confidence=Confidence.MEDIUM,
            evidence={**gpu_time_evidence(pieces), "gpu_share": share, "rows": rows, "copies": times},
        )


def _backward_products(
    inputs: WorkInputs, wide: Mapping[Size, set[int]], backward: Mask
) -> tuple[set[tuple[int, int, int]], set[Size]]:
    """(sizes of the products in backward, copies of which only the weight needs a gradient)."""
    sizes = {_sizes(inputs.signatures[which]) for which in distinct(inputs.number[backward]).tolist()}
    products = {size for key, widths in wide.items() for n in widths for size in _gradients(*key, n, sizes)}
    only_weight = {
        (rows, width)
        for (rows, width), widths in wide.items()
        if all((rows, n, width) not in sizes for n in widths)
        and any((n, rows, width) in sizes for n in widths)
    }
    return products, only_weight


def _bias_gradients(work: Work) -> Mask:
    return work.outer_op.name.matches(r"\bAddmmBackward") & work.op.name.one_of("aten::sum")


def _product(op: Signature, copied: Collection[Size]) -> tuple[Size, int] | None:
    """((rows, width) of the copies, width of the result) of a product whose first factor they are."""
    factors = _factors(op)
    return (factors[0], factors[1][1]) if factors and factors[0] in copied else None


def _factors(op: Signature) -> tuple[Size, Size] | None:
    """The sizes of a product's two matrices."""
    needed = bound_of(op) if op.dims else None
    shapes = [shape for shape in tensors(op) if len(shape) >= 2]
    if needed is None or needed.kind != "matmul" or len(shapes) < 2:
        return None
    (*rows, inner), second = shapes[0], shapes[1]
    return (math.prod(rows), inner), (inner, second[0] if op.name == "aten::linear" else second[-1])


def _sizes(op: Signature) -> tuple[int, int, int] | None:
    """(rows, inner size, columns) of a product."""
    factors = _factors(op)
    return (*factors[0], factors[1][1]) if factors else None


def _gradients(rows: int, width: int, n: int, recorded: Collection[object]) -> Iterator[tuple[int, int, int]]:
    """Sizes of the products in the backward of one with copies, of the copies and of the weight, if they are known."""
    yield rows, n, width
    yield (n, rows, width) if (n, rows, width) in recorded else (width, rows, n)


def _widths(products: Iterable[tuple[Size, int] | None]) -> dict[Size, set[int]]:
    """(rows, width) of copies -> widths of what their products give."""
    widths: dict[Size, set[int]] = {}
    for size, n in filter(None, products):
        widths.setdefault(size, set()).add(n)
    return widths


def _added_ns(
    inputs: WorkInputs, copied: Mapping[Size, Copied], only_weight: Collection[Size], gbps: float
) -> Floats:
    """What the other order adds to each product, (work,): one pass for each part but the first to add the results.

    Where rows that need no gradient were gathered, their products do: then a backward pass adds these up.
    """
    added_ns = []
    for op in inputs.signatures:
        product = _product(op, copied)
        if product is None:
            added_ns.append(0.0)
            continue
        key, n = product
        bytes_ = key[0] * n * min(ITEM_BYTES[kind] for kind in op.types if kind in ITEM_BYTES)
        adds = 3 * max(len(copied[key].parts) - 1, 0) / REACHED["elementwise"]
        added_ns.append(bytes_ / gbps * (adds + 2 / REACHED["row scatter"] * (key in only_weight)))
    return np.array(added_ns)[inputs.number]


def _around(work: Work, joins: Mask) -> tuple[Mask, Mask]:
    """(what makes the parts of a copy, and the backward of that; what converts the copy), by autograd's numbers.

    Both are empty, and nothing is, where the recording has no such numbers.
    """
    sequence = pick(ints(work.events.trace.lanes.cpu, "sequence"), work.outer_op.rows, NULL_INT)
    numbered = sequence != NULL_INT
    last = np.unique(sequence[joins & numbered])
    if not len(last):
        return np.zeros(len(work), bool), np.ones(len(work), bool)
    after = last[np.minimum(np.searchsorted(last, sequence), len(last) - 1)] - sequence
    since = sequence - last[np.maximum(np.searchsorted(last, sequence, side="right") - 1, 0)]
    return numbered & (after > 0) & (after <= _BEFORE), numbered & (since >= 0) & (since <= _AFTER)


def _widens(op: Signature, copied: Mapping[Size, Copied], wide: Mapping[Size, set[int]]) -> float:
    """Width of the results over that of the copied part that the op works on, on average; 0 for other ops."""
    sizes = [math.prod(shape) for shape in tensors(op) if len(shape) > 1]
    ratios = [
        n / part
        for (rows, width), widths in wide.items()
        for part in copied[rows, width].parts or (width,)
        if rows * part in sizes
        for n in widths
    ]
    return float(np.mean(ratios)) if ratios else 0.0


def _expanded_copies(inputs: WorkInputs, limits: Limits) -> dict[Size, Copied]:
    """(rows, width) of what cat makes of an expanded tensor -> how often it is expanded."""
    copies = ((op, _size_of_cat(op, limits)) for op in inputs.signatures)
    return {size[:2]: Copied(size[2], _parts(op)) for op, size in copies if size is not None}


def _size_of_cat(op: Signature, limits: Limits) -> tuple[int, int, int] | None:
    """(rows, width, times) of a cat of an expanded tensor; None for other ops."""
    size_joined = _joined(op)
    if size_joined is None or not op.strides or not _parallel(op.dims[0], op.strides[0]):
        return None
    times = max(
        math.prod(size for size, step in zip(shape, steps, strict=True) if step == 0 and size > 1)
        for shape, steps in zip(op.dims[0], op.strides[0], strict=True)
    )
    return (*size_joined, times) if times >= limits.min_times and size_joined[0] >= limits.min_rows else None


def _joined(op: Signature) -> Size | None:
    """(rows, width) of what cat makes of tensors that differ in their last dimension only; None for other ops."""
    parts = tensors(op) if op.name == "aten::cat" else []
    if not parts or any(len(part) < 2 or part[:-1] != parts[0][:-1] for part in parts):
        return None
    return math.prod(parts[0][:-1]), sum(part[-1] for part in parts)


def _parts(op: Signature) -> tuple[int, ...]:
    """Widths of what cat joins."""
    return tuple(part[-1] for part in tensors(op))


def _moves_copies(op: Signature, copied: Collection[Size]) -> bool:
    """A conversion or copy of joined rows."""
    shape = next(iter(tensors(op)), ()) if op.name in _CONVERTS else ()
    return len(shape) > 1 and (math.prod(shape[:-1]), shape[-1]) in copied


def _copies_parts(work: Work, inputs: WorkInputs, copied: Collection[Size]) -> Mask:
    """Copies in the backward of cat of the parts of such rows; bool of shape (work,)."""
    rows = {size for size, _ in copied}
    parts = inputs.meets(
        lambda op: op.name == "aten::copy_" and any(math.prod(size[:-1]) in rows for size in tensors(op)[:1])
    )
    return parts & work.outer_op.name.matches(r"CatBackward")


def _gathered_copies(calls: Calls, limits: Limits) -> dict[Size, Copied]:
    """(rows, width) of gathered rows, or of what the next op joins them to -> how often each row is there."""
    ops, number, signatures = with_inputs(without_views(calls[calls.is_top_op]).in_order())
    gathers = np.flatnonzero(ops.name.matches(_GATHER)[:-2])
    in_order = (number[gathers + later].tolist() for later in range(3))
    gathered: dict[Size, Copied] = {}
    for first, second, third in set(zip(*in_order, strict=True)):
        rows, width, times = _gather(signatures[first])
        reader, after = signatures[second], signatures[third]
        takes = (rows, width) in {(math.prod(shape[:-1]), shape[-1]) for shape in tensors(reader) if shape}
        if not takes or times < limits.min_times or rows < limits.min_rows:
            continue
        if reader.name in _LAYERS:
            gathered[rows, width] = Copied(times, ())
        elif (size := _joined(reader)) and after.name in _LAYERS:
            gathered[size] = Copied(times, _parts(reader))
    return gathered


def _gather(op: Signature) -> tuple[int, int, int]:
    """(rows, width, times) of rows of a matrix that are gathered, zeros where the inputs do not say."""
    shapes = tensors(op)
    along_rows = op.name != "aten::index_select" or op.scalars[1:2] == ("0",)
    if len(shapes) != 2 or len(shapes[0]) != 2 or not along_rows or "bool" in op.types:
        return 0, 0, 0
    rows = math.prod(shapes[1])
    return rows, shapes[0][1], rows // max(shapes[0][0], 1)


def _parallel(shapes: object, strides: object) -> bool:
    """Lists of as many sizes as strides."""
    if not isinstance(shapes, list) or not isinstance(strides, list) or len(shapes) != len(strides):
        return False
    pairs = zip(shapes, strides, strict=True)
    return all(isinstance(a, list) and isinstance(b, list) and len(a) == len(b) for a, b in pairs)
