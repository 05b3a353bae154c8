"""Each iteration of a loop computes a result that no later op reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct, grouped
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, LostTime, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.loops import LAYER, Loop, step_edges, whole_loops
from traceanalyzer.rules.kernels.unread_results.bodies import Block, Body, Made
from traceanalyzer.rules.kernels.unread_results.items import takes_items
from traceanalyzer.tensors.signatures import Shape, Signature, signatures_of, tensors

_BACKWARD = r"^autograd::engine"
_HANDS_OUT = "copy_d2h", "copy_h2d", "copy_p2p", "communication"
_READS = "compute", "communication", "copy_d2h", "copy_d2d", "copy_p2p", "copy_other"


@dataclass(frozen=True, slots=True)
class Limits:
    min_iterations: int = limit(
        3,
        "reported only if a loop has at least this many iterations; with two iterations, half of the "
        "results are read; chosen",
    )
    max_read_share: float = limit(
        0.5,
        "reported only if at most this share of the results is read, by any op; the last result of each "
        "loop, for example, is read; chosen",
    )
    max_live_share: float = limit(
        0.1,
        "the ops that make one unread result run close together. So between the first and the last of "
        "these ops, other ops take at most this share of the time; chosen",
    )
    min_left_share: float = limit(
        0.2,
        "reported only if the work on the state, which the next iteration needs, takes at least this "
        "share of an iteration's GPU time. If it takes less, the loop is a network that is called several "
        "times, and each result is probably used; chosen",
    )
    min_gpu_share: float = limit(0.05, "the unread work must take at least this share of GPU time; chosen")


@dataclass(frozen=True, slots=True)
class _Found:
    """Positions of ops that make unread results, int64 (iterations, ops of the block, its last one first)."""

    at: Rows
    block: Block


@rule(since="0.2", claims=Claims.WORK, specificity=2, min_share=0.03, limits=Limits)
def unread_results(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """Each iteration of a loop computes a result that no later op reads.

    What it looks for: loops of three or more iterations, in steps without a backward pass. Each iteration
    updates a state, and computes another result with a matrix product or a convolution. No op of the loop
    reads this other result. Ops after the loop may read the result of the last iteration.
    Why it costs: if only the last result is used, all earlier results are computed for nothing.
    Bad: each iteration appends head(state) to a list, and after the loop only results[-1] is used.
    Good: head(state) once after the loop, or inside the loop only in training.
    How sure: no op of the loop takes an input of the result's shape. But a program may keep all results and
    read them after the recorded steps, so confidence is low.
    When it is wrong: the caller uses the results of all iterations. A benchmark may drop results that real
    users read.
    Saving: the time to compute the unread results, in all iterations except the last.
    Source: dead code elimination (Aho, Lam, Sethi, Ullman: Compilers); RAFT, which upsamples the flow in each
    iteration.
    """
    ops = calls[calls.is_top_op]
    if not any(ops.text("input_dims").distinct()):
        raise Unavailable("no shapes recorded: record_shapes=True tells which tensors ops read")
    ops = ops[np.lexsort((ops.start_ns, ops.thread, ops.step))]
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    launched, owner = ops.launched()
    spent = np.bincount(owner, launched.dur_ns, len(ops)).astype(np.float64)
    trained = distinct(calls.step[calls.name.matches(_BACKWARD)])
    reading = launched.kind.one_of(*_READS) & ~np.isin(ops.step[owner], trained)
    elsewhere = work[~np.isin(work.step, trained)]
    if not _all_known(elsewhere, distinct(number[owner[reading]]), signatures):
        return
    hands_out = np.isin(np.arange(len(signatures)), number[owner[launched.kind.one_of(*_HANDS_OUT)]])
    each = [Made.of(op, hands_out=bool(out)) for op, out in zip(signatures, hands_out, strict=True)]
    uploads = np.isin(np.arange(len(ops)), owner[launched.kind.one_of("copy_h2d")])
    loops = [
        (loop, high)
        for loop, low, high in _loops(ops, trained, limits.min_iterations)
        if not uploads[loop.first : loop.end].any()
        and not takes_items(loop, number[low : loop.first], number, signatures)
    ]
    found = _unread(ops, loops, number, each, spent, limits)
    found = _seldom_read(found, number, each, limits.max_read_share)
    if found:
        yield from _hits(ops, found, work, limits)


def _all_known(work: Work, launching: Rows, signatures: Sequence[Signature]) -> bool:
    """Whether it is known what all work reads: it has an op, and the op's tensors are recorded."""
    linked = work.start_ns[work.launch.there]
    first_ns = linked.min() if len(linked) else 0
    queued = ~work.launch.there & (work.start_ns < first_ns)  # before the recording: reads nothing of it
    if (work.kind.one_of(*_READS) & ~work.op.there & ~queued).any():
        return False
    ops = [signatures[at] for at in launching.tolist()]
    return all(
        (tensors(op) or (op.name.startswith("aten::") and op.dims))
        and not any(_unknown(*one) for one in zip(op.dims, op.types, strict=False))
        for op in ops
    )


