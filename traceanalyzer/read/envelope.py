"""What stands around the events: where they begin, the file's metadata before and behind them, and other JSON."""

from __future__ import annotations

import re
from typing import Any

import orjson

from traceanalyzer.model.errors import NotATrace, TraceAnalyzerError, UnreadableTrace
from traceanalyzer.model.trace import Damage

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BASE_TIME = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d+)')
_BOM = b"\xef\xbb\xbf"
_EXPECTED = "Expected the file that prof.export_chrome_trace(...) or tensorboard_trace_handler(...) writes."
_OTHERS = {
    "rocprofiler-sdk-tool": "This is rocprofv3's own JSON; record with torch.profiler instead.",
    "nodes": "This looks like an execution trace (ET), which has no timeline; pass the profiler's trace.",
    "viztracer_metadata": "This is VizTracer's file; record with torch.profiler instead.",
}


class Envelope:
    """Attributes:
    header: top-level keys other than traceEvents, before and behind it.
    kind: "object" or "array".
    damage: metadata that could not be read.
    """

    def __init__(self, name: str) -> None:
        self.header: dict[str, Any] = {}
        self.kind = "object"
        self.damage: list[Damage] = []
        self._name = name

    def find_events(self, buffer: bytes) -> int | None:
        """Places the first event may start: behind the bracket of a bare array or of traceEvents."""
        text = buffer.removeprefix(_BOM).lstrip()
        if text.startswith(b"["):
            self.kind = "array"
            return len(buffer) - len(text) + 1
        match = _EVENTS_KEY.search(buffer) if text.startswith(b"{") else None
        if match is None:
            return None
        head = buffer[: match.start()].removeprefix(_BOM).rstrip().removesuffix(b",")
        self._read(head + b"}", "before", 0)
        return match.end()

    def close(self, rest: bytes, offset: int) -> None:
        """Read the metadata behind the events; `rest` is all that follows their closing bracket."""
        rest = rest.strip()
        if self.kind == "array":
            if rest:
                self._unread("stray text behind the events", rest, offset)
            return
        if not rest.endswith(b"}"):
            self._unread("the file ends within the metadata behind the events", rest, offset)
            rest += b"}"
        self._read(b"{" + rest.removeprefix(b","), "behind", offset)

    def _read(self, text: bytes, where: str, offset: int) -> None:
        try:
            self.header |= orjson.loads(text)
        except orjson.JSONDecodeError:
            base = _BASE_TIME.search(text)
            if base:
                self.header["baseTimeNanoseconds"] = int(base.group(1))
            if not self.damage:
                problem = f"the metadata {where} the events are not valid JSON and were skipped"
                self._unread(problem, text, offset)

    def _unread(self, problem: str, text: bytes, offset: int) -> None:
        message = f"{problem} ({len(text):,} bytes near byte {offset:,})"
        self.damage.append(Damage("metadata", message, byte_offset=offset))

    def refusal(self, buffer: bytes, damage: list[Damage]) -> TraceAnalyzerError:
        """Why a file in which no events begin is refused."""
        text = buffer.removeprefix(_BOM).strip()
        if damage:
            return UnreadableTrace(damage[0].message, where=self._name, remedy="Copy or record it again.")
        if not text:
            remedy = "Record the trace again."
            return UnreadableTrace("holds nothing but blanks", where=self._name, remedy=remedy)
        try:
            content = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            before = error.doc[: error.pos] if isinstance(error.doc, str) else ""
            offset = len(before.encode("utf-8", "replace"))
            problem = f"is not JSON: {str(error).split(':')[0]} at byte {offset:,}"
            return UnreadableTrace(problem, where=self._name, remedy=_EXPECTED)
        keys = list(content) if isinstance(content, dict) else []
        shown = f"; its top-level keys are {', '.join(keys[:8])}" if keys else ""
        hint = next((hint for key, hint in _OTHERS.items() if key in keys), _EXPECTED)
        return NotATrace(f"is JSON, but holds no traceEvents{shown}", where=self._name, remedy=hint)
