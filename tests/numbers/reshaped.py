"""Whole programs that are reshaped by chance: steps that differ, a second device, parts that only some steps have.

A built program does the same in each of its steps, on one device. Here a step is longer than the others, has two of
everything, or lacks something; so the mean is not the median, the first not the last, any not all, and what is counted
per call not what is counted per step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from copy import deepcopy
from random import Random
from typing import Any

Event = dict[str, Any]
_FAR = 10_000_000  # more than any correlation of a built program
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_LINES = ("train.py(12): step", "model.py(40): forward", "/usr/lib/python3/site-packages/x/y.py(7): call")


def reshaped(rng: Random, whole: dict[str, Any], which: int) -> None:
    """Two or three changes that go together, which is one of `WAYS`."""
    for change in WAYS[which]:
        change(rng, whole)


def _spans(whole: dict[str, Any]) -> list[Event]:
    return [event for event in whole["traceEvents"] if event.get("ph") == "X"]


def _marks(whole: dict[str, Any]) -> list[Event]:
    marks = [event for event in _spans(whole) if event["name"].startswith("ProfilerStep#")]
    return sorted((mark for mark in marks if mark["cat"] == "user_annotation"), key=lambda mark: mark["ts"])


def _is_work(event: Event) -> bool:
    return event.get("cat") in _ON_GPU


def _key(event: Event) -> tuple[str, ...]:
    return event.get("cat", ""), event["name"], repr(event.get("args", {}).get("Input Dims"))


def _chosen(rng: Random, events: Iterable[Event]) -> tuple[str, ...]:
    keys = sorted({_key(event) for event in events})
    return keys[int(rng.random() * len(keys))] if keys else ()


def _warped(whole: dict[str, Any], at: list[float], speed: list[float]) -> None:
    """Time runs at another speed from each of these moments on: order and nesting stay."""
    begun, now = [], 0.0
    for place, start in enumerate(at):
        now += (start - at[place - 1]) * speed[place - 1] if place else start
        begun.append(now)

    def moved(ts: float) -> float:
        place = bisect_right(at, ts) - 1
        return ts if place < 0 else begun[place] + (ts - at[place]) * speed[place]

    for event in whole["traceEvents"]:
        if "ts" in event:
            start = moved(event["ts"])
            if "dur" in event:
                event["dur"] = round(moved(event["ts"] + event["dur"]) - start, 3)
            event["ts"] = round(start, 3)


def uneven_steps(rng: Random, whole: dict[str, Any]) -> None:
    """Each step takes another time, the first half of it at another speed than the second."""
    at = [mark["ts"] + part * mark["dur"] for mark in _marks(whole) for part in (0, 0.5)]
    _warped(whole, at, [0.4 + 2 * rng.random() for _ in at])


def double_steps(rng: Random, whole: dict[str, Any]) -> None:
    """Two steps are one: each has two of everything; the last may have one."""
    marks, gone = _marks(whole), set()
    first = int(rng.random() * 2)
    for one, two in zip(marks[first::2], marks[first + 1 :: 2], strict=False):
        one["dur"] = round(two["ts"] + two["dur"] - one["ts"], 3)
        gone.add(id(two))
    whole["traceEvents"] = [event for event in whole["traceEvents"] if id(event) not in gone]


def uneven_work(rng: Random, whole: dict[str, Any]) -> None:
    """Each piece of work takes a part of its time, by chance."""
    for event in _spans(whole):
        if _is_work(event):
            event["dur"] = round(event["dur"] * (0.2 + 0.8 * rng.random()), 3)


def some_steps(rng: Random, whole: dict[str, Any]) -> None:
    """Ops, calls or work of one kind are in some steps only."""
    marks = [mark["ts"] for mark in _marks(whole)]
    key = _chosen(rng, _spans(whole))
    kept = [rng.random() < 0.5 for _ in range(len(marks) + 1)]
    whole["traceEvents"] = [
        event
        for event in whole["traceEvents"]
        if event.get("ph") != "X" or _key(event) != key or kept[bisect_right(marks, event["ts"])]
    ]


def second_device(rng: Random, whole: dict[str, Any]) -> None:
    """All work runs on a second device, too, with other times, launched a little later."""
    faster = rng.random() < 0.5
    _with_devices(whole)
    for event in _spans(whole):
        args = event.get("args", {})
        if "correlation" in args:
            other = deepcopy(event)
            other["args"]["correlation"] += _FAR
            if _is_work(event):
                other["pid"] = other["args"]["device"] = 1
                other["dur"] = round(other["dur"] * ((0.3 if faster else 0.7) + 0.3 * rng.random()), 3)
            else:
                event["dur"] = round(event["dur"] / 2, 3)
                other["ts"], other["dur"] = round(event["ts"] + event["dur"], 3), event["dur"]
            whole["traceEvents"].append(other)


def shared_work(rng: Random, whole: dict[str, Any]) -> None:
    """Some of the work runs on a second device instead: by its kind, or by chance."""
    _with_devices(whole)
    key = _chosen(rng, filter(_is_work, _spans(whole)))
    kind, share = rng.random() < 0.3, rng.random()
    for event in _spans(whole):
        if _is_work(event) and (_key(event) == key if kind else rng.random() < share):
            event["pid"] = event["args"]["device"] = 1


def _with_devices(whole: dict[str, Any]) -> None:
    known = whole.get("deviceProperties") or [{}]
    whole["deviceProperties"] = [known[0], {**known[0], "id": 1}]


def other_occurrence(rng: Random, whole: dict[str, Any]) -> None:
    """Of ops of one kind some have another size, another type, or another name."""
    events = [event for event in _spans(whole) if event.get("args", {}).get("Input Dims")]
    key, change, which = _chosen(rng, events), int(rng.random() * 4), rng.random()
    for event in events:
        if _key(event) == key and rng.random() < 0.4:
            dims = deepcopy(event["args"]["Input Dims"])
            shape = dims[int(which * len(dims))]
            if change == 3:
                event["name"] = "aten::other"
            elif change == 2 and event["args"].get("Input type"):
                event["args"]["Input type"] = ["double" for _ in event["args"]["Input type"]]
            elif isinstance(shape, list) and shape and isinstance(shape[0], int):
                place = int(which * 7) % len(shape)
                shape[place] = shape[place] * 2 if change else max(shape[place] // 2, 1)
                event["args"]["Input Dims"] = dims


def other_work(rng: Random, whole: dict[str, Any]) -> None:
    """Of work of one kind some is of another kind, longer, or on another stream."""
    events = [event for event in _spans(whole) if _is_work(event)]
    key, change = _chosen(rng, events), int(rng.random() * 3)
    for event in events:
        if _key(event) == key and rng.random() < 0.4:
            if change == 0:
                event["name"] = "void other_kernel(float*)"
            elif change == 1:
                event["dur"] = round(event["dur"] * 0.25, 3)
            else:
                event["tid"] = event["args"]["stream"] = 99


def with_stacks(rng: Random, whole: dict[str, Any]) -> None:
    """Ops of one kind are called from one of a few lines; without them, if there were stacks."""
    spans = [event for event in _spans(whole) if event["cat"] == "python_function"]
    if spans:
        gone = {id(event) for event in spans}
        whole["traceEvents"] = [event for event in whole["traceEvents"] if id(event) not in gone]
        return
    made, until = [], -1.0
    for event in sorted(_spans(whole), key=lambda event: (event["ts"], -event["dur"])):
        if event["cat"] == "cpu_op" and event["ts"] > until:
            until, number = event["ts"] + event["dur"], len(made) + 1
            line = _LINES[int(rng.random() * 2.2)]
            place = {"pid": event["pid"], "tid": event["tid"], "ts": event["ts"], "dur": event["dur"]}
            ids = {"Python id": number, "Python parent id": None}
            made.append({"ph": "X", "cat": "python_function", "name": line, **place, "args": ids})
    whole["traceEvents"] += made


def twice(rng: Random, whole: dict[str, Any]) -> None:
    """The program runs again after itself, after a pause, faster or slower."""
    spans = [event for event in whole["traceEvents"] if "ts" in event]
    end = max((event["ts"] + event.get("dur", 0) for event in spans), default=0)
    count, pause, speed = len(_marks(whole)), 1_000 * rng.random(), 0.5 + rng.random()
    for event in deepcopy(spans):
        event["ts"] = round(end + pause + event["ts"] * speed, 3)
        if "dur" in event:
            event["dur"] = round(event["dur"] * speed, 3)
        args = event.get("args", {})
        for name in ("correlation", "External id", "Python id", "Python parent id", "Sequence number"):
            if isinstance(args.get(name), int):
                args[name] += _FAR
        if event["name"].startswith("ProfilerStep#"):
            event["name"] = f"ProfilerStep#{count + int(event['name'].partition('#')[2])}"
        whole["traceEvents"].append(event)


WAYS: tuple[tuple[Callable[[Random, dict[str, Any]], None], ...], ...] = (
    (double_steps, uneven_work, with_stacks),
    (twice, uneven_steps),
    (second_device, double_steps),
    (shared_work, other_work),
    (other_occurrence, some_steps, uneven_steps),
)
