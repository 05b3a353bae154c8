"""Which tensors each op reads and writes, as torch's ExecutionTraceObserver records them."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows

# (size, stride) of each dimension.
Layout = tuple[tuple[int, int], ...]


class Access(IntEnum):
    """How an op uses a tensor."""

    READ = 0
    WRITTEN = 1
    RESULT = 2


@dataclass(frozen=True, slots=True, eq=False)
class ExecutionTrace:
    """The ops of some steps in order of their start, and the storages of their tensors.

    Attributes:
        name: int64 (ops,), position in `names`.
        thread, step: int64 (ops,); -1 before the first step mark, and everywhere without one.
        inputs: int64 (ops,), equal for ops with equal shapes, types, strides and numbers as inputs.
        number_texts: by `inputs`, the inputs that are no tensors as a JSON list.
        shapes: int64 (ops,), position in `shape_texts`.
        shape_texts: shapes of tensors as a JSON list, without those in lists and single numbers.
        outer: bool (ops,), whether no other op is around it. Nodes of autograd are no ops.
        innermost: bool (ops,), whether no other op is in it.
        backward: bool (ops,), whether a node of autograd is around it.
        random: bool (ops,), whether it draws random numbers.
        sequence: int64 (ops,), number that autograd gives forward ops and their nodes of backward; -1 without one.
        function: int64 (ops,), the same number of the innermost function in Python around each, which autograd
            differentiates (torch.autograd.Function); -1 outside of these.
        op, position, access: int64 (tensors,): the op that has it, which of the op's inputs or results it is, `Access`.
        storage, offset, elements, item_bytes: int64 (tensors,): where in which storage it lies, and its size. A tensor
            without a storage of its own has -1 elements: vmap and torch.func wrap tensors, sparse ones hold several.
        layout: int64 (tensors,), position in `layouts`.
        layouts: (size, stride) of the dimensions in which the elements lie, the largest stride first. Dimensions that
            follow each other in memory are one: tensors of equal layout and offset have the same elements.
    """

    source: str
    name: Rows
    names: tuple[str, ...]
    thread: Rows
    step: Rows
    inputs: Rows
    number_texts: tuple[str, ...]
    shapes: Rows
    shape_texts: tuple[str, ...]
    outer: Mask
    innermost: Mask
    backward: Mask
    random: Mask
    sequence: Rows
    function: Rows
    op: Rows
    position: Rows
    access: Rows
    storage: Rows
    offset: Rows
    elements: Rows
    item_bytes: Rows
    layout: Rows
    layouts: tuple[Layout, ...]
    on_cpu: Mask

    def __len__(self) -> int:
        return len(self.name)

    def tensors_of(self) -> Rows:
        """Where the tensors of each op begin; int64 (ops + 1,), for slices of `storage` and its neighbors."""
        return np.searchsorted(self.op, np.arange(len(self) + 1))

    def outermost(self) -> Rows:
        """The outermost op that each op is or lies in, int64 (ops,); of nodes of autograd the op before them."""
        every = np.arange(len(self))
        order = np.lexsort((every, self.thread))
        outer = np.maximum.accumulate(np.where(self.outer[order], np.arange(len(order)), -1))
        result = np.empty(len(self), np.int64)
        result[order] = np.where(outer >= 0, order[outer], order)
        return result
