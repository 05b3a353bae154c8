"""Ops of whose results only a part is used, and orders of reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.rules.kernel_programs import BF16, F32, NVJET, Op
from traceanalyzer.rules.tensors.partly_used.sources import Readers
from traceanalyzer.tensors.signatures import Signature

WHOLE = [8, 512, 32_000]
SMALL = "void at::native::reduce_kernel<512, 1, at::native::argmax>(float)"


def head(view: Op | None, reader: list[int], between: Op | None = None) -> list[Op]:
    """A product of all positions, a view of it, and what reads that."""
    product = Op("aten::linear", NVJET, 900, [[8, 512, 1024], [32_000, 1024]], [BF16, BF16])
    last = Op("aten::argmax", SMALL, 10, [reader, []], [BF16, "Scalar"])
    return [product, *(one for one in (between, view) if one), last]


def select(*scalars: Any) -> Op:
    return Op(
        "aten::select", SMALL, 1, [WHOLE, [], []], [BF16, "Scalar", "Scalar"], scalars=list(map(str, scalars))
    )


def between(name: str, dims: list[Any], types: list[str], *scalars: Any) -> Op:
    """An op that passes over the whole result, for half of the product's time."""
    return Op(name, SMALL, 450, dims, types, scalars=list(map(str, scalars)))


ROW = [8, 32_000]
CAST = between("aten::to", [WHOLE, [], []], [BF16, "Scalar", "Scalar"], "", 6, False)


def signature(name: str, dims: list[Any], *scalars: str) -> Signature:
    """An op of tensors and, after them, numbers."""
    types = [F32] * len(dims) + ["Scalar"] * len(scalars)
    return Signature(
        f"aten::{name}", (*dims, *[[]] * len(scalars)), tuple(types), ("",) * len(dims) + scalars
    )


def in_order(*ops: Signature, views: Sequence[int] = (), others: int = 0) -> Readers:
    """Ops of one thread, the last `others` of another one.

    Args:
        views: positions of what only views.
    """
    known = list(dict.fromkeys(map(repr, ops)))
    number = np.array([known.index(repr(one)) for one in ops])
    signatures = [next(one for one in ops if repr(one) == text) for text in known]
    thread = np.array([1] * (len(ops) - others) + [2] * others)
    return Readers.of(number, signatures, np.isin(np.arange(len(ops)), views), thread)
