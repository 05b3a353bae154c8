"""Traces of several ranks merged into one file, marked as SGLang, Triton-distributed and TraceFusion do."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson

from tests.support.trace_builder import TraceBuilder

Event = dict[str, Any]


def rank_trace(rank: int) -> tuple[Event, list[Event]]:
    """A rank whose ids of launches are those of the other ranks, too, but whose times differ."""
    made = TraceBuilder(distributedInfo={"rank": rank, "world_size": 2})
    pid = 100 + rank
    for step in range(3):
        at = 100_000 * step
        made.step(step, at, 90_000, pid=pid, tid=pid)
        made.op("aten::mm", at + 1_000, 10_000, pid=pid, tid=pid)
        made.launch("cudaLaunchKernel", at + 2_000, 3_000, step + 1, pid=pid, tid=pid)
        made.kernel(at + 20_000 + 1_000 * rank, 10_000, step + 1)
    made.overhead("Activity Buffer Request", 50_000, 1_000)  # of pid -1
    names = [(pid, "process_name", "name", "python"), (0, "process_labels", "labels", "GPU 0")]
    declared = [
        {"ph": "M", "name": name, "ts": 0, "pid": of, "tid": 0, "args": {key: value}} for of, name, key, value in names
    ]
    gpu = {"ph": "M", "name": "process_name", "ts": 0, "pid": 0, "tid": 0, "args": {"name": "python"}}
    return made.header, [*made.events, *declared, gpu]


def labelled(ranks: list[tuple[Event, list[Event]]]) -> Any:
    """As SGLang: a label before each pid."""
    events = []
    for rank, (_, own) in enumerate(ranks):
        events += [{**event, "pid": f"[TP{rank:02d}-EP{rank:02d}] {event['pid']}"} for event in own]
    return {**ranks[0][0], "traceEvents": events}


def shifted(ranks: list[tuple[Event, list[Event]]]) -> Any:
    """As Triton-distributed: ids moved by 100,000,000 per rank, texts and names with an ending."""
    events = []
    for rank, (_, own) in enumerate(ranks):
        delta = rank * 100_000_000
        for event in deepcopy(own):
            for key in ("pid", "tid"):
                value = event[key]
                event[key] = f"{value}_{delta}" if isinstance(value, str) else value + delta
            if event["name"] in ("process_name", "thread_name"):
                event["args"]["name"] += f"_rank{rank}"
            elif event["name"] == "process_labels":
                event["args"]["labels"] += f"_{rank}"
            events.append(event)
    return {**ranks[-1][0], "traceEvents": events}


def fused(ranks: list[tuple[Event, list[Event]]]) -> Any:
    """As TraceFusion: ids moved, and kept in args beside the rank; no header."""
    events = []
    for rank, (_, own) in enumerate(ranks):
        for event in deepcopy(own):
            if event.get("cat") == "Trace":
                continue
            args = event.setdefault("args", {})
            args["rank"] = rank
            for key, holder in (("id", event), ("pid", event), ("correlation", args)):
                if key in holder:
                    args[f"{key}_raw"] = holder[key]
                    if isinstance(holder[key], int):
                        holder[key] += rank * 10_000_000
            events.append(event)
    return {"traceEvents": events}


def written(path: Path, merged: Any) -> Path:
    path.write_bytes(orjson.dumps(merged))
    return path
