"""Each iteration of a loop computes a result that no later op reads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct, grouped
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, LostTime, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.tensors.ops.table import is_view, op_row, result_shape
from traceanalyzer.tensors.signatures import Shape, Signature, shape_text, tensors
from traceanalyzer.tensors.top_ops import top_ops
from traceanalyzer.timeline.loops import LAYER, Loop, step_edges, whole_loops

_BACKWARD = r"^autograd::engine"
_HANDS_OUT = "copy_d2h", "copy_h2d", "copy_p2p", "communication"
_READS = "compute", "communication", "copy_d2h", "copy_d2d", "copy_p2p", "copy_other"
_ACTIVATION = re.compile(r"^aten::(relu6?|silu|mish|elu|selu|leaky_relu|hard\w+)_$")
# Ops on a list of tensors, which may not be recorded.
_INDEXED = re.compile(r"^aten::_?(unsafe_)?index(_put(_impl)?)?_?$")
# Number of inputs by op; one more is the output tensor.
_INPUTS = {
    **dict.fromkeys(("mm", "bmm", "matmul", "mul", "div"), 2),
    **dict.fromkeys(("add", "sub", "rsub", "linear"), 3),
    **dict.fromkeys(("addmm", "baddbmm"), 5),
}
_TAKES = re.compile(r"^aten::(select|slice|narrow)$")
_CUTS = re.compile(r"^aten::(unbind|chunk|(unsafe_)?split)$")


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

    places: Rows
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
    ops, number, signatures = top_ops(calls, "tells which tensors ops read", in_steps=False, by_step=True)
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
    unread = _unread_blocks(ops, loops, number, each, spent, limits)
    unread = _rarely_read(unread, number, each, limits.max_read_share)
    if unread:
        yield from _hits(ops, unread, work, limits)


def _all_known(work: Work, launching: Rows, signatures: Sequence[Signature]) -> bool:
    """Whether it is known what all work reads: it has an op, and the op's tensors are recorded."""
    linked = work.start_ns[work.launch.there]
    first_ns = linked.min() if len(linked) else 0
    # Work launched before the recording reads no recorded results.
    queued = ~work.launch.there & (work.start_ns < first_ns)
    if (work.kind.one_of(*_READS) & ~work.op.there & ~queued).any():
        return False
    ops = [signatures[place] for place in launching.tolist()]
    return all(
        (tensors(op) or (op.name.startswith("aten::") and op.dims))
        and not any(_unknown(*shape) for shape in zip(op.dims, op.types, strict=False))
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


def _unread_blocks(
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
    body_of: dict[tuple[bytes, int], list[Block]] = {}
    unread = []
    for loop, high in loops:
        members = slice(loop.first, loop.first + loop.period)
        key = number[members].tobytes(), loop.repeats
        if key not in body_of:
            listed = frozenset(shape for shape, times in most.items() if times >= loop.repeats)
            body = Body([each[place] for place in number[members].tolist()], spent[members].tolist(), listed)
            body_of[key] = _blocks(body, products[members], limits)
        unread += [_Found(_occurrences(loop, block, number[:high]), block) for block in body_of[key]]
    return unread


def _blocks(body: Body, products: Mask, limits: Limits) -> list[Block]:
    """Of an iteration, those with a layer; none where iterations are calls that do not depend on each other."""
    blocks = [block for block in body.blocks(limits.max_live_share) if products[block.places].any()]
    places = {place for block in blocks for place in block.places}
    remaining = 1 - sum(body.spent_ns[place] for place in places) / max(sum(body.spent_ns), 1)
    return (
        blocks
        if blocks and remaining >= limits.min_left_share and body.carries(places, blocks[0].places[0])
        else []
    )


def _occurrences(loop: Loop, block: Block, number: Rows) -> Rows:
    """Positions of a block's ops where all of them have the same inputs; the last may be just after the loop."""
    places = np.array(block.places)
    places -= loop.period * (places > places[0])
    places_of = loop.first + places + loop.period * np.arange(loop.repeats + 1)[:, None]
    places_of = places_of[(places_of.min(axis=1) >= loop.first) & (places_of.max(axis=1) < len(number))]
    occurrences: Rows = places_of[(number[places_of] == number[places_of[:1]]).all(axis=1)]
    return occurrences


def _rarely_read(
    unread: Sequence[_Found], number: Rows, each: Sequence[Made], max_read_share: float
) -> list[_Found]:
    """Those whose results other ops of the trace read too seldom to read most of them."""
    rare = []
    for shape in sorted({entry.block.makes for entry in unread}):
        alike = [entry for entry in unread if entry.block.makes == shape]
        reads = np.array([op.reads.get(shape, 0) + op.reads_more for op in each])[number]
        reads[np.concatenate([entry.places.ravel() for entry in alike])] = 0
        if reads.sum() <= max_read_share * sum(len(entry.places) for entry in alike):
            rare += alike
    return rare


def _hits(ops: Calls, unread_results: Sequence[_Found], work: Work, limits: Limits) -> Iterator[Hits]:
    needless = ops[distinct(np.concatenate([entry.places[:-1].ravel() for entry in unread_results]))]
    largest = max((entry.block.makes for entry in unread_results), key=lambda shape: (np.prod(shape), shape))
    owner = work.op.index_of_enclosing(needless)
    for unread, share in work[owner >= 0].device_shares(limits.min_gpu_share):
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
                **gpu_time_evidence(unread),
                "gpu_share": share,
                "iterations": max(len(entry.places) for entry in unread_results),
                "made": shape_text(largest),
            },
        )


