"""Pointwise ops that pick single numbers out of memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.roofline.op_bounds import bound_of
from traceanalyzer.roofline.signatures import ITEM_BYTES, Signature
from traceanalyzer.roofline.work_inputs import WorkInputs
from traceanalyzer.rule import Claims, Confidence, Hits, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.quicker_work import quicker


@dataclass(frozen=True, slots=True)
class Limits:
    sector_bytes: int = limit(
        64,
        "memory delivers this many bytes at once; with 64, not 32, the measured rate of strided copies fits; H200",
    )
    min_times: float = limit(
        1.5,
        "at least this many times the used bytes must be moved; with less, caches may make up for it; chosen",
    )
    min_elements: int = limit(
        1 << 18,
        "a strided tensor must have at least this many elements; smaller ones stay in a cache; chosen",
    )
    min_gpu_share: float = limit(0.05, "such ops must take at least this share of GPU time; chosen")


@rule(since="0.1", claims=Claims.WORK, min_share=0.03, limits=Limits)
def strided_access(work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """Ops read or write every n-th number, but memory also moves the numbers in between.

    What it looks for: pointwise ops and copies of a tensor without any contiguous dimension, by the recorded
    strides: for example one component of many, x[..., 0].
    Why it costs: memory delivers 64 bytes at once, and the op uses only one number of them.
    Bad: state of shape (height, width, 9), and f[..., i] in each op. Good: (9, height, width), and f[i].
    How sure: strides are recorded. The trace does not show how much caches help from one component to the next,
    so confidence is medium.
    When it is wrong: other ops use all components together. They read all of the 64 bytes, so the present
    layout is better for them.
    Saving: the time shrinks to (used bytes / bytes that memory delivers) of what it is.
    Source: CUDA C++ Best Practices Guide, "Strided Accesses".
    """
    if not any(op.strides for op in inputs.signatures):
        raise Unavailable("no strides recorded: record_shapes=True records them from torch 2.5 on")
    wasted = np.array([_wasted(op, limits) for op in inputs.signatures])[inputs.number]
    chosen = (wasted >= limits.min_times) & work.kind.one_of("compute", "copy_d2d")
    for device, found in work[chosen].by_device():
        share = found.total_ns / max(work[work.device == device].total_ns, 1)
        if share < limits.min_gpu_share:
            continue
        worst = inputs.signatures[int(inputs.number[found.entries][np.argmax(found.dur_ns)])]
        yield Hits(
            **quicker(found, found.dur_ns / wasted[found.entries]),
            message=(
                "ops read or write every {apart} number of a tensor {times_a_step}, such as {by_op} of {sizes} with "
                "strides {strides}: memory moves up to {ratio} times the bytes used, {gpu} of GPU time, in {ops}"
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
                "ratio": round(float(wasted[found.entries].max()), 1),
            },
        )


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
