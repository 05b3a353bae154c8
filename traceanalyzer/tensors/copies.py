"""Ops that work on copies of the same rows: what they would need if they ran before the rows are copied.

A gather, a repeat, windows, or a tensor with dimensions of stride 0 or that overlap is the source. Ops that keep
entries apart hand copies on while all of their data are copied in the same way, or are the same for all entries; a
product reads the parts of a row that cat joins one by one. What mixes other data in ends it. A mask of attention is
copied in the same way if all that it is computed of is; so is what is smaller than the data.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.ops.shapes import UNREADABLE, remaining_dims
from traceanalyzer.tensors.ops.table import Kind, op_row, result_shape
from traceanalyzer.tensors.signatures import ITEM_BYTES, Shape, Signature, tensors

_ALONG = {"aten::index_select": 1, "aten::unfold": 1, "aten::repeat_interleave": 2}
_JOINS = frozenset({"aten::cat", "aten::concat"})
_MAY_COPY = frozenset({"aten::reshape", "aten::flatten", "aten::unfold"})
# Position of a layer's data; its other inputs are weights.
_DATA = {"aten::embedding": 1, "aten::addmm": 1, "aten::_addmm_activation": 1}
_PRODUCTS = frozenset({"aten::linear", "aten::mm", "aten::matmul", "aten::addmm", "aten::_addmm_activation"})
# Position of the mask of attention, and of the weights of recurrent layers.
_MASK, _WEIGHTS = 3, 2
# Positions of numbers, of which one that is 0 or false says that no random numbers are drawn.
_DRAWS_IF = {"aten::dropout": (1, 2), "aten::scaled_dot_product_attention": (4,)}
_DRAWS_IF |= dict.fromkeys(("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"), (5, 6))
_OFF = frozenset({"False", "0", "0.", "0.0", ""})
_BATCH_FIRST = 8  # position of what says that the batch comes before the time, in recurrent layers
_LAYERS = frozenset({Kind.CONVOLUTION, Kind.NORM})
_NETWORK_LAYERS = frozenset({Kind.CONVOLUTION, Kind.ATTENTION, Kind.RECURRENT})
_NEAR = 10  # without ids, a tensor is the last one of its size that one of so many ops has made


_Pattern = tuple[object, ...]
_Patterns = frozenset[_Pattern]
_NO_COPY: _Patterns = frozenset({()})


@dataclass(frozen=True, slots=True)
class OnCopies:
    """An op that works on copies.

    Attributes:
        maker: position of the op that makes the copies, or of the first that reads an expanded tensor.
        times: that each entry is there, of the part that is repeated most.
        needed_share: of its work if it runs before the entries are copied.
        layers: products, convolutions and attention from the copies up to this op.
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
    """A part of each row: its share of the width, and how often each of its entries is there; once without a maker."""

    share: float = 1.0
    maker: int = -1
    times: float = 1.0
    entries: int = 1
    pattern: _Pattern = ()
    layers: int = 0

    @property
    def uniform(self) -> bool:
        """Whether all entries are copies of one."""
        return self.times == self.entries


_Parts = tuple[_Part, ...]


