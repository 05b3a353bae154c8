"""Stretches of ops that compute the same of constants or of index tensors that no other op makes, by shapes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.model.text_queries import regex
from traceanalyzer.tensors.ops.costs import typed_inputs
from traceanalyzer.tensors.ops.table import Kind, constant_shape, is_view, op_row, result_shape, result_type
from traceanalyzer.tensors.signatures import Shape, Signature, tensors
from traceanalyzer.timeline.calls_and_work import Calls
from traceanalyzer.timeline.loops import step_edges

Tensor = tuple[Shape, str]
"""Shape and type."""

_INTEGERS = frozenset({"long int", "long", "int", "bool"})
_PARAMETRIC = {Kind.GEMM, Kind.CONVOLUTION, Kind.ATTENTION, Kind.RECURRENT, Kind.NORM}
_PARAMETRIC |= {Kind.LOSS, Kind.LISTS, Kind.RANDOM}
_FLOATS = _PARAMETRIC - {Kind.RANDOM} | {Kind.SOFTMAX, Kind.FFT, Kind.RESAMPLING}
_HOST_NUMBER = regex(r"^aten::(item|_local_scalar_dense|is_nonzero)$")
_OF_BATCH = regex(r"^aten::(copy_|embedding\w*)$")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Ops in a row of one thread's step, [begin, end), that read only each other's results and fixed tensors.

    `inputs` are shapes of the fixed tensors; none if they read recorded numbers alone.
    """

    begin: int
    end: int
    inputs: frozenset[Shape]


def stretches(
    ops: Calls, number: Rows, signatures: Sequence[Signature], min_ops: int, *, starts_node: Mask | None = None
) -> Iterator[Stretch]:
    """Stretches of at least so many ops that are no views.

    Args:
        ops: in order of step, thread and start.
        number: int64 (ops,), position of each op's inputs in `signatures`.
        starts_node: bool (ops,), which ops add a node to autograd's graph: they read parameters. None: only
            stretches that read recorded numbers alone.
    """
    table = _Table(signatures, index_tensors=starts_node is not None)
    views = np.array([is_view(op.name) for op in signatures], bool)[number]
    which = np.where(False if starts_node is None else starts_node, -1, number).tolist()
    for low, high in pairwise(step_edges(ops)):
        begin, inputs, results = low, frozenset[Shape](), set[Shape]()
        for place in range(low, high + 1):
            op = which[place] if place < high else -1
            fixed = table.fixed_inputs(op, results)
            if fixed is None:
                made = begin + np.flatnonzero(~views[begin:place])
                if len(made) >= min_ops:
                    yield Stretch(begin, int(made[-1]) + 1, inputs)
                begin, inputs, results = place, frozenset(), set()
                fixed = table.fixed_inputs(op, results)
            if fixed is None:
                begin = place + 1
                continue
            inputs |= fixed
            result = result_shape(signatures[op])
            results |= {result} if result is not None else set()


class _Table:
    """What ops read and make, by their signatures."""

    def __init__(self, signatures: Sequence[Signature], *, index_tensors: bool) -> None:
        self._signatures, self._index_tensors = signatures, index_tensors
        self._fixed = self._fixed_tensors() if index_tensors else set()
        self._fixed_shapes = {shape for shape, _ in self._fixed}

    def fixed_inputs(self, which: int, results: set[Shape]) -> frozenset[Shape] | None:
        """Fixed tensors that an op reads; None if it reads others, or does not compute the same each time."""
        op = self._signatures[which]
        if which < 0 or not self._computes_same(op):
            return None
        if constant_shape(op) is None and not (self._index_tensors and tensors(op)):
            return None
        typed = [tensor for tensor in _typed(op) if tensor[0] not in results]
        listed = set(tensors(op)[len(_typed(op)) :]) - results
        if not self._fixed.issuperset(typed) or not listed <= self._fixed_shapes:
            return None
        return frozenset(shape for shape, _ in typed)

    def _computes_same(self, op: Signature) -> bool:
        row = op_row(op.name)
        plain = op.name.startswith("aten::") and row.deterministic and row.kind not in _PARAMETRIC
        return plain and not _HOST_NUMBER.search(op.name) and not _OF_BATCH.search(op.name)

    def _fixed_tensors(self) -> set[Tensor]:
        """Integer tensors that no op makes, or only ops on such tensors whose results have unknown shapes."""
        fixed = {tensor for op in self._signatures for tensor in _typed(op) if tensor[1] in _INTEGERS}
        # Types of tensors in lists are not recorded: they have that of the result.
        kinds = dict(fixed)
        fixed |= {
            (shape, kinds[result])
            for op in self._signatures
            if (result := result_shape(op)) in kinds
            for shape in tensors(op)[len(_typed(op)) :]
        }
        while True:
            made = {tensor for op in self._signatures for tensor in fixed if self._makes(op, tensor, fixed)}
            if not made:
                return fixed
            fixed -= made

    def _makes(self, op: Signature, tensor: Tensor, fixed: set[Tensor]) -> bool:
        """Whether an op may make, change or look up such a tensor."""
        row, typed, (shape, kind) = op_row(op.name), _typed(op), tensor
        if op.name.startswith("aten::embedding"):
            # What is looked up comes with the batch.
            return tensor in typed
        if row.writes or op.name.endswith("_"):
            return tensor in typed[:1]
        if row.kind in _FLOATS or _HOST_NUMBER.search(op.name) or result_type(op) not in (kind, None):
            return False
        result, size = result_shape(op), math.prod(shape)
        sizes = [math.prod(read) for read in tensors(op)]
        if row.view:
            # A part of a tensor; other views keep all of it.
            return size < max(sizes, default=0) and (result is None or result == shape)
        shapes = {fixed_shape for fixed_shape, _ in fixed}
        unchanged = self._computes_same(op) and all(read in shapes for read in tensors(op))
        if result is not None:
            return result == shape and not (unchanged and result_type(op) is None)
        return not (unchanged and sizes) and (not sizes or max(sizes) >= size)


def _typed(op: Signature) -> list[Tensor]:
    """(shape, type) of each tensor with dimensions, without those in lists."""
    return [(op.shape(position), op.types[position]) for position in typed_inputs(op)]
