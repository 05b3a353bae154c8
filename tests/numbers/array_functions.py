"""What every function of plain arrays and numbers says of many: none, one, ties, times in order and out of it.

Functions are found by their annotations, so that a new one is among them from the next `--update-findings` on.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import isfunction, signature, unwrap
from random import Random
from typing import Any

import numpy as np

import traceanalyzer
from tests.numbers.columns import digest
from tests.numbers.predicates import called

_CALLS = 60  # of each function
_ARRAYS = {"Rows", "Ns", "NDArray[np.int64]", "Values", "Floats", "NDArray[np.float64]", "np.ndarray", "Mask"}
_LISTS = {"Sequence[int]", "Iterable[int]", "list[int]", "Sequence[float]", "Iterable[float]", "list[float]"}
_NUMBERS = {
    "int": (0, 1, 2, 3, 5, 8, 17, 59, 100, 1_000),
    "float": (0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 9.95, 100.0),
    "bool": (False, True),
    "str": ("", "a", "a b c", "aten::mm", "x" * 30),
}
_WITHIN = {
    "model",
    "timeline",
    "idle",
    "replay",
    "job",
    "report",
    "comparison",
    "render",
    "rule",
    "rules",
    "roofline",
}
_LEFT_OUT = {
    "model.threads.threads_for",
    "model.containment._first_open",
}  # goes by the machine; ends in trees alone


@np.errstate(all="ignore")
def outcomes() -> dict[str, str]:
    """Module and name of each function -> digest of what it says."""
    return {
        name: digest([called(function, given) for given in _grid(function, name)])
        for name, function in _functions()
    }


def _functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    known = _ARRAYS | _LISTS | {kind for one in _NUMBERS for kind in (one, f"{one} | None")} | {"Rows | None"}
    for info in pkgutil.walk_packages(traceanalyzer.__path__, "traceanalyzer.", lambda _: None):
        if info.name.split(".")[1] in _WITHIN:
            for name, function in sorted(vars(import_module(info.name)).items()):
                plain = unwrap(function) if callable(function) else None
                if not isfunction(plain) or plain.__module__ != info.name or hasattr(plain, "__rule__"):
                    continue
                kinds = {str(one.annotation) for one in signature(plain).parameters.values()}
                whole = f"{info.name.partition('.')[2]}.{name}"
                gives = signature(plain).return_annotation != "None" and whole not in _LEFT_OUT
                if gives and kinds <= known and kinds - {"str"}:
                    yield whole, function


def _grid(function: Callable[..., Any], name: str) -> Iterator[list[Any]]:
    parameters = list(signature(unwrap(function)).parameters.values())
    for seed in range(_CALLS):
        rng, count = Random(f"{name} {seed}"), (0, 1, 2, 3, 5, 8, 13)[seed % 7]
        starts = sorted(rng.randrange(0, 3 * count + 1) for _ in range(count))
        yield [_value(rng, str(one.annotation), one.name, count, starts) for one in parameters]


def _value(rng: Random, kind: str, name: str, count: int, starts: list[int]) -> Any:
    if kind.endswith(" | None"):
        kind = kind.removesuffix(" | None")
        if rng.random() < 0.3:
            return None
    if kind in _NUMBERS:
        values = _NUMBERS[kind]
        return values[int(rng.random() * len(values))]
    if kind == "Mask":
        return np.array([rng.random() < 0.5 for _ in range(count)], bool)
    whole = _whole(rng, name, count, starts)
    real = "loat" in kind
    numbers = [one / 4 for one in whole] if real else whole
    return np.array(numbers, np.float64 if real else np.int64) if kind in _ARRAYS else numbers


def _whole(rng: Random, name: str, count: int, starts: list[int]) -> list[int]:
    """Starts in order, ends behind them, a tree's parents, or positions with ties and missing ones."""
    if "start" in name or "begin" in name:
        return [*starts]
    if "parent" in name:
        return [rng.randrange(-1, place) if place else -1 for place in range(count)]
    if "end" in name:
        return [start + rng.randrange(0, 4) for start in starts]
    match rng.randrange(4):
        case 0:
            return sorted(rng.randrange(0, 2 * count + 1) for _ in range(count))
        case 1:
            return [rng.randrange(-1, max(count, 1)) for _ in range(count)]
        case 2:
            return [rng.randrange(0, 3) for _ in range(count)]
    return [rng.randrange(0, 60) for _ in range(count)]
