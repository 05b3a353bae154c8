"""A tensor is computed in full, and then a small part of it is taken."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct, grouped, starts_of_runs
from traceanalyzer.model.short_names import short_ops
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, gpu_time_evidence, reduce_to, rule
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.ops.shapes import UNREADABLE, indexed, sliced
from traceanalyzer.tensors.ops.table import Kind, is_view, op_row, result_shape
from traceanalyzer.tensors.signatures import Shape, Signature, shape_text, tensors
from traceanalyzer.tensors.top_ops import top_ops
from traceanalyzer.timeline.backward_nodes import recording_ops

Dims = frozenset[int]  # of which a part is enough

_CUTS = ("aten::select", "aten::slice", "aten::narrow", "aten::index", "aten::index_select")
_SIZE = re.compile(r"\d+")
_BIASED = ("aten::addmm", "aten::baddbmm")


class Limits:
    max_used_share: float = 0.5
    """reported only if at most this share of the result is used; if more is used, computing only the used
    part saves too little; chosen"""
    near_ops: int = 8
    """the op that makes a tensor is looked for among this many ops before the op that reads the tensor, views
    not counted; chosen"""
    min_gpu_share: float = 0.05
    """such ops must take at least this share of GPU time; chosen"""


@rule(since="0.1", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits)
def partly_used(calls: Calls, work: Work, flow: Flow | None, limits: Limits) -> Iterator[Hits]:
    """A tensor is computed in full, but only a small part of it is used.

    What it looks for: a select, slice or index that takes at most half of a tensor. The rule reports the ops
    before it that computed the whole tensor.
    Why it costs: the rest of the tensor is computed for nothing, forward and backward.
    Bad: lm_head(hidden).float()[:, -1]; resize(normalise(frames))[:, ::4]. Good:
    lm_head(hidden[:, -1:]).float(); resize(normalise(frames[:, ::4])).
    How sure: shapes and slice bounds are recorded. The slice and the result are matched only by their shape,
    so confidence is medium. What an execution trace shows to be read in part, computed-unused reports.
    When it is wrong: the slice is taken from another tensor of the same shape. Or the whole result is read
    by a custom kernel, which the trace does not show as an op.
    Saving: the unused share of the time of these ops and of their backward ops.
    Source: algebra: a row of a product needs only the same row of the input. Not measured.
    """
    ops, number, signatures = top_ops(calls, "shows what is sliced")
    launcher, recorder = work.op.index_of_enclosing(ops), recording_ops(calls, ops, work)
    moves = work.kind.one_of("compute", "copy_d2d", "copy_h2d", "memset")
    spent_ns = np.zeros(len(ops))
    for place in (launcher, recorder):
        spent_ns += np.bincount(place[moves & (place >= 0)], work.dur_ns[moves & (place >= 0)], len(ops))
    least_ns = limits.min_gpu_share * work.total_ns / max(len(distinct(work.device)), 1)
    sequence = OpsInOrder(number, signatures, grouped([ops.thread, ops.step])[0])
    in_part = np.empty(0, np.int64) if flow is None else flow.ops.rows[flow.read_share[flow.number] < 1]
    reported = np.isin(ops.rows, in_part)  # by computed-unused
    for chain in chains(sequence, limits, forms_of(number, signatures, ops.step)):
        if spent_ns[chain.makers].sum() < least_ns or reported[chain.makers].any():
            continue
        maker, either = np.zeros((2, len(ops) + 1), bool)
        maker[chain.makers] = either[chain.makers] = either[chain.cuts] = True
        for _, pieces in work[moves & (maker[launcher] | either[recorder])].by_device():
            yield Hits(
                **reduce_to(pieces, np.asarray(pieces.dur_ns * chain.part)),
                named_by=shape_text(chain.cut.shape(0)),
                message="{by} is computed in full, but {cut} takes only {kept} of "
                + (f"its dimension {min(chain.dims)}" if len(chain.dims) == 1 else "it")
                + ": this takes {spent_a_step} on the GPU, in {ops}{where}",
                advice=_advice(chain),
                confidence=Confidence.MEDIUM,
                evidence=gpu_time_evidence(pieces)
                | {"cut": chain.cut.name, "kept": f"{100 * chain.part:.2g} %", "spent_ns": pieces.total_ns},
            )


@dataclass(frozen=True, slots=True)
class Chain:
    """What is computed whole before a part of it is taken.

    Attributes:
        dims, part: dimensions that it takes a part of, and the share that is taken at most.
        cuts, makers: positions of the ops that take the part, and of those before that make the whole.
    """

    cut: Signature
    dims: Dims
    part: float
    first: Signature
    cuts: Rows
    makers: Rows


def _advice(chain: Chain) -> str:
    if op_row(chain.first.name).kind is not Kind.GEMM:
        return f"Take the part before {short_ops(chain.first.name)}, and compute only that."
    if len(chain.cut.shape(0)) - 1 in chain.dims:
        return "Compute only these columns: slice the weight, as in F.linear(x, weight[:8]), not the result."
    return (
        "Slice the rows before the product: head(hidden[:, -1:]) instead of head(hidden)[:, -1]. Models of "
        "transformers take logits_to_keep."
    )


class OpsInOrder:
    """Ops, those of each thread's step in a row up to `edges`, with what they read and make by `number`."""

    def __init__(self, number: Rows, signatures: Sequence[Signature], group: Rows) -> None:
        self.number, self.signatures = number, signatures
        self.edges = np.append(np.flatnonzero(starts_of_runs(group)), len(group))
        self.views, self.inputs = [is_view(op.name) for op in signatures], [tensors(op) for op in signatures]
        self.results = [result_shape(op) for op in signatures]
        self._of_shape: dict[tuple[Shape, bool], Rows] = {}

    def op(self, place: int) -> Signature:
        """The op at a position."""
        return self.signatures[int(self.number[place])]

    def step_of(self, place: int) -> tuple[int, int]:
        """Position of the first op of a thread's step, and after its last."""
        after = int(np.searchsorted(self.edges, place, side="right"))
        return int(self.edges[after - 1]), int(self.edges[after])

    def with_shape(self, shape: Shape, begin: int, end: int, *, makers: bool = False) -> list[int]:
        """Positions from begin to end of the ops that read a tensor of this shape, or that make one, views left out."""
        key = shape, makers
        if key not in self._of_shape:
            pairs = zip(self.views, self.results, strict=True)
            made = (not view and result == shape for view, result in pairs)
            fits = made if makers else (shape in inputs for inputs in self.inputs)
            self._of_shape[key] = np.flatnonzero(np.array([*fits], bool)[self.number])
        places = self._of_shape[key]
        inside: Rows = places[slice(*np.searchsorted(places, (begin, end)))]
        return [*inside.tolist()]


