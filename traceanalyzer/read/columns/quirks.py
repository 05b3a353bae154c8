"""What exporters write instead of what was expected, event by event, and what is made of it."""

from collections import Counter
from typing import Any

import orjson

from traceanalyzer.model.schema import MTIA_WORK, Frame, Storage
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.read.text.brackets import too_deep

Event = dict[str, Any]

_MEMORY_NAMES = ("[memory]", "[OutOfMemory]")
# Of all rows that torch.autograd.profiler's EventList exports, which have no category.
AUTOGRAD_PID = "CPU functions"
ASCEND_TASK = "ascend_task"  # of rows of torch_npu's device, which have no category and no launch
FOLDED = "\0args"  # stands for all args without a column
BLANK = (None, "", "None")


def head_of(event: Event) -> tuple[Any, ...]:
    """Name, pid and tid of an event, None where there is none."""
    values = (event.get(key) for key in ("name", "pid", "tid"))
    return tuple(value if isinstance(value, str | int | float | None) else as_json(value) for value in values)


def as_json(value: Any) -> str:
    """A value as JSON text; what is nested too deep to be written is said to be so."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return '"nested too deep"'


def as_text(value: Any) -> str:
    """A value as text: a string as it is, others as JSON, which Python's `str` is for numbers."""
    return as_json(value) if isinstance(value, dict | list) else str(value)


def destination(category: Any, event: Any) -> tuple[str, str]:
    """Where an event without a known category belongs: (frame, category) or ("counted", class)."""
    if not isinstance(event, dict):
        return "counted", "unreadable"
    phase = event.get("ph")
    if event.get("name") in _MEMORY_NAMES:
        return "memory", "cpu_instant_event"  # torch 1.9 to 1.11: no category
    if phase == "M":
        return "counted", "metadata"
    if category == "Trace" or (phase in ("i", "I") and category is None):
        return "counted", "window mark"
    if phase in ("s", "t", "f"):
        return "counted", f"flow:{as_text(category)}"
    if phase == "C":
        return "counters", as_text(category)
    if phase != "X":
        return "counted", _phase(phase)
    if category is None and event.get("pid") == AUTOGRAD_PID:
        return "cpu", "cpu_op"
    args = event.get("args")
    there = args if isinstance(args, dict) else {}
    if category is None and "Task Type" in there:
        return "gpu", ASCEND_TASK
    if category == MTIA_WORK:
        # Copies have a direction, kernels a place on the grid; marks and waits between streams have neither.
        return "gpu", "gpu_memcpy" if "direction" in there else "kernel" if "row" in there else MTIA_WORK
    return "gpu" if "device" in there and "stream" in there else "cpu", as_text(category)


def _phase(phase: Any) -> str:
    """The class of events that have no frame because of their phase, which is one letter."""
    if not phase:
        return "no phase"
    return f"phase {phase}" if isinstance(phase, str) and len(phase) == 1 else "no phase that is known"


def problem_of(event: Any, frame: str, start: int) -> str | None:
    """Why an event cannot be a row, as the class that it is counted in."""
    if not isinstance(event, dict):
        return "unreadable"
    if start == NULL_INT:
        return "no timestamp"
    if frame == "counters":
        return None if sampled(event) is not None else "no value"
    if frame == "memory":
        return None
    if event.get("ph", "X") != "X":
        return _phase(event.get("ph"))
    try:
        float(event["dur"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return "no duration"
    return None


def sampled(event: Event) -> str | None:
    """The key of the first series that a counter event samples; None where it has no number."""
    samples = _samples(event)
    return next((key for key, value in samples.items() if coerced(Storage.FLOAT, value) is not None), None)


def _samples(event: Event) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {"": args}


def _sample(event: Event, anomalies: Counter[str]) -> Event:
    """A counter event as a row: its first series, and what else it has."""
    first = sampled(event) or ""
    samples = dict(_samples(event))
    args: Event = {"key": first, "value": coerced(Storage.FLOAT, samples.pop(first))}
    if too_deep(samples):
        anomalies["nested too deep: a counter"] += 1
    elif samples:
        args["others"] = samples
    return {**event, "args": args}


def mended(event: Event, frame: Frame, anomalies: Counter[str]) -> Event:
    """The event with args that fit their columns; those that do not are left out and counted."""
    if frame.name == "counters":
        return _sample(event, anomalies)
    args = event.get("args")
    if not isinstance(args, dict):
        args = {} if args is None else {"args": args}
    columns = frame.by_raw_key
    fitting = {}
    for key, value in args.items():
        column = columns.get(key)
        if column is not None and not column.recurs:
            value = coerced(column.storage, value)
            if value is None and args[key] not in BLANK:
                anomalies[f"unreadable {key}"] += 1
        elif too_deep(value):
            anomalies[f"nested too deep: {key}"] += 1
            value = None
        if value is not None:
            fitting[key] = value
    duration = {} if frame.name == "memory" else {"dur": float(event["dur"])}
    return {**event, **duration, "args": fitting}


def folded(event: Event, frame: Frame) -> Event:
    """The event with args that differ little in their keys from others': what has no column is one arg, and what
    recurs and is not there is null."""
    columns = frame.by_raw_key
    args = {key: None for key, column in columns.items() if column.recurs}
    args |= {key: value for key, value in event["args"].items() if key in columns}
    return {**event, "args": {**args, FOLDED: {k: v for k, v in event["args"].items() if k not in columns}}}


def coerced(storage: Storage, value: Any) -> Any:
    """A value as the column stores it, or None."""
    if value is None:
        return None
    if storage is Storage.TEXT:
        return value if isinstance(value, str) else as_json(value)
    if storage is Storage.JSON:
        return as_json(value)
    try:
        if isinstance(value, str) and value.startswith("0x"):  # handles, as Intel's rows have them
            value = int(value, 16)
        number = float(value) if storage is Storage.FLOAT or isinstance(value, float) else int(value)
        whole = int(number) if storage is Storage.INT else 0
    except (TypeError, ValueError, OverflowError):
        return None
    if storage is Storage.FLOAT:
        return number
    return whole if whole == number and -(2**63) < whole < 2**63 else None


def lane_number(value: Any) -> int:
    """A pid or tid, also as "25738" or "stream 7"; NULL_INT for a name."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, str):
        digits = value.removeprefix("stream ").strip()
        if digits.removeprefix("-").isdecimal() and len(digits) < 19:
            return int(digits)
    return NULL_INT
