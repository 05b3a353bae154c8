"""The first steps of recordings: `python -m benchmarks.shorten TRACE... --out FOLDER [--steps 2] [--most-kb 400]`.

What a recording of fewer steps would hold: rows of the CPU that begin before the end of the last step kept, and the
work of devices that they launched. Paths and names of machines go. A recording whose marks are missing, or that is
still larger, is left out and said so.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path

from benchmarks.cuts import DEVICE, Event, events_of, starts_of_steps
from capture.scrub import Scrubber

_MARK = "gpu_user_annotation"  # has no launch: it stays while work does


def shortened(events: list[Event], steps: int) -> list[Event] | None:
    """The events of as many steps as are asked for; None of a recording that has no more."""
    starts = starts_of_steps(events)
    if len(starts) <= steps:
        return None
    end = starts[steps]
    timed = [event for event in events if "ts" in event]
    gone = {
        event["args"]["correlation"]
        for event in timed
        if event.get("ph") == "X"
        and event.get("cat") not in DEVICE
        and float(event["ts"]) >= end
        and "correlation" in event.get("args", {})
    }
    stay = [event for event in events if "ts" not in event or _stays(event, end, gone)]
    work = [float(event["ts"]) for event in stay if event.get("cat") in DEVICE and event["cat"] != _MARK]
    stay = [event for event in stay if event.get("cat") != _MARK or float(event["ts"]) <= max(work, default=0.0)]
    kept = {event["id"] for event in stay if event.get("ph") == "s"}
    return [event for event in stay if event.get("ph") != "f" or event["id"] in kept]


def _stays(event: Event, end: float, gone: set[int]) -> bool:
    if event.get("cat") in DEVICE:
        return event.get("args", {}).get("correlation") not in gone
    return float(event["ts"]) < end or event.get("ph") == "f" or event.get("name") == "Record Window End"


def main() -> int:
    """The command line; exit code 1 where a recording was left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--most-kb", type=int, default=400, help="of the file that is written")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    left_out = 0
    for path in options.traces:
        head, events = events_of(path)
        kept = shortened(events, options.steps)
        if kept is None:
            print(f"{path.name}: no more than {options.steps} marked steps", file=sys.stderr)
            left_out += 1
            continue
        whole = json.dumps({**head, "traceEvents": kept}, separators=(",", ":"), ensure_ascii=False)
        text = Scrubber(trace_name=path.name).trace(whole)
        content = gzip.compress(text.encode(), 9, mtime=0)
        if len(content) > 1000 * options.most_kb:
            print(f"{path.name}: {len(content) / 1e3:,.0f} kB", file=sys.stderr)
            left_out += 1
            continue
        (options.out / path.name).write_bytes(content)
        print(f"{path.name}: {len(kept):,} of {len(events):,} events, {len(content) / 1e3:,.0f} kB")
    return int(left_out > 0)


if __name__ == "__main__":
    sys.exit(main())
