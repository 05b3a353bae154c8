"""Ops that work on copies of the same rows: what they would need if they ran before the rows are copied.

A gather, a repeat, windows, or a tensor with dimensions of stride 0 is the source. Ops that keep entries apart hand
copies on while all of their data are copies by the same op; a product reads the parts of a row that cat joins one by
one. What mixes other data in ends it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from traceanalyzer.model.records import dataclass
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.ops.table import Kind, op_row, result_shape
from traceanalyzer.tensors.signatures import ITEM_BYTES, Shape, Signature, tensors

_ALONG = {"aten::index_select": 1, "aten::unfold": 1, "aten::repeat_interleave": 2}
_JOINS = frozenset({"aten::cat", "aten::concat"})
_MAY_COPY = frozenset({"aten::reshape", "aten::flatten", "aten::unfold"})
# Position of a layer's data; its other inputs are weights.
_DATA = {"aten::embedding": 1, "aten::addmm": 1, "aten::_addmm_activation": 1}
_PRODUCTS = frozenset({"aten::linear", "aten::mm", "aten::matmul", "aten::addmm", "aten::_addmm_activation"})
_LAYERS = frozenset({Kind.CONVOLUTION, Kind.NORM})
_HANDS_ON = frozenset({Kind.POINTWISE, Kind.COPY, Kind.SOFTMAX, Kind.ATTENTION, Kind.POOL, Kind.NORM})
# Without ids, a tensor is the last one of its size that one of so many ops has made.
_NEAR = 10


@dataclass(frozen=True, slots=True)
class OnCopies:
    """An op that works on copies.

    Attributes:
        position: of the op.
        maker: position of the op that makes the copies, or of the first that reads an expanded tensor.
        times: that each entry is there, of the part that is repeated most.
        needed_share: of its work if it runs before the entries are copied.
        layers: products, convolutions and attention from the copies up to this op.
        layer: whether it is one of them.
        joined: whether other data are joined to the copies.
        moved_bytes: that copying its result, and adding up those of parts, moves beyond what making its input does.
    """

    position: int
    maker: int
    times: float
    needed_share: float
    layers: int
    layer: bool
    joined: bool
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of each row: its share of the width, and how often each entry is there; once without a maker.

    Attributes:
        entries: number of all copies.
        layers: that have worked on them.
    """

    share: float = 1.0
    maker: int = -1
    times: float = 1.0
    entries: int = 1
    layers: int = 0


_Parts = tuple[_Part, ...]