@dataclass(frozen=True, slots=True)
class _Read:
    """A tensor that an op reads: position among the inputs, shape; times, number and pattern of entries by strides."""

    argument: int
    shape: Shape
    times: float
    entries: int
    pattern: _Pattern

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Form:
    """A distinct op, with what it reads.

    Attributes:
        made: elements of its result; None if unknown.
        entries: that its result has along the dimensions up to the one that it copies along; 0 if it copies none.
        pattern: of these; empty if an index tensor determines it.
        random: whether it draws numbers for each copy, as dropout does in training.
        apart: first dimensions that it keeps apart because it is given others.
    """

    name: str
    reads: tuple[_Read, ...]
    made: int | None
    entries: int
    item_bytes: int
    pattern: _Pattern = ()
    random: bool = False
    apart: int = 0

    @classmethod
    def of(cls, op: Signature) -> Self:
        every, made = tensors(op), result_shape(op)
        if made is None and op.name == "aten::index" and len(every) == 2 and "bool" not in op.types:
            made = (*every[1], *every[0][1:])
        reads = tuple(_Read(argument, shape, *_repeats(shape, steps)) for argument, shape, steps in _shapes(op))
        along = -1 if made is None or not every else _copied_dimension(op, len(every[0]), len(every))
        width = math.prod(every[0][along + 1 :]) if along >= 0 else 0
        size = None if made is None else math.prod(made)
        size = sum(read.elements for read in reads) if op.name in _JOINS else size
        item_bytes = min((ITEM_BYTES[kind] for kind in op.types if kind in ITEM_BYTES), default=1)
        random = _draws(op)
        pattern: _Pattern = ()
        if width and len(every) == 1 and op.name in ("aten::repeat", "aten::repeat_interleave"):
            tiled = op.name == "aten::repeat"
            outer, inner = math.prod(every[0][: along + (not tiled)]), every[0][along] if tiled else 1
            pattern = outer, (size or 0) // math.prod(every[0]), inner
        entries = (size or 0) // width if width else 0
        return cls(op.name, reads, size, entries, item_bytes, pattern, random, _kept_apart(op))

    def of_size(self, made: int, indices: Sequence[int]) -> Self:
        """The same with the recorded sizes of its result, and of the tensors that it takes rows by, if one does."""
        if self.name != "aten::index" or self.made is not None or len(indices) != 1:
            return self
        first, *others = self.reads[0].shape
        rows = indices[0] if made == indices[0] * math.prod(others) and others[:1] != [first] else 0
        return replace(self, made=made, entries=rows)

    def recurrent_input(self, read: _Read) -> int:
        """Position of an input of a recurrent layer: 1 of its state, whose batch comes second; 0 of other ops."""
        return read.argument if op_row(self.name).kind is Kind.RECURRENT else 0

    def is_mask(self, read: _Read) -> bool:
        return read.argument == _MASK and op_row(self.name).kind is Kind.ATTENTION

    @property
    def copies(self) -> bool:
        """Whether it makes a tensor, although the op table calls it a view."""
        return self.name in _MAY_COPY and (self.entries > 0 or any(read.times > 1 for read in self.reads))


@dataclass(frozen=True, slots=True)
class Step:
    """An op in order: keys of what it reads and makes, -1 if unknown, and parts that it reads after the first input."""

    form: Form
    keys: Sequence[int]
    made: int
    indices: _Pattern = ()


def on_copies(steps: Sequence[Step], min_times: float) -> Iterator[OnCopies]:
    """Ops on copies that are there at least so often."""
    parts: dict[int, _Parts] = {}
    origins: dict[int, _Patterns] = {}
    moved_for, filled = set[int](), set[int]()
    for position, step in enumerate(steps):
        form = step.form
        of_inputs = [_origin(key, parts, origins) for key in step.keys]
        origins[step.made] = _NO_COPY if form.random else _Patterns().union(*of_inputs)
        known = [parts.get(key, ()) for key in step.keys]
        shared = Counter(pattern for each in known for pattern in {part.pattern for part in each})
        for place, read in enumerate(form.reads):
            if (
                read.times >= min_times
                and not form.is_mask(read)
                and [read.times] != [one.times for one in known[place]]
                # What it also has in common with another input matters more than that it is expanded.
                and not any(part.pattern and shared[part.pattern] > 1 for part in known[place])
            ):
                known[place] = (_Part(1.0, position, read.times, read.entries, read.pattern),)
        parts.pop(step.made, None)
        if step.made >= 0 and op_row(form.name).fills:
            filled.add(step.made)
        result: _Parts = ()
        if form.entries and form.reads and form.made:
            times = form.made / form.reads[0].elements
            pattern = form.pattern or (form.name, *(step.indices or [position]))
            result = (_Part(1.0, position, times, form.entries, pattern),) if times >= min_times else ()
        elif form.name in _JOINS:
            result = _joined(form, known)
        elif form.random:
            result = ()
        elif form.copies:
            result = known[0]
        elif data := _data(step, known, of_inputs, filled):
            row = op_row(form.name)
            layer = form.name in _PRODUCTS or row.kind in _NETWORK_LAYERS
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
    before = next((read.elements for read in form.reads if read.argument == _DATA.get(form.name, 0)), 0)
    made = form.made or 0
    if len(data) > 1:
        elements = 3 * made * (len(data) - 1) - 2 * before
    else:
        elements = 0 if data[0].layers else 2 * made - 2 * before * spared
    return max(elements, 0) * form.item_bytes


