"""Slow and obviously right: the books of a trace from its raw JSON, in plain Python loops over integer nanoseconds.

Nothing here uses the package. Tests hold the indexes against it.
"""

import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

BUSY = {
    "kernel": "kernel",
    "Kernel": "kernel",
    "gpu_memcpy": "copy",
    "Memcpy": "copy",
    "gpu_memset": "memset",
    "Memset": "memset",
}
CALLS = {"cuda_runtime", "cuda_driver", "Runtime"}
COMMUNICATION = ("nccldevkernel", "ncclkernel", "multimem_all_reduce")
HIDDEN_BY = ("compute", "communication", "copy_h2d", "copy_d2h", "copy_p2p", "copy_d2d", "copy_other", "memset")


class Work(NamedTuple):
    """A kernel, copy or memset. `launched` is its launch's start, None where the trace has none."""

    start: int
    end: int
    device: int
    stream: int
    kind: str
    launched: int | None


def raw_events(path: Path) -> list[dict[str, Any]]:
    """traceEvents as they are written, decimals exact."""
    content = path.read_bytes()
    text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    whole = json.loads(text, parse_float=Decimal, strict=False)
    return whole if isinstance(whole, list) else whole["traceEvents"]


def ns(microseconds: Decimal | int) -> int:
    """Exact, because the digits are."""
    value = microseconds * 1000
    assert value == int(value)
    return int(value)


def work_of(events: Iterable[dict[str, Any]]) -> list[Work]:
    """All work of the trace, in order of start, then device, stream and launch."""
    events = list(events)
    launched: dict[int, int] = {}
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in CALLS:
            correlation = event.get("args", {}).get("correlation")
            if correlation is not None and correlation not in launched:
                launched[correlation] = ns(event["ts"])
    reading = {
        event["args"].get("External id")
        for event in events
        if event.get("ph") == "X" and event.get("name") == "aten::_local_scalar_dense"
    }
    found = []
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in BUSY:
            args, start = event["args"], ns(event["ts"])
            where = (args.get("device", 0), args.get("stream", 0))
            call = launched.get(args.get("correlation"))
            kind = kind_of(event)
            if kind == "copy_d2d" and event["args"].get("External id") in reading:
                kind = "copy_d2h"  # ROCm calls the copy of an .item() so
            found.append(Work(start, start + ns(event["dur"]), *where, kind, call))
    return sorted(found, key=lambda w: (w.start, w.device, w.stream, -1 if w.launched is None else w.launched))


def kind_of(event: dict[str, Any]) -> str:
    """What one piece of work is."""
    name, sort = event["name"].lower(), BUSY[event["cat"]]
    if sort == "memset":
        return "memset"
    if sort == "kernel":
        return "communication" if any(word in name for word in COMMUNICATION) else "compute"
    for words, kind in (
        (("htod", "hosttodevice", "host -> device"), "copy_h2d"),
        (("dtoh", "devicetohost", "device -> host"), "copy_d2h"),
        (("ptop", "peer"), "copy_p2p"),
        (("dtod", "devicetodevice", "device -> device"), "copy_d2d"),
    ):
        if any(word in name for word in words):
            return kind
    return "copy_other"


def class_of(running: set[str]) -> str:
    """The class of an instant, by what runs."""
    if not running:
        return "idle"
    if "compute" in running:
        if "communication" in running:
            return "compute_over_communication"
        if any(kind.startswith("copy") for kind in running):
            return "compute_over_copy"
    return next(kind for kind in HIDDEN_BY if kind in running)


def stretches(work: Iterable[Work], low: int, high: int) -> list[tuple[int, int, str]]:
    """(start, end, class) of the window, cut wherever some work of one device starts or ends."""
    change: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for member in work:
        start, end = max(member.start, low), min(member.end, high)
        if end > start:
            change[start].append((member.kind, 1))
            change[end].append((member.kind, -1))
    running: dict[str, int] = defaultdict(int)
    found, since = [], low
    for instant in [*sorted(change), high]:
        if instant > since:
            found.append((since, instant, class_of({kind for kind, count in running.items() if count})))
            since = instant
        for kind, count in change.get(instant, ()):
            running[kind] += count
    return found


def busy_ns(work: Iterable[Work]) -> int:
    """Length of the union of all work of one device."""
    total, reached = 0, None
    for start, end in sorted((member.start, member.end) for member in work):
        begin = start if reached is None else max(start, reached)
        total += max(end - begin, 0)
        reached = end if reached is None else max(reached, end)
    return total


def steps_of_work(work: list[Work], begins: list[int]) -> list[int]:
    """Which step launched each piece of work, -1 for before the first; of one device, in order of start.

    Work without a launch goes with the work before it; where nothing is linked, it lies where it starts.
    """
    if all(member.launched is None for member in work):
        return [bisect_right(begins, member.start) - 1 for member in work]
    found, last = [], -1
    for member in work:
        if member.launched is not None:
            last = bisect_right(begins, member.launched) - 1
        found.append(last)
    return found


def step_bounds(work: list[Work], begins: list[int], low: int, high: int) -> list[int]:
    """Where each step begins on one device, and the window's end.

    A step begins at its mark or at the end of all work launched before it, whichever is later.
    """
    owners = steps_of_work(work, begins)
    bounds = []
    for step, begin in enumerate(begins):
        before = [member.end for member, owner in zip(work, owners, strict=True) if owner < step]
        bound = max([begin, low, *before])
        if step == 0 and not any(owner < 0 for owner in owners):
            bound = low
        bounds.append(min(bound, high))
    return [*bounds, high]


def parts_by_step(work: list[Work], begins: list[int], low: int, high: int) -> dict[int, dict[str, int]]:
    """Step (-1 for before the first) -> class -> ns, of one device."""
    bounds = step_bounds(work, begins, low, high)
    parts: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for step, (begin, end) in enumerate(zip([low, *bounds], [*bounds, high], strict=True), start=-1):
        for start, stop, name in stretches(work, begin, end):
            parts[min(step, len(begins) - 1)][name] += stop - start
    return {step: dict(found) for step, found in parts.items()}


def parents(spans: list[tuple[int, int]]) -> list[int]:
    """Position of the innermost span that contains each, -1 for none; given in order of start, longest first.

    Of spans that are equal the earlier one is outside.
    """
    found = []
    for i, (_, end) in enumerate(spans):
        above = [j for j in range(i) if spans[j][1] >= end]
        found.append(above[-1] if above else -1)
    return found
