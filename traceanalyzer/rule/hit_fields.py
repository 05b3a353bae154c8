"""Texts, numbers and evidence of hits: what no report can show is a sentence, when they are made."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from traceanalyzer.model.texts import Texts
from traceanalyzer.rule.advice import FEATURES

ROUNDING = 1e-9  # of a quotient of sums

OF_EVERY_FINDING = frozenset(
    [
        "by",
        "count",
        "elsewhere",
        "in_steps",
        "number_a_step",
        "per_step",
        "per_step_ns",
        "share",
        "steps",
        "times_a_step",
        "total",
        "total_ns",
    ]
)  # what the framework says of each finding; `times` may also be how many times more
_FORMS = ("_of_step", "_a_step", "_on_average")
_UNITS = ("ns", "bytes", "share")
_NOT_BELOW_0 = ("ns", "bytes", "times", "speedup")
_FIELD = re.compile(
    r"\{(?P<field>\w+)(?::[^{}]*)?\}(?P<unit> ?(?:[nµu]?s|ms|%|[KMGT]?i?B|bytes|percent)(?!\w))?"
)
_NOT_A_STEP = re.compile(
    r"\{(?:count|times|total|share)\}(?: times)? (?:a|per|each|every|of each|in each|in every) step"
    r"|\{per_step\} (?:in all|in total|altogether)"
    r"|\{(?:number_a_step|\w+_(?:a_step|of_step|on_average))\} (?:a|per|each|every|of each|in each|in every) step"
)
_NOT_OF_THE_WINDOW = re.compile(
    r"\{share\} of (?:these|this|those|that|its|their|all|every|each|the (?!window|record|whole|time))[^,;]*"
)
_MOST = 2.0**62  # what is nearer to the ends of int64 stands for something that is not known
_NO_FIELD = re.compile(r"(?<!\{)\{\w*[!.\[][^{}]*\}")
_IN_ADVICE = re.compile(r"\{([a-z_]\w*)[^{}\w]?[^{}]*\}")
_OF_COMPILERS = {"lambda", "anonymous", "unnamed", "default"}  # braces in names of C++ that a trace has


def check_text(name: str, value: Any) -> None:
    """Raises ValueError for what is no text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is a text, not {type(value).__name__}")


def check_message(message: str) -> None:
    """Raises ValueError for a message that says nothing, takes its fields apart, or calls a total what it is not."""
    if not message.strip():
        raise ValueError("message is empty: say what the occurrences are")
    if found := _NO_FIELD.search(message):
        raise ValueError(f"message has {found[0]}: fields are texts, and take no .attribute, [key] or !r")
    if found := _NOT_OF_THE_WINDOW.search(message):
        raise ValueError(f"message has {found[0]!r}: {{share}} is of the window, others are evidence")
    if found := _NOT_A_STEP.search(message):
        raise ValueError(
            f"message has {found[0]!r}: {{times_a_step}} and {{per_step}} are of a step, {{total}} is in all"
        )


def check_advice(advice: str, evidence: Iterable[str]) -> None:
    """Raises ValueError for an advice that says nothing, or names a field, as only messages can."""
    if not advice.strip():
        raise ValueError("advice is empty: say what to do")
    for field in _IN_ADVICE.finditer(advice):
        mark, name = field[0][1:-1], field[1]
        if mark in FEATURES or (name in _OF_COMPILERS and name not in evidence):
            continue
        if mark == name or name in OF_EVERY_FINDING or name in evidence:
            raise ValueError(
                f"advice has {field[0]}: it is no template; what holds of one finding is said in the message"
            )


