"""Programs that show a rule, changed a little by chance: what the rule says of each.

A rule is made of many small conditions, of which a program that shows the rule meets all. In a changed one some are
not met, or are just met: shapes, types and times that differ by one, ops that are missing, said twice or elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from random import Random
from typing import Any

import orjson

from tests.numbers.reshaped import WAYS, reshaped
from tests.numbers.varied_programs import VARIED, analysis_of
from tests.rules.limit_cases import Said, said
from tests.support.trace_builder import content_of, load_bytes
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.rule.registry import find_rule

Event = dict[str, Any]
_VARIATIONS = 12  # of each program
_ORDERS = 3  # of each program, with other rows first: row 0 is a row
_MOST_BYTES = 1 << 20  # of a program: larger ones show no more, and take long
_TYPES = ("float", "c10::BFloat16", "double", "long int", "bool", "Scalar", "")


def variations(rule: str) -> dict[str, str]:
    """Program, and change -> how many findings of how many occurrences, and their digest."""
    found = {}
    for number in range(len(VARIED[rule])):
        content = content_of(analysis_of(rule, number).trace)
        if 0 < len(content) < _MOST_BYTES:
            for seed in range(_VARIATIONS + _ORDERS + len(WAYS)):
                found[f"{number}/{seed}"] = " ".join(map(str, _told(rule, _varied(content, seed))))
    return found


def _told(rule: str, content: bytes) -> Said:
    try:
        return said(find_rule(rule), Analysis(load_bytes(content)), sentences=False)
    except TraceAnalyzerError as why:
        return 0, 0, type(why).__name__


def _varied(content: bytes, seed: int) -> bytes:
    """The file with one or two of the changes; only `random()` chooses, which is the same in all versions."""
    rng, whole = Random(seed), orjson.loads(content)
    if seed >= _VARIATIONS + _ORDERS:
        reshaped(rng, whole, seed - _VARIATIONS - _ORDERS)
        return orjson.dumps(whole)
    for _ in range(1 + seed % 2):
        change = _CHANGES[int(rng.random() * len(_CHANGES))] if seed < _VARIATIONS else _foremost
        change(rng, whole["traceEvents"])
    return orjson.dumps(whole)


def changed_copy(content: bytes, seed: int) -> bytes:
    """A copy of the file, reshaped or not, with up to two of the changes, or one to three."""
    rng, whole = Random(seed), orjson.loads(content)
    count = int(rng.random() * 3)
    if rng.random() < 0.6:
        reshaped(rng, whole, int(rng.random() * len(WAYS)))
    else:
        count += 1
    for _ in range(count):
        change = _CHANGES[int(rng.random() * len(_CHANGES))]
        with suppress(LookupError):  # the inputs of an op were changed before
            change(rng, whole["traceEvents"])
    return orjson.dumps(whole)


def _one(rng: Random, values: Any) -> Any:
    values = list(values)
    return values[int(rng.random() * len(values))] if values else None


def _alike(rng: Random, events: list[Event], wanted: Callable[[Event], Any]) -> list[Event]:
    """All events of one name and of one shape: those that stand at one place in each step."""
    chosen = _one(rng, [event for event in events if event.get("ph") == "X" and wanted(event)])
    return [] if chosen is None else [event for event in events if _key(event) == _key(chosen)]


def _key(event: Event) -> tuple[Any, ...]:
    dims = event.get("args", {}).get("Input Dims")
    return event.get("cat"), event.get("name"), repr(dims)


def _is_op(event: Event) -> bool:
    return event.get("cat") == "cpu_op"


def _has_inputs(event: Event) -> bool:
    return bool(event.get("args", {}).get("Input Dims"))


def _is_kernel(event: Event) -> bool:
    return event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")


def _other_size(rng: Random, events: list[Event]) -> None:
    """One size of one input is one more, one less, twice or half what it was, or one."""
    change = int(rng.random() * 5)
    which, where = rng.random(), rng.random()
    for event in _alike(rng, events, _has_inputs):
        dims = deepcopy(event["args"]["Input Dims"])
        shape = _at(which, [one for one in dims if isinstance(one, list) and one])
        if shape and all(isinstance(one, int) for one in shape):
            place = int(where * len(shape))
            size = shape[place]
            shape[place] = (size + 1, max(size - 1, 0), size * 2, size // 2, 1)[change]
            event["args"]["Input Dims"] = dims


def _at(share: float, values: list[Any]) -> Any:
    return values[int(share * len(values))] if values else None


def _turned(rng: Random, events: list[Event]) -> None:
    """One input is transposed, without its first size, or without sizes."""
    change, which = int(rng.random() * 3), rng.random()
    for event in _alike(rng, events, _has_inputs):
        dims = event["args"]["Input Dims"]
        place = int(which * len(dims))
        if isinstance(dims[place], list):
            shape = dims[place]
            event["args"]["Input Dims"] = [
                *dims[:place],
                (shape[::-1], shape[1:], [])[change],
                *dims[place + 1 :],
            ]


def _other_type(rng: Random, events: list[Event]) -> None:
    which, kind = rng.random(), _one(rng, _TYPES)
    for event in _alike(rng, events, lambda event: event.get("args", {}).get("Input type")):
        types = list(event["args"]["Input type"])
        types[int(which * len(types))] = kind
        event["args"]["Input type"] = types


def _fewer_inputs(rng: Random, events: list[Event]) -> None:
    """The last input is not there, or none of them."""
    every = rng.random() < 0.5
    for event in _alike(rng, events, _has_inputs):
        for key in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs"):
            if key in event["args"]:
                event["args"][key] = [] if every else event["args"][key][:-1]


def _other_scalars(rng: Random, events: list[Event]) -> None:
    which, value = rng.random(), _one(rng, ("", "0", "1", "-1", "2", "True", "False", "[1]"))
    for event in _alike(rng, events, lambda event: event.get("args", {}).get("Concrete Inputs")):
        values = list(event["args"]["Concrete Inputs"])
        values[int(which * len(values))] = value
        event["args"]["Concrete Inputs"] = values


def _gone(rng: Random, events: list[Event]) -> None:
    """Ops, calls or work of one kind are missing: all of them, or one alone."""
    chosen = _alike(rng, events, lambda _: True)
    gone = {id(event) for event in (chosen if rng.random() < 0.5 else chosen[len(chosen) // 2 :][:1])}
    events[:] = [event for event in events if id(event) not in gone]


def _renamed(rng: Random, events: list[Event]) -> None:
    for event in _alike(rng, events, lambda event: _is_op(event) or _is_kernel(event)):
        event["name"] = "aten::other" if _is_op(event) else "other_kernel"


def _another(rng: Random, events: list[Event]) -> None:
    """Ops or work of one kind have the name of others."""
    name = _one(rng, [event["name"] for event in events if _is_op(event)])
    for event in _alike(rng, events, _is_op):
        event["name"] = name


def _other_time(rng: Random, events: list[Event]) -> None:
    """Work or ops of one kind take twice, half or none of their time, or as long as others."""
    change = int(rng.random() * 4)
    other = _one(rng, [event["dur"] for event in events if event.get("dur")])
    for event in _alike(rng, events, lambda event: _is_op(event) or _is_kernel(event)):
        event["dur"] = (event["dur"] * 2, event["dur"] / 2, 0, other)[change]


def _touching(rng: Random, events: list[Event]) -> None:
    """What runs on a stream begins when that before it ends, or a pause later that is as long as it."""
    gap, last = rng.random() < 0.5, {}
    for event in sorted((one for one in events if _is_kernel(one)), key=lambda one: one["ts"]):
        place = event["args"].get("device"), event["args"].get("stream")
        event["ts"] = max(event["ts"], last.get(place, 0) + (event["dur"] if gap else 0))
        last[place] = event["ts"] + event["dur"]


def _foremost(rng: Random, events: list[Event]) -> None:
    """Ops, calls or work of one kind stand first in the file."""
    first = {id(event) for event in _alike(rng, events, lambda event: event.get("cat") != "kernel")}
    events.sort(key=lambda event: id(event) not in first)


def _other_stream(rng: Random, events: list[Event]) -> None:
    for event in _alike(rng, events, _is_kernel):
        event["tid"] = event["args"]["stream"] = 99


def _other_steps(rng: Random, events: list[Event]) -> None:
    """No step is marked, or not the first, or the last takes no time."""
    change = int(rng.random() * 3)
    marks = [event for event in events if str(event.get("name")).startswith("ProfilerStep#")]
    gone = {id(event) for event in (marks, marks[:1], ())[change]}
    events[:] = [event for event in events if id(event) not in gone]
    if change == 2 and marks:
        marks[-1]["dur"] = 0


def _other_thread(rng: Random, events: list[Event]) -> None:
    for event in _alike(rng, events, lambda event: _is_op(event)):
        event["tid"] = 4_321


def _swapped(rng: Random, events: list[Event]) -> None:
    """Ops that follow each other change their names and inputs."""
    ops = sorted((event for event in events if _is_op(event)), key=lambda event: event["ts"])
    start = int(rng.random() * 3)
    for one, two in zip(ops[start::3], ops[start + 1 :: 3], strict=False):
        one["name"], two["name"] = two["name"], one["name"]
        for key in ("Input Dims", "Input type"):
            if key in one.get("args", {}) and key in two.get("args", {}):
                one["args"][key], two["args"][key] = two["args"][key], one["args"][key]


def _other_grid(rng: Random, events: list[Event]) -> None:
    size = _one(rng, (1, 2, 131, 132, 133, 100_000))
    for event in _alike(rng, events, lambda event: event.get("cat") == "kernel"):
        event["args"]["grid"] = [size, 1, 1]


def _other_bytes(rng: Random, events: list[Event]) -> None:
    size = _one(rng, (0, 1, 16, 4_096, 1 << 20, 1 << 28))
    for event in _alike(rng, events, lambda event: "bytes" in event.get("args", {})):
        event["args"]["bytes"] = size


_CHANGES = (
    *(_other_size, _other_size, _turned, _other_type, _fewer_inputs, _other_scalars, _gone, _gone, _renamed),
    *(_another, _other_time, _other_time, _touching, _other_stream, _other_steps, _other_thread, _swapped),
    *(_other_grid, _other_bytes),
)
