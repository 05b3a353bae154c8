"""What Perfetto makes of an archive's manifest, as its reference has it; for viewers that are too old to ask.

After https://perfetto.dev/docs/reference/perfetto-manifest (fields, errors, RELATE and PIN), the reader in
google/perfetto, src/trace_processor/plugins/perfetto_manifest/perfetto_manifest_reader.cc, and `ParsePacket` of
proto_trace_reader.cc, by which packets without a clock are on BOOTTIME of their file's machine (v59).
"""

import json
import re
from typing import Any

CLOCKS = ("REALTIME", "REALTIME_COARSE", "MONOTONIC", "MONOTONIC_COARSE", "MONOTONIC_RAW", "BOOTTIME")
_HOST = ""  # the machine of files that name none
Clock = tuple[str, str]
"""(machine, name of a clock there), or ("file", path) for a file's own timeline."""


def placed(files: dict[str, bytes]) -> dict[str, int]:
    """What Perfetto adds to the times of each file of an archive; empty where it drops them.

    Raises:
        AssertionError: it refuses the manifest.
    """
    manifests = [name for name, content in files.items() if _is_manifest(content)]
    assert len(manifests) == 1
    said = json.loads(files[manifests[0]])["perfetto_manifest"]
    assert type(said["version"]) is int
    assert said["version"] == 1
    entries = {entry["path"]: entry for entry in said.get("files", [])}
    assert len(entries) == len(said.get("files", []))
    time = _trace_time(said["trace_time"], entries)
    edges = [edge for entry in entries.values() if "clocks" in entry for edge in _edges(entry, entries)]
    reached = _reached(time, edges)
    clocks = {name: _clock_of(name, content, entries) for name, content in files.items() if name not in manifests}
    return {name: reached[clock] for name, clock in clocks.items() if clock in reached}


def _is_manifest(content: bytes) -> bool:
    """By its content, whatever it is called."""
    return re.sub(rb"\s", b"", content[:4_096]).startswith(b'{"perfetto_manifest"')


def _machine(entry: dict[str, Any]) -> str:
    if "machine" not in entry:
        return _HOST
    name = entry["machine"]["name"]
    assert isinstance(name, str)
    assert name
    return name


def _named(clock: str) -> str:
    assert clock in CLOCKS
    return clock


def _trace_time(said: dict[str, Any], entries: dict[str, Any]) -> Clock:
    machine = _machine(entries[said["file"]]) if "file" in said else _HOST
    return machine, _named(said["clock"])


def _edges(entry: dict[str, Any], entries: dict[str, Any]) -> list[tuple[Clock, Clock, int]]:
    """(clock, other clock, what is added to times of the one to be times of the other), both ways."""
    clocks = entry["clocks"]
    target = clocks["sync_to"]
    other = entries[target["file"]]
    source = (_machine(entry), _named(clocks["clock"])) if "clock" in clocks else ("file", entry["path"])
    to = (_machine(other), _named(target["clock"])) if "clock" in target else ("file", other["path"])
    offset = clocks.get("offset_ns", 0)
    assert type(offset) is int
    assert -(1 << 63) < offset < 1 << 63
    return [(source, to, offset), (to, source, -offset)]


def _reached(time: Clock, edges: list[tuple[Clock, Clock, int]]) -> dict[Clock, int]:
    """Every clock from which a path leads to the time of the trace, and what the path adds."""
    reached, going = {time: 0}, [time]
    while going:
        clock = going.pop()
        for source, to, offset in edges:
            if to == clock and source not in reached:
                reached[source] = offset + reached[clock]
                going.append(source)
    return reached


def _clock_of(name: str, content: bytes, entries: dict[str, Any]) -> Clock:
    """JSON has a timeline of its own, a protobuf without snapshots of clocks BOOTTIME."""
    if content.lstrip()[:1] in (b"{", b"["):
        return "file", name
    assert "clock" in entries.get(name, {}).get("clocks", {"clock"})  # a file with a clock is not pinned
    return _machine(entries.get(name, {})), "BOOTTIME"