def forms_of(number: Rows, signatures: Sequence[Signature], step: Rows) -> list[tuple[str, str]]:
    """Name and shapes of each signature; sizes that some step lacks, such as a batch's length, are left open."""
    sizes = [frozenset(map(int, _SIZE.findall(str(op.dims)))) for op in signatures]
    pairs = np.unique([step, number], axis=1)
    of_steps = np.split(pairs[1], np.flatnonzero(np.diff(pairs[0])) + 1)
    constant = frozenset.intersection(*(frozenset().union(*map(sizes.__getitem__, each)) for each in of_steps))

    def open_if_variable(size: re.Match[str]) -> str:
        return size[0] if int(size[0]) in constant else "?"

    return [(op.name, _SIZE.sub(open_if_variable, str(op.dims))) for op in signatures]


def chains(ops: OpsInOrder, limits: Limits, forms: Sequence[tuple[str, str]]) -> Iterator[Chain]:
    """Every chain, with all occurrences whose signatures have equal `forms`; an op is in one of them."""
    cuts = np.array([op.name in _CUTS for op in ops.signatures], bool)
    occurrences: dict[tuple[object, ...], list[tuple[int, Dims, float, list[int]]]] = {}
    claimed = set[int]()
    # The last of several slices in a row takes the smallest part.
    for cut in np.flatnonzero(cuts[ops.number])[::-1].tolist():
        dims, part = part_taken(ops, cut)
        if not dims or part > limits.max_used_share:
            continue
        makers, part = _used_in_part(ops, cut, _chain_before(ops, cut, dims, limits.near_ops), part)
        while makers and ops.views[ops.number[makers[-1]]]:
            makers.pop()
        if makers and part <= limits.max_used_share and not claimed.intersection(makers):
            claimed.update(makers)
            key = (dims, *(forms[which] for which in ops.number[[cut, *makers]].tolist()))
            occurrences.setdefault(key, []).append((cut, dims, part, makers))
    for alike in occurrences.values():
        places, dims_of, parts, makers_of = zip(*alike, strict=True)
        yield Chain(
            cut=ops.op(places[0]),
            dims=dims_of[0],
            part=max(parts),
            first=ops.op(makers_of[0][-1]),
            cuts=np.array(places),
            makers=np.concatenate(makers_of),
        )


