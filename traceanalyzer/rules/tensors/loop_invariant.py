"""A loop computes the same products of the same tensors again in each iteration."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, distinct, grouped
from traceanalyzer.replay.edits import Drop
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, LostTime, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.tensors.ops.table import Kind, is_view, op_row, result_shape
from traceanalyzer.tensors.signatures import ITEM_BYTES, Shape, Signature, tensors
from traceanalyzer.tensors.top_ops import top_ops
from traceanalyzer.timeline.loops import LAYER, Loop, layer_loops, step_edges, whole_loops

_BACKWARD = r"^autograd::engine"
# Ops whose result has the shape of the first input, computed per row or element.
_KEEPS = re.compile(
    r"^aten::((layer|rms|group|batch|instance)_norm|gelu|silu|relu6?|leaky_relu|elu|softplus|tanh|sigmoid|(log_)?softmax"
    r"|to|_to_copy|type_as|contiguous|clone)$"
)
_WEIGHTED = re.compile(r"^aten::(linear|addmm|baddbmm|conv\w*|(layer|rms|group|batch|instance)_norm)$")
_REDUCES = re.compile(
    r"^aten::(mean|sum|max|min|amax|amin|argmax|argmin|norm|linalg_vector_norm|var|std|topk)$"
)
_RANDOM = re.compile(r"^aten::(rand\w*|normal_?|bernoulli_?|multinomial|uniform_|exponential_|dropout)$")
# Ops that resize as many of the last dimensions as their name says.
_RESIZES = re.compile(r"^aten::_?(upsample_[a-z]+|(?:adaptive_)?(?:avg|max)_pool)([123])d\w*$")
_PARTS = re.compile(r"^aten::(unbind|chunk|\w*split\w*|select|slice|narrow)$")


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
    ops, number, signatures = top_ops(calls, "tells the tensors of ops apart", by_step=True)
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
        loops = [(loop, False) for loop in layer_loops(*where)]
        # Caches grow, and with them the shapes of the ops that read them.
        if not loops:
            loops = [(loop, False) for loop in layer_loops(*where, alike=ops.name.code)]
        for loop, whole in [*loops, *((loop, True) for loop in whole_loops(*where))]:
            span = ops.start_ns[loop.first], ops.end_ns[loop.end - 1]
            if ((passes.start_ns < span[1]) & (passes.end_ns > span[0])).any():
                # Loops with a backward pass are micro-batches.
                continue
            iteration = number[loop.first : loop.first + loop.period]
            if whole:
                same = body.encoded_again(iteration, number[low : loop.first])
                if (same & products[loop.first : loop.first + loop.period]).sum() < limits.min_layers:
                    continue
            else:
                same = body.unchanged(iteration)
            if (places := _recurring_places(loop, same, number, low)).size:
                again.append(places)
                times.append(loop.repeats)
    if again:
        yield from _hits(ops[distinct(np.concatenate(again))], max(times), signatures, number, work, limits)


def _recurring_places(loop: Loop, same: np.ndarray, number: Rows, low: int) -> Rows:
    """Positions of these ops of an iteration in all iterations but the first, if all of them have the same numbers."""
    places = loop.first + np.flatnonzero(same) + loop.period * np.arange(loop.repeats)[:, None]
    before = np.maximum(places - loop.period, 0)
    later = (
        (places < loop.end)
        & (before >= low)
        & (number[np.minimum(places, len(number) - 1)] == number[before])
    )
    recurs = later[1:] | (places[1:] >= loop.end)
    recurring: Rows = places[later & recurs.all(0)]
    return recurring


def _hits(
    again: Calls, times: int, signatures: Sequence[Signature], number: Rows, work: Work, limits: Limits
) -> Iterator[Hits]:
    owner = work.op.index_of_enclosing(again)
    for pieces, share in work[owner >= 0].device_shares(limits.min_gpu_share):
        yield Hits(
            occurrences=pieces,
            lost=LostTime.all_of(pieces),
            fix=Drop(again.rows),
            message="each of {iterations} iterations of a loop runs {ops} again, on a tensor that no op of an "
            "iteration makes: the result is the same each time; {gpu} of all GPU work{where}",
            advice="Compute this once before the loop (keys and values of the condition, projected features), and hand "
            "the result to each iteration.",
            confidence=Confidence.MEDIUM,
            evidence={**gpu_time_evidence(pieces), "gpu_share": share, "iterations": times},
        )


@dataclass(frozen=True, slots=True)
class Bodies:
    """What the ops of one iteration make, by their signatures.

    Attributes:
        bytes_written: of each signature, what its longest kernel can have written at the memory's peak.
        uploaded: signatures that copy from the host.
        writing_share: of the time needed to write a tensor, what an op must take that may have made it.
    """

    signatures: Sequence[Signature]
    bytes_written: Floats
    uploaded: Sequence[int]
    writing_share: float

    def unchanged(self, number: Rows) -> np.ndarray:
        """Which ops of an iteration compute products of what it does not change, or their input; bool (ops,)."""
        every, none = distinct(number).tolist(), np.zeros(len(number), bool)
        if self._draws_inputs(number):
            return none
        fixed = self._fixed_shapes(every)
        constant = {which for which in every if self._is_constant(which, fixed)}
        layers = [which for which in constant if op_row(self.signatures[which].name).kind is Kind.GEMM]
        data = {_data(self.signatures[which]) for which in layers}
        results = {
            result_shape(op)
            for op in map(self.signatures.__getitem__, layers)
            if result_shape(op) != _data(op)
        }
        entries = {
            _data(self.signatures[which]) for which in constant if LAYER.search(self.signatures[which].name)
        } - results
        # With several first inputs, the state may come from outside the loop.
        if len(entries) != 1:
            return none
        chosen = [
            which
            for which in constant
            if not is_view(self.signatures[which].name)
            and (which in layers or _data(self.signatures[which]) in data | results)
        ]
        return np.isin(number, chosen)

    def encoded_again(self, number: Rows, before: Rows) -> np.ndarray:
        """Which ops of an iteration work on what the step has made before the loop, and alone on that; bool (ops,).

        None where iterations hand nothing to the next one: those are several networks, or parts of a batch.

        Args:
            number: signatures of an iteration's ops, in order.
            before: of the step's ops before the loop.
        """
        none = np.zeros(len(number), bool)
        every, order = distinct(number).tolist(), number.tolist()
        reads = {shape for which in every for shape in tensors(self.signatures[which])}
        makers = {shape: [which for which in every if self._may_make(which, shape)] for shape in reads}
        roots = {
            shape for shape in reads if not makers[shape] and self._is_encoded_once(shape, before.tolist())
        }
        if not roots or not self._carries(order, makers):
            return none
        fixed = roots | {shape for shape in reads if makers[shape] and self._is_written_first(order, shape)}
        while True:
            less = {
                shape
                for shape in fixed - roots
                if not all(self._is_constant(which, fixed) for which in makers[shape])
            }
            if not less:
                break
            fixed -= less
        constant = [
            which
            for which in every
            if self._is_constant(which, fixed) and not is_view(self.signatures[which].name)
        ]
        return np.isin(number, constant)

    def _is_encoded_once(self, shape: Shape, before: Sequence[int]) -> bool:
        """Whether the step has made one tensor of that shape before the loop, of which it has used nothing."""
        making = [place for place, which in enumerate(before) if self._makes(which, shape)]
        if not making or before.count(before[making[-1]]) > 1:
            # Several equal tensors form a list.
            return False
        after = [self.signatures[which] for which in before[making[-1] + 1 :]]
        used = any(shape in tensors(op) and not is_view(op.name) for op in after)
        parts = any(
            _PARTS.search(self.signatures[which].name) and self._may_make(which, shape) for which in before
        )
        return not used and not parts

    def _carries(self, order: Sequence[int], makers: dict[Shape, list[int]]) -> bool:
        """Whether an iteration reads a tensor that the one before it has made."""
        seen: set[int] = set()
        for which in order:
            for shape in tensors(self.signatures[which]):
                later = [other for other in makers[shape] if self._makes(other, shape)]
                if later and which not in seen and seen.isdisjoint(makers[shape]):
                    return True
            seen.add(which)
        return False

    def _is_written_first(self, order: Sequence[int], shape: Shape) -> bool:
        """Whether an iteration makes a tensor of that shape before it reads one."""
        for which in order:
            if shape in tensors(self.signatures[which]):
                return False
            if self._makes(which, shape):
                return True
        return False

    def _makes(self, which: int, shape: Shape) -> bool:
        """Whether its result surely has that shape and is no view of another."""
        return not is_view(self.signatures[which].name) and result_shape(self.signatures[which]) == shape

    def _fixed_shapes(self, every: Sequence[int]) -> set[Shape]:
        """Shapes of tensors that no op of an iteration makes, or that are made of such alone."""
        read = {shape for which in every for shape in tensors(self.signatures[which])}
        makers = {shape: [which for which in every if self._may_make(which, shape)] for shape in read}
        projected = {shape for shape in read if self._is_only_projected(every, shape)}
        fixed: set[Shape] = set()
        while True:
            more = {
                shape
                for shape in read - fixed
                if all(
                    self._is_constant(which, fixed, but=shape)
                    or (shape in projected and self._projects(which, shape))
                    for which in makers[shape]
                )
            }
            if not more:
                return fixed
            fixed |= more

    def _is_only_projected(self, every: Sequence[int], shape: Shape) -> bool:
        """Whether only products read tensors of that shape: keys and values as wide as their source have no others."""
        readers = [which for which in every if shape in tensors(self.signatures[which])]
        plain = [which for which in readers if not is_view(self.signatures[which].name)]
        return bool(plain) and all(self._projects(which, shape) for which in plain)

    def _projects(self, which: int, shape: Shape) -> bool:
        """Whether it is a product of a tensor of that shape and a matrix."""
        op = self.signatures[which]
        return op.name in ("aten::linear", "aten::addmm", "aten::mm", "aten::matmul") and _data(op) == shape

    def _is_constant(self, which: int, fixed: set[Shape], but: Shape | None = None) -> bool:
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
        return bool(shapes) and all(asked_shape in fixed for asked_shape in asked)

    def _may_make(self, which: int, shape: Shape) -> bool:
        """Whether its result, or what it writes into, may have that shape."""
        op, size = self.signatures[which], math.prod(shape)
        sizes = [math.prod(input_shape) for input_shape in tensors(op)]
        if (result := result_shape(op)) is not None:
            return result == shape
        if is_view(op.name):
            return any(elements >= size and elements % max(size, 1) == 0 for elements in sizes)
        if _REDUCES.search(op.name):
            return any(input_shape > size for input_shape in sizes)
        if resizes := _RESIZES.search(op.name):
            same_dims = len(shape) - int(resizes[2])
            return any(
                input_shape[:same_dims] == shape[:same_dims] and len(input_shape) == len(shape)
                for input_shape in tensors(op)
            )
        written = self.bytes_written[which]
        return not written or written >= self.writing_share * size * 2

    def _draws_inputs(self, number: Rows) -> bool:
        """Whether an iteration begins with numbers drawn for it: a layer takes them as they are."""
        order = [self.signatures[which] for which in number.tolist()]
        for place, op in enumerate(order):
            drawn = _RANDOM.search(op.name) and _drawn(op)
            reader = next((which for which in order[place + 1 :] if drawn and drawn in tensors(which)), None)
            if reader is not None and LAYER.search(reader.name):
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


def _unknown_number(op: Signature) -> bool:
    """Whether it takes a tensor of one number, or Python's, that is not recorded."""
    inputs = zip(op.dims, op.types, [*op.scalars, *[""] * len(op.dims)], strict=False)
    return any(dims == [] and kind in ITEM_BYTES and not value for dims, kind, value in inputs)
