"""An op's recorded inputs: shapes, element types, numbers and strides, and the distinct ones of a trace."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import orjson

from traceanalyzer.model.arrays import Rows, grouped
from traceanalyzer.model.trace import Trace, codes_at, texts_of

P = ParamSpec("P")
R = TypeVar("R")
Shape = tuple[int, ...]

NO_OP = "(no op)"
_COLUMNS = ("name", "input_dims", "input_type", "concrete_inputs", "input_strides")

_ABSURD_SIZE = 2**62  # elements: damaged files have such sizes

ITEM_BYTES = {
    "c10::BFloat16": 2,
    "c10::Half": 2,
    "float": 4,
    "double": 8,
    "long int": 8,
    "long": 8,
    "int": 4,
    "short int": 2,
    "bool": 1,
    "signed char": 1,
    "unsigned char": 1,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}
_TYPES = {"BFloat16": "c10::BFloat16", "Half": "c10::Half"}  # without a namespace, as some writers have them
_DOUBLES = frozenset({"double", "c10::complex<double>"})
NARROWER = frozenset({"float", "c10::Half", "c10::BFloat16", "c10::Float8_e4m3fn", "c10::Float8_e5m2"})


@dataclass(frozen=True, slots=True)
class Signature:
    """An op's name and its inputs, as the trace gives them: shape, type, scalar and strides of each."""

    name: str
    dims: tuple[Any, ...]
    types: tuple[str, ...]
    scalars: tuple[str, ...]
    strides: tuple[Any, ...] = ()

    @classmethod
    def parsed(
        cls, name: str, dims: str | None, types: str | None, scalars: str | None, strides: str | None = None
    ) -> Self:
        """From the JSON text of the trace's columns; what is missing or damaged is empty."""
        shapes, kinds, values, steps = (_listed(text) for text in (dims, types, scalars, strides))
        kinds = [_TYPES.get(str(kind), str(kind)) for kind in kinds]
        return cls(name, tuple(shapes), tuple(kinds), tuple(map(str, values)), tuple(steps))

    def stride(self, position: int) -> tuple[int, ...] | None:
        """Strides of a tensor input in elements; None where they are not recorded."""
        found = self.strides[position] if position < len(self.strides) else None
        if not isinstance(found, list) or len(found) != len(self.shape(position)):
            return None
        return tuple(found) if all(type(step) is int for step in found) else None

    def elements(self, position: int) -> int:
        """Elements that a tensor input has in memory: expanded dimensions and overlapping windows count once."""
        shape, steps = self.shape(position), self.stride(position)
        if steps is None or 0 in shape:
            return math.prod(shape)
        distinct = math.prod(size for size, step in zip(shape, steps, strict=True) if step)
        span = 1 + sum((size - 1) * abs(step) for size, step in zip(shape, steps, strict=True))
        return min(distinct, span)

    def shape(self, position: int) -> tuple[int, ...]:
        """Shape of a tensor input; LookupError if it is not there, or is a list of tensors."""
        shape = self.dims[position]
        if not isinstance(shape, list) or any(not isinstance(size, int) for size in shape):
            raise LookupError(f"input {position} has no shape")
        return tuple(shape)

    def scalar(self, position: int) -> Any:
        """A scalar input; LookupError if it is not there or cannot be read."""
        text = self.scalars[position]
        values = {"True": True, "False": False}
        try:
            return values[text] if text in values else orjson.loads(text)
        except orjson.JSONDecodeError:
            raise LookupError(f"input {position} has no value") from None

    def item_bytes(self, position: int) -> int:
        """Bytes per element of a tensor input; LookupError for unknown types."""
        return ITEM_BYTES[self.types[position]]

    def bytes(self, position: int) -> int:
        """Bytes that a tensor input has in memory; LookupError where its shape or type is not known."""
        return self.elements(position) * self.item_bytes(position)


