"""Which ops of a network work on each copy of an item alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from traceanalyzer.roofline.results import made_of, product_of
from traceanalyzer.roofline.signatures import Signature
from traceanalyzer.roofline.tensor_types import Shape, tensors
from traceanalyzer.timeline.names import VIEWING_OP

_REGROUPS = re.compile(r"^aten::(view|reshape|_unsafe_view|unflatten)$")
_LAYERS = re.compile(r"^aten::(linear|addmm|mm|conv\w*|cudnn_convolution\w*|embedding|lstm|gru|\w*_norm)$")
_WRITES = re.compile(
    r"^aten::(index_put|index_copy|index_add|masked_scatter|scatter|copy|fill|zero|slice_s)\w*$"
)
_RANDOM = re.compile(r"rand|normal_|bernoulli|uniform|multinomial|exponential_|dropout|rrelu")
_PER_ITEM = re.compile(
    r"^aten::(matmul|bmm|baddbmm|\w*pool\w*|\w*softmax|scaled_dot_product_attention|\w*relu\w*|gelu|silu_?|mish|elu"
    r"|hardswish_?|hardsigmoid|hardtanh_?|softplus|sigmoid_?|tanh_?|clamp\w*|dropout|add_?|sub_?|mul_?|div_?|pow|exp|log"
    r"|r?sqrt|abs|neg|mean|sum|amax|amin|max|var|linalg_vector_norm|norm|contiguous|clone|to|_to_copy|reshape|flatten"
    r"|cat|upsample\w*|pad|constant_pad_nd|square|masked_fill|chunk|split\w*|unbind|select|slice|detach|type_as)$"
)
FAR = 200  # ops between two ops of a network; chosen


class Copied(NamedTuple):
    """Where a network begins, and on how many copies of how many items."""

    begin: int
    copies: int
    items: int
    shape: Shape


def read_by(op: Signature) -> Sequence[Shape]:
    """Shapes of what it works on: of a layer its input, not its weight."""
    if not _LAYERS.search(op.name):
        return tensors(op)
    first = op.name in ("aten::addmm", "aten::embedding")  # behind the bias, and behind the table
    return tensors(op)[first : first + 1]


def members_of(
    number: Sequence[int], signatures: Sequence[Signature], begin: int, end: int, copied: Copied
) -> Iterator[int]:
    """Positions of ops that work on each copy alone, until one takes other tensors of as many entries."""
    made, others = {copied.shape: 1}, Others(copied.copies)
    unknown, last = False, begin
    for place in range(begin, end):
        op = signatures[number[place]]
        shapes = tensors(op)
        if (
            (_RANDOM.search(op.name) and "False" not in op.scalars)
            or _WRITES.search(op.name)
            or place - last > FAR
        ):
            return
        if unknown and shapes and shapes[0][:1] == (copied.copies,):
            made[shapes[0]] = made.get(shapes[0], 0) + 1
        read = read_by(op)
        mine = [one for one in read if one in made]
        if not mine:
            unknown = unknown and not shapes
            others.see(op, read)
            continue
        foreign = any(one not in made and one[:1] == (copied.copies,) for one in read) or others.may_be(mine)
        viewing = VIEWING_OP.search(op.name)
        if foreign or (len(mine) > 1 and not _LAYERS.search(op.name) and max(made[one] for one in mine) < 2):
            return
        if not (viewing or _LAYERS.search(op.name) or _PER_ITEM.search(op.name)):
            return
        pieces = _pieces(op)
        result = product_of(op) or made_of(op) or pieces
        if _REGROUPS.search(op.name) and (result is None or result[0] % copied.copies):
            return
        unknown, last = result is None, place
        if result is not None:
            made[result] = made.get(result, 0) + (2 if pieces else not viewing)
        if not viewing:
            yield place


class Others:
    """Tensors of as many entries as there are copies that come from elsewhere: what takes them is no copy's own."""

    def __init__(self, copies: int) -> None:
        self._copies, self._shapes, self._unknown = copies, set[Shape](), False

    def see(self, op: Signature, read: Sequence[Shape]) -> None:
        """An op that takes nothing of the network."""
        mine = any(one[:1] == (self._copies,) for one in read)
        self._shapes.update(one for one in read if one[:1] == (self._copies,))
        self._unknown = False if mine else self._unknown
        made = product_of(op) or made_of(op)
        if made is not None and made[:1] == (self._copies,):
            self._shapes.add(made)
        elif mine and made is None:
            self._unknown = True

    def may_be(self, read: Sequence[Shape]) -> bool:
        """Whether one of several tensors may come from elsewhere."""
        return len(read) > 1 and (self._unknown or any(one in self._shapes for one in read))


def _pieces(op: Signature) -> Shape | None:
    """Shape of each of the equal pieces that a tensor is taken apart into; None of other ops."""
    shape = next(iter(tensors(op)), ())
    try:
        at = int(op.scalar(len(op.dims) - 1)) % len(shape)
        if op.name == "aten::unbind":
            return (*shape[:at], *shape[at + 1 :])
        size = shape[at] // int(op.scalar(1)) if op.name == "aten::chunk" else 0
        return (*shape[:at], size, *shape[at + 1 :]) if size else None
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return None
