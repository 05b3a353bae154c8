"""The op and inputs that each piece of GPU work was launched by, asked once per distinct op and inputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.model.shapes import elements_of, sizes_of
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.tensors.ops.costs import INDEX_BYTES, OpCost
from traceanalyzer.tensors.paged_attention import paged_costs
from traceanalyzer.tensors.signatures import Signature, signatures_of
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting

# index_elementwise_kernel<128, 4, ...>: threads of a block, elements of each.
_SIZES = regex(r"index_elementwise_kernel<(\d+), (\d+)")
_ROW_BY_ROW = regex(r"vectorized_gather_kernel")  # a block of the first dimension for each row
_INDEXING = "aten::index"


@dataclass(frozen=True, slots=True)
class Indexed:
    """At most so much does a call of each signature index, int64 (signatures,); 0 where its kernels do not tell."""

    elements: Rows
    rows: Rows

    @classmethod
    def of(cls, trace: Trace, row: Rows, number: Rows, signatures: int) -> Self:
        """Of these rows of `trace.gpu`, and the signature of each."""
        found = cls(np.zeros(signatures, np.int64), np.zeros(signatures, np.int64))
        name, grid = Texts.column(trace.lanes.gpu, "name", row), Texts.column(trace.lanes.gpu, "grid", row)
        for code in name.occurring():
            kernel = str(name.names[code])
            sizes, whole = _SIZES.search(kernel), _ROW_BY_ROW.search(kernel)
            if not sizes and not whole:
                continue
            chosen = np.flatnonzero(name.code == code)
            grids = grid[chosen]
            blocks = np.zeros(len(grid.names) + 1, np.int64)
            for grid_code in grids.occurring():
                shape = sizes_of(grid.names[grid_code]) or (0,)
                blocks[grid_code] = shape[0] if whole else elements_of(shape) * int(sizes[1]) * int(sizes[2])  # type: ignore[index]
            np.maximum.at(found.rows if whole else found.elements, number[chosen], blocks[grids.code])
        return found

    def work(self, op: Signature, which: int) -> OpCost | None:
        """table[index]: reads and writes each element, and an index for each of its rows; None for other ops."""
        elements, rows = int(self.elements[which]), int(self.rows[which])
        if op.name != _INDEXING or not (elements or rows):
            return None
        try:
            width, item = elements_of(op.shape(0)[1:]), op.item_bytes(0)
        except LookupError:
            return None
        rows = rows or elements // max(width, 1)
        return OpCost("gather", None, 2 * (elements or rows * width) * item + rows * INDEX_BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class WorkInputs:
    """Signatures of the ops around launches.

    Attributes:
        number: int64 (work,), position in `signatures` of each entry of `DeviceWork`; one without a name is no op.
        indexed: what calls of each signature index, by the grids of their kernels.
        attention: mean cost of the calls of a signature, by the sums in a serving engine's marks.
    """

    number: Rows
    signatures: list[Signature]
    indexed: Indexed
    attention: Mapping[int, OpCost]

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting, work: DeviceWork) -> Self:
        number, signatures = signatures_of(trace, work.op)
        indexed = Indexed.of(trace, work.row, number, len(signatures))
        return cls(number, signatures, indexed, paged_costs(trace, nesting, work, number, signatures))

    def recorded(self, op: Signature, which: int) -> OpCost | None:
        """Cost of the signature at this position by what else the trace records: grids of kernels, marks."""
        return self.attention.get(which) or self.indexed.work(op, which)

    def meets(self, wanted: Callable[[Signature], object]) -> Mask:
        """Which entries of `DeviceWork` were launched by such an op; bool (work,)."""
        return np.array([bool(wanted(signature)) for signature in self.signatures], bool)[self.number]
