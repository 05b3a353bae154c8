"""What a rule declares is looked at when its file is read: what no rule can mean leaves that file out, and says why."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any

from traceanalyzer.model.analysis import Need, Window
from traceanalyzer.model.trace import Trace
from traceanalyzer.rule.claims import Claims, Kind
from traceanalyzer.rule.limits import LEAST_NS, has_unit, source_of
from traceanalyzer.version import __version__

MIN_SHARE = "min_share"  # the limit that every rule has, by this name

_NUMBERS = {"int": int, "float": float, int: int, float: float}  # annotation of a limit -> what it is


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands in the parentheses of `@rule(...)`, as it was given."""

    since: str
    claims: Claims
    min_share: float
    causes: tuple[str, ...]
    limits: type | None
    kind: Kind
    specificity: int
    choices: tuple[str, ...]


def check_marks(marks: Marks) -> None:
    """Raises TypeError or ValueError for what stands in the parentheses of `@rule(...)` and cannot be."""
    kinds: Mapping[str, type] = {"since": str, "claims": Claims, "kind": Kind, "specificity": int}
    for name, kind in kinds.items():
        if not isinstance(value := getattr(marks, name), kind) or isinstance(value, bool):
            raise TypeError(f"{name}={value!r}: {_example(kind)}")
    for name in ("causes", "choices"):
        given = getattr(marks, name)
        if not isinstance(given, tuple) or not all(isinstance(one, str) for one in given):
            raise TypeError(f'{name}={given!r}: a tuple of texts, {name}=("waits",) with its comma')
    if unknown := [one for one in marks.choices if one and one not in marks.causes]:
        raise ValueError(f"choices has {', '.join(unknown)}, which causes lacks")
    check_number(MIN_SHARE, marks.min_share)
    _check_since(marks.since)
    if marks.limits is not None:
        _check_limits(marks.limits)


def _example(kind: type) -> str:
    """What such an argument is, in the words of an author."""
    if kind in (Claims, Kind):
        return f"one of {', '.join(f'{kind.__name__}.{one.name}' for one in kind)}"
    return "a text, since='0.1'" if kind is str else "a whole number"


def _check_since(since: str) -> None:
    if not re.fullmatch(r"\d+(\.\d+)*", since):
        raise ValueError(f"since={since!r} is no version: @rule(since='0.1')")
    if _version(since) > _version(__version__):
        raise ValueError(f"since={since!r} is later than this version, {__version__}")


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def _check_limits(limits: Any) -> None:
    if not isinstance(limits, type):
        raise TypeError(f"limits={limits!r}: give the class, limits=Limits, not one of its instances")
    if not is_dataclass(limits) or not limits.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise TypeError(f"{limits.__name__} is no frozen dataclass: @dataclass(frozen=True, slots=True)")
    every = fields(limits)
    declared = {*(one.name for one in every), *inspect.get_annotations(limits)}
    for name, value in vars(limits).items():
        if not name.startswith("_") and name not in declared and isinstance(value, int | float):
            raise TypeError(f"limit {name} has no annotation: {name}: int = limit(...)")
    for one in every:
        _check_limit(one)


def _check_limit(one: Field[Any]) -> None:
    """Of one field: that it has a default, a source and a type, and its number fits its name."""
    if one.name == MIN_SHARE:
        raise ValueError("every rule has a limit min_share: @rule(min_share=...), or another name")
    source = source_of(one)
    if one.default is MISSING or source is None:
        raise TypeError(f"limit {one.name} is made by limit(default, source), and has both")
    if not isinstance(source, str) or not source.strip():
        raise ValueError(
            f"limit {one.name} has no source: say what counts from it on, and where it comes from"
        )
    if one.type not in _NUMBERS:
        raise TypeError(f"limit {one.name} is int or float, not {one.type}")
    check_number(one.name, one.default)
    if _NUMBERS[one.type] is int and not isinstance(one.default, int):
        raise ValueError(f"limit {one.name}={one.default}: not a whole number")


def check_number(name: str, value: Any) -> None:
    """Raises where a limit of that name cannot be so: as a default, and as users set it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"limit {name}={value!r}: a number")
    if not 0 <= value < math.inf or ("share" in name.split("_") and value > 1):
        raise ValueError(f"limit {name}={value}: finite and not negative, and a share at most 1")
    if name.endswith("_ns") and 0 < value < LEAST_NS:
        raise ValueError(f"limit {name}={value}: less than any kernel or call takes, give ns")


def check_function(function: Any, needs: Mapping[str, Need], *, limited: bool) -> None:
    """Raises where a rule's parameters are no indexes, or its file has another name.

    Args:
        limited: whether the rule has limits.
    """
    if function.__name__ not in function.__module__.split(".")[-2:]:
        slug = function.__name__.replace("_", "-")
        raise ValueError(f"rule {slug} is in a file of another name")
    given = inspect.signature(function).parameters
    if ("limits" in given) != limited:
        raise TypeError("a rule has limits as @rule(limits=Limits) and as a parameter, or as neither")
    for name in given:
        if name == "limits":
            continue
        if name not in needs:
            raise TypeError(f"parameter {name} has no annotation: its type is the index that fills it")
        kind = needs[name].kind
        if kind not in (Trace, Window) and not callable(getattr(kind, "build", None)):
            raise TypeError(f"parameter {name} is of {kind.__name__}, which is no index")


def check_names(causes: Iterable[str], limits: Any) -> None:
    """Raises ValueError for a cause that nobody can ask for, and a limit that does not say what it counts.

    Args:
        limits: an instance of the rule's own dataclass, None where it has none.
    """
    for one in fields(limits) if limits is not None else ():
        if not has_unit(one.name):
            raise ValueError(
                f"limit {one.name} has no unit in its name: end it in _ns, _bytes, _share, _times or _speedup, "
                "or in what it counts, in the plural"
            )
    for cause in causes:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", cause):
            raise ValueError(f"cause {cause!r} is not kebab-case")
