"""Tensors that are sorted whole, of which only the first elements are used."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct, sums_of
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.trace import Trace
from traceanalyzer.replay.edits import Resize
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.op_rates import shapes_of
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, LostTime, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence_texts import kernel_times
from traceanalyzer.tensors.ops.table import is_view
from traceanalyzer.tensors.signatures import ITEM_BYTES, Signature, signatures_of

SORTS = ("aten::sort", "aten::argsort", "aten::msort")
WHOLE = 2**62
_INDEX = "long int"
_NUMBER = re.compile(r"-?\d{1,18}$")
# They read nothing: views of the same memory that an op around them explains, and what fills new memory.
_READS_NOTHING = re.compile(
    r"^aten::(as_strided|alias|detach_?|narrow|(empty|zeros|ones|full|rand|randn)_like|new_\w+|zero_|fill_)$"
)
# They read or write their first tensor where indices say, which is done to what was not sorted: the indices are.
_INDEXES = re.compile(r"^aten::(gather|take_along_dim|index_select|scatter(_(add|reduce))?_?)$")
# Elements that only shapes of damaged files have.
_ABSURD = 2**62
# Bytes of the widest element types, int64 and float64.
_WIDEST = 8
# Most elements per thread of a pointwise kernel: 4, or 8 to 16 in vectorized ones.
_EACH = 16
# Segmented sorts have a block per row.
_SEGMENTS = r"DeviceSegmentedRadixSort"
_PART = r"^aten::(slice|narrow|select)$"


@dataclass(frozen=True, slots=True)
class Limits:
    max_used_share: float = limit(
        0.25,
        "reported only if later ops use at most this share of the sorted elements; topk was not measured "
        "with larger shares (H100, torch 2.11)",
    )
    min_row_elements: int = limit(
        4_096,
        "reported only if rows have at least this many elements; 4,096 rows of 1,024 elements take 159 µs "
        "with sort and 134 µs with topk; 4,096 rows of 4,096 elements take 567 µs with sort and 307 µs with"
        " topk; measured on an H100",
    )
    bytes_times: float = limit(
        12.0,
        "used for the predicted saving: topk is predicted to take this many times as long as reading its "
        "input at the memory's peak rate; 11 to 15 times were measured for 102 to 1,720 MB, H100, torch "
        "2.11",
    )
    floor_ns: int = limit(
        45_000,
        "used for the predicted saving: topk is predicted to take at least this time; the shortest measured"
        " times are a little longer (54 µs for 64 rows of 8,400 elements, 70 µs for 64 rows of 32,000 "
        "elements); measured on an H100 with torch 2.11",
    )
    min_bytes: int = limit(
        4_194_304,
        "if shapes are not recorded: a sort is reported only if it has at least this many bytes, because "
        "the length of its rows is not known; chosen",
    )
    few_rows: int = limit(
        16,
        "used for the predicted saving: with fewer rows than this, few_rows_floor_ns replaces floor_ns; "
        "topk takes 75 µs for 16 rows of 128,256 elements, and 114 µs for one row of 1,000,000 elements; "
        "measured on an H100",
    )
    few_rows_floor_ns: int = limit(
        110_000,
        "used for the predicted saving: topk of few rows is predicted to take at least this time; 114 µs "
        "were measured for one row, H100, torch 2.11",
    )
    max_time_share: float = limit(
        0.7,
        "reported only if the predicted time of topk is at most this share of the sort's time; the "
        "prediction is off by up to 25 %, and was measured only on an H100",
    )


@rule(since="0.1", claims=Claims.EVENT, limits=Limits)
def full_sort(trace: Trace, calls: Calls, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """A whole tensor is sorted, and only its first elements are used.

    What it looks for: sorts on the device (sort, argsort, msort) of long rows. Later ops take only the start
    or the end of each sorted row. This part is at most a quarter of the row.
    Why it costs: a sort makes many passes, and each pass reads and writes all values and indices. The passes
    of topk only read and count values, and topk writes only the requested part.
    Bad: scores.argsort(dim=1, descending=True)[:, :200]. Good: scores.topk(200, dim=1).indices.
    How sure: shapes and slice bounds are recorded. The rule reports nothing if another op reads a tensor of
    the shape and dtype of the sorted result, because that op may use all of it.
    Without shapes: the rule reports a sort if the next op has few GPU threads, and so probably takes only a
    part. Confidence is low, because a later op may use the rest.
    When it is wrong: a custom kernel, for which the profiler records no op, reads the whole result. Or equal
    values must keep their order, as in a stable sort.
    Saving: the time of the sort, minus the predicted time of topk.
    Source: torch.topk in PyTorch's documentation; measured on an H100 with torch 2.11: on rows of 200,000
    float32, topk takes a sixth of the time of sort.
    """
    ops = calls[calls.is_op]
    sorts = ops[ops.name.one_of(*SORTS)].outermost()
    spent, owner = sorts.launched()
    if not len(spent):
        return
    number, signatures = signatures_of(trace, sorts.rows)
    results = [Sorted.of(op) for op in signatures]
    sort_ns, gbps = sums_of(owner, spent.dur_ns, len(sorts)), np.ones(len(sorts))
    gbps[owner] = gpus.memory_gbps(spent.device)
    used, needed = np.zeros(len(sorts), np.int64), np.full(len(sorts), np.inf)
    if any(results):
        readers = Readers.of(ops, *signatures_of(trace, ops.rows))
        for which, result in enumerate(results):
            if result is not None and result.length >= limits.min_row_elements:
                members = np.flatnonzero(number == which)
                used[members] = most_read(result, sorts[members], readers)
                size = result.rows, result.bytes
                needed[members] = _topk_ns(
                    *size, used[members] / result.length, sort_ns[members], gbps[members], limits
                )
    else:
        seen = seen_by_kernels(ops, sorts, spent, owner)
        needed = _topk_ns(seen.rows, seen.bytes, seen.part, sort_ns, gbps, limits)
        needed[seen.bytes < limits.min_bytes] = np.inf
    quick = needed < limits.max_time_share * sort_ns
    if not any(results) and not quick.any():
        raise Unavailable("no shapes recorded: record_shapes=True shows which part of a sort is used")
    part = needed / np.maximum(sort_ns, 1)
    for name in sorts[quick].name.distinct():
        members = np.flatnonzero(quick & sorts.name.one_of(name))
        of_name = np.isin(owner, members)
        worst = int(members[np.argmax(sort_ns[members] - needed[members])])
        most: dict[str, object] = {"sort_ns": int(sort_ns[worst]), "topk_ns": int(needed[worst])}
        if any(results):
            most |= {"shapes": shapes_of(signatures[int(number[worst])]), "used": int(used[worst])}
        of_own = np.searchsorted(members, owner[of_name])
        yield _hits(sorts[members], spent[of_name], of_own, part[owner[of_name]], most)


def _topk_ns(
    rows: Rows | int, size: Rows | int, part: Floats, taken_ns: Rows, gbps: Floats, limits: Limits
) -> Floats:
    """What topk takes, which sorts what it finds; endless where that is too much of the whole, or nothing is used.

    Args:
        rows: that are sorted each for itself.
        size: bytes of all of them.
        part: of a row that is used.
    """
    # A single row of at most a million elements is so never reported: topk is not faster there.
    floor_ns = np.where(np.asarray(rows) >= limits.few_rows, limits.floor_ns, limits.few_rows_floor_ns)
    finds_ns = floor_ns + limits.bytes_times * size / gbps
    few = (part > 0) & (part <= limits.max_used_share)
    return np.where(few, finds_ns + np.where(few, part, 1.0) * taken_ns, np.inf)


def _hits(sorts: Calls, spent: Work, owner: Rows, part: Floats, evidence: dict[str, object]) -> Hits:
    lines = sorts.line.sums(sorts.dur_ns)
    left_ns = spent.dur_ns * part
    return Hits(
        occurrences=sorts,
        named_by=str(sorts.name.distinct()[0]),
        lost=LostTime.excess(spent, np.asarray(spent.dur_ns - left_ns, np.int64), owner),
        fix=Resize(spent.entries, left_ns),
        message=(
            "{by} sorts all of {shapes} {times_a_step}, in {sort}, but only the first or last {used} of each row "
            "are used: topk needs about {topk}"
            if "shapes" in evidence
            else "{by} sorts whole tensors {times_a_step}, in {sort}, and what follows reads only a part, such as the "
            "first or last elements: then topk needs about {topk}"
        )
        + (", from {lines}" if lines else ""),
        advice="Call torch.topk(x, k), with largest=False for the smallest, and sorted=False if their order "
        "does not matter.",
        confidence=Confidence.MEDIUM if "shapes" in evidence else Confidence.LOW,
        evidence={**evidence, "kernels": kernel_times(spent), "lines": lines},
    )


"""More elements than any tensor has: the op reads all of it, or it is unknown."""


@dataclass(frozen=True, slots=True)
class Sorted:
    """The results of one sort: tensors of its input's shape, of indices and, of most sorts, of values.

    Attributes:
        shape: of the input and the results.
        dim: along which it sorts, 0 the first.
        kind: type of the input's elements.
        types: of the results that the caller gets.
    """

    shape: tuple[int, ...]
    dim: int
    kind: str
    types: frozenset[str]

    @classmethod
    def of(cls, op: Signature) -> Self | None:
        """None for ops that are no sort, and where shape, type or dimension were not recorded."""
        try:
            shape, kind = op.shape(0), op.types[0]
            numbers = [int(text) for text in op.scalars if _NUMBER.match(text)]
            dim = 0 if op.name == "aten::msort" else numbers[0] % len(shape)
        except (LookupError, ArithmeticError):
            return None
        if op.name not in SORTS or kind not in ITEM_BYTES or dim >= len(shape):
            return None
        if min(shape) <= 0 or math.prod(shape) >= _ABSURD:
            return None
        types = {"aten::argsort": {_INDEX}, "aten::msort": {kind}}.get(op.name, {_INDEX, kind})
        return cls(shape, dim, kind, frozenset(types))

    @property
    def length(self) -> int:
        """Elements that are sorted with each other."""
        return self.shape[self.dim]

    @property
    def rows(self) -> int:
        """How many times so many are."""
        return math.prod(self.shape) // self.length

    @property
    def bytes(self) -> int:
        """Of the input."""
        return math.prod(self.shape) * ITEM_BYTES[self.kind]

    def read_by(self, op: Signature) -> int:
        """How many of the sorted elements an op may read: k for the first k, -k for the last k, 0 for none of them.

        Tensors are known by shape and type alone: whatever takes one of the results' may take the result.
        """
        shape = list(self.shape)
        tensors = list(zip(op.dims, op.types, strict=False))
        places = [i for i, (dims, kind) in enumerate(tensors) if dims == shape and kind in self.types]
        listed = any(isinstance(dims, list) and shape in dims for dims, _ in tensors)
        if not places and not listed:
            return 0
        if _READS_NOTHING.match(op.name) or self._is_of_the_input(op, places):
            return 0
        return self._part(op) if places == [0] else WHOLE

    def _is_of_the_input(self, op: Signature, places: list[int]) -> bool:
        values_only = places == [0] and op.types[0] != _INDEX
        return values_only and (op.name in SORTS or _INDEXES.match(op.name) is not None)

    def _part(self, op: Signature) -> int:
        try:
            dim, first, last = self._bounds(op)
        except (LookupError, TypeError):
            return WHOLE
        if first == 0 and last == self.shape[dim]:
            # x[:] has the shape of x.
            return 0
        if dim != self.dim or (first > 0 and last < self.length):
            return WHOLE
        return last if first == 0 else first - self.length

    def _bounds(self, op: Signature) -> tuple[int, int, int]:
        """(dimension, positions along it [first, last)) that a view holds; LookupError for other ops."""
        if op.name not in ("aten::slice", "aten::select"):
            raise LookupError(op.name)
        dim = int(op.scalar(1)) % len(self.shape)
        first = self._position(op, 2, dim, 0)
        last = first + 1 if op.name == "aten::select" else self._position(op, 3, dim, self.shape[dim])
        return dim, first, last

    def _position(self, op: Signature, position: int, dim: int, default: int) -> int:
        size, place = self.shape[dim], int(op.scalar(position)) if op.scalars[position] else default
        return min(max(place + size if place < 0 else place, 0), size)


@dataclass(frozen=True, slots=True)
class Readers:
    """Ops by the shapes of what they take.

    Attributes:
        ops: all of them.
        signatures: their distinct names and inputs.
        of_shape: shape -> positions in `signatures` of those that take a tensor of it.
        order: int64 (ops,), the ops sorted by signature.
        begin: int64 (signatures + 1,), where those of each begin in `order`.
    """

    ops: Calls
    signatures: Sequence[Signature]
    of_shape: Mapping[tuple[int, ...], list[int]]
    order: Rows
    begin: Rows

    @classmethod
    def of(cls, ops: Calls, number: Rows, signatures: Sequence[Signature]) -> Self:
        """`number` says which signature each op has."""
        of_shape: dict[tuple[int, ...], list[int]] = {}
        for which, op in enumerate(signatures):
            for shape in {tuple(shape_) for dims in op.dims for shape_ in _tensors(dims)}:
                of_shape.setdefault(shape, []).append(which)
        order = np.argsort(number, kind="stable")
        return cls(
            ops, signatures, of_shape, order, np.searchsorted(number[order], np.arange(len(signatures) + 1))
        )

    def reading(self, result: Sorted) -> tuple[Calls, Rows]:
        """(ops that may read some of the result, how much of it as `Sorted.read_by` says), in order of event_id."""
        reads = [
            (which, result.read_by(self.signatures[which])) for which in self.of_shape.get(result.shape, ())
        ]
        parts = [
            (self.order[self.begin[which] : self.begin[which + 1]], read) for which, read in reads if read
        ]
        users = np.concatenate([np.empty(0, np.int64), *(part for part, _ in parts)])
        amount = np.repeat([0, *(read for _, read in parts)], [0, *(len(part) for part, _ in parts)])
        order = np.argsort(users)
        return self.ops[users[order]], np.asarray(amount, np.int64)[order]


def _tensors(dims: object) -> list[list[int]]:
    """The shapes in what was recorded of one input: a tensor, or a list of them."""
    if not isinstance(dims, list):
        return []
    shapes = [shape for shape in dims if isinstance(shape, list)] or [dims]
    return [shape for shape in shapes if all(isinstance(size, int) for size in shape)]


def most_read(result: Sorted, sorts: Calls, readers: Readers) -> Rows:
    """How many elements at one end what follows each sort reads, WHOLE for both ends; int64 (sorts,).

    Args:
        result: of all these sorts, which have the same inputs.
    """
    users, reads = readers.reading(result)
    first, last = np.zeros(len(sorts), np.int64), np.zeros(len(sorts), np.int64)
    for thread in distinct(sorts.thread).tolist():
        those, members = np.flatnonzero(users.thread == thread), np.flatnonzero(sorts.thread == thread)
        members = members[np.argsort(sorts.start_ns[members], kind="stable")]
        place, follows = _sorts_before(sorts[members], users[those])
        np.maximum.at(first, members[place[follows]], reads[those[follows]])
        np.maximum.at(last, members[place[follows]], -reads[those[follows]])
    return np.where((first > 0) & (last > 0), WHOLE, np.maximum(first, last))


def _sorts_before(sorts: Calls, users: Calls) -> tuple[Rows, Mask]:
    """(the last of these sorts that began before each user, whether the user may have what it made), on one thread.

    What is made in a step is used in that step, unless nothing is sorted later: then all later steps may use it.
    """
    # A sort may read the result of the sort before it.
    sort = np.searchsorted(sorts.start_ns, users.start_ns) - 1
    place = np.maximum(sort, 0)
    same_step = (sort == len(sorts) - 1) | (users.step == sorts.step[place])
    return place, (sort >= 0) & same_step & (users.start_ns >= sorts.end_ns[place])


class Seen(NamedTuple):
    """Of each sort: bytes of its input, 0 where they are not known; rows; the largest part of it that is used."""

    bytes: Rows
    rows: Rows
    part: Floats


def seen_by_kernels(ops: Calls, sorts: Calls, spent: Work, owner: Rows) -> Seen:
    """Sizes that the kernels of sorts show, where the op after a sort reads a part of it.

    A sort copies its input first, and what reads the part launches a thread for some elements each. How often an op
    reads a result is not known without shapes.

    Args:
        ops: all ops.
        owner: of each piece of work that sorts launch, which of them.
    """
    copied, rows = np.zeros(len(sorts), np.int64), np.ones(len(sorts), np.int64)
    copies = spent.kind.one_of("copy_d2d")
    np.maximum.at(copied, owner[copies], spent.bytes[copies])
    segments = spent.name.matches(_SEGMENTS)
    np.maximum.at(rows, owner[segments], spent.blocks[segments])
    used = np.full(len(sorts), np.inf)
    reader = _readers(ops, sorts)
    read, sort = ops[reader[reader >= 0]].launched()
    threads = np.zeros(np.count_nonzero(reader >= 0), np.int64)
    np.maximum.at(threads, sort, np.maximum(read.blocks, 0) * np.maximum(read.threads, 0))
    used[reader >= 0] = np.where(threads > 0, threads * _EACH, np.inf)
    return Seen(copied, rows, used / np.maximum(copied / _WIDEST, 1))


def _readers(ops: Calls, sorts: Calls) -> Rows:
    """Per sort the first op after it that is no view; -1 if that op reads no part of it."""
    tops = np.flatnonzero(ops.is_top_op)
    tops = tops[np.lexsort((ops.start_ns[tops], ops.thread[tops]))]
    rows, thread = ops.rows[tops], ops.thread[tops]
    viewing: Mask = ops.name.meets(is_view)[tops]
    takes = np.cumsum(ops.name.matches(_PART)[tops])
    place = np.full(int(rows.max(initial=-1)) + 1, -1)
    place[rows] = np.arange(len(rows))
    position = place[np.minimum(sorts.rows, len(place) - 1)]
    ends = np.append(np.flatnonzero(~viewing), len(rows))
    reader = ends[np.searchsorted(ends, position, side="right")]
    exists = (position >= 0) & (reader < len(rows))
    reader = np.where(exists, reader, 0)
    exists &= (thread[reader] == thread[position]) & (takes[reader] > takes[position])
    return np.where(exists, tops[reader], -1)
