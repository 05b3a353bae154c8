"""What every function of an op's name and inputs says of many ops: those of built programs, and their neighbours.

Functions are found by their annotations, so that a new one is among them from the next `--update-findings` on.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from importlib import import_module
from inspect import isfunction, isgenerator, signature, unwrap
from itertools import islice
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

import traceanalyzer
from tests.numbers.columns import digest
from tests.rules.limit_programs import PROGRAMS, built
from traceanalyzer.model.trace import texts_of
from traceanalyzer.roofline.peaks import device_peaks
from traceanalyzer.rule.expert_gates import gates_of
from traceanalyzer.tensors.signatures import Signature, signatures_of, tensors

_MOST = 1_200  # calls of one function
_APART = 7_919  # a prime: of more combinations every so manieth, round and round
_ABOUT = {"Signature", "Shape", "tuple[int, ...]"}


@np.errstate(all="ignore")
def outcomes() -> dict[str, str]:
    """Module and name of each function -> digest of what it says."""
    return {
        name: digest([called(function, given) for given in grid]) for name, function, grid in _functions()
    }


def _functions() -> Iterator[tuple[str, Callable[..., Any], Iterable[Sequence[Any]]]]:
    values = _values()
    for info in pkgutil.walk_packages(traceanalyzer.__path__, "traceanalyzer.", lambda _: None):
        package = info.name.split(".")[1]
        if package not in ("rules", "rule", "roofline"):
            continue
        module = import_module(info.name)
        for name, function in sorted(vars(module).items()):
            plain = unwrap(function) if callable(function) else None
            if isfunction(plain) and plain.__module__ == info.name:
                kinds = [str(one.annotation) for one in signature(plain).parameters.values()]
                given = [_given(module, kind, values) for kind in kinds]
                if _ABOUT.intersection(kinds) and all(given):
                    yield f"{info.name.partition('.')[2]}.{name}", function, _grid(kinds, given)


def _given(module: ModuleType, kind: str, values: Mapping[str, Sequence[Any]]) -> Sequence[Any]:
    """What is given to a parameter of this type; nothing where no value is known."""
    if kind == "Signature":
        named = [replace(one, name=name) for name in _names(module) for one in _recorded()[::6]]
        return [*values[kind], *named]
    return [module.Limits()] if kind == "Limits" else values.get(kind, ())


def _names(module: ModuleType) -> list[str]:
    """Ops that the module's constants name."""
    found = set()
    for value in vars(module).values():
        texts = value if isinstance(value, list | tuple | set | frozenset | dict) else (value,)
        found |= {text for text in texts if isinstance(text, str) and text.startswith("aten::")}
    return sorted(found)


def _grid(kinds: Sequence[str], given: Sequence[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """All combinations, or many; of two ops those that follow each other, too."""
    if kinds == ["Signature", "Signature"]:
        yield from zip(given[0], given[0][1:], strict=False)
    sizes = [len(one) for one in given]
    whole = prod(sizes)
    for number in range(min(whole, _MOST)):
        at = number if whole <= _MOST else number * _APART % whole
        yield [values[place] for values, place in zip(given, np.unravel_index(at, sizes), strict=True)]


def called(function: Callable[..., Any], given: Sequence[Any]) -> str:
    """What the function says, or of which kind its refusal is."""
    parameters = signature(unwrap(function)).parameters.values()
    named = {
        one.name: value for one, value in zip(parameters, given, strict=True) if one.kind == one.KEYWORD_ONLY
    }
    try:
        said = function(*given[: len(given) - len(named)], **named)
        return _text(list(islice(said, 50)) if isgenerator(said) else said)
    except Exception as why:  # whatever it is: the next run says the same
        return type(why).__name__


def _text(value: Any) -> str:
    """The same in each run: sets in order, no addresses, six digits."""
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_text, value)))}}}"
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, np.bool_ | np.integer):
        value = value.item()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_text(key)}: {_text(one)}' for key, one in value.items())}}}"
    if is_dataclass(value) and not isinstance(value, type):
        return _text([getattr(value, one.name) for one in fields(value)])
    return type(value).__name__ if callable(value) or " at 0x" in repr(value) else repr(value)


@cache
def _recorded() -> list[Signature]:
    """Ops of the built programs, each once, in their order."""
    found: dict[str, Signature] = {}
    for name in (f"built/{rule}/0" for rule in PROGRAMS):
        trace = built(name).trace
        if (
            len(trace.lanes.cpu)
            and "input_dims" in trace.cpu
            and any(texts_of(trace.lanes.cpu, "input_dims"))
        ):
            rows = np.flatnonzero((trace.cpu["category"] == "cpu_op").to_numpy())
            found |= {repr(one): one for one in signatures_of(trace, rows)[1] if one.dims}
    return [*found.values()]


def _neighbours(one: Signature) -> Iterator[Signature]:
    """The op with one size more by one, the first input turned, other types, and no scalars."""
    yield one
    for place, shape in enumerate(one.dims):
        if isinstance(shape, list) and shape and all(isinstance(size, int) for size in shape):
            yield replace(one, dims=(*one.dims[:place], [*shape[:-1], shape[-1] + 1], *one.dims[place + 1 :]))
            yield replace(one, dims=(*one.dims[:place], shape[1:], *one.dims[place + 1 :]))
            break
    yield replace(one, types=("c10::Half", *one.types[1:]), dims=(*one.dims[::-1],))
    yield replace(one, scalars=(), types=())


def _values() -> Mapping[str, Sequence[Any]]:
    """Type -> values to give to a parameter of it."""
    recorded = _recorded()
    ops = [near for one in recorded for near in _neighbours(one)]
    lists = [shapes for one in recorded if (shapes := tensors(one))]
    shapes = sorted({shape for one in lists for shape in one}, key=repr)[::3]
    sizes = [0, 1, 2, 3, *sorted({size for shape in shapes for size in shape})[::5]]
    few = [*lists[::5], []]
    return {
        "Signature": ops,
        "Sequence[Signature]": [ops[start : start + 6] for start in range(0, len(ops), 40)],
        "list[Signature]": [ops[start : start + 6] for start in range(0, len(ops), 40)],
        "Iterable[Signature]": [ops[start : start + 60] for start in range(0, len(ops), 60)],
        "Shape": shapes,
        "tuple[int, ...]": shapes,
        "list[Shape]": few,
        "set[Shape]": [set(one) for one in few],
        "int": sizes,
        "set[int]": [{size for shape in one for size in shape} for one in few],
        "Collection[Size]": [{size for shape in one for size in shape} for one in few],
        "int | None": [None, *sizes],
        "float": [0.1, 0.5, 2.0],
        "bool": [False, True],
        "str": sorted({one.name for one in recorded})[::6],
        "Gate": gates_of(recorded, 1.0, 1),
        "Peaks": [device_peaks("NVIDIA H200")],
        "Peaks | None": [None, device_peaks("NVIDIA H200")],
    }
