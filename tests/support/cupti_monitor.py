"""A trace as the profiler's `cupti_monitor` backend (torch 2.14) would have written it.

Told by its source (torch/profiler/_cupti/monitor_trace.py): GPU rows and calls carry no External id, kernels no
occupancy and nothing per SM; every copy is called "Memcpy" and says in its args from where to where; what a CUDA graph
launched may stand on a lane of its own and keeps its stream as `original_stream`; nodes of a graph are joined by flows
whose ids count from 2**40; counters are `C` events with one unnamed series.
"""

import gzip
import re
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson

Event = dict[str, Any]

GRAPH_LANE = 1 << 20
FIRST_NODE_FLOW = 1 << 40
_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_NOT_WRITTEN = {"External id", "blocks per SM", "warps per SM", "est. achieved occupancy %", "memory bandwidth (GB/s)"}
_COPY = re.compile(r"Memcpy (\w+) \((\w+) -> (\w+)\)")


def converted(path: Path, *, graph_lanes: bool = True, clock_mhz: int | None = None) -> bytes:
    """The JSON of a trace in that layout.

    Args:
        path: a trace of torch.profiler's own backend, .json or .json.gz.
        graph_lanes: show what graphs launched on a lane of its own.
        clock_mhz: add samples of "SM Clock (MHz)", ten of this value over the recording.
    """
    data = path.read_bytes()
    whole = orjson.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return orjson.dumps(as_cupti_monitor(whole, graph_lanes=graph_lanes, clock_mhz=clock_mhz))


def as_cupti_monitor(whole: Event, *, graph_lanes: bool = True, clock_mhz: int | None = None) -> Event:
    """The same of a parsed trace, which stays as it is."""
    events = [_event(deepcopy(event)) for event in whole["traceEvents"]]
    if graph_lanes:
        events += _moved_to_lanes(events)
    if clock_mhz is not None:
        events += _samples(events, clock_mhz)
    return {**whole, "traceEvents": events}


def _event(event: Event) -> Event:
    category, args = event.get("cat"), event.get("args", {})
    if category in ("cuda_runtime", "cuda_driver"):
        event["args"] = {key: args[key] for key in ("cbid", "correlation") if key in args}
    if category in _GPU:
        kept = {key: value for key, value in args.items() if key not in _NOT_WRITTEN}
        event["args"] = {**kept, "channel": 10, "channel_type": 1}
    if category == "kernel":
        event["args"]["priority"] = 0
    if category == "gpu_memcpy" and (match := _COPY.match(event["name"])):
        kind, source, target = match.groups()
        event["args"] |= {"copy kind": kind, "src kind": source.lower(), "dst kind": target.lower(), "flags": 0}
        event["name"] = "Memcpy"
    if category == "gpu_memset":
        event["args"] |= {"value": 0, "memory kind": 3, "flags": 0}
        event["name"] = "Memset"
    return event


def _moved_to_lanes(events: list[Event]) -> list[Event]:
    """Put what graphs launched on their lane; returns the nodes and flows that are written for it."""
    work = [event for event in events if event.get("cat") in _GPU]
    launched = Counter(event["args"].get("correlation") for event in work)
    nodes = [event for event in work if launched[event["args"].get("correlation")] > 1]
    added: list[Event] = []
    for number, event in enumerate(nodes):
        args = event["args"]
        args |= {
            "graph id": 5,
            "graph node id": number % launched[args["correlation"]],
            "original_stream": args["stream"],
        }
        args["stream"] = event["tid"] = GRAPH_LANE
        lane = {"pid": event["pid"], "tid": GRAPH_LANE, "id": FIRST_NODE_FLOW + number, "cat": "ac2g", "name": "ac2g"}
        added.append({"ph": "s", "ts": event["ts"] + event["dur"], **lane})
        added.append({"ph": "f", "ts": event["ts"], "bp": "e", **lane})
        if args["graph node id"] == 0:
            keys = ("device", "context", "stream", "correlation", "graph id")
            record = {"cat": "graph_event_node", "name": "EventRecord", "dur": 0.0}
            added.append({**event, **record, "args": {key: args[key] for key in keys if key in args}})
    return added


def _samples(events: list[Event], clock_mhz: int) -> list[Event]:
    times = [event["ts"] for event in events if event.get("cat") in _GPU]
    first, last = min(times), max(times)
    sample = {"ph": "C", "name": "SM Clock (MHz)", "pid": "GPU 0 Counters"}
    return [{**sample, "ts": first + (last - first) * i / 9, "args": {"": clock_mhz}} for i in range(10)]
