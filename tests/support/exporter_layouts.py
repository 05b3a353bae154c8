"""How exporters lay a trace out as JSON."""

import json
from typing import Any, Literal

Layout = Literal["kineto", "minified", "array"]


def laid_out(header: dict[str, Any], events: list[dict[str, Any]], layout: Layout) -> bytes:
    """The file: as Kineto lays it out, without blanks, or as a bare array of events."""
    if layout == "array":
        return json.dumps(events, separators=(",", ":")).encode()
    if layout == "minified":
        return json.dumps({**header, "traceEvents": events}, separators=(",", ":")).encode()
    fields = "".join(f"  {json.dumps(key)}: {json.dumps(value)},\n" for key, value in header.items())
    listed = ",\n".join(_kineto_event(event) for event in events)
    return f'\n{{\n{fields}  "traceEvents": [\n{listed}\n  ],\n  "traceName": "built.json"\n}}'.encode()


def _kineto_event(event: dict[str, Any]) -> str:
    """`{`, the fields on lines of their own, args nested, as Kineto's output_json.cpp prints."""
    fields = {key: value for key, value in event.items() if key not in ("ts", "dur", "args")}
    times = {key: event[key] for key in ("ts", "dur") if key in event}
    lines = [json.dumps(part)[1:-1] for part in (fields, times) if part]
    if "args" in event:
        lines.append('"args": {\n      ' + json.dumps(event["args"])[1:-1] + "\n    }")
    return "  {\n    " + ",\n    ".join(lines) + "\n  }"
