"""A second reader, obviously right and slow: the whole file at once, exact decimals, one event after another.

It shares the schema with the real reader (which columns there are and what they are called) and nothing else.
"""

import json
from collections import Counter
from decimal import Decimal
from typing import Any

from traceanalyzer.model.schema import CATEGORIES, FRAMES, IGNORED, Frame, Storage
from traceanalyzer.read.columns.demangle import demangled

Row = dict[str, Any]

FLOWS = ("ac2g", "fwdbwd", "async", "async_cpu_to_gpu", "async_gpu")
LONGEST_US = 7_889_238 * 10**6
KNOWN = {
    name: {key for column in frame.columns for key in column.raw} | IGNORED.keys() for name, frame in FRAMES.items()
}
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=float)


def read(text: bytes) -> tuple[dict[str, list[Row]], Counter[str]]:
    """Rows of every frame, and how many events of each class have no frame."""
    whole = json.loads(text, parse_float=Decimal)
    events = whole if isinstance(whole, list) else whole["traceEvents"]
    frames: dict[str, list[Row]] = {name: [] for name in FRAMES}
    counted: Counter[str] = Counter()
    for event_id, event in enumerate(events):
        kind, category = _where(event)
        if kind == "counted":
            counted[category] += 1
        else:
            frames[kind].append(_row(FRAMES[kind], event_id, category, event))
    return frames, counted


def _where(event: Any) -> tuple[str, str]:
    category, phase = event.get("cat"), event.get("ph")
    if category in CATEGORIES:
        return CATEGORIES[category]
    if category in FLOWS or phase in ("s", "f", "t"):
        return "counted", f"flow:{category}"
    if event.get("name") in ("[memory]", "[OutOfMemory]"):
        return "memory", "cpu_instant_event"
    if phase == "M":
        return "counted", "metadata"
    if category == "Trace" or (category is None and phase == "i"):
        return "counted", "window mark"
    if phase != "X":
        return "counted", f"phase {phase}"
    args = event.get("args", {})
    return ("gpu" if "device" in args and "stream" in args else "cpu"), str(category)


def _row(frame: Frame, event_id: int, category: str, event: Row) -> Row:
    args = event.get("args", {})
    row: Row = {column.name: None for column in frame.columns}
    row |= {"event_id": event_id, "category": category, "name": event["name"]}
    row |= {"start_ns": _ns(event["ts"]), "dur_ns": 0 if frame.name == "memory" else _duration(event["dur"])}
    if frame.name == "gpu":
        row["name"] = demangled(event["name"])
        row["mangled_name"] = event["name"] if row["name"] != event["name"] else None
    if frame.name != "gpu":
        row |= {"pid": _lane(event["pid"]), "tid": _lane(event["tid"])}
    else:  # what the args do not say, the lane does
        row |= {"device": _lane(event["pid"]), "stream": _lane(event["tid"])}
    for column in frame.columns:
        for key in column.raw:
            if args.get(key) is not None:
                row[column.name] = _value(column.storage, args[key])
    other = {key: args[key] for key in sorted(args) if key not in KNOWN[frame.name]}
    if other:
        row["other_args"] = _text(other)
    return row


def _ns(us: Any) -> int:
    return round(Decimal(us) * 1000)


def _duration(us: Any) -> int:
    return _ns(us) if 0 <= Decimal(us) <= LONGEST_US else 0


def _lane(value: Any) -> int:
    return int(str(value).removeprefix("stream "))


def _value(storage: Storage, value: Any) -> Any:
    if storage is Storage.JSON:
        return _text(value)
    if storage is Storage.TEXT:
        return value if isinstance(value, str) else _text(value)
    if storage is Storage.FLOAT:
        return float(value)
    return None if value == "" else int(value)


def _text(value: Any) -> str:
    return _ENCODER.encode(value)
