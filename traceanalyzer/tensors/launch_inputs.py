"""The op and inputs that each piece of GPU work was launched by, asked once per distinct op and inputs.

Attention over a paged cache gets queries, new keys and values. What it reads at least is known by the sums in the marks
of serving engines: the lengths of the sequences are on the device and in the mark's name.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct, numbered, pick
from traceanalyzer.model.shapes import elements_of, product_of, sizes_of
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.tensors.ops.costs import ARITHMETIC, INDEX_BYTES, OpCost
from traceanalyzer.tensors.signatures import Signature, signatures_of
from traceanalyzer.timeline.calls_and_work import Work
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.mark_search import Attended, attended
from traceanalyzer.timeline.nesting import Nesting

# index_elementwise_kernel<128, 4, ...>: threads of a block, elements of each.
_SIZES = regex(r"index_elementwise_kernel<(\d+), (\d+)")
_ROW_BY_ROW = regex(r"vectorized_gather_kernel")  # a block of the first dimension for each row
_INDEXING = "aten::index"
PAGED = "vllm::unified_attention_with_output"
_CACHES = "_C_cache_ops::reshape_and_cache_flash"
# Names of TensorRT-LLM's kernels tell whether a window, chunk or selection limits what a query sees; Triton's do not.
_WHOLE = regex(r"^fmhaSm\d+\w*PagedKv(Causal|Dense)P\d")
_WINDOW = regex(r"^fmhaSm\d+\w*PagedKvSlidingOrChunked")
_NARROWEST_BYTES = 1  # of an element in the cache, where its type is not recorded: fp8, recorded on a B200


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
            chosen = np.flatnonzero(name.code == code)
            if _ROW_BY_ROW.search(kernel):
                rows = grid[chosen].numbers(lambda text: (sizes_of(text) or (0,))[0])
                np.maximum.at(found.rows, number[chosen], rows)
            elif sizes := _SIZES.search(kernel):
                blocks = grid[chosen].numbers(product_of)
                np.maximum.at(found.elements, number[chosen], blocks * int(sizes[1]) * int(sizes[2]))
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
        return cls(number, signatures, indexed, _paged_costs(trace, nesting, work, number, signatures))

    def recorded(self, op: Signature, which: int) -> OpCost | None:
        """Cost of the signature at this position by what else the trace records: grids of kernels, marks."""
        return self.attention.get(which) or self.indexed.work(op, which)

    def meets(self, wanted: Callable[[Signature], object]) -> Mask:
        """Which entries of `DeviceWork` were launched by such an op; bool (work,)."""
        return np.array([bool(wanted(signature)) for signature in self.signatures], bool)[self.number]

    def values(self, work: Work, value_of: Callable[[Signature], float]) -> Floats:
        """Value of the op that launched each piece of work; float64 (pieces,)."""
        number, occurring = numbered(self.number[work.entries])
        return np.array([value_of(self.signatures[which]) for which in occurring.tolist()], np.float64)[number]


def _paged_costs(
    trace: Trace, nesting: Nesting, work: DeviceWork, number: Rows, signatures: list[Signature]
) -> dict[int, OpCost]:
    """Mean cost of the calls of each signature, at least; none where the lengths of one call are not known.

    Where a window limits what a query sees, its width is not recorded: each query sees itself at least. `number` is
    the signature of each entry of `work`.
    """
    found = {}
    for which in (place for place, op in enumerate(signatures) if op.name == PAGED):
        entries = np.flatnonzero(number == which)
        kernels = Texts.column(trace.lanes.gpu, "name", work.row[entries])
        whole, window = (distinct(work.op[entries[kernels.matches(kind)]]) for kind in (_WHOLE, _WINDOW))
        calls = distinct(work.op[entries])
        if not len(whole) or len(np.union1d(whole, window)) < len(calls):
            continue
        seen = list(_attended(trace, nesting, calls))
        try:
            item = next((op.item_bytes(2) for op in signatures if op.name == _CACHES), _NARROWEST_BYTES)
            found[which] = _mean(signatures[which], seen, np.isin(calls, window).tolist(), item)
        except (LookupError, ValueError):
            continue
    return found


def _attended(trace: Trace, nesting: Nesting, calls: Rows) -> Iterator[Attended | None]:
    """By the last mark that begins before each call, if the call lies in it."""
    rows = np.flatnonzero(nesting.annotation)
    name = Texts.column(trace.lanes.cpu, "name", rows)
    sums = {code: attended(str(name.names[code])) for code in name.occurring()}
    marks = rows[np.isin(name.code, [code for code, found in sums.items() if found])]
    marks = marks[np.argsort(nesting.start_ns[marks], kind="stable")]
    code_of = dict(zip(rows.tolist(), name.code.tolist(), strict=True))
    around = pick(marks, np.searchsorted(nesting.start_ns[marks], nesting.start_ns[calls], side="right") - 1)
    for call, mark in zip(calls.tolist(), around.tolist(), strict=True):
        inside = mark >= 0 and nesting.end_ns[call] <= nesting.end_ns[mark]
        yield sums[code_of[mark]] if inside else None


def _mean(op: Signature, seen: list[Attended | None], window: list[bool], item_bytes: int) -> OpCost:
    """Of (query, key, value, output): rows of a token, heads and width each."""
    (rows, heads, width), (_, kv_heads, _), value_width = op.shape(0), op.shape(1), op.shape(2)[-1]
    each = heads * (width * op.item_bytes(0) + value_width * op.item_bytes(3))
    flops = moved = 0
    for one, narrow in zip(seen, window, strict=True):
        # A part of a batch, or rows of a draft model: the mark is not of this call.
        if one is None or one.queries > rows:
            raise LookupError("no sums")
        pairs, keys = (one.queries, one.queries) if narrow else (one.pairs, one.keys)
        flops += 2 * heads * (width + value_width) * pairs
        moved += one.queries * each + keys * kv_heads * (width + value_width) * item_bytes
    return OpCost("paged attention", flops // len(seen), moved // len(seen), ARITHMETIC.get(op.types[0]))
