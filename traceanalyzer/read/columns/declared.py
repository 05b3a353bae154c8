"""What the metadata events (ph M) and the profiler's own marks say, kept as what is used of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.read.columns.quirks import as_text, lane_number
from traceanalyzer.read.columns.times import durations_ns

_GPU = regex(r"GPU (\d{1,4})\b")
MAX_DEVICE = 1023  # of what a row calls its device; kineto numbers GPUs from 0, ROCm by agent
_MAX_PID = 63  # that is a device's ordinal rather than a process


@dataclass(slots=True)
class Declared:
    """Attributes:
    threads: "pid/tid" -> name, as declared last.
    processes: pid as text -> name and labels, as declared last.
    window_ns: the span that the profiler says it recorded, as declared first.
    """

    threads: dict[str, str] = field(default_factory=dict)
    processes: dict[str, dict[str, str]] = field(default_factory=dict)
    window_ns: tuple[int, int] | None = None

    def add(self, event: dict[str, Any], start: int) -> None:
        name, args = event.get("name"), event.get("args")
        if event.get("cat") == "Trace":
            self.window_ns = self.window_ns or _window(event, start)
        elif name == "thread_name" and isinstance(args, dict):
            lane = f"{as_text(event.get('pid'))}/{as_text(event.get('tid'))}"
            self.threads[lane] = as_text(args.get("name", "")).strip()
        elif name in ("process_name", "process_labels") and isinstance(args, dict):
            label = as_text(args.get("name") or args.get("labels") or "")
            self.processes.setdefault(as_text(event.get("pid")), {})[name] = label

    def update(self, later: Declared) -> None:
        self.threads |= later.threads
        for pid, labels in later.processes.items():
            self.processes.setdefault(pid, {}).update(labels)
        self.window_ns = self.window_ns or later.window_ns

    def device_of(self, pid: Any) -> int | None:
        """The GPU whose rows have this pid: as its process is called, else the pid itself where that is an ordinal."""
        labels = self.processes.get(as_text(pid), {})
        texts = [labels.get("process_labels", ""), labels.get("process_name", "")]
        for text in [*texts, pid if isinstance(pid, str) else ""]:
            if match := _GPU.match(text):
                return int(match.group(1))
        number = lane_number(pid)
        return number if 0 <= number <= _MAX_PID and texts[0] != "CPU" else None


def _window(event: dict[str, Any], start: int) -> tuple[int, int] | None:
    if not as_text(event.get("name")).startswith("PyTorch Profiler"):
        return None
    try:
        length, impossible = durations_ns(np.array([float(event["dur"])]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return None if impossible or start == NULL_INT else (start, start + int(length[0]))
