"""Copies of a trace whose program differs a little: other sizes, dtypes, times, streams or steps, missing ops.

A rule is made of many conditions, all of which hold in a program that shows it. In a copy some of them fail.
"""

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import orjson

Event = dict[str, Any]
_DTYPES = ("float", "c10::BFloat16", "double", "long int", "bool", "Scalar", "")
_SCALARS = ("", "0", "1", "-1", "2", "True", "False", "[1]")
_INPUTS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")


def changed_copy(content: bytes, seed: int) -> bytes:
    """A trace file with one to three changes. Equal seeds give equal files."""
    rng, document = Random(seed), orjson.loads(content)
    for _ in range(rng.randint(1, 3)):
        rng.choice(_CHANGES)(rng, document["traceEvents"])
    return orjson.dumps(document)


def _similar(rng: Random, events: list[Event], wanted: Callable[[Event], Any]) -> list[Event]:
    """Events with the category, name and shapes of a random one: those at one place of each step."""
    candidates = [event for event in events if event.get("ph") == "X" and wanted(event)]
    key = _key(rng.choice(candidates)) if candidates else None
    return [event for event in candidates if _key(event) == key]


def _key(event: Event) -> tuple[Any, ...]:
    return event.get("cat"), event.get("name"), repr(event.get("args", {}).get("Input Dims"))


def _is_op(event: Event) -> bool:
    return event.get("cat") == "cpu_op"


def _is_work(event: Event) -> bool:
    return event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")


def _argument(name: str) -> Callable[[Event], Any]:
    return lambda event: event.get("args", {}).get(name)


def _change_size(rng: Random, events: list[Event]) -> None:
    change, input_share, size_share = rng.randrange(5), rng.random(), rng.random()
    for event in _similar(rng, events, _argument("Input Dims")):
        dims = deepcopy(event["args"]["Input Dims"])
        shapes = [shape for shape in dims if isinstance(shape, list) and shape]
        shape = shapes[int(input_share * len(shapes))] if shapes else [""]
        place = int(size_share * len(shape))
        if isinstance(size := shape[place], int):
            shape[place] = (size + 1, max(size - 1, 0), size * 2, size // 2, 1)[change]
            event["args"]["Input Dims"] = dims


def _change_shape(rng: Random, events: list[Event]) -> None:
    """An input is transposed, or lacks its first size or all sizes."""
    change, share = rng.randrange(3), rng.random()
    for event in _similar(rng, events, _argument("Input Dims")):
        dims = list(event["args"]["Input Dims"])
        place = int(share * len(dims))
        if isinstance(shape := dims[place], list):
            dims[place] = (shape[::-1], shape[1:], [])[change]
            event["args"]["Input Dims"] = dims


def _change_input(rng: Random, events: list[Event]) -> None:
    """An input has another dtype or value."""
    name, values = rng.choice([("Input type", _DTYPES), ("Concrete Inputs", _SCALARS)])
    share, value = rng.random(), rng.choice(values)
    for event in _similar(rng, events, _argument(name)):
        inputs = list(event["args"][name])
        inputs[int(share * len(inputs))] = value
        event["args"][name] = inputs


def _drop_inputs(rng: Random, events: list[Event]) -> None:
    """The last input is missing, or all are."""
    end = rng.choice((0, -1))
    for event in _similar(rng, events, _argument("Input Dims")):
        for name in _INPUTS & event["args"].keys():
            event["args"][name] = event["args"][name][:end]


def _drop_events(rng: Random, events: list[Event]) -> None:
    similar = _similar(rng, events, lambda _: True)
    dropped = {id(event) for event in (similar if rng.random() < 0.5 else similar[:1])}
    events[:] = [event for event in events if id(event) not in dropped]


def _rename(rng: Random, events: list[Event]) -> None:
    names = [event["name"] for event in events if _is_op(event)] or ["aten::other"]
    name = rng.choice(["aten::other", rng.choice(names)])
    for event in _similar(rng, events, lambda event: _is_op(event) or _is_work(event)):
        event["name"] = name


def _change_time(rng: Random, events: list[Event]) -> None:
    factor = rng.choice((2, 0.5, 0))
    for event in _similar(rng, events, lambda event: _is_op(event) or _is_work(event)):
        event["dur"] = event["dur"] * factor


def _change_steps(rng: Random, events: list[Event]) -> None:
    """No step is marked, or the first is not."""
    marks = [event for event in events if str(event.get("name")).startswith("ProfilerStep#")]
    dropped = {id(event) for event in rng.choice((marks, marks[:1]))}
    events[:] = [event for event in events if id(event) not in dropped]


def _change_lane(rng: Random, events: list[Event]) -> None:
    """Ops run on another thread, or work on another stream."""
    for event in _similar(rng, events, lambda event: _is_op(event) or _is_work(event)):
        event["tid"] = 99
        if _is_work(event):
            event["args"]["stream"] = 99


def _change_work(rng: Random, events: list[Event]) -> None:
    """A kernel has another grid, or a copy other bytes."""
    blocks, size = rng.choice((1, 2, 131, 133, 100_000)), rng.choice((0, 1, 4_096, 1 << 28))
    for event in _similar(rng, events, _is_work):
        event["args"] |= {"grid": [blocks, 1, 1]} if event["cat"] == "kernel" else {"bytes": size}


def _swap_ops(rng: Random, events: list[Event]) -> None:
    """Ops that follow each other exchange names and inputs."""
    ops = sorted(filter(_is_op, events), key=lambda event: event["ts"])
    start = rng.randrange(3)
    for first, second in zip(ops[start::3], ops[start + 1 :: 3], strict=False):
        first["name"], second["name"] = second["name"], first["name"]
        first["args"], second["args"] = second.get("args", {}), first.get("args", {})


_CHANGES: tuple[Callable[[Random, list[Event]], None], ...] = (
    *(_change_size, _change_shape, _change_input, _drop_inputs, _drop_events, _rename, _change_time),
    *(_change_steps, _change_lane, _change_work, _swap_ops),
)
