"""Pointwise ops that pick single numbers out of memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.op_bounds import bound_of
from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Claims, Confidence, Hits, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.quicker_work import quicker
from traceanalyzer.tensors.signatures import ITEM_BYTES, Signature

_PICKS = ("aten::index_select", "aten::flip")


@dataclass(frozen=True, slots=True)
class Limits:
    sector_bytes: int = limit(
        64,
        "memory delivers this many bytes at once; with 64 bytes the prediction fits the measured rate of "
        "strided copies, with 32 bytes it does not; H200",
    )
    min_times: float = limit(
        1.5,
        "reported only if the moved bytes are at least this many times the used bytes; with a smaller "
        "ratio, caches may make up for the loss; chosen",
    )
    min_elements: int = limit(
        1 << 18,
        "reported only if the strided tensor has at least this many elements; smaller ones stay in a "
        "cache; chosen",
    )
    min_gpu_share: float = limit(0.05, "such ops must take at least this share of GPU time; chosen")
    max_parts: int = limit(
        32,
        "ops along the last dimension are reported only if this dimension has at most this many "
        "components; with more, neighbouring threads read neighbouring components, so the access is "
        "contiguous again; chosen",
    )
    reached_share: float = limit(
        0.6,
        "for the saving: on a contiguous layout the op reaches this share of the memory's peak rate, as "
        "copies and sums do; H200",
    )


@rule(since="0.1", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits)
def strided_access(work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Ops read or write every n-th number, but memory also moves the numbers in between.

    What it looks for: pointwise ops and copies of a tensor without a contiguous dimension. An example is
    x[..., 0], one component of many. The cost also includes ops that build the whole tensor x (cat, stack),
    index it, or sum over its last dimension, because the layout of x slows them, too.
    Why it costs: memory delivers 64 bytes at once, and the op uses only a few of these bytes.
    Bad: a tensor f of shape (height, width, 9), and f[..., i] in each op. Good: f of shape (9, height,
    width), and f[i].
    How sure: strides are recorded. The trace does not show how much caches help, so confidence is medium.
    When it is wrong: other ops use all components together. The present layout is better for these ops.
    Saving: the part of the time in which memory moves unused bytes.
    Source: CUDA C++ Best Practices Guide, "Strided Accesses".
    """
    if not any(op.strides for op in inputs.signatures):
        raise Unavailable("no strides recorded: record_shapes=True records them from torch 2.5 on")
    wasted = np.array([_wasted(op, limits) for op in inputs.signatures])[inputs.number]
    apart = (wasted >= limits.min_times) & work.kind.one_of("compute", "copy_d2d")
    number, taken = inputs.number[work.entries], _taken_apart(inputs.signatures, limits)
    moved = np.array([_along_last(op, taken) for op in inputs.signatures])[number]
    reached = limits.reached_share * gpus.memory_gbps(work.device)
    along = ~apart & (moved > 0) & (limits.min_times * moved < work.dur_ns * reached)
    needed = np.where(apart, work.dur_ns / wasted, np.where(along, moved / reached, work.dur_ns))
    for device in np.unique(work.device[apart]).tolist():
        chosen = (apart | along) & (work.device == device)
        found = work[chosen]
        share = found.total_ns / max(work[work.device == device].total_ns, 1)
        if share >= limits.min_gpu_share:
            yield _hits(found, inputs, needed[chosen], wasted[chosen] * apart[chosen], share)


def _hits(found: Work, inputs: WorkInputs, needed: Floats, wasted: Floats, share: float) -> Hits:
    """Args: wasted: of each, 0 of what works along the last dimension."""
    number: Rows = inputs.number[found.entries]
    worst = inputs.signatures[int(number[np.argmax(np.where(wasted > 0, found.dur_ns, -1))])]
    along = found[wasted == 0]
    slower = along.total_ns / max(float(needed[wasted == 0].sum()), 1.0)
    return Hits(
        **quicker(found, needed),
        message=(
            "ops read or write every {apart} number of a tensor {times_a_step}, such as {by_op} of {sizes} with "
            "strides {strides}: {gpu} of all GPU work, in {ops}; memory moves up to {ratio} times the used bytes"
        )
        + (
            "; ops along the last dimension take {slower} times as long as their bytes need"
            if len(along)
            else ""
        )
        + (", at {lines}" if found.line.sums(found.dur_ns) else ""),
        advice="Put the indexed dimension first: x[i] of (parts, rows, columns) is contiguous, x[..., "
        "i] of (rows, columns, parts) is not.",
        confidence=Confidence.MEDIUM,
        evidence={
            **told(found),
            "gpu_share": share,
            "by_op": worst.name,
            "apart": _ordinal(_apart(worst)),
            "sizes": "x".join(map(str, max(_shapes(worst), key=math.prod))),
            "strides": str(_strided(worst)),
            "ratio": round(float(wasted.max()), 1),
        }
        | ({"slower": round(slower, 1), "along_ns": along.total_ns} if len(along) else {}),
    )


