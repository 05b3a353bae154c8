"""The tensors that each step of an optimizer updates, by its lists of shapes or by its blocks.

Lists of more than about 30 tensors have no recorded shapes. A fused optimizer's kernels have one block for each 65,536
elements of each tensor, and the one that counts its steps has one for each tensor. If the first gradients of a pass, so
many, make as many blocks, and the last ones do not, the first are the optimizer's; so are the last ones, the other way
round.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from traceanalyzer.model.arrays import Mask, Ns, Rows, grouped
from traceanalyzer.model.records import dataclass
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.tensors.signatures import Shape, Signature, signatures_of, tensors

LISTS = r"^aten::_(foreach|fused)_"
FUSED, COUNTS = r"^aten::_fused_", "aten::_foreach_add_"
# The op with which an unfused optimizer changes its parameters.
_LAST = "aten::_foreach_addcdiv_"
_APPLIED = "multi_tensor_apply_kernel"
# Elements per block of ATen's kernels over lists of tensors.
_CHUNK = 65_536
_ZEROES = r"^aten::(_foreach_)?zero_$"
NODE = "autograd::engine::evaluate_function"
_CHANGES = r"^aten::(_foreach_|_fused_)?(add|sub|lerp|addcmul|addcdiv|copy|adam|adamw|sgd|adagrad)_$"
_NEVER = np.iinfo(np.int64).max
ENGINE = r"^autograd::engine|^torch::autograd|Backward\d*$"
OPAQUE = r"CompiledFunction|^triton_|^Torch-Compiled|^## Call"


def blocks_of(fused: Work, calls: Calls) -> Rows:
    """Blocks of the kernels over lists that each of some calls launches."""
    members = fused[fused.name.matches(_APPLIED)]
    owner = members.launch.index_of_enclosing(calls)
    counts = np.bincount(owner[owner >= 0], members.blocks[owner >= 0], len(calls))
    return counts.astype(np.int64)


def counted(calls: Calls, work: Work, marks: Calls) -> tuple[Rows, Rows]:
    """How many tensors each step of an optimizer updates, and with how many blocks; no blocks where not known.

    One that is not fused counts its steps on the CPU: each tensor's by an op of its own.
    """
    fused, other = (blocks_of(work[work.op.name.matches(name)], marks) for name in (FUSED, f"^{_LAST}$"))
    sizes = blocks_of(work[work.op.name.one_of(COUNTS)], marks)
    adding = calls[calls.is_op & calls.name.one_of("aten::add_") & calls.parent.name.one_of(COUNTS)]
    owner = adding.index_of_enclosing(marks)
    single_ops = np.bincount(owner[owner >= 0], minlength=len(marks))
    return np.where(fused > 0, sizes, single_ops), fused + other


def chunks(shapes: list[Shape]) -> Rows:
    """Blocks of a kernel over lists for tensors of such shapes."""
    return np.array([-(-math.prod(shape) // _CHUNK) for shape in shapes], np.int64)


def first_updated(members: Rows, shapes: list[Shape], size: int, blocks: int) -> Counter[Shape]:
    """Shapes of the first gradients of a pass, so many, if they make so many blocks; empty where the last do, too."""
    first, last = _shapes_at_ends(members, shapes, size, blocks)
    return Counter() if last and size < len(members) else first


def updated_at_an_end(members: Rows, shapes: list[Shape], size: int, blocks: int) -> Counter[Shape]:
    """Shapes of the first gradients of a pass, or of the last, so many, if these alone make so many blocks."""
    first, last = _shapes_at_ends(members, shapes, size, blocks)
    return Counter() if first and last and size < len(members) else first or last


def _shapes_at_ends(
    members: Rows, shapes: list[Shape], size: int, blocks: int
) -> tuple[Counter[Shape], Counter[Shape]]:
    """Shapes of the first and of the last gradients, so many; empty where they do not make so many blocks."""

    def fitting(part: list[Shape]) -> Counter[Shape]:
        return Counter(part if chunks(part).sum() == blocks else ())

    if not 0 < size <= len(members):
        return Counter(), Counter()
    each = [shapes[place] for place in members.tolist()]
    return fitting(each[:size]), fitting(each[len(each) - size :])


def lists_of(calls: Calls, marks: Calls) -> list[Counter[Shape]]:
    """Shapes of the tensors that each step of an optimizer updates; empty where not all were recorded."""
    updates = calls[calls.is_op & calls.name.matches(LISTS)]
    owner, names = updates.index_of_enclosing(marks), updates.name
    number, signatures = signatures_of(calls.events.trace, updates.rows)
    by_op: dict[tuple[int, str], Counter[Shape]] = {}
    # Steps in which a group of parameters has a list too long to be recorded.
    unknown: set[int] = set()
    for place in np.flatnonzero(owner >= 0).tolist():
        op = signatures[number[place]]
        if not any(op.dims):
            unknown.add(int(owner[place]))
        first = Signature(op.name, op.dims[:1], (), ())
        by_op.setdefault((int(owner[place]), str(names[place])), Counter()).update(
            tensors(first) or _numbers(op)
        )
    lists = [Counter[Shape]() for _ in range(len(marks))]
    for (mark, _), count in by_op.items():
        if mark not in unknown:
            lists[mark] = max(lists[mark], count, key=lambda shapes: (any(shapes), shapes.total()))
    return lists


def taken_by(calls: Calls, marks: Calls) -> list[set[Shape]]:
    """Shapes of the tensors that ops of each step of an optimizer take; a sparse gradient is in none of its lists."""
    inner = calls[calls.is_op & calls.inside(marks)]
    number, signatures = signatures_of(calls.events.trace, inner.rows)
    read_shapes: list[set[Shape]] = [set() for _ in range(len(marks))]
    for mark, which in set(zip(inner.index_of_enclosing(marks).tolist(), number.tolist(), strict=True)):
        read_shapes[mark].update(tensors(signatures[which]))
    return read_shapes


def _numbers(op: Signature) -> list[Shape]:
    """Shapes of a list of single numbers, such as a temperature, or the steps that an optimizer counts."""
    return [()] * op.dims[0].count([]) if op.dims and isinstance(op.dims[0], list) else []


def shapes_of(leaves: Calls) -> list[Shape]:
    number, signatures = signatures_of(leaves.events.trace, leaves.rows)
    first = [next(iter(tensors(op)), ()) for op in signatures]
    return [first[which] for which in number.tolist()]


@dataclass(frozen=True, slots=True)
class Zeroing:
    """Ops that set tensors to zero.

    Attributes:
        starts_ns: when each begins.
        tensors: shapes of its tensors; empty where they are not recorded.
        blocks: of its kernels, where it has a list of tensors.
    """

    starts_ns: Ns
    tensors: list[Counter[Shape]]
    blocks: Rows

    @classmethod
    def found(cls, calls: Calls, work: Work) -> Zeroing:
        """Those that the program calls itself."""
        ops = calls[calls.is_top_op & calls.name.matches(_ZEROES)]
        number, signatures = signatures_of(calls.events.trace, ops.rows)
        shapes = [Counter(tensors(op)) for op in signatures]
        return cls(ops.start_ns, [shapes[which] for which in number.tolist()], blocks_of(work, ops))

    def all_of(self, shapes: list[Shape], wanted: Rows, begin_ns: int, end_ns: int) -> bool:
        """Whether in that time they set so many tensors of such shapes to zero, or one of them as many blocks.

        Args:
            shapes: of all tensors.
            wanted: positions of those in question.
        """
        each = [shapes[place] for place in wanted.tolist()]
        within = np.flatnonzero((self.starts_ns >= begin_ns) & (self.starts_ns < end_ns))
        zeroed = sum((self.tensors[place] for place in within.tolist()), Counter[Shape]())
        return Counter(each) <= zeroed or bool((self.blocks[within] == chunks(each).sum()).any())


def updates_are_recorded(calls: Calls, work: Work, marks: Calls) -> bool:
    """Whether all that changes parameters is by ops whose shapes were recorded; those of long lists are not."""
    pieces, lists = work[work.launch.index_of_enclosing(marks) >= 0], _writing_ops(calls)
    lists = lists[lists.name.matches("^aten::_")]
    _, signatures = signatures_of(work.events.trace, np.append(pieces.op.rows, lists.rows))
    opaque = pieces.in_graph | pieces.op.name.matches(OPAQUE)
    return len(pieces) > 0 and all(any(op.dims) for op in signatures) and not opaque.any()


def used_by_optimizers(calls: Calls, leaves: Calls, marks: Calls) -> Mask:
    """Which gradients have a shape that an optimizer has, or that something outside of backward changes."""
    stepping = calls[calls.is_op & calls.inside(marks)]
    changing = calls.joined((_writing_ops(calls), stepping))
    _, signatures = signatures_of(calls.events.trace, changing.rows)
    shapes = {shape for op in signatures for shape in tensors(op)}
    number, signatures = signatures_of(calls.events.trace, leaves.rows)
    used = [not tensors(op) or not shapes.isdisjoint(tensors(op)) for op in signatures]
    return np.array(used, bool)[number]


def passes_of(calls: Calls, marks: Calls, rows: Calls) -> Rows:
    """Number of the backward pass of each row, rising: what the optimizer's thread calls itself lies between two."""
    members = calls[calls.is_top_op & np.isin(calls.thread, marks.thread) & ~calls.name.matches(ENGINE)]
    return np.searchsorted(np.sort(members.start_ns), rows.start_ns)


