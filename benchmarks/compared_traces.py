"""Recordings by name, each read once, with what was measured of them."""

from __future__ import annotations

import json
import statistics
from functools import cache
from pathlib import Path

from traceanalyzer.comparison.compare import side_of
from traceanalyzer.comparison.result import Comparison
from traceanalyzer.comparison.sides import compared


class Traces:
    """The recordings below a folder; each side is read once."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)
        self.side = cache(lambda name: side_of(self.path(name)))

    def path(self, name: str) -> Path:
        """A folder, or a file without its suffix."""
        folder = self.root / name
        return folder if folder.is_dir() else self.root / f"{name}.json.gz"

    def compare(self, base: str, new: str) -> Comparison:
        """What changed from one to the other."""
        return compared(self.side(base), self.side(new))

    def true_ms(self, name: str) -> float:
        """The measured step without the profiler, the median of its repeats."""
        return statistics.median(self.repeats(name))

    def repeats(self, name: str) -> list[float]:
        """The measured steps without the profiler."""
        told = json.loads((self.root / f"{name}.meta.json").read_text())["unprofiled_step_ms"]
        return told if isinstance(told, list) else [float(told)]

    def overlap(self, base: str, new: str) -> str:
        """Whether repeats of the two overlap, so that even their order is not known."""
        first, second = self.repeats(base), self.repeats(new)
        return " (repeats overlap)" if min(first) < max(second) and min(second) < max(first) else ""