def at_positions(function: Callable[Concatenate[Signature, P], R]) -> Callable[P, Callable[[Signature], R]]:
    """The function with the op last: `gemm(0, 1)` takes an op whose matrices are its inputs 0 and 1."""
    return lambda *positions, **more: lambda op: function(op, *positions, **more)


def _listed(text: str | None) -> list[Any]:
    try:
        found = orjson.loads(text) if text else []
    except orjson.JSONDecodeError:
        return []
    return found if isinstance(found, list) else []


def shape_text(shape: Shape) -> str:
    """`4096x768`."""
    return "x".join(map(str, shape))


def signatures_of(trace: Trace, rows: Rows) -> tuple[Rows, list[Signature]]:
    """(int64 (rows,), which signature each of these rows of `trace.cpu` has, or of -1, no op; the signatures)."""
    keys = [codes_at(trace.lanes.cpu, column, rows) for column in _COLUMNS]
    number, first = grouped(keys)
    columns = [[*texts_of(trace.lanes.cpu, column), None] for column in _COLUMNS]  # the last one for code -1
    texts = [[table[key[row]] for table, key in zip(columns, keys, strict=True)] for row in first.tolist()]
    return number, [Signature.parsed(name or NO_OP, *inputs) for name, *inputs in texts]


def tensor_types(op: Signature) -> set[str]:
    """Types of the inputs that are tensors of more than one element: single numbers are Python's doubles."""
    pairs = zip(op.dims, op.types, strict=False)
    lists = ((shape, kind) for shape, kind in pairs if isinstance(shape, list) and shape)
    return {kind for shape, kind in lists if math.prod(size for size in shape if isinstance(size, int)) > 1}


def has_float64(op: Signature) -> bool:
    """Whether one of its tensors is of doubles, or of complex numbers of doubles."""
    return not _DOUBLES.isdisjoint(tensor_types(op))


def is_half(op: Signature) -> bool:
    """Whether its tensors have 16 or 8 bits, and none is float32; not if types are not recorded."""
    kinds = tensor_types(op) & NARROWER
    return bool(kinds) and "float" not in kinds


def mixes_float64(op: Signature) -> bool:
    """Whether it takes doubles together with another floating type."""
    kinds = tensor_types(op)
    return "double" in kinds and bool(kinds & NARROWER)


def widens_to_float64(op: Signature) -> bool:
    """A conversion from another floating type to float64: `copy_` into doubles."""
    return op.name == "aten::copy_" and op.types[:1] == ("double",) and mixes_float64(op)


def converts(op: Signature) -> bool | None:
    """Whether a copy changes the floating type, float64 apart; None where it is no copy, or types are unknown."""
    kinds = {kind for kind in op.types[:2] if kind in ITEM_BYTES}
    if op.name != "aten::copy_" or not kinds:
        return None
    return len(kinds) > 1 and kinds <= NARROWER


def tensors(signature: Signature) -> list[Shape]:
    """Shapes of all tensors among an op's inputs, those in lists as well; single numbers have none."""
    return _shapes(signature.dims)


def _shapes(dims: Any) -> list[Shape]:
    each = [shape for shape in dims if isinstance(shape, list) and shape]
    plain = [tuple(shape) for shape in each if all(isinstance(size, int) for size in shape)]
    return plain + [s for shape in each if isinstance(shape[0], list) for s in _shapes(shape)]


def largest_odd_size(signature: Signature, multiple: int) -> int:
    """The largest of its matrices' sizes that is not a multiple; 0 where there is none.

    Of several, the smaller ones (a number of tokens beside a vocabulary) are mostly no strides.
    """
    matrices = [shape for shape in signature.dims if isinstance(shape, list) and len(shape) >= 2]
    sizes = (size for shape in matrices for size in shape[-2:] if isinstance(size, int))
    return max((size for size in sizes if size % multiple and size < _ABSURD_SIZE), default=0)
