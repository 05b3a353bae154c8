"""Linear layers that narrow sums of gathered rows, and could come before the rows are gathered.

(A X) W = A (X W): sums of rows with one weight for each row treat all features alike.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.ops.table import Kind, op_row
from traceanalyzer.tensors.read_shares import DATA
from traceanalyzer.tensors.signatures import Shape, Signature

# Position of a layer's weight, and of the weight's dimension that is the width of the result.
_LAYERS = {"aten::linear": (1, 0), "aten::matmul": (1, 1), "aten::mm": (1, 1), "aten::addmm": (2, 1)}
_GATHERS, _ADDS = (Kind.LOOKUP,), (Kind.SCATTER, Kind.REDUCTION)


@dataclass(frozen=True, slots=True)
class Projection:
    """A layer after the `ops`, both of the execution trace, that gather and sum the rows of its data.

    Attributes:
        maker, wide: name of the op that makes the most rows, and their shape.
        after: width of the layer's result.
        source_rows, rows: that the first of the ops reads, and that the layer reads.
    """

    layer: int
    ops: tuple[int, ...]
    maker: str
    wide: Shape
    after: int
    source_rows: int
    rows: int

    @property
    def needed_share(self) -> float:
        """Share of the ops' bytes that is left if the layer comes first, with those that it then reads in addition."""
        added = max(self.source_rows - self.rows, 0) * self.wide[-1]
        return min(self.after / self.wide[-1] + added / math.prod(self.wide), 1.0)


def projections(
    flow: Flow, signatures: Mapping[int, Signature], max_width_share: float, min_times: float
) -> Iterator[Projection]:
    """Layers that narrow what only they read, to `max_width_share` of its width at most.

    The rows of the source are gathered `min_times` at least. `signatures` are those of ops of the execution trace.
    """
    recorded, values = flow.recorded, flow.values
    forward = recorded.outer & ~flow.view & ~recorded.backward
    readers = np.bincount(values.read[forward[values.reads]], minlength=len(values.producer))
    for layer in np.flatnonzero(forward).tolist():
        op = signatures.get(layer)
        width, after = _widths(op) if op is not None else (0, 0)
        if op is None or not 0 < after <= max_width_share * width:
            continue
        data = DATA.get(op.name, 0)
        chain, shape, value = list[tuple[int, Shape]](), op.shape(data), _read_at(flow, layer, data)
        rows = math.prod(shape[:-1])
        while value >= 0 and readers[value] == 1 and (maker := int(values.producer[value])) >= 0:
            position = _data_position(flow, maker, signatures.get(maker), width) if forward[maker] else -1
            if position < 0:
                break
            chain.append((maker, shape))
            shape, value = signatures[maker].shape(position), _read_at(flow, maker, position)
        kinds = {op_row(signatures[maker].name).kind for maker, _ in chain}
        maker, wide = max(reversed(chain), key=lambda made: math.prod(made[1]), default=(-1, ()))
        gathered = not kinds.isdisjoint(_GATHERS) and not kinds.isdisjoint(_ADDS)
        source_rows = math.prod(shape[:-1])
        # With more rows to multiply, the layer itself takes longer when it comes first.
        fewer = source_rows <= rows and math.prod(wide) >= min_times * math.prod(shape)
        if gathered and fewer:
            ops = tuple(each for each, _ in chain)
            yield Projection(layer, ops, signatures[maker].name, wide, after, source_rows, rows)


def _widths(op: Signature) -> tuple[int, int]:
    """(width of the data, width of the result) of a linear layer; zeros of other ops."""
    place, dim = _LAYERS.get(op.name, (0, 0))
    try:
        data, weight = op.shape(DATA.get(op.name, 0)), op.shape(place)
    except LookupError:
        return 0, 0
    fits = place and len(weight) == 2 and len(data) >= 2 and data[-1] == weight[1 - dim]
    return (data[-1], weight[dim]) if fits else (0, 0)


def _data_position(flow: Flow, maker: int, op: Signature | None, width: int) -> int:
    """Position of the tensor of whose rows, of this width, the op makes weighted sums; -1 if it does not."""
    if op is None:
        return -1
    for position in op_row(op.name).sums_rows:
        try:
            shape = op.shape(position)
            if len(shape) >= 2 and shape[-1] == width and _treats_alike(flow, maker, op, position):
                return position
        except (LookupError, TypeError, ValueError):
            continue
    return -1


def _treats_alike(flow: Flow, maker: int, op: Signature, position: int) -> bool:
    """Whether an op that may sum rows of this tensor treats all features alike; raises as damaged inputs do."""
    kind, values = op_row(op.name).kind, flow.values
    if kind is Kind.POINTWISE:
        weights = op.shape(1 - position)
        return weights[-1:] in ((), (1,)) or (op.stride(1 - position) or (1,))[-1] == 0
    if kind is Kind.COPY:
        return True
    if op.name == "aten::index":
        first = values.reads_from[maker] + 1
        indices = values.part[first : values.reads_from[maker + 1], 1].tolist()
        made = int(values.elements[values.made_by(maker)[0]])
        return len(indices) == 1 and made == indices[0] * op.shape(0)[-1]
    rank, along = len(op.shape(position)), op.scalar(1)
    if any(dim % rank == rank - 1 for dim in (along if isinstance(along, list) else [along])):
        return False
    if op.name.startswith(("aten::gather", "aten::scatter_add")):
        steps = op.stride(2)
        if steps is None or steps[-1]:
            return False
    return kind is not Kind.SCATTER or _is_zero(flow, _read_at(flow, maker, 0))


def _is_zero(flow: Flow, value: int) -> bool:
    maker = int(flow.values.producer[value])
    return value >= 0 and maker >= 0 and "zero" in flow.recorded.names[flow.recorded.name[maker]]


def _read_at(flow: Flow, op: int, position: int) -> int:
    """The value that an op reads as this input; -1 if it reads a part, or none is known."""
    values = flow.values
    places = np.flatnonzero(values.arguments_of(op) == position) + values.reads_from[op]
    if len(places) != 1:
        return -1
    value = int(values.read[places[0]])
    whole = values.producer[value] < 0 or values.elements[value] == values.part[places[0], 1]
    return value if whole else -1