def _unknown(dims: object, kind: str) -> bool:
    """Whether an input is a list of tensors whose shapes are not recorded."""
    return dims == [] and kind.endswith("List") and kind != "ScalarList"


def _loops(ops: Calls, trained: Rows, least: int) -> Iterator[tuple[Loop, int, int]]:
    """Loops of steps without a backward pass, and where the step's ops begin and end."""
    kind, _ = grouped([ops.name.code, ops.text("input_dims").code])
    products = ops.name.meets(LAYER.search)
    for low, high in pairwise(step_edges(ops)):
        if ops.step[low] >= 0 and ops.step[low] not in trained:
            yield from ((loop, low, high) for loop in whole_loops(low, high, kind, products, least))


def _unread(
    ops: Calls,
    loops: Sequence[tuple[Loop, int]],
    number: Rows,
    each: Sequence[Made],
    spent: Floats,
    limits: Limits,
) -> list[_Found]:
    products = ops.name.meets(LAYER.search)
    most: Counter[Shape] = Counter()
    for op in each:
        most |= Counter(op.reads)
    known: dict[tuple[bytes, int], list[Block]] = {}
    found = []
    for loop, high in loops:
        own = slice(loop.first, loop.first + loop.period)
        key = number[own].tobytes(), loop.repeats
        if key not in known:
            listed = frozenset(shape for shape, times in most.items() if times >= loop.repeats)
            body = Body([each[at] for at in number[own].tolist()], spent[own].tolist(), listed)
            known[key] = _blocks(body, products[own], limits)
        found += [_Found(_occurrences(loop, block, number[:high]), block) for block in known[key]]
    return found


def _blocks(body: Body, products: Mask, limits: Limits) -> list[Block]:
    """Of an iteration, those with a layer; none where iterations are calls that do not depend on each other."""
    found = [one for one in body.blocks(limits.max_live_share) if products[one.places].any()]
    own = {at for one in found for at in one.places}
    left = 1 - sum(body.spent_ns[at] for at in own) / max(sum(body.spent_ns), 1)
    return found if found and left >= limits.min_left_share and body.carries(own, found[0].places[0]) else []


def _occurrences(loop: Loop, block: Block, number: Rows) -> Rows:
    """Positions of a block's ops where all of them have the same inputs; the last may be just after the loop."""
    places = np.array(block.places)
    places -= loop.period * (places > places[0])
    at = loop.first + places + loop.period * np.arange(loop.repeats + 1)[:, None]
    at = at[(at.min(axis=1) >= loop.first) & (at.max(axis=1) < len(number))]
    found: Rows = at[(number[at] == number[at[:1]]).all(axis=1)]
    return found


def _seldom_read(
    found: Sequence[_Found], number: Rows, each: Sequence[Made], max_read_share: float
) -> list[_Found]:
    """Those whose results other ops of the trace read too seldom to read most of them."""
    kept = []
    for shape in sorted({one.block.makes for one in found}):
        alike = [one for one in found if one.block.makes == shape]
        reads = np.array([op.reads.get(shape, 0) + op.reads_more for op in each])[number]
        reads[np.concatenate([one.at.ravel() for one in alike])] = 0
        if reads.sum() <= max_read_share * sum(len(one.at) for one in alike):
            kept += alike
    return kept


def _hits(ops: Calls, found: Sequence[_Found], work: Work, limits: Limits) -> Iterator[Hits]:
    needless = ops[distinct(np.concatenate([one.at[:-1].ravel() for one in found]))]
    largest = max((one.block.makes for one in found), key=lambda shape: (np.prod(shape), shape))
    owner = work.op.index_of_enclosing(needless)
    for device, unread in work[owner >= 0].by_device():
        share = unread.total_ns / max(work[work.device == device].total_ns, 1)
        if share < limits.min_gpu_share:
            continue
        yield Hits(
            occurrences=unread,
            lost=LostTime.all_of(unread),
            fix=Drop(needless.rows),
            message="each of {iterations} iterations of a loop makes a tensor of {made} that no later op reads, unless "
            "it is the last one: {gpu} of all GPU work, in {ops}{where}",
            advice="If only the last result is used, compute it once after the loop. First check whether the caller "
            "needs those of the other iterations.",
            confidence=Confidence.LOW,
            evidence={
                **told(unread),
                "gpu_share": share,
                "iterations": max(len(one.at) for one in found),
                "made": "x".join(map(str, largest)),
            },
        )