def for_unused_alone(calls: Calls, leaves: Calls, used: Mask, marks: Calls) -> Calls:
    """What the engine does for unused gradients alone: after the last used one of its pass, up to the last of all."""
    nodes = calls[calls.name.matches(f"^{NODE}")]
    nodes = nodes[~nodes.parent.inside(nodes)]
    places = passes_of(calls, marks, leaves), passes_of(calls, marks, nodes)
    number, _ = grouped([np.concatenate(places), np.append(leaves.thread, nodes.thread)])
    of_leaf, of_node = number[: len(leaves)], number[len(leaves) :]
    last_used = np.full(number.max() + 1, _NEVER)
    last_used[of_leaf[used]] = -1
    np.maximum.at(last_used, of_leaf[used], leaves.start_ns[used])
    last = np.full(len(last_used), -1)
    np.maximum.at(last, of_leaf, leaves.start_ns)
    after = (nodes.start_ns > last_used[of_node]) & (nodes.start_ns <= last[of_node])
    return nodes[after | np.isin(np.arange(len(nodes)), leaves[~used].index_of_enclosing(nodes))]


def _writing_ops(calls: Calls) -> Calls:
    """What the program itself calls to change tensors: a conversion's own copy_ changes nothing that was there."""
    return calls[calls.is_op & ~calls.parent.op.there & calls.name.matches(_CHANGES)]
