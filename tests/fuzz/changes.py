"""Changes of the values and of the order of events."""

import random
from collections.abc import Callable
from typing import Any

Event = dict[str, Any]

_FIELDS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "s")
_PHASES = ("X", "M", "C", "i", "s", "f", "B", "E", "", "XX")
_NAMES = ("ProfilerStep#3", f"ProfilerStep#{2**63}", "ProfilerStep#" + "9" * 5000, "[memory]", "a\x1b[31mb", "cudaFree")


def odd(rng: random.Random) -> Any:
    """A value that nobody expects."""
    return rng.choice(
        (
            lambda: None,
            lambda: rng.choice((True, False, "", "None", " ", "0", "-1", "nan", "1e400", "1e99999999")),
            lambda: rng.choice((2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**70), 10**30, -1)),
            lambda: rng.choice((0.5, -0.0, 1e15, 1e16, 1e300, -9.2e15, 9.2e15, float("nan"), float("inf"))),
            lambda: rng.choice(
                ("\ud800", "a\udfffb", "\x00", "\x1b]0;x\x07", "},{", '"', "\\", "µ\u202e", "x" * 10_000)
            ),
            lambda: _nested(rng.choice((1, 60, 70, 253, 254, 255, 900, 1010)), rng.random() < 0.5),
            lambda: [None, 1.5, "x", {}],
            lambda: {"": 1, "a": {"b": [1]}},
            lambda: rng.choice(("9" * 5000, "stream 7", "GPU 2", "worker")),
        )
    )()


def _nested(depth: int, in_objects: bool) -> Any:
    """A mark that `written` replaces: Python's own writer stops at its recursion limit."""
    return f"@{'object' if in_objects else 'list'} {depth}@"


def _change_field(rng: random.Random, header: Event, events: list[Event]) -> None:
    if events:
        rng.choice(events)[rng.choice(_FIELDS)] = odd(rng)


def _drop_field(rng: random.Random, header: Event, events: list[Event]) -> None:
    for event in rng.sample(events, min(len(events), rng.choice((1, 10, 1000)))):
        event.pop(rng.choice(_FIELDS), None)


def _change_arg(rng: random.Random, header: Event, events: list[Event]) -> None:
    with_args = [event for event in events if isinstance(event.get("args"), dict)]
    if with_args:
        args = rng.choice(with_args)["args"]
        args[rng.choice([*map(str, args), "new", "\ud800", ""])] = odd(rng)


def _change_header(rng: random.Random, header: Event, events: list[Event]) -> None:
    keys = [*header, "traceEvents2", "meta", "distributedInfo", "deviceProperties", "baseTimeNanoseconds"]
    header[rng.choice(keys)] = rng.choice((odd(rng), {"rank": odd(rng)}, [{"id": 0, "numSms": odd(rng)}]))


def _change_times(rng: random.Random, header: Event, events: list[Event]) -> None:
    factor, shift = rng.choice((2, -1, 0, 1e-3, 1e3, 1)), rng.choice((0, 1e6, -1e6, 1e15, -1e15))
    for event in rng.sample(events, min(len(events), rng.choice((1, 5, 1000)))):
        for key in ("ts", "dur"):
            if isinstance(event.get(key), int | float):
                event[key] = event[key] * factor + (shift if key == "ts" else 0)


def _rename(rng: random.Random, header: Event, events: list[Event]) -> None:
    if events:
        event = rng.choice(events)
        event[rng.choice(("name", "ph", "cat"))] = rng.choice(
            (*_NAMES, *_PHASES, *(str(e.get("cat")) for e in events[:9]))
        )


def _swap_fields(rng: random.Random, header: Event, events: list[Event]) -> None:
    if events:
        one, other, key = rng.choice(events), rng.choice(events), rng.choice(_FIELDS)
        one[key], other[key] = other.get(key), one.get(key)


def _repeat(rng: random.Random, header: Event, events: list[Event]) -> None:
    if events:
        events += [dict(rng.choice(events)) for _ in range(rng.choice((1, 50)))]


def _shuffle(rng: random.Random, header: Event, events: list[Event]) -> None:
    rng.shuffle(events)


def _change_category(rng: random.Random, header: Event, events: list[Event]) -> None:
    """All or half of the events of a category get another one, go, or last no time."""
    categories = sorted({str(event.get("cat")) for event in events})
    chosen, share = rng.choice(categories or [""]), rng.choice((0.5, 1))
    those = [event for event in events if str(event.get("cat")) == chosen and rng.random() < share]
    change = rng.choice(({"cat": rng.choice(categories or [""])}, {"dur": rng.choice((0, -5, 1e12))}, None))
    for event in those:
        event.update(change or {"ph": "M"})


def _change_arg_of_all(rng: random.Random, header: Event, events: list[Event]) -> None:
    """One arg is odd, missing, the same, swapped or distinct in all events that have it."""
    every = [event["args"] for event in events if isinstance(event.get("args"), dict)]
    keys = sorted({str(key) for args in every for key in args})
    if not keys:
        return
    key, how = rng.choice(keys), rng.choice(("odd", "gone", "same", "swapped", "distinct"))
    those = [args for args in every if key in args]
    values = [args[key] for args in those]
    rng.shuffle(values)
    same = odd(rng)
    for number, (args, value) in enumerate(zip(those, values, strict=True)):
        args[key] = {"odd": odd(rng), "same": same, "swapped": value, "distinct": number}.get(how)
        if how == "gone":
            del args[key]


def _change_lanes(rng: random.Random, header: Event, events: list[Event]) -> None:
    key, lanes = rng.choice(("pid", "tid")), rng.choice((1, 3, 3000))
    for number, event in enumerate(events):
        event[key] = number % lanes


def _jitter(rng: random.Random, header: Event, events: list[Event]) -> None:
    most = rng.choice((1, 100, 1e4))
    for event in events:
        if isinstance(event.get("ts"), int | float):
            event["ts"] += rng.uniform(-most, most)


def _cut_window(rng: random.Random, header: Event, events: list[Event]) -> None:
    times = [event["ts"] for event in events if isinstance(event.get("ts"), int | float)]
    first, last = sorted((rng.choice(times), rng.choice(times))) if times else (0, 0)
    events[:] = [event for event in events if not times or first <= _time_of(event, first) <= last]


def _time_of(event: Event, default: float) -> float:
    value = event.get("ts")
    return value if isinstance(value, int | float) else default


def _lose(rng: random.Random, header: Event, events: list[Event]) -> None:
    share = rng.choice((0.05, 0.5))
    events[:] = [event for event in events if rng.random() > share]


def with_others(rng: random.Random, events: list[Event]) -> list[Any]:
    """The events, and among them what is none."""
    others = [(rng.randint(0, len(events)), odd(rng)) for _ in range(rng.choice((1, 3)))]
    return [*events[: others[0][0]], *(value for _, value in others), *events[others[0][0] :]]


CHANGES: tuple[Callable[[random.Random, Event, list[Event]], None], ...] = (
    *[_change_field] * 3,
    *[_change_arg] * 3,
    *[_change_times] * 2,
    *(_drop_field, _change_header, _rename, _swap_fields, _repeat, _shuffle),
    *[_change_category, _change_arg_of_all] * 2,
    *(_change_lanes, _jitter, _cut_window, _lose),
)