def part_taken(ops: OpsInOrder, place: int) -> tuple[Dims, float]:
    """(dimensions that an op takes a part of, the share that it takes at most); no dimensions where unknown."""
    op = ops.op(place)
    try:
        whole = op.shape(0)
        if op.name != "aten::index":
            dim = int(op.scalar(1)) % len(whole)
            if op.name in ("aten::select", "aten::narrow"):
                taken = 1 if op.name == "aten::select" else int(op.scalar(3))
            else:
                taken = (indexed(op) if op.name == "aten::index_select" else sliced(op))[dim]
            return Dims({dim}), taken / whole[dim]
        # What an index takes is shown by what the next op reads.
        following = ops.op(min(place + 1, len(ops.number) - 1))
        for shape in tensors(following):
            rest = next((size for size in range(1, len(whole)) if shape[size - len(whole) :] == whole[size:]), 0)
            if rest and math.prod(shape) < math.prod(whole):
                return Dims(range(rest)), math.prod(shape) / math.prod(whole)
    except UNREADABLE:
        pass
    return Dims(), 1.0


def _chain_before(ops: OpsInOrder, cut: int, dims: Dims, near_ops: int) -> list[int]:
    """Ops before a cut, the nearest first, each of which needs only the part that the next one needs."""
    makers: list[int] = []
    needed, seen = ops.op(cut).shape(0), 0
    begin, _ = ops.step_of(cut)
    for place in range(cut - 1, begin - 1, -1):
        op, which = ops.op(place), int(ops.number[place])
        if seen >= near_ops:
            break
        if ops.results[which] != needed:
            if needed in ops.inputs[which]:
                break
            seen += not ops.views[which]
            continue
        before = _input_needed(op, needed, dims)
        if before is None:
            break
        makers.append(place)
        needed, seen = before, 0
        if not needed:
            break
    return makers


def _input_needed(op: Signature, whole: Shape, dims: Dims) -> Shape | None:
    """Shape of the input of which the same part is enough; empty if it is no such input, None if more is needed."""
    row, last, shapes = op_row(op.name), len(whole) - 1, tensors(op)
    if op.name in _CUTS:
        return shapes[0] if len(shapes[0]) == len(whole) else None
    if row.writes or not shapes:
        return None
    if row.kind in (Kind.POINTWISE, Kind.COPY):
        return whole if shapes.count(whole) == 1 else ()
    if row.kind is Kind.GEMM:
        left = shapes[op.name in _BIASED]
        if dims == {last} or (len(shapes[-1]) > 2 and dims == {0}):
            return ()
        return left if last not in dims and (len(shapes[-1]) < 3 or dims == {last - 1}) else None
    along = -1 if row.row_wise else row.batch_dims
    return shapes[0] if dims <= Dims(range(last if along < 0 else along)) else None


def _used_in_part(ops: OpsInOrder, cut: int, makers: list[int], part: float) -> tuple[list[int], float]:
    """(the ops of a chain up to one whose result another op reads in full, share of their results that is used)."""
    (_, end), chain, used = ops.step_of(cut), {cut, *makers}, 0.0
    for count, maker in enumerate(makers):
        op, shape = ops.op(maker), ops.results[int(ops.number[maker])] or ()
        makers_of_shape = ops.with_shape(shape, maker + 1, end, makers=True)
        following = [place for place in makers_of_shape if place not in chain]
        readers = ops.with_shape(shape, maker + 1, min(following, default=end - 1) + 1)
        others = [part_taken(ops, place) for place in readers if place not in chain]
        # Either the result or an input of the same shape is cut.
        if any(not dims for dims, _ in others) or (others and shape in tensors(op)):
            return makers[:count], used
        if ops.views[int(ops.number[maker])]:
            part *= math.prod(shape) / math.prod(op.shape(0))
        else:
            used = max(used, part + sum(share for _, share in others))
    return makers, used
