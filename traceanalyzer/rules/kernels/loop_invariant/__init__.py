"""A loop computes the same products of the same tensors again in each iteration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct, grouped
from traceanalyzer.replay.edits import Drop
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, LostTime, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.loops import LAYER, Loop, loops_of_layers, step_edges, whole_loops
from traceanalyzer.rules.kernels.loop_invariant.bodies import Bodies
from traceanalyzer.tensors.signatures import Signature, signatures_of

_BACKWARD = r"^autograd::engine"


@dataclass(frozen=True, slots=True)
class Limits:
    min_iterations: int = limit(
        3,
        "reported only if a loop has at least this many iterations; two iterations may be one call with a "
        "prompt and one without (classifier-free guidance); chosen",
    )
    writing_share: float = limit(
        0.8,
        "an op whose output shape is not recorded may be the one that made a tensor only if it runs long "
        "enough: at least this share of the time needed to write that tensor at the memory's peak; chosen",
    )
    min_layers: int = limit(
        4,
        "a network in the loop is reported only if at least this many of its layers use nothing that the "
        "loop makes. The stages of an ordinary network may look like iterations, but fewer layers of a "
        "stage read only the conditioning input; chosen",
    )
    min_gpu_share: float = limit(0.05, "the repeated work must take at least this share of GPU time; chosen")


@rule(since="0.2", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits)
def loop_invariant(calls: Calls, work: Work, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """A loop computes the same matrix products of the same tensors again in each iteration.

    What it looks for: loops within a step, and matrix products in them whose input was made before the loop.
    The trace does not show when a tensor was made. Usually the rule concludes it from shapes: no op in the
    loop makes a tensor of the input's shape. The rule also reports a whole network in the loop, if the
    network's only input was made before the loop.
    Why it costs: each iteration computes the same result, and once is enough. An example is a diffusion
    model, whose denoising loop computes the keys and values of the same caption in each iteration.
    Bad: k, v = layer.kv(layer.norm(caption)) in each of 30 denoising iterations. Good: k and v are computed
    once per request, before the loop. For a ControlNet: hint = control.hint(image) before the loop.
    How sure: tensors are distinguished only by their shapes, so confidence is medium.
    When it is wrong: what looks like iterations are the layers of a network, each with weights of its own. Or
    each iteration reads a different tensor of a list.
    Saving: the time of this work in all iterations except the first.
    Source: loop-invariant code motion (Aho, Lam, Sethi, Ullman: Compilers).
    """
    ops = calls[calls.is_top_op & (calls.step >= 0)]
    if not any(ops.text("input_dims").distinct()):
        raise Unavailable("no shapes recorded: record_shapes=True tells the tensors of ops apart")
    ops = ops[np.lexsort((ops.start_ns, ops.thread, ops.step))]
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    kind, _ = grouped([ops.name.code, ops.text("input_dims").code])
    launched, owner = ops.launched()
    spent = np.zeros(len(signatures))
    np.maximum.at(spent, number[owner], launched.dur_ns)
    uploaded = distinct(number[owner[launched.kind.one_of("copy_h2d")]]).tolist()
    written = spent * float(gpus.memory_gbps(launched.device[:1]).sum())
    body = Bodies(signatures, written, uploaded, limits.writing_share)
    passes = calls[calls.name.matches(_BACKWARD)]
    again: list[Rows] = []
    times: list[int] = []
    products = ops.name.meets(LAYER.search)
    for low, high in pairwise(step_edges(ops)):
        where = low, high, kind, products, limits.min_iterations
        found = [(loop, False) for loop in loops_of_layers(*where)]
        if not found:  # caches grow, and with them the shapes of what reads them
            found = [(loop, False) for loop in loops_of_layers(*where, alike=ops.name.code)]
        for loop, whole in [*found, *((loop, True) for loop in whole_loops(*where))]:
            span = ops.start_ns[loop.first], ops.end_ns[loop.end - 1]
            if ((passes.start_ns < span[1]) & (passes.end_ns > span[0])).any():
                continue  # micro-batches
            iteration = number[loop.first : loop.first + loop.period]
            if whole:
                same = body.encoded_again(iteration, number[low : loop.first])
                if (same & products[loop.first : loop.first + loop.period]).sum() < limits.min_layers:
                    continue
            else:
                same = body.unchanged(iteration)
            if (at := _recurring(loop, same, number, low)).size:
                again.append(at)
                times.append(loop.repeats)
    if again:
        yield from _hits(ops[distinct(np.concatenate(again))], max(times), signatures, number, work, limits)


def _recurring(loop: Loop, same: np.ndarray, number: Rows, low: int) -> Rows:
    """Positions of these ops of an iteration in all iterations but the first, if all of them have the same numbers."""
    at = loop.first + np.flatnonzero(same) + loop.period * np.arange(loop.repeats)[:, None]
    before = np.maximum(at - loop.period, 0)
    later = (at < loop.end) & (before >= low) & (number[np.minimum(at, len(number) - 1)] == number[before])
    recurs = later[1:] | (at[1:] >= loop.end)
    found: Rows = at[later & recurs.all(0)]
    return found


def _hits(
    again: Calls, times: int, signatures: Sequence[Signature], number: Rows, work: Work, limits: Limits
) -> Iterator[Hits]:
    owner = work.op.index_of_enclosing(again)
    for device, found in work[owner >= 0].by_device():
        share = found.total_ns / max(work[work.device == device].total_ns, 1)
        if share < limits.min_gpu_share:
            continue
        yield Hits(
            occurrences=found,
            lost=LostTime.all_of(found),
            fix=Drop(again.rows),
            message="each of {iterations} iterations of a loop runs {ops} again, on a tensor that no op of an "
            "iteration makes: the result is the same each time; {gpu} of all GPU work{where}",
            advice="Compute this once before the loop (keys and values of the condition, projected features), and hand "
            "the result to each iteration.",
            confidence=Confidence.MEDIUM,
            evidence={**told(found), "gpu_share": share, "iterations": times},
        )