def _taken_apart(signatures: Sequence[Signature], limits: Limits) -> dict[tuple[int, ...], int]:
    """Shapes of large tensors of which ops take single parts of a short last dimension -> bytes of a number."""
    found: dict[tuple[int, ...], int] = {}
    for op in signatures:
        for position, kind in enumerate(op.types):
            apart = _least_stride(op, position) if kind in ITEM_BYTES and op.dims[position] else 1
            if 2 < apart <= limits.max_parts and op.elements(position) >= limits.min_elements:
                found[(*op.shape(position), apart)] = ITEM_BYTES[kind]
    return found


def _along_last(op: Signature, taken: Mapping[tuple[int, ...], int]) -> int:
    """Bytes that an op must move which joins, picks or sums such parts; 0 of others."""
    try:
        last = _dimensions(op)
        if op.name == "aten::cat":
            shapes = [tuple(one) for one in op.dims[0]]
            whole = (*shapes[0][:-1], sum(one[-1] for one in shapes))
            alike = {one[:-1] for one in shapes} == {whole[:-1]}
            size = math.prod(whole) if alike and whole in taken else 0
            times = 2.0
        else:
            whole, times = op.shape(0), 2.0 if op.name in _PICKS else 1.0
            bound = None if op.name in _PICKS else bound_of(op)
            known = op.name in _PICKS or (bound is not None and bound.kind == "reduction")
            size = math.prod(whole) if known and whole in taken else 0
    except (LookupError, TypeError, ValueError):
        return 0
    return int(times * size * taken[whole]) if size and {-1, len(whole) - 1} & last else 0


def _dimensions(op: Signature) -> set[int]:
    """What its first scalar or list of scalars says: the dimensions along which it works."""
    along = op.scalar(1)
    return set(along) if isinstance(along, list) else {int(along)}


def _wasted(op: Signature, limits: Limits) -> float:
    """How many times the bytes that it uses memory moves; 1 of ops that are not pointwise or lie side by side."""
    needed = bound_of(op) if op.strides else None
    if needed is None or needed.kind != "elementwise" or not needed.bytes:
        return 1.0
    more = 0.0
    for position, kind in enumerate(op.types):
        if kind not in ITEM_BYTES or not op.dims[position]:
            continue
        item, size = ITEM_BYTES[kind], op.elements(position)
        if (apart := _least_stride(op, position)) > 1 and size >= limits.min_elements:
            twice = (
                2 if position == 0 and op.name.endswith("_") else 1
            )  # what is written in part is read before
            more += twice * size * (min(apart * item, limits.sector_bytes) - item)
    return 1.0 + more / needed.bytes


def _least_stride(op: Signature, position: int) -> int:
    """Least distance of neighbours along any dimension, in elements; 1 where it is expanded or not recorded."""
    try:
        shape, strides = op.shape(position), op.stride(position)
    except LookupError:
        return 1
    steps = [step for size, step in zip(shape, strides or (), strict=False) if size > 1]
    return max(min(steps, default=1), 1)


def _shapes(op: Signature) -> list[tuple[int, ...]]:
    return [op.shape(i) for i, kind in enumerate(op.types) if kind in ITEM_BYTES and op.dims[i]]


def _apart(op: Signature) -> int:
    return max(_least_stride(op, i) for i, kind in enumerate(op.types) if kind in ITEM_BYTES and op.dims[i])


def _strided(op: Signature) -> list[int]:
    apart = _apart(op)
    at = next(i for i, kind in enumerate(op.types) if kind in ITEM_BYTES and _least_stride(op, i) == apart)
    return list(op.stride(at) or ())


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
