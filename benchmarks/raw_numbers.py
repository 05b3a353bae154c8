"""Numbers straight from the events of a trace, in a few lines each: what decides where two tools differ."""

from __future__ import annotations

import gzip
import json
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Span = tuple[int, int]

_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_CALLS = ("cuda_runtime", "cuda_driver")
_BYTES = {"c10::BFloat16": 2, "c10::Half": 2, "float": 4, "Float": 4}
_COMMUNICATION = re.compile("nccl|all_?reduce|all_?gather|reduce_?scatter", re.I)


def events_of(path: Path) -> list[Event]:
    """Events with a duration."""
    content = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    events = content["traceEvents"] if isinstance(content, dict) else content
    return [event for event in events if event.get("ph") == "X"]


def _ns(event: Event) -> Span:
    begin = round(event["ts"] * 1000)
    return begin, begin + round(event["dur"] * 1000)


def union(spans: Sequence[Span]) -> list[Span]:
    """The spans without overlaps, in order."""
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def length(spans: Sequence[Span]) -> int:
    """Time that at least one span takes, in ns."""
    return sum(end - begin for begin, end in union(spans))


def device_times(events: Sequence[Event], window: Span | None = None) -> dict[str, int]:
    """Busy, computing, communicating and exposed communicating time of all GPU rows within the window, in ns."""
    spans: dict[bool, list[Span]] = {False: [], True: []}
    copies = []
    for event in events:
        if event.get("cat") in _WORK:
            begin, end = _ns(event)
            if window is not None:
                begin, end = max(begin, window[0]), min(end, window[1])
            if begin < end and event["cat"] == "kernel":
                spans[bool(_COMMUNICATION.search(event["name"]))].append((begin, end))
            elif begin < end:
                copies.append((begin, end))
    computing, communicating = spans[False], spans[True]
    return {
        "busy": length([*computing, *communicating, *copies]),
        "computing": length(computing),
        "communicating": length(communicating),
        "exposed": length([*computing, *communicating]) - length(computing),
    }


def calls_of(events: Sequence[Event], names: Sequence[str]) -> Iterator[tuple[Event, int]]:
    """Each call of these ops that launched work, and the time of its work in ns."""
    launches: dict[Any, list[tuple[int, Any]]] = {}
    times: dict[Any, int] = {}
    for event in events:
        args = event.get("args", {})
        key = args.get("correlation", args.get("External id"))
        if event.get("cat") in _CALLS:
            launches.setdefault(event["tid"], []).append((_ns(event)[0], key))
        elif event.get("cat") in _WORK:
            begin, end = _ns(event)
            times[key] = times.get(key, 0) + end - begin
    for rows in launches.values():
        rows.sort(key=lambda row: row[0])
    for event in events:
        if event.get("cat") == "cpu_op" and event["name"] in names:
            begin, end = _ns(event)
            rows = launches.get(event["tid"], [])
            chosen = rows[bisect_left(rows, begin, key=lambda r: r[0]) : bisect_right(rows, end, key=lambda r: r[0])]
            if total := sum(times.get(key, 0) for _, key in chosen):
                yield event, total


def product(event: Event) -> tuple[int, int, int, int]:
    """Batch, M, N and K of a GEMM, by the shapes of its inputs."""
    dims = [dim for dim in event["args"]["Input Dims"] if dim]
    left, right = dims[1:3] if event["name"] == "aten::addmm" else dims[:2]
    return math.prod(left[:-2]), left[-2], right[-1], left[-1]


def operations(event: Event) -> int:
    """FLOPs of a GEMM, a convolution, a fused MoE, or an attention that is not causal; 0 of others."""
    name, args = event["name"], event["args"]
    dims = args["Input Dims"]
    if name in ("aten::mm", "aten::bmm", "aten::addmm"):
        return 2 * math.prod(product(event))
    if name == "aten::_flash_attention_forward":
        batch, rows, heads, width = dims[0]
        return 4 * batch * heads * rows * dims[1][1] * width
    if name == "aten::convolution" and args["Concrete Inputs"][6] == "False":
        strides, pads, steps = (json.loads(f"[{text[1:-1]}]") for text in args["Concrete Inputs"][3:6])
        sides = zip(dims[0][2:], dims[1][2:], strides, pads, steps, strict=True)
        places = math.prod((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sides)
        return 2 * dims[0][0] * places * math.prod(dims[1])
    if name.endswith("fused_moe"):  # tokens, both weights of the experts, and the choices of each token
        tokens, first, second, choices = dims[:4]
        return 2 * tokens[0] * choices[1] * (math.prod(first[1:]) + math.prod(second[1:]))
    return 0


def moved_bytes(event: Event) -> int:
    """Bytes of the inputs and a result: a GEMM's, an attention's, or one of the first input's shape; 0 if unknown."""
    name, args = event["name"], event["args"]
    dims = [dim for dim in args["Input Dims"] if dim]
    size = _BYTES.get(args["Input type"][0], 0)
    if name in ("aten::mm", "aten::bmm"):
        batch, m, n, _ = product(event)
        return size * (sum(map(math.prod, dims[:2])) + batch * m * n)
    inputs = dims[:3] if "attention" in name else dims[:2]
    return size * (sum(map(math.prod, inputs)) + math.prod(dims[0]))
