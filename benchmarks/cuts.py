"""What a later start of the recording changes: `python -m benchmarks.cuts TRACES [--cuts 20] [--every 1] [--seed 0]`.

Each trace of known steps is cut at random starts as a profiler would have begun there: rows of the CPU that begin
before the cut are not there, nor is the work that they launched, nor what the device began before it. Three whole
steps at least stay. Printed is how many cuts keep the first finding above info, and the step without the profiler
within 10 %.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from traceanalyzer import Severity, diagnose

LEAST_STEPS = 3  # whole ones that a cut leaves: fewer cannot tell what recurs from what happens once
NEAR = 0.10  # of the step
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync")
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """What a diagnosis says first, and of the step.

    Attributes:
        rule: of the first finding above info, None where there is none.
        share: what that finding saves, else costs (0 to 1).
        step_ns: without the profiler, None where it cannot be replayed.
    """

    rule: str | None
    share: float
    step_ns: int | None

    @classmethod
    def of(cls, path: Path) -> Said:
        """The diagnosis of a file."""
        report = diagnose(path)
        first = next((finding for finding in report.findings if finding.severity is not Severity.INFO), None)
        step = report.traces[0].step
        share = 0.0 if first is None else first.cost_share if first.saving is None else first.saving.share
        return cls(first.rule if first else None, share, step.unprofiled_ns if step else None)

    def near(self, other: Said) -> bool:
        """Whether the steps are alike."""
        if self.step_ns is None or other.step_ns is None:
            return self.step_ns is other.step_ns
        return abs(self.step_ns - other.step_ns) <= NEAR * other.step_ns


def events_of(path: Path) -> tuple[dict[str, Any], list[Event]]:
    """The file without its events, and these."""
    content = path.read_bytes()
    whole = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content, strict=False)
    if isinstance(whole, list):
        return {}, whole
    return {key: value for key, value in whole.items() if key != "traceEvents"}, whole["traceEvents"]


def starts_of_steps(events: list[Event]) -> list[float]:
    """Starts of the ProfilerStep marks on the CPU, sorted."""
    return sorted(
        float(event["ts"])
        for event in events
        if event.get("ph") == "X"
        and str(event.get("name", "")).startswith("ProfilerStep#")
        and event.get("cat") not in DEVICE
    )


def begun_at(events: list[Event], cut: float) -> list[Event]:
    """The events of a recording that began at the cut."""
    gone = {
        event["args"]["correlation"]
        for event in events
        if event.get("ph") == "X"
        and event.get("cat") not in DEVICE
        and float(event["ts"]) < cut
        and "correlation" in event.get("args", {})
    }

    def stays(event: Event) -> bool:
        if event.get("ph") == "M" or "ts" not in event:
            return True
        if float(event["ts"]) < cut:
            return False
        return event.get("cat") not in DEVICE or event.get("args", {}).get("correlation") not in gone

    return [event for event in events if stays(event)]


def cuts_of(path: Path, count: int, seed: int) -> Iterator[tuple[float, Path]]:
    """(how much of the recording is cut off (0 to 1), the file that is left), which lives until the next one."""
    head, events = events_of(path)
    starts = starts_of_steps(events)
    if len(starts) <= LEAST_STEPS:
        return
    drawn = random.Random(f"{seed} {path.name}")
    low, high = starts[0], starts[-LEAST_STEPS]
    with TemporaryDirectory() as folder:
        for number in range(count):
            cut = drawn.uniform(low, high)
            file = Path(folder) / f"{number}.json"
            file.write_text(json.dumps({**head, "traceEvents": begun_at(events, cut)}), encoding="utf-8")
            yield (cut - low) / max(high - low, 1), file
            file.unlink()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path, help="a folder of traces, or one trace")
    parser.add_argument("--cuts", type=int, default=20, help="of each trace")
    parser.add_argument("--every", type=int, default=1, help="only each so manieth trace")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    files = sorted(options.traces.glob("**/*.json.gz")) if options.traces.is_dir() else [options.traces]
    files = [file for file in files if not file.name.endswith(".table.json.gz")][:: options.every]
    cut = first = near = both = 0
    for file in files:
        whole: Said | None = None
        for share, left in cuts_of(file, options.cuts, options.seed):
            whole = whole or Said.of(file)
            said = Said.of(left)
            same = said.rule == whole.rule
            cut, first, near = cut + 1, first + same, near + said.near(whole)
            both += same and said.near(whole)
            if not (same and said.near(whole)):
                print(
                    f"  {file.parent.name}/{file.name}: cut at {share:.0%}: {_told(whole)} -> {_told(said)}", flush=True
                )
    if not cut:
        sys.exit("no trace with more than three steps")
    print(f"{cut} cuts of {len(files)} traces: {first / cut:.1%} keep the first finding above info, ", end="")
    print(f"{near / cut:.1%} the step within {NEAR:.0%}, {both / cut:.1%} both")


def _told(said: Said) -> str:
    step = "no step" if said.step_ns is None else f"{said.step_ns / 1e6:.2f} ms"
    return f"{said.rule or 'nothing'} ({said.share:.0%}), {step}"


if __name__ == "__main__":
    main()