def check_share(name: str, value: Any) -> None:
    """Raises TypeError or ValueError for what is no share."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number, not {type(value).__name__}")
    if not 0 <= value <= 1 + ROUNDING:
        raise ValueError(f"{name} is {value:.3g}: a share is 0 to 1")


def check_evidence(evidence: Any, message: str) -> None:
    """Raises TypeError or ValueError for names that no message can name, and values that no report can show."""
    if not isinstance(evidence, Mapping):
        raise TypeError(
            f"evidence is a mapping, not {type(evidence).__name__}: leave it out where there is none"
        )
    for name, value in evidence.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(
                f"evidence has the name {name!r}: names are letters, digits and _, as of a variable"
            )
        if name in OF_EVERY_FINDING or (name.endswith(_FORMS) and _stem(name) in OF_EVERY_FINDING):
            raise ValueError(f"evidence {name} is said of every finding already: give it another name")
        if isinstance(value, Texts):
            continue
        if isinstance(value, Mapping):
            _check_parts(name, value)
        _check_value(name, value)
    _check_fields(evidence, message)


def _check_fields(evidence: Mapping[str, Any], message: str) -> None:
    """Raises ValueError for a field of two meanings, and for a number whose unit the message writes beside it."""
    source = {name: name for name in evidence}
    named: dict[str, str] = {}
    for found in _FIELD.finditer(message):
        named[found["field"]] = named.get(found["field"]) or (found[0] if found["unit"] else "")
    with_unit = {"total", "per_step", "share"}
    for name, value in evidence.items():
        told = list(_also_told(name, value))
        for field in told:
            if field in (*OF_EVERY_FINDING, "times"):
                raise ValueError(
                    f"evidence {name} would be {{{field}}}, which is said of every finding already: rename it"
                )
            other = source.setdefault(field, name)
            if other != name and field in named:
                raise ValueError(f"evidence {other} and {name} would both be {{{field}}}: rename one of them")
        if told and name in named:
            raise ValueError(f"message has {{{name}}}, a number without its unit: {{{told[0]}}} has it")
        with_unit.update(told)
    for field, unit in named.items():
        if unit and field in with_unit:
            raise ValueError(f"message has {unit!r}: {{{field}}} has its unit")


def _also_told(name: str, value: Any) -> Iterator[str]:
    """The fields that a message has of a number with a unit, besides its own name: `delay_ns` as `{delay}`."""
    stem, _, unit = name.rpartition("_")
    if unit in _UNITS and value is not None and not isinstance(value, Mapping):
        yield from (stem or unit, *(f"{stem}{form}" for form in _FORMS))


def _stem(name: str) -> str:
    return next(name.removesuffix(form) for form in _FORMS if name.endswith(form))


def _check_parts(name: str, parts: Mapping[Any, Any]) -> None:
    """Of a mapping that a message may show by its largest parts."""
    for part in parts.values():
        if isinstance(part, bool | np.bool_) or not isinstance(part, int | float | np.number):
            raise ValueError(f"evidence {name} has a part that is {part!r}: each is a number")
        if part < 0:
            raise ValueError(f"evidence {name} has a part of {part:.3g}: parts are no less than 0")


def _check_value(name: str, value: Any) -> None:
    if isinstance(value, list | tuple) and name.rpartition("_")[2] in _UNITS:
        raise ValueError(
            f"evidence {name} is a {type(value).__name__}: a number, or a mapping of numbers by name"
        )
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"evidence {name} has the key {key!r}: keys are texts")
        value = tuple(value.values())
    if isinstance(value, str) and name.rpartition("_")[2] in _UNITS:
        raise ValueError(f"evidence {name} is a text: a number of {name.rpartition('_')[2]}")
    for part in value if isinstance(value, list | tuple) else (value,):
        if isinstance(part, list | tuple | Mapping):
            _check_value(name, part)
        elif isinstance(part, np.timedelta64) or not isinstance(
            part, int | float | np.number | np.bool_ | str | None
        ):
            raise ValueError(
                f"evidence {name} has a {type(part).__name__}: give numbers, texts, lists or mappings of these, or "
                "Texts parallel to the occurrences"
            )
        elif part is not None and not isinstance(part, str):
            _check_number(name, part)


def _check_number(name: str, part: Any) -> None:
    if not math.isfinite(part):
        raise ValueError(f"evidence {name} is {part}: give None where it is not known")
    if abs(part) >= _MOST:
        raise ValueError(
            f"evidence {name} is {part:.3g}, which stands for none in some column: leave such rows out"
        )
    unit = name.rpartition("_")[2]
    if unit not in (*_UNITS, *_NOT_BELOW_0):
        return
    if isinstance(part, bool | np.bool_):
        raise ValueError(f"evidence {name} is {part}: a number of {unit}")
    if unit == "share" and not -ROUNDING <= part <= 1 + ROUNDING:
        raise ValueError(f"evidence {name} is {part:.9g}: a share is 0 to 1, {name[:-5]}times may be more")
    if unit in _NOT_BELOW_0 and part < 0:
        raise ValueError(f"evidence {name} is {part:.3g}: no less than 0")


def longest_ns(name: str, value: Any) -> float:
    """The largest number of ns that evidence of that name has; 0 of others."""
    if name.rpartition("_")[2] != "ns" or isinstance(value, Texts | str | None):
        return 0.0
    parts = value.values() if isinstance(value, Mapping) else (value,)
    return max(map(float, parts), default=0.0)