def _origin(key: int, parts: Mapping[int, _Parts], origins: Mapping[int, _Patterns]) -> _Patterns:
    """Patterns of all that a tensor is computed of; none if it is made of numbers alone."""
    if key in parts:
        return frozenset(part.pattern for part in parts[key])
    return origins.get(key, _NO_COPY) if key >= 0 else _NO_COPY


def _data(step: Step, known: list[_Parts], of_inputs: Sequence[_Patterns], filled: Collection[int]) -> _Parts:
    """Parts of the data that an op reads, if all of it is copied in one way and it keeps entries apart; else empty."""
    name, reads = step.form.name, step.form.reads
    row, copied = op_row(name), [place for place, parts in enumerate(known) if parts]
    if not copied:
        return ()
    parts = max((known[place] for place in copied), key=_order)
    shape = max((reads[place].shape for place in copied), key=len)
    # Products of each sample, as in attention.
    batched = name.endswith(("matmul", "bmm")) and all(len(read.shape) > 2 for read in reads)
    if not batched and (name in _PRODUCTS or row.kind in _LAYERS or name == "aten::embedding"):
        at_data = len(copied) == 1 and reads[copied[0]].argument == _DATA.get(name, 0)
        matrix = name != "aten::matmul" or all(len(read.shape) <= 2 for read in reads if read.argument == 1)
        others = at_data and matrix
    else:
        leading, patterns = (max(_leading(shape, part.entries) for part in parts), {part.pattern for part in parts})
        others = all(
            (
                all(size == 1 for size in read.shape[: max(len(read.shape) - len(shape) + leading, 0)])
                and not step.form.recurrent_input(read)
            )
            or (place in copied and _are_same(known[place], parts))
            or step.form.recurrent_input(read) >= _WEIGHTS
            or step.keys[place] in filled
            or (
                # What is joined to copies may be computed of anything.
                of_inputs[place] == patterns
                and not patterns & _NO_COPY
                and (step.form.is_mask(read) or read.elements < math.prod(shape))
            )
            for place, read in enumerate(reads)
        )
    apart = len(shape) if row.kind is Kind.VIEW else max(row.batch_dims, step.form.apart)
    if row.row_wise or row.kind is Kind.SOFTMAX or name == "aten::embedding":
        apart = len(shape) - (name != "aten::embedding") - batched
    return parts if others and all(_leading(shape, part.entries) <= apart for part in parts) else ()


def _order(parts: _Parts) -> tuple[bool, int]:
    return not all(part.uniform for part in parts), max(part.layers for part in parts)


def _are_same(parts: _Parts, others: _Parts) -> bool:
    """Whether these are copied in the same way, or one entry for all of the others."""
    patterns = [[(part.share, part.pattern) for part in each] for each in (parts, others)]
    uniform = len(parts) == 1 == len(others) and parts[0].uniform and parts[0].entries == others[0].entries
    return uniform or patterns[0] == patterns[1]


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
    single = len({(part.pattern, part.times) for part in joined}) == 1
    return (replace(joined[0], share=1.0),) if single else tuple(joined)


