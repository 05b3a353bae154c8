"""Calls of ops as a trace records them: shapes, element types, numbers."""

from typing import Any

from traceanalyzer.tensors.signatures import Signature

BF16, F32, LONG, COMPLEX = "c10::BFloat16", "float", "long int", "c10::complex<float>"


def signature(name: str, dims: list[Any], types: list[str], *scalars: str, strides: Any = ()) -> Signature:
    """A call of `aten::name`; numbers that are not given are empty texts."""
    filled = (*scalars, *("" for _ in dims[len(scalars) :]))
    return Signature(f"aten::{name}", tuple(dims), tuple(types), filled, tuple(strides))


def op(name: str, *inputs: list[int] | str) -> Signature:
    """A call with float32 tensors, given by their shapes, and numbers, given as texts."""
    dims = [one if isinstance(one, list) else [] for one in inputs]
    types = [F32 if isinstance(one, list) else "Scalar" for one in inputs]
    return signature(name, dims, types, *("" if isinstance(one, list) else one for one in inputs))


def transform(name: str, shape: list[Any], kind: str, along: str, last: str = "True") -> Signature:
    """A Fourier transform along the dimensions of a list such as "[0, 1]"."""
    types = (kind, "ScalarList", "Scalar", "Scalar")
    return Signature(f"aten::{name}", (shape, [], [], []), types, ("", along, "0", last))
