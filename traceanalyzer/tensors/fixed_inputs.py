"""Stretches of ops that compute the same of constants or of index tensors that no other op makes, by shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.text_queries import regex
from traceanalyzer.tensors.ops.table import Kind, constant_shape, is_view, op_row, result_shape, result_type
from traceanalyzer.tensors.signatures import Shape, Signature, tensors
from traceanalyzer.timeline.calls_and_work import Calls
from traceanalyzer.timeline.loops import step_edges

Tensor = tuple[Shape, str]
"""Shape and type."""

_INTEGERS = frozenset({"long int", "long", "int", "bool"})
_PARAMETRIC = (
    Kind.GEMM,
    Kind.CONVOLUTION,
    Kind.ATTENTION,
    Kind.RECURRENT,
    Kind.NORM,
    Kind.LOSS,
    Kind.LISTS,
    Kind.RANDOM,
)
_FLOATS = frozenset({*_PARAMETRIC, Kind.SOFTMAX, Kind.FFT, Kind.RESAMPLING} - {Kind.RANDOM})
_HOST_NUMBER = regex(r"^aten::(item|_local_scalar_dense|is_nonzero)$")
_OF_BATCH = regex(r"^aten::(copy_|embedding\w*)$")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Ops in a row of one thread's step that read only each other's results and fixed tensors.

    Attributes:
        begin, end: positions of its first op, and after its last.
        inputs: shapes of the fixed tensors that it reads; none if it reads recorded numbers alone.
    """

    begin: int
    end: int
    inputs: frozenset[Shape]


def stretches(
    ops: Calls,
    number: Rows,
    signatures: Sequence[Signature],
    min_ops: int,
    *,
    starts_node: Mask | None = None,
    max_elements: int = 0,
) -> Iterator[Stretch]:
    """Stretches of at least so many ops that are no views.

    Args:
        ops: in order of step, thread and start.
        number: int64 (ops,), position of each op's inputs in `signatures`.
        starts_node: bool (ops,), which ops add a node to autograd's graph: they read parameters. None: only
            stretches that read recorded numbers alone.
        max_elements: with `starts_node`, a vector of numbers up to this length may be a constant.
    """
    table = _Table(signatures, max_elements, index_tensors=starts_node is not None)
    nodes = np.zeros(len(number), bool) if starts_node is None else starts_node
    edges = {*step_edges(ops)}
    begin, inputs, results = -1, frozenset[Shape](), set[Shape]()
    for place in range(len(number) + 1):
        which = int(number[place]) if place < len(number) else -1
        if begin >= 0 and place in edges:
            yield from table.stretch(number, begin, place, inputs, min_ops)
            begin = -1
        taken = None
        if which >= 0 and not nodes[place]:
            taken = table.taken(which, results if begin >= 0 else set())
            if taken is None and begin >= 0:
                yield from table.stretch(number, begin, place, inputs, min_ops)
                begin, taken = -1, table.taken(which, set())
        elif begin >= 0:
            yield from table.stretch(number, begin, place, inputs, min_ops)
            begin = -1
        if taken is None:
            continue
        if begin < 0:
            begin, inputs, results = place, frozenset(), set()
        inputs |= taken
        result = result_shape(signatures[which])
        results |= {result} if result is not None else set()


class _Table:
    """What ops read and make, by their signatures."""

    def __init__(self, signatures: Sequence[Signature], max_elements: int, *, index_tensors: bool) -> None:
        self._signatures, self._max_elements = signatures, max_elements
        self._views = [is_view(op.name) for op in signatures]
        self._index_tensors = index_tensors
        self._fixed = self._fixed_tensors() if index_tensors else set()

    def stretch(
        self, number: Rows, begin: int, end: int, inputs: frozenset[Shape], min_ops: int
    ) -> Iterator[Stretch]:
        """The stretch without the views at its end, if it is long enough."""
        made = [place for place in range(begin, end) if not self._views[int(number[place])]]
        if len(made) >= min_ops:
            yield Stretch(begin, made[-1] + 1, inputs)

    def taken(self, which: int, results: set[Shape]) -> frozenset[Shape] | None:
        """Fixed tensors that an op reads; None if it reads others, or does not compute the same each time."""
        op = self._signatures[which]
        if not self._computes_same(op) or (not self._index_tensors and constant_shape(op) is None):
            return None
        inputs = set()
        for shape, kind in _typed(op):
            if shape in results:
                continue
            if (shape, kind) in self._fixed:
                inputs.add(shape)
            elif (
                kind in _INTEGERS
                or not self._index_tensors
                or len(shape) > 1
                or math.prod(shape) > self._max_elements
            ):
                return None
        shapes = {shape for shape, _ in self._fixed}
        listed = [shape for shape in tensors(op)[len(_typed(op)) :] if shape not in results | shapes]
        if listed or (not tensors(op) and constant_shape(op) is None):
            return None
        return frozenset(inputs)

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
    pairs = zip(op.dims, op.types, strict=False)
    return [
        (tuple(dims), kind)
        for dims, kind in pairs
        if isinstance(dims, list) and dims and all(type(size) is int for size in dims)
    ]