def steps_by_size(forms: Sequence[Form], number: Sequence[int]) -> list[Step]:
    """Ops without ids of tensors: of several tensors of one size, the one that was made last.

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
            free = {size: [each for each in places if steps[each].form is not form] for size, places in free.items()}
        keys = [free[read.elements].pop() if free[read.elements] else -1 for read in form.reads[::-1]][::-1]
        if form.made is not None:
            made[form.made] = [*made.get(form.made, ())[-_NEAR:], position]
        steps.append(Step(form, keys, -1 if form.made is None else position))
    return steps


def steps_by_id(forms: Sequence[Form], number: Sequence[int], flow: Flow, recorded: Sequence[int]) -> list[Step]:
    """Ops with the ids of their tensors; `recorded` is the op of the execution trace that each is."""
    steps, values = [], flow.values
    for form, op in zip((forms[which] for which in number), recorded, strict=True):
        read: dict[int, list[int]] = {}
        begin, end = values.reads_from[op : op + 2]
        for argument, value in zip(values.arguments_of(op).tolist(), values.read_by(op).tolist(), strict=True):
            read.setdefault(argument, []).append(value)
        keys = [read[each.argument].pop(0) if read.get(each.argument) else -1 for each in form.reads]
        made, others = values.made_by(op), slice(begin + 1, end)
        if len(made):
            form = form.of_size(int(values.elements[made[0]]), values.part[others, 1].tolist())
        indices = (*values.read[others].tolist(), *values.part[others].ravel().tolist())
        steps.append(Step(form, keys, int(made[0]) if len(made) else -1, indices))
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
            # Empty tensors add nothing: caches begin with them.
            if isinstance(shape, list) and shape and all(type(size) is int and size for size in shape):
                steps = steps if isinstance(steps, list) and len(steps) == len(shape) else ()
                yield argument, tuple(shape), steps


def _repeats(shape: Shape, steps: Sequence[int]) -> tuple[float, int, _Pattern]:
    """(times that each entry is there by strides of 0 and windows that overlap, number of entries, their pattern)."""
    places = [place for place, step in enumerate(steps) if shape[place] > 1]
    overlapping = {place for place in places if steps[place] == 0}
    for place in places:
        inner = [other for other in places if 0 < steps[other] < steps[place]]
        within = {other for other in inner if steps[place] <= (shape[other] - 1) * steps[other]}
        overlapping |= {place, *within} if within else set()
    last = max(overlapping, default=len(shape) - 1)
    if last == len(shape) - 1:
        return 1.0, 1, ()
    begins = np.zeros(1, np.int64)
    for place in overlapping:
        begins = np.add.outer(begins, np.arange(shape[place]) * steps[place]).ravel()
    expanded = overlapping == {last}
    pattern = (math.prod(shape[:last]), shape[last], 1) if expanded else (*shape[: last + 1], *steps[: last + 1])
    return len(begins) / len(np.unique(begins)), math.prod(shape[: last + 1]), pattern


def _draws(op: Signature) -> bool:
    numbers = [op.scalars[place] for place in _DRAWS_IF.get(op.name, ()) if place < len(op.scalars)]
    return _OFF.isdisjoint(numbers) if numbers else not op_row(op.name).deterministic


def _kept_apart(op: Signature) -> int:
    """How many of the first dimensions an op keeps apart that mixes elements along others, which it is given."""
    if op_row(op.name).kind is Kind.RECURRENT:
        # A packed batch has no dimension of the batch.
        return int(len(next(iter(tensors(op)), ())) == 3 and op.scalars[_BATCH_FIRST : _BATCH_FIRST + 1] == ("True",))
    if op_row(op.name).kind not in (Kind.REDUCTION, Kind.SCAN) and op.name not in ("aten::flip", "aten::roll"):
        return 0
    try:
        remaining = remaining_dims(op, 2 if op.name.endswith(("norm", "roll")) else 1)
    except UNREADABLE:
        return 0
    return next((dim for dim, of in enumerate(remaining) if of != dim), len(remaining))


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
