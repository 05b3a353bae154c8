"""What the file says of itself: devices, rank, versions, capabilities, dialect, and the account of what was read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.read.chunks import Chunks
from traceanalyzer.read.events import Collector, durations_ns
from traceanalyzer.trace import Damage, Device, Meta
from traceanalyzer.units import us_to_ns

_FLAGS = {
    "record_shapes": "shapes",
    "with_stack": "stacks",
    "with_flops": "flops",
    "with_modules": "modules",
    "profile_memory": "memory",
}
_VERSION_KEYS = re.compile(r"version$")
_READ_ELSEWHERE = {"deviceProperties", "distributedInfo", "baseTimeNanoseconds", "traceEvents", *_FLAGS}


def build_meta(chunks: Chunks, collector: Collector, cpu: pd.DataFrame, gpu: pd.DataFrame) -> Meta:
    """Metadata of a trace that has been read to its end."""
    header = chunks.header
    distributed = header.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    counted = Counter(collector.counted)
    return Meta(
        source=chunks.source.name,
        events=chunks.events,
        rows=_rows(collector),
        counted=dict(sorted(counted.items())),
        dialect=dialect_of(chunks, collector),
        envelope=chunks.envelope,
        base_time_ns=_integer(header.get("baseTimeNanoseconds")) or 0,
        origin_ns=int(min((int(f["start_ns"].min()) for f in (cpu, gpu) if len(f)), default=0)),
        window_ns=_recorded_window(collector),
        devices=_devices(header.get("deviceProperties"), gpu),
        rank=_integer(distributed.get("rank")),
        world_size=_integer(distributed.get("world_size")),
        versions={k: str(v) for k, v in sorted(header.items()) if _VERSION_KEYS.search(k)},
        capabilities=_capabilities(header, collector),
        anomalies=dict(sorted(collector.anomalies.items())),
        unknown_categories=dict(sorted(collector.unknown_categories.items())),
        other_args=dict(sorted(collector.other_args.items())),
        damage=tuple(chunks.source.damage + chunks.damage),
        thread_names=_thread_names(collector),
        extra={k: v for k, v in sorted(header.items()) if k not in _READ_ELSEWHERE},
    )


def dialect_of(chunks: Chunks, collector: Collector) -> str:
    """Which exporter wrote the file, told by features, since no torch version is in it."""
    header = chunks.header
    names = collector.strings["cpu", "name"]
    if any(name and name.startswith("hip") for name in names) or "roctracer_version" in header:
        return "torch on ROCm"
    return next((name for name, told in _dialect_marks(header, collector) if told), "torch 2.8 to 2.11")


def _dialect_marks(header: Mapping[str, Any], collector: Collector) -> list[tuple[str, bool]]:
    counted, args = collector.counted, collector.other_args
    gpu_names = collector.strings["gpu", "name"]
    base_known = "baseTimeNanoseconds" in header
    keys = list(header)
    after = base_known and "traceName" in keys and keys.index("baseTimeNanoseconds") > keys.index("traceName")
    return [
        ("torch 1.9 to 1.11", "flow:async" in counted),
        ("torch 1.12 to 2.0", "flow:async_cpu_to_gpu" in counted or "flow:async_gpu" in counted),
        ("torch 2.13 or later", any(name and name.endswith("(sync)") for name in gpu_names)),
        ("torch 2.12", "host_name" in header and "trace_id" in header and base_known and not after),
        ("torch 2.1 to 2.3", collector.integer_times and not base_known and "flow:ac2g" in counted),
        ("torch 2.4 to 2.7", after),
        ("unknown", not base_known and not counted and not args),
    ]


def _rows(collector: Collector) -> dict[str, dict[str, int]]:
    rows: dict[str, dict[str, int]] = {}
    for (frame, category), table in sorted(collector.tables.items()):
        rows.setdefault(frame, {})[category] = table.rows
    return rows


def _recorded_window(collector: Collector) -> tuple[int, int] | None:
    """The span that the profiler says it recorded."""
    spans = [event for event in collector.metadata if event.get("cat") == "Trace" and "dur" in event]
    spans = [event for event in spans if str(event.get("name", "")).startswith("PyTorch Profiler")]
    if not spans:
        return None
    try:
        start = us_to_ns(np.array([float(spans[0]["ts"])]))
        length, impossible = durations_ns(np.array([float(spans[0]["dur"])]))
    except (KeyError, TypeError, ValueError):
        return None
    return None if impossible else (int(start[0]), int(start[0] + length[0]))


def _devices(properties: Any, gpu: pd.DataFrame) -> tuple[Device, ...]:
    """Devices that have rows; process labels are declared for GPUs that are not there. ROCm's rows may carry
    agent numbers that deviceProperties do not know: with one entry it is the one that is meant."""
    listed = [p for p in properties if isinstance(p, dict)] if isinstance(properties, list) else []
    by_id = {_integer(p.get("id")): p for p in listed}
    used = sorted(int(d) for d in gpu["device"].dropna().unique())
    only = listed[0] if len(listed) == 1 else {}
    return tuple(_device(ordinal, by_id.get(ordinal, only)) for ordinal in used)


def _device(ordinal: int, known: Mapping[str, Any]) -> Device:
    major, minor = _integer(known.get("computeMajor")), _integer(known.get("computeMinor"))
    return Device(
        ordinal=ordinal,
        name=str(known["name"]) if known.get("name") else None,
        sms=_integer(known.get("numSms")),
        memory_bytes=_integer(known.get("totalGlobalMem")),
        compute_capability=None if major is None or minor is None else (major, minor),
    )


def _capabilities(header: Mapping[str, Any], collector: Collector) -> dict[str, bool]:
    """What the recording has: declared, or seen in the rows (filtered files lose the declaration)."""
    seen = {
        "shapes": len(collector.strings["cpu", "input_dims"]) > 1,
        "stacks": ("python", "python_function") in collector.tables
        or len(collector.strings["cpu", "call_stack"]) > 1,
        "memory": ("memory", "cpu_instant_event") in collector.tables,
        "modules": len(collector.strings["cpu", "module_hierarchy"]) > 1,
        "nanoseconds": not collector.integer_times,  # until torch 2.3: whole microseconds, short rows read as 0
    }
    flags = {name: bool(header.get(key)) for key, name in _FLAGS.items()}
    return {name: flags.get(name, False) or seen.get(name, False) for name in (*flags, "nanoseconds")}


def _thread_names(collector: Collector) -> dict[str, str]:
    """ "pid/tid" -> name as the M events declare it."""
    names = {}
    for event in collector.metadata:
        args = event.get("args")
        if event.get("name") == "thread_name" and isinstance(args, dict):
            names[f"{event.get('pid')}/{event.get('tid')}"] = str(args.get("name", "")).strip()
    return dict(sorted(names.items()))


def _integer(value: Any) -> int | None:
    try:
        return None if value is None or isinstance(value, bool) else int(value)
    except (TypeError, ValueError):
        return None
