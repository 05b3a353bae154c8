"""Documents -> columns of numbers, and digests of them that a golden file can hold."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd

Columns = dict[str, list[str]]
"""Path in a document, such as findings[].cost_ns -> its values in order, as text."""

_NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?")
_DIGITS = 6  # of a float: sums in another order agree to more of them
_NOUGHT = 1e-9  # what is left of a difference of floats
_SHOWN = 5  # values of a column that stand beside its digest


def columns_of(document: Any, path: str = "") -> Columns:
    """All numbers, flags and one-word texts of a document; of sentences their numbers alone."""
    found: Columns = {}
    for where, value in _leaves(document, path):
        found.setdefault(where, []).append(value)
    return found


def digest(column: list[str]) -> str:
    """Eight hex digits, how many values, and the first few."""
    shown = ", ".join(value[:20] for value in column[:_SHOWN])
    return f"{_hash(column)} {len(column)}: {shown}"


def digest_of_all(columns: Columns) -> str:
    """Eight hex digits of whole columns."""
    return _hash([f"{name}={value}" for name, column in sorted(columns.items()) for value in column])


def _hash(texts: list[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode(errors="backslashreplace")).hexdigest()[:8]


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if is_dataclass(value) and not isinstance(value, type):
        value = {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, pd.DataFrame):
        value = {str(name): value[name].tolist() for name in value.columns}
    if isinstance(value, Mapping):
        for name, inner in value.items():
            known = isinstance(name, str) and _NAME.fullmatch(name)
            yield from () if known else _leaves(name, f"{path}.keys")
            yield from _leaves(inner, f"{path}.{name}" if known else f"{path}.*")
    elif isinstance(value, list | tuple | np.ndarray):
        yield f"{path}.count", str(len(value))
        for inner in value:
            yield from _leaves(inner, f"{path}[]")
    elif isinstance(value, str):
        words = value.split()
        yield from ((path, one) for one in (words if len(words) == 1 else _NUMBER.findall(value)))
    elif isinstance(value, float | np.floating):
        known = "0" if abs(value) < _NOUGHT else f"{value:.{_DIGITS}g}"
        yield path, "null" if math.isnan(value) else known
    else:
        yield path, "null" if value is None or value is pd.NA else str(value)
