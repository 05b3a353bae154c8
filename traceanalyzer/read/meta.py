"""What the file says of itself: devices, rank, versions, capabilities, dialect; and the account of the reading."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from traceanalyzer.model.arrays import distinct, numbered
from traceanalyzer.model.lanes import Columns
from traceanalyzer.model.schema import BUSY_CATEGORIES, CPU
from traceanalyzer.model.trace import NULL_INT, Damage, Device, Meta, ints, matching, narrow_codes, texts_of
from traceanalyzer.read.columns.collector import Collector
from traceanalyzer.read.columns.quirks import AUTOGRAD_PID
from traceanalyzer.read.text.batches import Batches

_FLAGS = {"record_shapes": "shapes", "with_stack": "stacks", "with_flops": "flops"}
_FLAGS |= {"with_modules": "modules", "profile_memory": "memory"}
_READ_ELSEWHERE = {"deviceProperties", "distributedInfo", "baseTimeNanoseconds", "traceEvents", *_FLAGS}


def build_meta(batches: Batches, collector: Collector, cpu: Columns, gpu: Columns) -> Meta:
    """Metadata of a trace that has been read to its end."""
    header = batches.envelope.header
    distributed = header.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    damage = tuple(batches.damage)
    if count := collector.impossible_durations:
        problem = f"{count:,} of {collector.events:,} events have a negative or impossible duration"
        damage += (Damage("impossible durations", f"{problem}, which was taken as 0"),)
    return Meta(
        source=batches.source.name,
        events=collector.events,
        rows=_rows(collector),
        counted=dict(sorted(collector.counted.items())),
        dialect=dialect_of(header, collector, cpu, gpu),
        envelope=batches.envelope.form,
        base_time_ns=_integer(header.get("baseTimeNanoseconds")) or 0,
        origin_ns=int(min((ints(lane, "start_ns").min() for lane in (cpu, gpu) if len(lane)), default=0)),
        window_ns=collector.declared.window_ns,
        devices=_devices(header.get("deviceProperties"), gpu),
        rank=_integer(distributed.get("rank")),
        world_size=_integer(distributed.get("world_size")),
        versions={k: str(v) for k, v in sorted(header.items()) if k.endswith("version")},
        capabilities=_capabilities(header, collector),
        anomalies=dict(sorted(collector.anomalies.items())),
        unknown_categories=dict(sorted(collector.unknown_categories.items())),
        other_args=_other_args(collector),
        damage=damage,
        thread_names=dict(sorted(collector.declared.threads.items())),
        extra={k: v for k, v in sorted(header.items()) if k not in _READ_ELSEWHERE},
    )


def dialect_of(header: Mapping[str, Any], collector: Collector, cpu: Columns, gpu: Columns) -> str:
    """Which exporter wrote the file, told by features, since no torch version is in it."""
    era = next((name for name, applies in _eras(header, collector, gpu) if applies), "unknown")
    declared = any(key.startswith(("roctracer_", "rocprofiler_", "hip_")) for key in header)
    if declared or any(name.startswith("hip") for name in _names(cpu, "cuda_runtime")):
        return f"{era} on ROCm"
    categories = texts_of(cpu, "category")
    others = (f"{era} on {name}" for name in ("XPU", "MTIA") if f"{name.lower()}_runtime" in categories)
    return next(others, era)


def _names(lane: Columns, category: str) -> list[str]:
    used = distinct(narrow_codes(lane, "name")[matching(lane, "category", category.__eq__)])
    return [str(name) for name in texts_of(lane, "name")[used]]


def _eras(header: Mapping[str, Any], collector: Collector, gpu: Columns) -> list[tuple[str, bool]]:
    counted, keys = collector.counted, list(header)
    base_known = "baseTimeNanoseconds" in header
    after = base_known and "traceName" in keys and keys.index("baseTimeNanoseconds") > keys.index("traceName")
    synchronised = any(name.endswith("(sync)") for name in _names(gpu, "cuda_sync"))
    return [
        ("torch.autograd.profiler", AUTOGRAD_PID in collector.lanes),
        ("torch 1.8 to 1.11", "flow:async" in counted),  # previews of 1.8 of 2020 are the oldest
        ("torch 1.12 to 2.0", "flow:async_cpu_to_gpu" in counted or "flow:async_gpu" in counted),
        ("torch 2.13 or later", synchronised),
        ("torch 2.12 or later", "host_name" in header and "trace_id" in header and base_known and not after),
        ("torch 2.4 to 2.7", after),
        ("torch 2.8 to 2.11", base_known),
        ("torch 2.1 to 2.3", collector.whole_microseconds and "flow:ac2g" in counted),
        ("torch 2.4 previews of spring 2024", not collector.whole_microseconds and collector.absolute_times),
    ]


def _rows(collector: Collector) -> dict[str, dict[str, int]]:
    rows: dict[str, Counter[str]] = {}
    for (frame, category, _), group in sorted(collector.groups.items(), key=lambda item: item[0][:2]):
        if group.rows:
            rows.setdefault(frame, Counter())[category] += group.rows
    return {frame: dict(by_category) for frame, by_category in rows.items()}


def _other_args(collector: Collector) -> dict[str, int]:
    """ "category.key" -> rows in which an arg without a column occurs."""
    counts: Counter[str] = Counter()
    for (_, category, _), group in collector.groups.items():
        for key in group.shared["other"].keys if "other" in group.shared and group.rows else ():
            counts[f"{category}.{key}"] += group.rows
    return dict(sorted(counts.items()))


def _devices(properties: Any, gpu: Columns) -> tuple[Device, ...]:
    """Devices that have rows; process labels are declared for GPUs that are not there. ROCm's rows may carry
    agent numbers that deviceProperties do not know: with one entry it is the one that is meant."""
    listed = [p for p in properties if isinstance(p, dict)] if isinstance(properties, list) else []
    by_id = {_integer(p.get("id")): p for p in listed}
    device = ints(gpu, "device")
    used = set(numbered(device)[1].tolist()) - {NULL_INT}
    if (matching(gpu, "category", BUSY_CATEGORIES.__contains__) & (device == NULL_INT)).any():
        used.add(0)  # what work counts to whose device nobody tells
    only = listed[0] if len(listed) == 1 else {}
    return tuple(_device(ordinal, by_id.get(ordinal, only)) for ordinal in sorted(used))


def _device(ordinal: int, properties: Mapping[str, Any]) -> Device:
    major, minor = _integer(properties.get("computeMajor")), _integer(properties.get("computeMinor"))
    return Device(
        ordinal=ordinal,
        name=str(properties["name"]) if properties.get("name") else None,
        sms=_integer(properties.get("numSms")),
        memory_bytes=_integer(properties.get("totalGlobalMem")),
        compute_capability=None if major is None or minor is None else (major, minor),
    )


def _capabilities(header: Mapping[str, Any], collector: Collector) -> dict[str, bool]:
    """What the recording has: declared, or seen in the rows (filtered files lose the declaration)."""
    keys = {key for group in collector.groups.values() if group.rows for key in group.keys}
    frames = {frame for (frame, *_), group in collector.groups.items() if group.rows}
    seen = {
        "shapes": not keys.isdisjoint(CPU["input_dims"].raw),
        "stacks": "python" in frames or not keys.isdisjoint(CPU["call_stack"].raw),
        "memory": "memory" in frames,
        "modules": not keys.isdisjoint(CPU["module_hierarchy"].raw),
    }
    flags = {name: bool(header.get(key)) or seen.get(name, False) for key, name in _FLAGS.items()}
    return {**flags, "nanoseconds": not collector.whole_microseconds}


def _integer(value: Any) -> int | None:
    """A whole number within int64, None for anything else."""
    try:
        number = None if value is None or isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number is not None and abs(number) < 2**63 else None
