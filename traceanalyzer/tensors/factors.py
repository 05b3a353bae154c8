"""Cholesky factorisations whose factor the program has already: of L @ L.T, or of a diagonal matrix."""

import numpy as np

from traceanalyzer.model.arrays import Mask
from traceanalyzer.model.execution_trace import ExecutionTrace
from traceanalyzer.tensors.values import Values

_CHOLESKY = frozenset({"aten::linalg_cholesky", "aten::linalg_cholesky_ex", "aten::cholesky"})
_PRODUCTS = frozenset({"aten::matmul", "aten::bmm", "aten::mm"})
_TRIANGULAR = _CHOLESKY | {"aten::tril", "aten::triu", "aten::diag_embed"}
# Of triangular matrices these make a triangular one. One triangular factor is enough for a product of elements.
_SUMS = frozenset({"aten::add", "aten::sub", "aten::neg", "aten::clone", "aten::to", "aten::contiguous"})
_SCALED = frozenset({"aten::mul", "aten::div"})
# Ops from a triangular matrix to the factor; a head has a few. Chosen.
_MOST_OPS = 8


def known_factors(recorded: ExecutionTrace, values: Values) -> Mask:
    """Which ops factorise such a matrix; bool (recorded,)."""
    known = np.zeros(len(recorded), bool)
    factorises = np.array([name in _CHOLESKY for name in recorded.names], bool)[recorded.name]
    for op in np.flatnonzero(factorises & recorded.outer & ~recorded.backward).tolist():
        read = values.read_by(op)
        known[op] = len(read) > 0 and _has_factor(int(read[0]), recorded, values)
    return known


def _has_factor(value: int, recorded: ExecutionTrace, values: Values) -> bool:
    """Whether a value is a diagonal matrix, or the product of a triangular one with itself."""
    maker = int(values.producer[value])
    name = recorded.names[recorded.name[maker]] if maker >= 0 else ""
    read = values.read_by(maker)
    product = name in _PRODUCTS and len(read) == 2 and read[0] == read[1]
    return name == "aten::diag_embed" or (
        product and _is_triangular(int(read[0]), recorded, values, _MOST_OPS)
    )


def _is_triangular(value: int, recorded: ExecutionTrace, values: Values, most_ops: int) -> bool:
    maker = int(values.producer[value])
    if maker < 0 or not most_ops:
        return False
    name = recorded.names[recorded.name[maker]]
    tensors = [each for each in values.read_by(maker).tolist() if values.elements[each] != 1]
    inputs = (_is_triangular(each, recorded, values, most_ops - 1) for each in tensors)
    scaled = name in _SCALED and any(inputs)
    return scaled or name in _TRIANGULAR or (name in _SUMS and all(inputs))
