"""Makes a large trace by repeating a real one with later times and fresh ids.

    python -m benchmarks.make_large SOURCE.json.gz OUT.json --megabytes 300 [--layout minified] [--seed 0]

The text of every event stays as the exporter wrote it, but for its times, correlation, External id, Ev Idx,
Python ids, flow id and the number of its ProfilerStep. Copies follow one another after a seeded pause.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from traceanalyzer.read.text.source import Source

_ID = r'"(?:correlation|External id|external id|Ev Idx|Python id|Python parent id|id)"\s*:\s*|ProfilerStep#'
_FIELD = re.compile(rf'(?P<id>{_ID})(?P<number>\d+)|(?P<time>"ts"\s*:\s*)(?P<us>\d+(?:\.\d+)?)')
_PAUSE_NS = 100_000


class Template:
    """The text of all events with holes for what differs between copies.

    Attributes:
        text: printf format of the events, with the separators between them.
        values: what the source has in the holes; times as (whole µs, ns) pairs.
        step: what one copy adds to each hole, per copy.
    """

    def __init__(self, events: str) -> None:
        self.text = ""
        self._kinds: list[str] = []
        self._values: list[int] = []
        parts, end = [], 0
        for match in _FIELD.finditer(events):
            parts.append(events[end : match.start()].replace("%", "%%"))
            parts.append(self._hole(match))
            end = match.end()
        self.text = "".join(parts) + events[end:].replace("%", "%%")
        self.values = np.array(self._values, np.int64)
        self.is_time = np.array([kind == "time" for kind in self._kinds])
        self.is_step = np.array([kind == "step" for kind in self._kinds])

    def _hole(self, match: re.Match[str]) -> str:
        if match["time"] is not None:
            self._kinds.append("time")
            self._values.append(int(Decimal(match["us"]) * 1000))
            return match["time"] + "%s"
        self._kinds.append("step" if match["id"].startswith("Prof") else "id")
        self._values.append(int(match["number"]))
        return match["id"] + "%s"

    def copy(self, number: int, shift_ns: int) -> str:
        """The events of one copy."""
        ids = ~self.is_time & ~self.is_step
        values = self.values.copy()
        values[ids] += number * (int(values[ids].max(initial=0)) + 1)
        values[self.is_step] += number * (int(values[self.is_step].max(initial=0)) + 1)
        values[self.is_time] += shift_ns
        texts = [
            f"{value // 1000}.{value % 1000:03d}" if time else str(value)
            for value, time in zip(values.tolist(), self.is_time.tolist(), strict=True)
        ]
        return self.text % tuple(texts)

    @property
    def span_ns(self) -> int:
        """From the first to the last timestamp."""
        times = self.values[self.is_time]
        return int(np.ptp(times[times > 0]))


def split(source: Path) -> tuple[str, str, str]:
    """A trace's text: up to the first event, the events, and from the closing bracket on."""
    text = b"".join(Source(source).blocks()).decode()
    opening = re.search(r'"traceEvents"\s*:\s*\[', text)
    start = opening.end() if opening else text.index("[") + 1
    end = text.rindex("}", 0, text.rindex("]")) + 1
    return text[:start], text[start:end], text[end:]


def minified(source: Path) -> tuple[str, str, str]:
    """The same three parts without blanks."""
    whole = json.loads("".join(split(source)))
    if isinstance(whole, list):
        return "[", _compact(whole)[1:-1], "]"
    events = whole.pop("traceEvents")
    return _compact(whole)[:-1] + ',"traceEvents":[', _compact(events)[1:-1], "]}"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def pieces(parts: tuple[str, str, str], size_bytes: int, seed: int) -> Iterator[str]:
    """The large file, piece by piece, of at least `size_bytes`."""
    before, events, after = parts
    template = Template(events)
    chance = random.Random(seed)
    yield before
    written, number, shift_ns = len(before), 0, 0
    while written < size_bytes:
        piece = ("," if number else "") + template.copy(number, shift_ns)
        yield piece
        written += len(piece)
        number += 1
        shift_ns += template.span_ns + chance.randrange(_PAUSE_NS)
    yield after


def make(source: Path, out: Path, megabytes: int, *, layout: str = "kineto", seed: int = 0) -> Path:
    """Write the large trace, unless it is there already; returns its path."""
    if not out.exists():
        parts = minified(source) if layout == "minified" else split(source)
        beside = out.with_suffix(".part")
        with beside.open("w", encoding="utf-8") as file:
            file.writelines(pieces(parts, megabytes * 1_000_000, seed))
        beside.replace(out)
    return out


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--layout", choices=["kineto", "minified"], default="kineto")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    out = make(options.source, options.out, options.megabytes, layout=options.layout, seed=options.seed)
    print(f"{out}: {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
