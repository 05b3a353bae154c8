"""A loop computes the same products of the same tensors again in each iteration."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, distinct, grouped
from traceanalyzer.replay.edits import Drop
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.results import PRODUCTS, made_of, product_of
from traceanalyzer.roofline.signatures import ITEM_BYTES, Signature, signatures_of
from traceanalyzer.roofline.tensor_types import Shape, tensors
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, LostTime, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.timeline.names import VIEWING_OP

_LAYER = re.compile(r"^aten::(linear|matmul|mm|addmm|bmm|baddbmm|conv\w*|embedding)$")
_KEEPS = re.compile(  # its result has the shape of its first tensor, whose rows or elements stand for themselves
    r"^aten::((layer|rms|group|batch|instance)_norm|gelu|silu|relu6?|leaky_relu|elu|softplus|tanh|sigmoid|(log_)?softmax"
    r"|to|_to_copy|type_as|contiguous|clone)$"
)
_WEIGHTED = re.compile(r"^aten::(linear|addmm|baddbmm|conv\w*|(layer|rms|group|batch|instance)_norm)$")
_BROADCASTS = re.compile(
    r"^aten::(add|sub|rsub|mul|div|pow|where|maximum|minimum|lerp|addcmul|addcdiv|masked_fill)$"
)
_REDUCES = re.compile(
    r"^aten::(mean|sum|max|min|amax|amin|argmax|argmin|norm|linalg_vector_norm|var|std|topk)$"
)
_RANDOM = re.compile(r"^aten::(rand\w*|normal_?|bernoulli_?|multinomial|uniform_|exponential_|dropout)$")
_BACKWARD = r"^autograd::engine"
_ATTENTION = "aten::scaled_dot_product_attention"


@dataclass(frozen=True, slots=True)
class Limits:
    min_iterations: int = limit(
        3, "a loop must have this many iterations; two may be one call with a prompt and one without; chosen"
    )
    writing_share: float = limit(
        0.8,
        "an op whose output shape is not recorded may have made a tensor if it runs for at least this share of "
        "the time needed to write that tensor at the memory's peak; chosen",
    )
    min_gpu_share: float = limit(0.05, "the repeated work must take at least this share of GPU time; chosen")


@dataclass(frozen=True, slots=True)
class _Loop:
    """Positions of ops: where its first iteration begins, ops of an iteration, iterations, past its last op."""

    first: int
    period: int
    repeats: int
    end: int


@rule(since="0.2", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits)
def loop_invariant(calls: Calls, work: Work, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """A loop computes the same products of the same tensors again in each iteration.

    What it looks for: loops within a step, of three iterations or more, and matrix products in them whose input
    was made before the loop. An input counts as made before the loop if no op in the loop has a result of its
    shape, except norms, activations and casts of the input itself. The tensor that one iteration hands to the
    next (latents, hidden state) is not counted.
    Why it costs: keys and values of a condition, or its features, are computed as often as the loop runs.
    Bad: k, v = layer.kv(layer.norm(caption)) in each of 30 denoising iterations. Good: k and v computed once
    per request, before the loop; while decoding, a cache for the encoder's keys and values.
    How sure: a tensor is known only by its shape, so confidence is medium.
    When it is wrong: the iterations are large layers of a network, each with its own weights. Or each iteration
    takes another tensor of a list.
    Saving: these products, and the ops that prepare their input, in all iterations except the first.
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
    body = _Bodies(signatures, spent * float(gpus.memory_gbps(launched.device[:1]).sum()), uploaded, limits)
    passes = calls[calls.name.matches(_BACKWARD)]
    again: list[Rows] = []
    times: list[int] = []
    edges = np.flatnonzero(np.diff(ops.step) | np.diff(ops.thread)) + 1
    products = ops.name.meets(_LAYER.search)
    for low, high in zip([0, *edges.tolist()], [*edges.tolist(), len(ops)], strict=True):
        for loop in _loops(low, high, kind, products, limits):
            span = ops.start_ns[loop.first], ops.end_ns[loop.end - 1]
            if ((passes.start_ns < span[1]) & (passes.end_ns > span[0])).any():
                continue  # micro-batches
            same = body.unchanged(number[loop.first : loop.first + loop.period])
            at = loop.first + np.flatnonzero(same) + loop.period * np.arange(loop.repeats)[:, None]
            before = np.maximum(at - loop.period, 0)
            later = (
                (at < loop.end) & (before >= low) & (number[np.minimum(at, len(ops) - 1)] == number[before])
            )
            recurs = later[1:] | (at[1:] >= loop.end)  # with the same numbers in each iteration
            if (at := at[later & recurs.all(0)]).size:
                again.append(at)
                times.append(loop.repeats)
    if again:
        yield from _hits(ops[distinct(np.concatenate(again))], max(times), signatures, number, work, limits)


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
            message="{ops} run again in each of {iterations} iterations of a loop, on a tensor that no op of an "
            "iteration makes: the result is the same each time; {gpu} of GPU time{where}",
            advice="Compute this once before the loop (keys and values of the condition, projected features), and hand "
            "the result to each iteration.",
            confidence=Confidence.MEDIUM,
            evidence={**told(found), "gpu_share": share, "iterations": times},
        )


