"""Ops with their inputs, and the distinct ones of a trace."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import orjson

from traceanalyzer.model.arrays import Rows, grouped
from traceanalyzer.model.trace import Trace, codes_at, texts_of

NO_OP = "(no op)"
_COLUMNS = ("name", "input_dims", "input_type", "concrete_inputs", "input_strides")

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


@dataclass(frozen=True, slots=True)
class Signature:
    """An op's name and its inputs, as the trace gives them: shape, type, scalar and strides of each."""

    name: str
    dims: tuple[Any, ...]
    types: tuple[str, ...]
    scalars: tuple[str, ...]
    strides: tuple[Any, ...] = ()

    @staticmethod
    def parsed(
        name: str, dims: str | None, types: str | None, scalars: str | None, strides: str | None = None
    ) -> Signature:
        """From the JSON text of the trace's columns; what is missing or damaged is empty."""
        shapes, kinds, values, steps = (_listed(text) for text in (dims, types, scalars, strides))
        return Signature(name, tuple(shapes), tuple(map(str, kinds)), tuple(map(str, values)), tuple(steps))

    def stride(self, position: int) -> tuple[int, ...] | None:
        """Strides of a tensor input in elements; None where they are not recorded."""
        found = self.strides[position] if position < len(self.strides) else None
        if not isinstance(found, list) or len(found) != len(self.shape(position)):
            return None
        return tuple(found) if all(type(step) is int for step in found) else None

    def elements(self, position: int) -> int:
        """Elements that a tensor input has in memory: what is expanded counts once."""
        shape = self.shape(position)
        steps = self.stride(position) or (1,) * len(shape)
        return math.prod(size for size, step in zip(shape, steps, strict=True) if step)

    def shape(self, position: int) -> tuple[int, ...]:
        """Shape of a tensor input.

        Raises:
            LookupError: it is not there, or is a list of tensors.
        """
        shape = self.dims[position]
        if not isinstance(shape, list) or any(not isinstance(size, int) for size in shape):
            raise LookupError(f"input {position} has no shape")
        return tuple(shape)

    def scalar(self, position: int) -> Any:
        """A scalar input.

        Raises:
            LookupError: it is not there or cannot be read.
        """
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


def _listed(text: str | None) -> list[Any]:
    try:
        found = orjson.loads(text) if text else []
    except orjson.JSONDecodeError:
        return []
    return found if isinstance(found, list) else []


def signatures_of(trace: Trace, rows: Rows) -> tuple[Rows, list[Signature]]:
    """Number of each row's name and inputs, int64 of shape (rows,), and what the numbers stand for.

    Args:
        rows: of `trace.cpu`, int64; -1 stands for no op.
    """
    keys = [codes_at(trace.lanes.cpu, column, rows) for column in _COLUMNS]
    number, first = grouped(keys)
    columns = [[*texts_of(trace.lanes.cpu, column), None] for column in _COLUMNS]  # the last one for code -1
    texts = [[table[key[row]] for table, key in zip(columns, keys, strict=True)] for row in first.tolist()]
    return number, [Signature.parsed(name or NO_OP, *inputs) for name, *inputs in texts]
