"""A tensor that nothing in a step changes is normalised, reduced or sorted again in every step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, distinct
from traceanalyzer.replay.edits import Drop
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.lower_bounds import bound_of
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import reduce_to
from traceanalyzer.tensors.ops.table import op_row, result_shape
from traceanalyzer.tensors.signatures import Shape, Signature, shape_text, signatures_of, tensors
from traceanalyzer.tensors.top_ops import top_ops, with_inputs, without_views

_SCALES = r"^aten::(div|mul|sub|clamp_min|clamp|add|sqrt|rsqrt|reciprocal)$"
_WRITES = r"_$|::(slice|select|narrow|unbind|split\w*|chunk|tensor_split)$"
_SORTS = (
    r"^aten::(sort|argsort|msort|_?unique2?|unique_dim|unique_consecutive|isin|topk|kthvalue|(nan)?(median|quantile)|mode"
    r"|cumsum|cumprod|cummax|cummin|logcumsumexp|histc|histogram|bincount)$"
)
_ONCE = "Do this once, where the tensor is made or loaded, and keep the result."
_LOOK_UP = (
    "Sort it once, where it is made or loaded, and search in each step: i = torch.searchsorted(known, keys), clamped "
    "to len(known) - 1; known[i] == keys is the result of isin."
)
REDUCES = r"^aten::(linalg_vector_norm|norm|sum|mean|amax|amin|aminmax|var|std|var_mean|std_mean|logsumexp)$"
SMALLER = r"^aten::(topk|argmax|argmin|max|min|index_select|gather|embedding|nll_loss\w*)$"
_IN_PLACE = re.compile(r"_$|^aten::_(foreach|fused)_|^(?!aten::)")
_PARTS = re.compile(r"::(slice|select|narrow|unbind|split\w*|chunk|tensor_split|diagonal|as_strided)$")
_AS_INPUTS = frozenset(
    (
        "elementwise",
        "scan",
        "softmax",
        "norm",
        "norm backward",
        "batch norm",
        "transposition",
        "attention",
        "lists",
        "sort",
        "pool backward",
    )
)
# Kinds whose results have fewer elements than their largest input.
_SMALLER = ("select", "pool")


@dataclass(frozen=True, slots=True)
class Limits:
    min_bytes: int = limit(
        128 << 20,
        "reported only if the tensor has at least this size. Then it does not fit into caches, and "
        "writing it takes a known time; chosen",
    )
    writing_share: float = limit(
        0.8,
        "a kernel without recorded shapes may have written the tensor only if it runs long enough: at "
        "least this share of the time to write the tensor's bytes at the memory's peak rate; chosen",
    )
    min_steps: int = limit(
        3,
        "reported only if there are at least this many steps, and all of them do this work; chosen",
    )
    min_gpu_share: float = limit(0.05, "this work must take at least this share of GPU time; chosen")
    min_sorted_bytes: int = limit(
        64 << 20,
        "for `sorted-or-counted`: reported only if the tensor has at least this size. Then it does not "
        "fit into the L2 cache of an H100 (50 MB), and writing it takes a known time",
    )
    probe_bytes: int = limit(
        32,
        "for the saving: a search among n sorted elements has log2(n) steps, and each step reads this "
        "many bytes (one sector of memory) at the memory's peak rate. For 131,072 searches among "
        "12,000,000 elements this predicts 29 µs; measured: 10 to 34 µs; H100, torch 2.11",
    )
    looking_up_ns: int = limit(
        30_000,
        "for the saving: searchsorted, a gather and a comparison, which replace isin, take this CPU time; "
        "chosen",
    )
    floor_ns: int = limit(
        5_000,
        "for the saving: each kernel of a search is predicted to take at least this time; chosen",
    )


@rule(
    since="0.1",
    claims=Claims.WORK,
    specificity=1,
    min_share=0.03,
    limits=Limits,
    causes=("sorted-or-counted",),
)
def repeated_preparation(calls: Calls, work: Work, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """In every step the same unchanged tensor is normalised, reduced or sorted again.

    What it looks for: in every step, a norm, sum or mean of a large tensor that no op seems to change. The
    cost also includes ops that scale the tensor by this norm, sum or mean.
    A second case (cause `sorted-or-counted`, named in the finding's title): a large tensor that no op
    seems to change is sorted, summed cumulatively, counted or made unique. isin is included, because it sorts
    its second input.
    Why it costs: the GPU reads the whole tensor each time, and the result is the same.
    Bad: query @ F.normalize(index, dim=-1).T in every request. Good: index = F.normalize(index, dim=-1) once,
    after loading.
    Bad: torch.isin(keys, known). Good: known, _ = known.sort() once, after loading; then searchsorted.
    How sure: the rule knows the tensor only by its shape, so confidence is medium.
    When it is wrong: the tensor changes, but no recorded op shows this.
    Saving: the time of all this work. For isin, the predicted time of searchsorted is subtracted.
    Source: loop-invariant code motion (Aho, Lam, Sethi, Ullman: Compilers).
    """
    ops, _, _ = top_ops(calls, "tells the tensors of ops apart")
    yield from _sorted(ops, work, gpus, limits)
    touched = _touched(ops)
    ops, number, signatures = with_inputs(without_views(ops))
    reduces = ops.name.matches(REDUCES)
    for which in distinct(number[reduces]).tolist():
        shape, size = _tensor(signatures[which])
        if size < limits.min_bytes or shape in touched:
            continue
        first = np.flatnonzero(number == which)
        if not _in_every_step(ops[first], ops, limits):
            continue
        chain = ops[_chains(first, number, signatures, shape)]
        yield from _hits(chain, work, shape, size, gpus, limits)


def _hits(chain: Calls, work: Work, shape: Shape, size: int, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    inside = work.op.index_of_enclosing(chain) >= 0
    for device, pieces in work[inside].by_device():
        rest = work[(work.device == device) & ~inside]
        least_ns = limits.writing_share * size / gpus.memory_gbps(np.array([device]))[0]
        long = rest[(rest.dur_ns >= least_ns) | (rest.bytes >= size)]
        share = pieces.total_ns / max(pieces.total_ns + rest.total_ns, 1)
        if share < limits.min_gpu_share or _may_write(long, math.prod(shape)):
            continue
        yield Hits(
            **reduce_to(pieces, np.zeros(len(pieces))),
            named_by=shape_text(shape),
            message="a tensor of {by} ({tensor}) goes through {ops} in every step, and no other kernel of a step "
            "runs long enough to have written it, so the result is the same each time: {gpu} of all GPU work{where}",
            advice=_ONCE,
            confidence=Confidence.MEDIUM,
            evidence={**gpu_time_evidence(pieces), "gpu_share": share, "tensor_bytes": size},
        )


def _sorted(ops: Calls, work: Work, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Tensors that are sorted or counted, and that no op can have changed."""
    sorts = ops[ops.name.matches(_SORTS)]
    number, signatures = signatures_of(ops.events.trace, sorts.rows)
    large = [_tensor(op, int(op.name == "aten::isin")) for op in signatures]
    if all(size < limits.min_sorted_bytes for _, size in large):
        return
    changed = sizes_changed(signatures_of(ops.events.trace, ops.rows)[1])
    for shape, size in sorted(set(large)):
        again = sorts[np.array([large[which] == (shape, size) for which in number.tolist()], bool)]
        if size < limits.min_sorted_bytes or math.prod(shape) in changed:
            continue
        for _, calls in again.by(again.name):
            if _in_every_step(calls, ops, limits):
                yield from _sorted_again(calls, again, work, shape, size, gpus, limits)


def _sorted_again(
    calls: Calls, again: Calls, work: Work, shape: Shape, size: int, gpus: Gpus, limits: Limits
) -> Iterator[Hits]:
    """One op that sorts or counts the tensor, `again` all that do.

    An op that makes a tensor of as many elements may have made this one, as may an unknown op that runs long enough.
    """
    inside = work.launch.index_of_enclosing(calls) >= 0
    other_work = work[(work.launch.index_of_enclosing(again) < 0) & (work.step >= 0)]
    for pieces, share in work[inside].device_shares(limits.min_gpu_share):
        rest, gbps = (
            other_work[other_work.device == pieces.device[0]],
            gpus.memory_gbps(pieces.device[:1]).item(),
        )
        if _may_make(rest, math.prod(shape), size, limits.writing_share / gbps):
            continue
        looked_up = calls.name.values()[0] == "aten::isin"
        lookup_ns = _lookups_ns(calls, gbps, limits) if looked_up else np.zeros(len(calls))
        spent = np.bincount(call := pieces.launch.index_of_enclosing(calls), pieces.dur_ns, len(calls))
        remaining = np.minimum(lookup_ns / np.maximum(spent, 1), 1.0)[call]
        yield Hits(
            occurrences=pieces,
            lost=reduce_to(pieces, pieces.dur_ns * remaining)["lost"],
            fix=_search_instead(calls, lookup_ns, limits) if looked_up else Drop(calls.rows),
            cause="sorted-or-counted",
            named_by=shape_text(shape),
            message="a tensor of {by} ({tensor}) goes through {sorter} in every step"
            + (", {calls_a_step} times" if len(calls) > len(distinct(calls.step)) else "")
            + (", which makes it unique and sorts it" if looked_up else "")
            + ", and no op of a step may have changed it: {gpu} of all GPU work{where}",
            advice=_LOOK_UP if looked_up else _ONCE,
            confidence=Confidence.MEDIUM,
            evidence={
                **gpu_time_evidence(pieces),
                "gpu_share": share,
                "tensor_bytes": size,
                "sorter": calls.name.values()[0],
                "calls_a_step": round(len(calls) / len(distinct(calls.step)), 1),
            },
        )


def _lookups_ns(calls: Calls, gbps: float, limits: Limits) -> Floats:
    """What a search in the sorted second input takes for each element of the first one."""
    number, signatures = signatures_of(calls.events.trace, calls.rows)
    read = [math.prod(op.shape(0)) * math.log2(math.prod(op.shape(1))) for op in signatures]
    return np.maximum(np.array(read)[number] * limits.probe_bytes / gbps, limits.floor_ns)


def _search_instead(calls: Calls, needed_ns: Floats, limits: Limits) -> Replace:
    """A search, a gather and a comparison in place of each call."""
    short = np.full(len(calls), float(limits.floor_ns))
    return Replace(calls.start_ns, calls.end_ns, np.stack([needed_ns, short, short], 1), limits.looking_up_ns)


def _may_make(rest: Work, elements: int, size: int, ns_per_byte: float) -> bool:
    """Whether an op makes tensors of that many elements, or is unknown and runs long enough to have written one."""
    number, signatures = signatures_of(rest.events.trace, rest.op.rows)
    written = [may_write(op, elements) for op in signatures]
    if any(written):
        return True
    by_call = np.where(rest.op.there, rest.op.rows, -2 - rest.launch.rows)
    _, call = np.unique(by_call, return_inverse=True)
    spent = np.bincount(call, rest.dur_ns)[call]
    unknown = np.array([size_written is None for size_written in written], bool)[number]
    return bool((unknown & ((spent >= size * ns_per_byte) | (rest.bytes >= size))).any())


def _in_every_step(chosen: Calls, ops: Calls, limits: Limits) -> bool:
    steps = len(distinct(ops.step))
    return steps >= limits.min_steps and len(distinct(chosen.step)) == steps


def _touched(ops: Calls) -> set[Shape]:
    """Shapes of tensors that some op changes in place, or of which it takes a part, which may be written to."""
    writing = ops[ops.name.matches(_WRITES)]
    return {shape for op in signatures_of(ops.events.trace, writing.rows)[1] for shape in tensors(op)}


def _tensor(op: Signature, position: int = 0) -> tuple[Shape, int]:
    """(shape, bytes) of an input; nothing where it is not known."""
    try:
        return op.shape(position), op.bytes(position)
    except LookupError:
        return (), 0


def _chains(first: Rows, number: Rows, signatures: list[Signature], shape: Shape) -> Rows:
    """Positions of the reductions and of the ops after each that take the tensor and what was made of it alone."""
    scales = np.array([_scales(op, shape) for op in signatures])
    chain: list[int] = []
    for place in first.tolist():
        end = place + 1
        while end < len(number) and scales[number[end]]:
            end += 1
        chain += range(place, end)
    return np.array(chain, np.int64)


def _scales(op: Signature, shape: Shape) -> bool:
    """Scaling of the tensor, or of one number per row of it, by such numbers."""
    return bool(re.match(_SCALES, op.name)) and all(_is_reduced(shape_, shape) for shape_ in tensors(op))


def _is_reduced(number: Shape, shape: Shape) -> bool:
    """The tensor's shape, with some dimensions reduced to one or left out."""
    if len(number) == len(shape):
        return all(size in (1, whole) for size, whole in zip(number, shape, strict=True))
    return number in (shape[:-1], shape[1:])


def _may_write(long: Work, elements: int) -> bool:
    """Whether one of these kernels may have made a tensor of that many elements."""
    number, signatures = signatures_of(long.events.trace, long.op.rows)
    return any(_results(signatures[which]) in (None, elements) for which in distinct(number).tolist())


def _results(op: Signature) -> int | None:
    """Elements of a product's result, 0 of what is less than its inputs; None where that is not known."""
    if re.match(REDUCES, op.name) or re.match(SMALLER, op.name):
        return 0
    needed = bound_of(op) if op.dims else None
    shapes = [shape for shape in tensors(op) if len(shape) >= 2]
    if needed is None or needed.kind != "matmul" or len(shapes) < 2:
        return None
    return math.prod(shapes[-2][:-1]) * shapes[-1][-1]


def sizes_changed(signatures: Iterable[Signature]) -> set[int]:
    """Elements of the tensors that ops in place, or of a library, may change: whole, or a part that a view takes."""
    listed = list(signatures)
    changed = {shape for op in listed if _IN_PLACE.search(op.name) for shape in tensors(op)}
    sizes = set(map(math.prod, changed))
    for op in listed:
        if _PARTS.search(op.name):
            part = result_shape(op)
            if part is None or part in changed:
                sizes |= set(map(math.prod, tensors(op)))
    return sizes


def may_write(op: Signature, elements: int) -> bool | None:
    """Whether an op may have written a tensor of that many elements; None where that is not known."""
    sizes = _sizes_written(op)
    if sizes is not None:
        return elements in sizes
    needed, most = bound_of(op) if op.dims else None, max(map(math.prod, tensors(op)), default=0)
    if re.match(REDUCES, op.name) or (needed is not None and needed.kind == "reduction"):
        return most >= elements and most % elements == 0
    smaller = needed is not None and needed.kind in _SMALLER
    return False if smaller and most < elements else None


def _sizes_written(op: Signature) -> set[int] | None:
    """Elements of the tensors that an op writes, and maybe of others; None where that is not known."""
    shapes = tensors(op)
    result = result_shape(op)
    if result is not None:
        return {math.prod(result), *(math.prod(op.shape(position)) for position in op_row(op.name).writes)}
    if not shapes or not (op.name == "aten::convolution_backward" or _is_as_large(op)):
        return None
    return {*map(math.prod, shapes), *_broadcast(shapes)}


def _broadcast(shapes: list[Shape]) -> list[int]:
    try:
        return [math.prod(np.broadcast_shapes(*shapes))]
    except ValueError:
        return []


def _is_as_large(op: Signature) -> bool:
    """Whether it writes nothing but tensors as large as its inputs, or as these broadcast."""
    needed = bound_of(op) if op.dims else None
    in_place = op.name.startswith("aten::") and bool(_IN_PLACE.search(op.name))
    return in_place or (needed is not None and needed.kind in _AS_INPUTS)