@dataclass(frozen=True, slots=True)
class Made:
    """Shapes that an op reads, how often each, and what it makes.

    Attributes:
        makes: None where that is not known, or where the op does more than to make it.
        views: whether it only views, or copies what it would view.
        reads_more: whether it reads tensors that are not recorded, such as indices.
    """

    reads: Mapping[Shape, int]
    makes: Shape | None
    views: bool
    reads_more: bool

    @classmethod
    def of(cls, op: Signature, *, hands_out: bool) -> Made:
        """Of an op.

        Args:
            hands_out: whether it copies to the host or the device, or communicates.
        """
        shape = None if hands_out else _result(op)
        indexed = _INDEXED.match(op.name) is not None and op.dims[1:2] in ((), ([],))
        return cls(Counter(tensors(op)), shape or None, is_view(op.name), indexed)


@dataclass(frozen=True, slots=True)
class Block:
    """Ops of an iteration that only make what no later op reads.

    Attributes:
        makes: shape of what the last of them makes.
        places: their positions in the iteration, the last op's first. Those after it belong to the iteration before.
    """

    makes: Shape
    places: list[int]


@dataclass(frozen=True, slots=True)
class Body:
    """The ops of one iteration in order: a ring, as the first of them follow the last ones of the iteration before.

    Attributes:
        spent_ns: GPU time of each.
        listed: shapes of which one op of the trace reads as many tensors as there are iterations.
    """

    ops: Sequence[Made]
    spent_ns: Sequence[float]
    listed: frozenset[Shape]

    def blocks(self, live_share: float) -> list[Block]:
        """Those that nothing reads; each op is in one of them at most. None where an op may read anything.

        Args:
            live_share: of a block's GPU time, what other ops between its first and last one may take at most.
        """
        if any(op.reads_more for op in self.ops):
            return []
        balance: Counter[Shape] = Counter()
        for op in self.ops:
            balance.subtract(op.reads)
            if op.makes is not None:
                balance[op.makes] += 1
        blocks: list[Block] = []
        claimed: set[int] = set()
        for last in range(len(self.ops) - 1, -1, -1):
            shape = self.ops[last].makes
            if shape is None or balance[shape] <= 0 or last in claimed:
                continue
            places = self._before(last, live_share)
            if not places or not claimed.isdisjoint(places):
                continue
            in_block = set(places)
            if all(place in in_block for place, op in enumerate(self.ops) if shape in op.reads):
                blocks.append(Block(shape, places))
                claimed |= in_block
        return blocks

    def carries(self, in_block: set[int], last: int) -> bool:
        """Whether others read what others made in the iteration before: more tensors of a shape than were made since.

        Args:
            in_block: positions of ops that nothing reads.
            last: position of the last of them.
        """
        order = self._after(last)
        handed = {
            self.ops[place].makes for place in order if place not in in_block and not self.ops[place].views
        }
        return any(
            shape in handed and order[distance - 1] not in in_block
            for shape, distance in self._escapes(last).items()
        )

    def _after(self, last: int) -> list[int]:
        return [*range(last + 1, len(self.ops)), *range(last + 1)]

    def _before(self, last: int, live_share: float) -> list[int]:
        """Positions of the op and of those before it that make nothing for others, back to where others take over."""
        escapes, wanted = self._escapes(last), set(self.listed)
        places: list[int] = []
        dead = live = 0.0
        whole, best = sum(self.spent_ns), 0
        for back, place in enumerate(reversed(self._after(last))):
            op = self.ops[place]
            if (
                op.makes is None
                or op.makes in wanted
                or escapes.get(op.makes, len(self.ops)) < len(self.ops) - back
            ):
                wanted.update(op.reads)
                live += self.spent_ns[place]
                if not places or live > live_share * whole:
                    break
                continue
            places.append(place)
            dead += self.spent_ns[place]
            best = len(places) if live <= live_share * dead else best
        return places[:best]

    def _escapes(self, last: int) -> dict[Shape, int]:
        """How many ops after a position the first one is that reads more tensors of a shape than were made since."""
        since: Counter[Shape] = Counter()
        escaping: dict[Shape, int] = {}
        for distance, place in enumerate(self._after(last), 1):
            for shape, times in self.ops[place].reads.items():
                if times > since[shape]:
                    escaping.setdefault(shape, distance)
            if (makes := self.ops[place].makes) is not None:
                since[makes] += 1
        return escaping