@dataclass(frozen=True, slots=True)
class _Read:
    """A tensor that an op reads: position among the inputs, shape, and times and number of entries by stride 0."""

    argument: int
    shape: Shape
    times: float
    entries: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Form:
    """A distinct op, with what it reads.

    Attributes:
        made: elements of its result; None if unknown.
        entries: that its result has along the dimensions up to the one that it copies along; 0 if it copies none.
        random: whether it draws numbers for each copy, as dropout does in training.
    """

    name: str
    reads: tuple[_Read, ...]
    made: int | None
    entries: int
    item_bytes: int
    random: bool = False

    @staticmethod
    def of(op: Signature) -> Form:
        every, made = tensors(op), result_shape(op)
        if made is None and op.name == "aten::index" and len(every) == 2 and "bool" not in op.types:
            made = (*every[1], *every[0][1:])
        reads = tuple(
            _Read(argument, shape, *_repeats(shape, steps)) for argument, shape, steps in _shapes(op)
        )
        along = -1 if made is None or not every else _copied_dimension(op, len(every[0]), len(every))
        width = math.prod(every[0][along + 1 :]) if along >= 0 else 0
        size = None if made is None else math.prod(made)
        size = sum(read.elements for read in reads) if op.name in _JOINS else size
        item_bytes = min((ITEM_BYTES[kind] for kind in op.types if kind in ITEM_BYTES), default=1)
        off = op.name == "aten::dropout" and op.scalars[2:3] == ("False",)
        random = not op_row(op.name).deterministic and not off
        return Form(op.name, reads, size, (size or 0) // width if width else 0, item_bytes, random)

    @property
    def copies(self) -> bool:
        """Whether it makes a tensor, although the op table calls it a view."""
        return self.name in _MAY_COPY and (self.entries > 0 or any(read.times > 1 for read in self.reads))


@dataclass(frozen=True, slots=True)
class Step:
    """An op in order: keys of what it reads and makes, -1 if unknown, and which no op of the step has made."""

    form: Form
    keys: Sequence[int]
    constant: Sequence[bool]
    made: int


def on_copies(steps: Sequence[Step], min_times: float) -> Iterator[OnCopies]:
    """Ops on copies that are there at least so often."""
    parts: dict[int, _Parts] = {}
    moved_for = set[int]()
    for position, step in enumerate(steps):
        form = step.form
        known = [
            (_Part(1.0, position, read.times, read.entries),)
            if read.times >= min_times
            else parts.get(key, ())
            for key, read in zip(step.keys, form.reads, strict=True)
        ]
        parts.pop(step.made, None)
        result: _Parts = ()
        if form.entries and form.reads and form.made:
            times = form.made / form.reads[0].elements
            result = (_Part(1.0, position, times, form.entries),) if times >= min_times else ()
        elif form.name in _JOINS:
            result = _joined(form, known)
        elif form.random:
            result = ()
        elif form.copies:
            result = known[0]
        elif data := _data(step, known):
            row = op_row(form.name)
            layer = form.name in _PRODUCTS or row.kind in (Kind.CONVOLUTION, Kind.ATTENTION)
            most = max(data, key=lambda part: part.times)
            if len(data) == 1 or layer:
                share = sum(part.share / part.times for part in data)
                layers, joined = most.layers + layer, len(data) > 1
                moved = _moved(step, data, spared=most.maker not in moved_for) if layer else 0
                moved_for.update([most.maker] if layer else ())
                yield OnCopies(position, most.maker, most.times, share, layers, layer, joined, moved)
            if len(data) == 1:
                result = (replace(most, layers=most.layers + layer),)
            elif row.kind is Kind.COPY:
                result = data
        if step.made >= 0 and any(part.maker >= 0 for part in result):
            parts[step.made] = result


def _moved(step: Step, data: _Parts, *, spared: bool) -> int:
    """Bytes that the other order moves, less those that it spares: the gather of the data, or cat."""
    form = step.form
    before = next(read.elements for read in form.reads if read.argument == _DATA.get(form.name, 0))
    made = form.made or 0
    if len(data) > 1:
        elements = 3 * made * (len(data) - 1) - 2 * before
    else:
        elements = 0 if data[0].layers else 2 * made - 2 * before * spared
    return max(elements, 0) * form.item_bytes


def _data(step: Step, known: list[_Parts]) -> _Parts:
    """Parts of the data that an op reads, if all of it is copied by one op and it keeps entries apart; else empty."""
    name, reads = step.form.name, step.form.reads
    row, copied = op_row(name), [place for place, parts in enumerate(known) if parts]
    if not copied:
        return ()
    parts = max((known[place] for place in copied), key=lambda each: max(part.layers for part in each))
    shape = max((reads[place].shape for place in copied), key=len)
    if name in _PRODUCTS or row.kind in _LAYERS or name == "aten::embedding":
        at_data = len(copied) == 1 and reads[copied[0]].argument == _DATA.get(name, 0)
        matrix = name != "aten::matmul" or all(len(read.shape) <= 2 for read in reads if read.argument == 1)
        others = at_data and matrix
    else:
        leading = max(_leading(shape, part.entries) for part in parts)
        # The same copies, however many layers have worked on them.
        same = [[replace(part, layers=0) for part in each] for each in (parts, *known)]
        others = row.kind in _HANDS_ON and all(
            same[1 + place] == same[0]
            if place in copied
            else step.constant[place]
            and all(size == 1 for size in read.shape[: max(len(read.shape) - len(shape) + leading, 0)])
            for place, read in enumerate(reads)
        )
    apart = len(shape) if row.kind is Kind.POINTWISE or row.kind is Kind.COPY else row.batch_dims
    if row.row_wise or row.kind in (Kind.LOOKUP, Kind.SOFTMAX):
        apart = len(shape) - (name != "aten::embedding")
    return parts if others and all(_leading(shape, part.entries) <= apart for part in parts) else ()


def _leading(shape: Shape, entries: int) -> int:
    """How many of the first dimensions hold the entries."""
    sizes = np.cumprod((1, *shape)).tolist()
    return next((place for place, size in enumerate(sizes) if size % entries == 0), len(shape) + 1)


def _joined(form: Form, known: list[_Parts]) -> _Parts:
    """Parts of what cat makes; one if all are copies by one op."""
    total = sum(read.elements for read in form.reads)
    joined = [
        replace(part, share=part.share * read.elements / total)
        for read, parts in zip(form.reads, known, strict=True)
        for part in (parts or (_Part(),))
    ]
    single = len({(part.maker, part.times) for part in joined}) == 1
    return (replace(joined[0], share=1.0),) if single else tuple(joined)


def steps_by_size(forms: Sequence[Form], number: Sequence[int]) -> list[Step]:
    """Ops without ids of tensors. Of several tensors of one size, the last one is what was made last.

    Products of one form read the same tensor, as those of queries, keys and values do.
    """
    made: dict[int, list[int]] = {}
    steps: list[Step] = []
    for position, form in enumerate(forms[which] for which in number):
        free = {
            read.elements: [each for each in made.get(read.elements, ()) if position - each < _NEAR]
            for read in form.reads
        }
        if form.name in _PRODUCTS:
            free = {
                size: [each for each in places if steps[each].form is not form]
                for size, places in free.items()
            }
        keys = [free[read.elements].pop() if free[read.elements] else -1 for read in form.reads[::-1]][::-1]
        constant = [len(read.shape) < 2 for read in form.reads]
        if form.made is not None:
            made[form.made] = [*made.get(form.made, ())[-_NEAR:], position]
        steps.append(Step(form, keys, constant, -1 if form.made is None else position))
    return steps


def steps_by_id(
    forms: Sequence[Form], number: Sequence[int], flow: Flow, recorded: Sequence[int]
) -> list[Step]:
    """Ops with the ids of their tensors.

    Args:
        recorded: the op of the execution trace that each is.
    """
    step_of, values = np.append(flow.recorded.step, -1), flow.values
    steps = []
    for form, op in zip((forms[which] for which in number), recorded, strict=True):
        read: dict[int, list[int]] = {}
        reads = zip(values.arguments_of(op).tolist(), values.read_by(op).tolist(), strict=True)
        for argument, value in reads:
            read.setdefault(argument, []).append(value)
        keys = [read[each.argument].pop(0) if read.get(each.argument) else -1 for each in form.reads]
        constant = [key >= 0 and bool(step_of[values.producer[key]] < step_of[op]) for key in keys]
        made = values.made_by(op)
        steps.append(Step(form, keys, constant, int(made[0]) if len(made) else -1))
    return steps


def _shapes(op: Signature) -> Iterator[tuple[int, Shape, Sequence[int]]]:
    """(argument, shape, strides) of each tensor with dimensions; no strides where they are not recorded."""
    for argument, dims in enumerate(op.dims):
        strides = op.strides[argument] if argument < len(op.strides) else None
        if not isinstance(dims, list) or not dims:
            continue
        several = isinstance(dims[0], list)
        listed = strides if isinstance(strides, list) and len(strides) == len(dims) else [() for _ in dims]
        for shape, steps in zip(dims, listed, strict=True) if several else [(dims, strides)]:
            if isinstance(shape, list) and shape and all(type(size) is int for size in shape):
                steps = steps if isinstance(steps, list) and len(steps) == len(shape) else ()
                yield argument, tuple(shape), steps


def _repeats(shape: Shape, steps: Sequence[int]) -> tuple[float, int]:
    """(times that each entry is there by stride 0, number of entries)."""
    repeated = [place for place, step in enumerate(steps) if step == 0 and shape[place] > 1]
    if not repeated or repeated[-1] == len(shape) - 1:
        return 1.0, 1
    return float(math.prod(shape[place] for place in repeated)), math.prod(shape[: repeated[-1] + 1])


def _copied_dimension(op: Signature, dims: int, count: int) -> int:
    """The dimension along which an op copies entries; -1 if it copies none."""
    if op.name == "aten::index":
        return 0 if count == 2 and dims > 1 else -1
    if op.name == "aten::repeat":
        counts = op.scalars[1].strip("[]").split(",") if len(op.scalars) > 1 else []
        along = [place - len(counts) + dims for place, count in enumerate(counts) if count.strip() != "1"]
        return max(along[0], 0) if len(along) == 1 else -1
    text = op.scalars[_ALONG[op.name]] if op.name in _ALONG and len(op.scalars) > _ALONG[op.name] else ""
    if op.name == "aten::repeat_interleave" and dims == 1:
        return 0
    return int(text) % dims if text.lstrip("-").isdigit() else -1
