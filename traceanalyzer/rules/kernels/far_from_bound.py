"""Ops that take many times what their shapes need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Rows, distinct_pairs, numbered, sums_of
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import Resize
from traceanalyzer.roofline.gpus import Gpu, Gpus
from traceanalyzer.roofline.op_bounds import bound_of, least_ns, reached_ns
from traceanalyzer.roofline.op_model import Signature
from traceanalyzer.roofline.op_work import arithmetic_of, shapes_of
from traceanalyzer.roofline.signatures import signatures_of
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.evidence import kernel_times
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Work

Floats = NDArray[np.float64]


_SHAPE = "Give the device more to do at once: more rows, another dimension, or parts that are combined"
_PLACES = "Let fewer additions meet in one place: sum equal indices first, or add into several tables"
_ORDER = "Reduce along the dimension that lies together in memory, or transpose once before"
_REMEDIES = {
    "scatter": _PLACES,
    "row scatter": _PLACES,
    "softmax": _ORDER,
    "reduction": _ORDER,
    "scan": f"{_ORDER}; cut a few long rows into pieces",
    "matmul": "Pad the odd dimension to a multiple of 8, or split a product with one long dimension into parts",
    "batch norm": "Use channels_last, or more channels or images at once",
}


@dataclass(frozen=True, slots=True)
class Limits:
    times: float = limit(
        3.0, "times what well-shaped calls take; 95 % of 5,357 calls of healthy H200 traces stay below 2.9"
    )
    min_call_ns: int = limit(10_000, "shorter calls are latency; H200, torch 2.11")
    floor_ns: int = limit(5_000, "no call of several kernels takes less")
    min_gpu_share: float = limit(0.02, "of GPU time that the distance must be")


@rule(since="0.2", claims=Claims.NET, min_share=0.03, limits=Limits)
def far_from_bound(work: Work, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """An op takes many times what its shapes and types need.

    What it looks for: the bytes and operations that each call needs at least, by its recorded inputs, at the device's
    peaks; and calls that take more than three times what well-shaped calls of such ops reach.
    Why it costs: the device waits for something else than memory or arithmetic: too few rows to work on in parallel, a
    dimension that loads or tiles do not fit, addresses that collide, an order that reads memory badly.
    Bad: cumsum along a few very long rows, a product with one dimension of a million and two of sixteen, an index_add_
    into few rows. Good: more rows at once, another dimension, several partial sums that are added.
    How sure: the distance is measured, its reason is not: another rule names it where it can be seen.
    When it is wrong: calls that touch less than their inputs, and sparse or irregular data.
    Saving: down to what well-shaped calls of the kind take, thus with a wide interval.
    Source: the roofline model (Williams et al., 2009); shares reached were measured on an H200 (roofline/op_bounds.py).
    """
    shaped = work.op.text("input_dims").code >= 0
    if not shaped.any():
        raise Unavailable("no shapes recorded: with record_shapes=True they say what each op needs at least")
    if not any(gpu.peaks for gpu in gpus.known.values()):
        raise Unavailable("the device is not in the table of peaks")
    chosen = work[shaped & work.kind.one_of("compute", "copy_d2d")]
    for device, found in chosen.by(chosen.device):
        if gpus[device].peaks is not None:
            whole = work[work.device == device].total_ns
            yield from _far(found, gpus[device], limits.min_gpu_share * whole, limits)


def _far(found: Work, gpu: Gpu, least: float, limits: Limits) -> Iterator[Hits]:
    number, signatures = signatures_of(found.events.trace, found.op.rows)
    call, _ = numbered(found.op.rows)
    spent = sums_of(call, found.dur_ns, int(call.max(initial=-1)) + 1)
    reached, bound = _times(found, number, signatures, gpu)
    target = np.maximum(reached[number], limits.floor_ns)
    far = (reached[number] > 0) & (spent[call] > limits.times * target) & (spent[call] > limits.min_call_ns)
    fixed = found.dur_ns * (target / np.maximum(spent[call], 1))
    far_off = found[far]
    for op, mine in far_off.by(far_off.op.name):
        here = np.isin(found.entries, mine.entries)
        excess = np.asarray(found.dur_ns[here] - fixed[here], np.int64)
        if excess.sum() >= least:
            shape = signatures[int(number[here][np.argmax(spent[call][here])])]
            needed = int(bound[number[here]][np.argmax(spent[call][here])])
            yield _hits(op, found[here], excess, fixed[here], (shape, needed, int(spent[call][here].max())))


def _times(found: Work, number: Rows, signatures: list[Signature], gpu: Gpu) -> tuple[Floats, Floats]:
    """What well-shaped calls take, and what each signature needs at the peaks, ns; 0 where no model knows."""
    assert gpu.peaks is not None
    reached, bound = np.zeros(len(signatures)), np.zeros(len(signatures))
    kernels = _kernels(found, number, len(signatures))
    for i, one in enumerate(signatures):
        needed = bound_of(one)
        if needed is not None:
            arithmetic = arithmetic_of(needed, kernels[i]) if needed.flops else None
            bound[i] = least_ns(needed, gpu.peaks, arithmetic)
            reached[i] = reached_ns(needed, gpu.peaks, arithmetic)
    return reached, bound


def _kernels(found: Work, number: Rows, count: int) -> list[str]:
    """The names of all kernels of each signature."""
    names = found.name
    pairs = distinct_pairs(number, names.code)
    together: list[list[str]] = [[] for _ in range(count)]
    for signature, code in zip(*pairs, strict=True):
        together[signature].append(str(names.names[code]))
    return [" ".join(some) for some in together]


def _hits(op: str, found: Work, excess: Rows, fixed: Floats, worst: tuple[Signature, int, int]) -> Hits:
    shape, needed, taken = worst
    model = bound_of(shape)
    kind = model.kind if model else ""
    lines = found.line.sums(found.dur_ns)
    line = f", from {next(iter(lines))}" if lines else ""
    return Hits(
        at=found,
        by=op,
        lost=Lost.excess(found, excess),
        fix=Resize(found.entries, fixed),
        message="{by} of {shapes} ({types}) takes {call} where its bytes and operations need {needed}: {ratio} times, "
        "in {kernels}" + line,
        advice=f"{_REMEDIES.get(kind, _SHAPE)}; Nsight Compute says what the kernel waits for.",
        confidence=Confidence.MEDIUM,
        evidence={
            "shapes": shapes_of(shape),
            "types": ", ".join(
                dict.fromkeys(kind for kind in shape.types if kind[:1].islower() or "::" in kind)
            ),
            "call_ns": taken,
            "needed_ns": needed,
            "ratio": round(taken / max(needed, 1)),
            "kernels": kernel_times(found),
            "lines": lines,
        },
    )