def _result(op: Signature) -> Shape | None:
    """Shape of an op's result; None where it is not known, and where the op writes to a tensor or draws at random."""
    name = op.name.removeprefix("aten::")
    if name == op.name or not op_row(op.name).deterministic or len(op.dims) > _INPUTS.get(name, len(op.dims)):
        return None
    if name.endswith("_") and not _ACTIVATION.match(op.name):
        return None
    return result_shape(op)


def takes_items(loop: Loop, before: Rows, number: Rows, signatures: Sequence[Signature]) -> bool:
    """Whether each iteration takes another part of a tensor, or the step cuts one into as many parts before the loop.

    What takes one number of a list of numbers, as of a schedule, takes no part.

    Args:
        before: numbers of the step's ops before the loop.
        number: of all ops, each the position of its signature.
    """
    iterations = number[loop.first : loop.first + loop.period * loop.repeats].reshape(loop.repeats, -1)
    for place in np.flatnonzero((iterations != iterations[0]).any(axis=0)).tolist():
        ops = [signatures[which] for which in distinct(iterations[:, place]).tolist()]
        if _TAKES.match(ops[0].name) and len({op.scalars for op in ops}) > 1 and not _reads_list(ops[0]):
            return True
    return any(_count_pieces(signatures[which]) == loop.repeats for which in distinct(before).tolist())


def _reads_list(op: Signature) -> bool:
    return op.name == "aten::select" and len(op.dims[0]) == 1


def _count_pieces(op: Signature) -> int:
    """How many an op cuts a tensor into; 0 for other ops, and where that is not known."""
    if not _CUTS.match(op.name):
        return 0
    try:
        shape = op.shape(0)
        if op.name == "aten::unbind":
            return shape[int(op.scalar(1))]
        count = int(op.scalar(1))
        return count if op.name == "aten::chunk" else -(-shape[int(op.scalar(2))] // count)
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return 0