def _loops(low: int, high: int, kind: Rows, products: np.ndarray, limits: Limits) -> list[_Loop]:
    """Loops of one thread's step whose iterations hold layers that repeat, each once."""
    found: dict[tuple[int, int], _Loop] = {}
    places = low + np.flatnonzero(products[low:high])
    for which in distinct(kind[places]).tolist():
        own = places[kind[places] == which]
        count = len(own)
        for repeats in range(count // 2, limits.min_iterations - 1, -1):
            each = count // repeats
            period = int(own[each] - own[0]) if count % repeats == 0 else 0
            if not period or (own[each:] - own[:-each] != period).any():
                continue
            end = int(own[-1]) + 1
            if (kind[own[0] : end - period] != kind[own[0] + period : end]).any():
                continue
            whole = min(int(own[0]) + period * repeats, high)
            end += int(np.argmin(np.append(kind[end:whole] == kind[end - period : whole - period], False)))
            if _layers(own[:each], int(own[0]) + period, kind, products):
                found.setdefault((period, repeats), _Loop(int(own[0]), period, repeats, end))
            break
    return list(found.values())


def _layers(own: Rows, end: int, kind: Rows, products: np.ndarray) -> bool:
    """Whether an iteration begins with ops that come twice in a row, and holds others: layers, and what is around."""
    for later in own[1:].tolist():
        size = later - int(own[0])
        first = kind[own[0] : later]
        twice = later + size <= end and (first == kind[later : later + size]).all()
        if twice and len(distinct(first[products[own[0] : later]])) > 1:
            tail = kind[later + size : end]
            return not (len(tail) % size == 0 and (tail == np.tile(first, len(tail) // size)).all())
    return False


@dataclass(frozen=True, slots=True)
class _Bodies:
    """What the ops of one iteration make, by their signatures.

    Attributes:
        bytes_written: of each signature, what its longest kernel can have written at the memory's peak.
        uploaded: signatures that copy from the host.
    """

    signatures: Sequence[Signature]
    bytes_written: Floats
    uploaded: Sequence[int]
    limits: Limits

    def unchanged(self, number: Rows) -> np.ndarray:
        """Which ops of an iteration compute products of what it does not change, or their input; bool (ops,)."""
        every, none = distinct(number).tolist(), np.zeros(len(number), bool)
        if self._draws_inputs(number):
            return none
        fixed = self._fixed(every)
        constant = {one for one in every if self._constant(one, fixed)}
        layers = [one for one in constant if self.signatures[one].name.removeprefix("aten::") in PRODUCTS]
        made = {product_of(self.signatures[one]) for one in layers}
        data = {_data(self.signatures[one]) for one in layers}
        entries = {
            _data(self.signatures[one]) for one in constant if _LAYER.search(self.signatures[one].name)
        } - made
        if len(entries) != 1:  # several: what an iteration begins with may come from outside, too
            return none
        chosen = [
            one
            for one in constant
            if not VIEWING_OP.search(self.signatures[one].name)
            and (one in layers or _data(self.signatures[one]) in data | made)
        ]
        return np.isin(number, chosen)

    def _fixed(self, every: Sequence[int]) -> set[Shape]:
        """Shapes of tensors that no op of an iteration makes, or that are made of such alone."""
        read = {shape for one in every for shape in tensors(self.signatures[one])}
        makers = {shape: [one for one in every if self._may_make(one, shape)] for shape in read}
        fixed: set[Shape] = set()
        while True:
            more = {
                shape
                for shape in read - fixed
                if all(self._constant(one, fixed, but=shape) for one in makers[shape])
            }
            if not more:
                return fixed
            fixed |= more

    def _constant(self, which: int, fixed: set[Shape], but: Shape | None = None) -> bool:
        """Whether it makes the same of fixed tensors each time; `but` may be one, if it is kept as it is.

        Weights are not asked for: an iteration does not change them.
        """
        op = self.signatures[which]
        if _RANDOM.search(op.name) or op.name.endswith("_") or which in self.uploaded or _unknown_number(op):
            return False
        shapes = tensors(op)
        if but is not None and _KEEPS.search(op.name):
            return bool(shapes) and shapes[0] == but and but not in shapes[1:]
        asked = [_data(op)] if _WEIGHTED.search(op.name) else shapes
        return bool(shapes) and all(one in fixed for one in asked)

    def _may_make(self, which: int, shape: Shape) -> bool:
        """Whether its result, or what it writes into, may have that shape."""
        op, size = self.signatures[which], math.prod(shape)
        sizes = [math.prod(one) for one in tensors(op)]
        if (known := _result(op)) is not None:
            return known == shape
        if VIEWING_OP.search(op.name):
            return any(one >= size and one % max(size, 1) == 0 for one in sizes)
        if _REDUCES.search(op.name):
            return any(one > size for one in sizes)
        written = self.bytes_written[which]
        return not written or written >= self.limits.writing_share * size * 2

    def _draws_inputs(self, number: Rows) -> bool:
        """Whether an iteration begins with numbers drawn for it: a layer takes them as they are."""
        order = [self.signatures[one] for one in number.tolist()]
        for at, op in enumerate(order):
            drawn = _RANDOM.search(op.name) and _drawn(op)
            reader = next((one for one in order[at + 1 :] if drawn and drawn in tensors(one)), None)
            if reader is not None and _LAYER.search(reader.name):
                return True
        return False


def _data(op: Signature) -> Shape:
    """What a layer, or an op of one tensor, works on; the weight or the bias is another."""
    shapes = tensors(op)
    added = op.name in ("aten::addmm", "aten::baddbmm", "aten::embedding")
    return shapes[min(int(added), len(shapes) - 1)] if shapes else ()


def _drawn(op: Signature) -> Shape | None:
    shapes = tensors(op)
    if shapes:
        return shapes[0]
    try:
        return tuple(map(int, op.scalar(0)))
    except (LookupError, TypeError, ValueError):
        return None


def _result(op: Signature) -> Shape | None:
    """Shape of its result; None where that is not known."""
    shapes = tensors(op)
    if not shapes:
        return None
    if _KEEPS.search(op.name) or op.name.endswith("_"):
        return shapes[0]
    if op.name == _ATTENTION:
        return (*shapes[0][:-1], shapes[2][-1]) if len(shapes) > 2 else shapes[0]
    if op.name == "aten::embedding":
        return (*shapes[-1], shapes[0][-1])
    if _BROADCASTS.search(op.name):
        try:
            return tuple(np.broadcast_shapes(*shapes))
        except ValueError:
            return None
    return product_of(op) or made_of(op)


def _unknown_number(op: Signature) -> bool:
    """Whether it takes a tensor of one number, or Python's, that is not recorded."""
    inputs = zip(op.dims, op.types, [*op.scalars, *[""] * len(op.dims)], strict=False)
    return any(dims == [] and kind in ITEM_BYTES and not value for dims, kind, value in inputs)
