"""Changes of a trace's JSON that must not change its findings."""

import random
from typing import Any

Events = list[dict[str, Any]]
ON_CPU = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "python_function")


def shuffle(events: Events) -> None:
    """Another order, and so other event ids."""
    random.Random(7).shuffle(events)


def shift(events: Events) -> None:
    """A clock that is ahead by a power of two: the double still holds every nanosecond."""
    for event in events:
        event["ts"] += 4_096


def renumber(events: Events) -> None:
    """Other processes, threads, correlations and External ids; devices and streams stay."""
    for event in events:
        for key in ("pid", "tid") if event.get("cat") in ON_CPU else ():
            event[key] += 40_000
        args = event.get("args", {})
        for key in {"External id", "correlation"} & args.keys():
            args[key] += 1_000_000


def all_at_once(events: Events) -> None:
    """What each of them must not change, all of them must not."""
    for change in (renumber, shift, shuffle):
        change(events)


def whole_microseconds(events: Events) -> None:
    """Times as torch wrote them until 2.3: many events begin and last alike."""
    for event in events:
        for key in {"ts", "dur"} & event.keys():
            event[key] = round(event[key])
