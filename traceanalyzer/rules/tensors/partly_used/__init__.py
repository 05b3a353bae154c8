"""A tensor is computed in full, and then a small part of it is taken."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, distinct
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.short_names import short_ops
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import reduce_to
from traceanalyzer.rules.tensors.partly_used.sources import (
    FAR,
    Cut,
    Dims,
    Readers,
    cut_at,
    cuts_alike,
    is_diagonal,
    joined,
    sources,
    taken,
    viewed,
)
from traceanalyzer.tensors.ops.table import Kind, is_view, op_row, result_shape
from traceanalyzer.tensors.signatures import Shape, Signature, shape_text, tensors
from traceanalyzer.tensors.top_ops import top_ops
from traceanalyzer.timeline.backward_nodes import recording_ops

_Step = tuple[Shape, list[tuple[Shape, Dims]], float]


@dataclass(frozen=True, slots=True)
class Limits:
    max_used_share: float = limit(
        0.5,
        "reported only if at most this share of the result is used; if more is used, computing only the "
        "used part saves too little; chosen",
    )
    near_ops: int = limit(
        8,
        "the op that makes a tensor is looked for among this many ops before the op that reads the "
        "tensor, views not counted; chosen",
    )
    calls: int = limit(
        4,
        "for each op and its input shapes, the results of this many calls are checked; reported only if "
        "each of these results is used only in part; chosen",
    )
    min_gpu_share: float = limit(0.05, "such ops must take at least this share of GPU time; chosen")


@rule(since="0.1", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits, causes=("averaged",))
def partly_used(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """A tensor is computed in full, but only a small part of it is used.

    What it looks for: a select, slice, index or diagonal that takes at most half of a tensor. The rule
    reports the ops before it that computed the whole tensor. They can be a whole network, if only a part of
    its batch is used.
    A second case (cause `averaged`, named in the finding's title): a linear layer is applied to many rows,
    and its result is then averaged or summed over the rows.
    Why it costs: the rest of the tensor is computed for nothing, forward and backward. For `averaged`: the
    layer applied to the mean of the rows gives the same.
    Bad: lm_head(hidden).float()[:, -1]; resize(normalise(frames))[:, ::4]; linear(x).mean(1). Good:
    lm_head(hidden[:, -1:]).float(); resize(normalise(frames[:, ::4])); linear(x.mean(1)). With sum(1),
    multiply the bias by the number of rows.
    How sure: shapes and slice bounds are recorded. The slice and the result are matched only by their shape,
    so confidence is medium.
    When it is wrong: the slice is taken from another tensor of the same shape. Or the whole result is read
    by a custom kernel, which the trace does not show as an op.
    Saving: the unused share of the time of these ops and of their backward ops.
    Source: algebra: a row of a product needs only the same row of the input. Not measured.
    """
    ops, number, signatures = top_ops(calls, "shows what is sliced")
    readers = Readers.of(number, signatures, ops.name.meets(is_view), ops.thread)
    launcher, recorder = work.op.index_of_enclosing(ops), recording_ops(calls, ops, work)
    moves = work.kind.one_of("compute", "copy_d2d", "copy_h2d", "memset")
    spent = np.zeros(len(ops))
    for place in (launcher, recorder):
        spent += np.bincount(place[moves & (place >= 0)], work.dur_ns[moves & (place >= 0)], len(ops))
    devices = max(len(distinct(work.device)), 1)
    least = Thresholds(
        limits.max_used_share,
        limits.near_ops,
        limits.calls,
        limits.min_gpu_share * work.total_ns / devices,
    )
    for chain in chains(readers, spent, least):
        maker, either = np.zeros((2, len(ops) + 1), bool)
        maker[chain.makers] = either[chain.makers] = either[chain.cuts] = True
        for _, pieces in work[moves & (maker[launcher] | either[recorder])].by_device():
            yield Hits(
                **reduce_to(pieces, np.asarray(pieces.dur_ns * chain.part)),
                cause="averaged" if chain.averaged else "",
                named_by=shape_text(chain.cut.shape(0)),
                message="{by} is computed in full, "
                + (
                    "and then averaged or summed"
                    if chain.averaged
                    else f"but {{cut}} takes only {{kept}} of {_axis(chain.cut)}"
                )
                + ": this takes {spent_a_step} on the GPU, in {ops}{where}",
                advice=_advice(chain),
                confidence=Confidence.MEDIUM,
                evidence={
                    **gpu_time_evidence(pieces),
                    "cut": chain.cut.name,
                    "kept": f"{100 * chain.part:.2g} %",
                    "spent_ns": pieces.total_ns,
                },
            )


def _axis(cut: Signature) -> str:
    """`it`, or `its dimension 1` where the cut takes a part of one dimension."""
    part = taken(cut)
    return f"its dimension {next(iter(part[0]))}" if part and len(part[0]) == 1 else "it"


def _advice(chain: Chain) -> str:
    if chain.averaged:
        return (
            "Average the rows before the product: linear(x.mean(1)) instead of linear(x).mean(1). For a sum, "
            "multiply a bias by the number of rows."
        )
    if is_diagonal(chain.cut):
        return "Multiply row by row: (a * b).sum(-1) instead of (a @ b.mT).diagonal(dim1=-2, dim2=-1)."
    if op_row(chain.first.name).kind is Kind.GEMM and not chain.begin:
        return "Compute only these columns: slice the weight, as in F.linear(x, weight[:8]), not the result."
    if op_row(chain.first.name).kind is Kind.GEMM:
        return (
            "Slice the rows before the product, not after it: head(hidden[:, -1:]) instead of "
            "head(hidden)[:, -1]."
        )
    begin = f" of {'x'.join(map(str, chain.begin))}" if chain.begin else ""
    return f"Take the part{begin} before {short_ops(chain.first.name)}, and compute only that."


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Of the rule; `min_ns` is the GPU time that a chain must take."""

    max_part: float
    near_ops: int
    tried: int
    min_ns: float


@dataclass(frozen=True, slots=True)
class Chain:
    """What is computed whole before a part of it is taken.

    Attributes:
        cut: the op that takes the part.
        part: share that is taken.
        averaged: whether the part is a mean or sum over the rest.
        begin: the tensor of which a part would be enough; empty where it is not one.
        first: the op that reads it.
        cuts, makers: positions of the ops that take the part, and of those before that make the whole.
    """

    cut: Signature
    part: float
    averaged: bool
    begin: Shape
    first: Signature
    cuts: Rows
    makers: Rows


@dataclass(frozen=True, slots=True)
class _Link:
    """An op whose result is taken in part.

    Attributes:
        place: its position.
        result, begin: shape of what it makes, and of that of which a part is enough, empty where that is not one.
        within: share of the tensor before that a slice keeps of the taken dimensions; 1 of other ops.
        inputs: of how many tensors a part is enough.
    """

    place: int
    result: Shape
    begin: Shape
    within: float
    inputs: int


"""(what an op makes, what it needs a part of, with the dimensions; what a slice keeps of them)"""


def chains(ops: Readers, spent_ns: Floats, limits: Thresholds) -> Iterator[Chain]:
    """Every chain that takes long enough; an op is in one of them.

    Args:
        spent_ns: GPU time of each op, its backward included, parallel to them.
    """
    claimed = np.zeros(len(ops.number), bool)
    for cuts in cuts_alike(ops, limits.max_part):
        remaining = cuts
        for _ in range(limits.tried):
            remaining = remaining[~claimed[remaining]]
            if len(remaining) == 0:
                break
            links, alike = _chain_before(int(remaining[0]), remaining, ops, limits.near_ops)
            members = remaining[alike]
            remaining = remaining[~alike]
            places = members[:, None] + [0, *(link.place - int(members[0]) for link in links)]
            if not links or claimed[places].any() or spent_ns[places[:, 1:]].sum() < limits.min_ns:
                continue
            parts = _parts(ops, members, places, links, limits)
            link_count = _count_links(ops, parts, links, limits.max_part)
            if not link_count or spent_ns[places[:, 1 : link_count + 1]].sum() < limits.min_ns:
                continue
            if _other_tensor_fits(ops, places[0].tolist(), links):
                continue
            claimed[places[:, : link_count + 1]] = True
            cut = ops.op(int(members[0]))
            yield Chain(
                cut,
                float(parts[:link_count].max()),
                joined(cut) is not None,
                links[link_count - 1].begin,
                ops.op(links[link_count - 1].place),
                members,
                places[:, 1 : link_count + 1].ravel(),
            )


def _chain_before(place: int, cuts: Rows, ops: Readers, near_ops: int) -> tuple[list[_Link], np.ndarray]:
    """(ops whose results the one at a position takes a part of, the nearest first; which cuts have the same before)."""
    cut = cut_at(place, ops)
    links = [] if cut is None else _links(place, cut, ops, near_ops)
    chain = np.array([link.place for link in links], np.int64)
    before = cuts[:, None] + (chain - place)
    same = (before >= 0) & (ops.number[np.maximum(before, 0)] == ops.number[chain])
    return links, (same & (ops.last[np.maximum(before, 0)] == ops.last[cuts][:, None])).all(axis=1)


def _links(place: int, cut: Cut, ops: Readers, near_ops: int) -> list[_Link]:
    """What makes the whole tensor before an op takes a part of it, as far as each op needs the same part only.

    Where an op joins several tensors of a batch, what makes any of them follows.
    """
    links: list[_Link] = []
    needed, seen = {ops.op(place).shape(0): cut.dims}, 0
    for before in range(place - 1, max(place - 1 - FAR, -1), -1):
        if ops.last[before] != ops.last[place] or seen >= near_ops or not needed:
            break
        op, views = ops.op(before), bool(ops.views[before])
        step = _step_of_view(op, needed) if views else _step_of_maker(before, needed, ops)
        if step is None and cut.diagonal and _is_gemm(op) and result_shape(op) in needed:
            step = ops.op(place).shape(0), [], 1.0
        if step is None:
            if taken(op) is None and any(ops.reads(before, shape) for shape in needed):
                break
            seen += not views
            continue
        result, inputs, within = step
        if len(inputs) < 2 and len(needed) == 1 and not any(link.inputs > 1 for link in links):
            needed = {}
        links.append(_Link(before, result, inputs[0][0] if inputs else (), within, len(inputs)))
        needed.update(inputs)
        seen = 0
        if cut.averaged and not views:
            return links if _is_gemm(op) and not _batched(op) else []
    return links


def _step_of_view(op: Signature, needed: dict[Shape, Dims]) -> _Step | None:
    """What a view of a needed tensor shows; None where it shows none of them."""
    for whole, part in needed.items():
        if view := viewed(op, whole, part):
            shape, dims, within = view
            fits = needed.get(shape, dims) == dims and (len(needed) == 1 or within == 1)
            return (whole, [(shape, dims)], within) if fits else None
    return None


def _step_of_maker(place: int, needed: dict[Shape, Dims], ops: Readers) -> _Step | None:
    """What an op that makes a needed tensor needs a part of; None where it makes none of them, or needs more."""
    whole = ops.result(place)
    inputs = sources(ops.op(place), whole, needed[whole]) if whole in needed else None
    if inputs is None or any(needed.get(shape, part) != part for shape, part in inputs):
        return None
    return whole, inputs, 1.0


def _is_gemm(op: Signature) -> bool:
    return op_row(op.name).kind is Kind.GEMM and result_shape(op) is not None


def _batched(op: Signature) -> bool:
    """Whether it multiplies by several matrices."""
    return op.name != "aten::linear" and any(len(shape) > 2 for shape in tensors(op)[1:])


def _parts(ops: Readers, cuts: Rows, places: Rows, links: list[_Link], limits: Thresholds) -> Floats:
    """The largest share of each result that is taken, among the first occurrences."""
    parts_of_rows, begin = [], links[-1].begin
    for row in places[: limits.tried].tolist():
        cut, parts = cut_at(row[0], ops), []
        used = cut.part if cut else 1.0
        ends = np.minimum.accumulate([ops.next_alike(place, row[0]) for place in row[:0:-1]])[::-1].tolist()
        anew = _next_source(ops, row[-1], ends[-1], row[0], begin, limits.near_ops)
        for count, (link, end) in enumerate(zip(links, ends, strict=True)):
            until = min(end, anew) if link.result == begin else end
            used = min(1.0, used * link.within + _share_of_other_readers(ops, row, count, link, until))
            parts.append(used)
        parts_of_rows.append(parts)
    return np.maximum.accumulate(np.array(parts_of_rows).max(axis=0))


def _next_source(ops: Readers, place: int, end: int, cut: int, begin: Shape, near_ops: int) -> int:
    """Where the next chain's own tensor is made, of the shape that the chain begins with; `end` where that is not seen.

    Ops before both chains must be the same, from there on: they read that tensor, not what the chain made.

    Args:
        place, end: positions of the first op of the chain and of the next one.
        cut: position of what takes the part.
    """
    if end >= ops.last[place]:
        return end
    seen = 0
    for back in range(1, min(place, end - cut - 1, FAR) + 1):
        same = (
            ops.number[place - back] == ops.number[end - back] and ops.last[place - back] == ops.last[place]
        )
        if not same or seen >= near_ops:
            break
        if ops.result(place - back) == begin:
            return end - back
        seen += not ops.views[place - back]
    return end


def _share_of_other_readers(ops: Readers, row: list[int], count: int, link: _Link, end: int) -> float:
    """Share of a link's result that ops outside of the chain read before a position; 1 if one reads all."""
    in_chain, more = set(row), 0.0
    for op, places in ops.between(row[count + 1], end, link.result):
        outside = sum(place not in in_chain for place in places.tolist())
        if outside:
            part = taken(op)
            more += outside * part[1] if part else 1.0
    return more


def _other_tensor_fits(ops: Readers, row: list[int], links: list[_Link]) -> bool:
    """Whether different parts are taken, and an input of the first maker has the same shape: either may be cut."""
    cut, first = ops.op(row[0]), links[0]
    if first.result not in tensors(ops.op(first.place)):
        return False
    readers = ops.between(row[1], ops.next_alike(row[1], row[0]), first.result)
    return any(op != cut and (part := taken(op)) is not None and part[1] < 1 for op, _ in readers)


def _count_links(ops: Readers, parts: Floats, links: list[_Link], max_part: float) -> int:
    """How many links count: the first of them makes a new tensor, and none is used more than in part."""
    count = int((parts <= max_part).sum())
    while count and (ops.views[links[count - 1].place] or ops.op(links[count - 1].place).name.endswith("_")):
        count -= 1
    return count
