"""What the allocators did: the peak and what was alive at it, what was never freed, fragmentation, the curve.

A block is known by its address: the next event with the same address frees it. What was allocated before the
recording has no allocation in it and is told by the difference to the allocator's own running total.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.containment import running_at
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import NULL_INT, Trace, ints
from traceanalyzer.torch_table.function_events import threads_of
from traceanalyzer.torch_table.key_averages import key_averages

Names = NDArray[np.object_]
_SIZES = ["self_device_bytes", "device_bytes", "self_cpu_bytes", "cpu_bytes"]


def ops_by_memory(trace: Trace) -> pd.DataFrame:
    """Largest own amount first: columns name, calls (int64), and the sizes of `KeyAverages.rows` in bytes (int64)."""
    rows = key_averages(trace).rows
    touched = rows[(rows[_SIZES] != 0).any(axis="columns")]
    order = np.lexsort((-touched["self_cpu_bytes"].abs(), -touched["self_device_bytes"].abs()))
    return touched.iloc[order][["name", "calls", *_SIZES]].reset_index(drop=True)


DEVICE_TYPES = {0: "CPU", 1: "CUDA", 6: "HIP", 12: "XPU", 19: "MTIA", 20: "PrivateUse1"}
NO_OP, NO_LINE = "(no op)", "(no python frame)"
_ALLOCATOR_CALL = regex(
    r"^(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|HostFree|HostRegister|HostUnregister)"
    r"|^cu(Mem(Create|Map|Unmap|Release|Alloc|Free|AddressReserve|AddressFree|SetAccess)|MemHost)"
)
_SOURCE_LINE = regex(r"\(\d+\): ")
_FORWARD, _BACKWARD, _OPTIMIZER, _NEVER = "forward", "backward", "optimizer", "never"  # phases
_PHASES = {_BACKWARD: "autograd::engine::evaluate_function", _OPTIMIZER: "Optimizer.step#"}  # how ranges begin


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One device's allocator. Sizes in bytes; `reserved` ones are None where the trace has none.

    Attributes:
        device: "CUDA:0", "CPU".
        start_bytes, end_bytes: allocated before the first event and after the last.
        peak_bytes, peak_ns: most that was allocated, and when for the first time.
        fragmentation_at_peak_bytes, fragmentation_most_bytes: reserved less allocated.
        before_bytes: of the peak, what was allocated before the recording.
        alive, kept: blocks alive at the peak, and allocated but not freed; columns op, python, blocks, bytes.
        uses: blocks alive at the peak by what they are for; columns use, blocks, bytes.
        curve: columns time_ns, allocated_bytes, reserved_bytes, one row per event.
        exact: whether totals come from the allocator; else they are sums that start at 0.
    """

    device: str
    allocations: int
    frees: int
    start_bytes: int
    end_bytes: int
    peak_bytes: int
    peak_ns: int
    peak_reserved_bytes: int | None
    fragmentation_at_peak_bytes: int | None
    fragmentation_most_bytes: int | None
    before_bytes: int
    alive: pd.DataFrame
    kept: pd.DataFrame
    uses: pd.DataFrame
    curve: pd.DataFrame
    exact: bool


@dataclass(frozen=True, slots=True)
class MemoryView:
    """Allocators of a trace, GPUs first, and the driver calls that they made.

    Attributes:
        devices: one per allocator.
        calls: driver calls that allocate or free, columns name, calls, total_ns.
        out_of_memory: number of [OutOfMemory] events.
    """

    devices: tuple[DeviceMemory, ...]
    calls: pd.DataFrame
    out_of_memory: int

    @property
    def curve(self) -> pd.DataFrame:
        """Curves of all allocators below each other: device, time_ns, allocated_bytes, reserved_bytes."""
        curves = [device.curve.assign(device=device.device) for device in self.devices]
        frame = pd.concat(curves, ignore_index=True)
        return frame[["device", "time_ns", "allocated_bytes", "reserved_bytes"]]

    @classmethod
    def build(cls, trace: Trace) -> Self:
        names = trace.memory["name"].astype(str) if trace.meta.rows.get("memory") else pd.Series(dtype=str)
        if not (names == "[memory]").any():
            raise Unavailable("no memory events", "record with profile_memory=True")
        frame = trace.memory[names == "[memory]"]
        frame = frame.sort_values(["start_ns", "event_id"], kind="stable", ignore_index=True)
        owners = _owners(trace, frame)
        kind, index = ints(frame, "device_type"), ints(frame, "device")
        allocators = {*zip(kind.tolist(), index.tolist(), strict=True)}
        gpus_first = sorted(allocators, key=lambda device: (device[0] == 0, device))
        devices = tuple(_device(frame, owners, *device) for device in gpus_first)
        return cls(devices, _calls(trace), int((names == "[OutOfMemory]").sum()))


def _owners(trace: Trace, frame: pd.DataFrame) -> pd.DataFrame:
    """Names of the innermost op and the innermost line of python in which each event happened, and its phase."""
    at, thread = ints(frame, "start_ns"), threads_of(frame)
    ops = trace.cpu[trace.cpu["category"].isin(["cpu_op", "user_annotation"])]
    op = _names_at(ops, at, thread, NO_OP)
    phase = np.full(len(frame), _FORWARD, dtype=object)
    for name, begins in _PHASES.items():
        phase[_names_at(ops[ops["name"].str.startswith(begins)], at, thread, "") != ""] = name
    line = np.full(len(frame), NO_LINE, dtype=object)
    if trace.meta.rows.get("python"):
        lines = [name for name in trace.python["name"].cat.categories if _SOURCE_LINE.search(str(name))]
        line = _names_at(trace.python[trace.python["name"].isin(lines)], at, thread, NO_LINE)
    return pd.DataFrame({"op": op, "python": line, "phase": phase})


def _names_at(rows: pd.DataFrame, at: Rows, thread: Rows, missing: str) -> Names:
    start = ints(rows, "start_ns")
    inside = running_at(start, start + ints(rows, "dur_ns"), threads_of(rows), at, thread)
    names = np.append(rows["name"].astype(object).to_numpy(), missing)
    return np.asarray(names[inside], dtype=object)


def _device(frame: pd.DataFrame, owners: pd.DataFrame, kind: int, index: int) -> DeviceMemory:
    selected = np.flatnonzero((ints(frame, "device_type") == kind) & (ints(frame, "device") == index))
    frame, owners = frame.iloc[selected], owners.iloc[selected]
    at, size = ints(frame, "start_ns"), ints(frame, "bytes")
    total, reserved = ints(frame, "total_allocated"), ints(frame, "total_reserved")
    exact = bool((total != NULL_INT).all())
    allocated = total if exact else np.cumsum(size)
    peak = int(np.argmax(allocated))
    freed = _freed_by(ints(frame, "address"), size)
    position = np.arange(len(size))
    alive = (size > 0) & (position <= peak) & (freed > peak)
    blocks = owners.assign(use=_uses(owners["phase"].to_numpy(), freed), blocks=1, bytes=size)
    has_reserved = kind != 0 and bool((reserved != NULL_INT).all())
    spare = reserved - allocated if has_reserved else None
    name = DEVICE_TYPES.get(kind, f"device type {kind}")
    return DeviceMemory(
        device=name if kind == 0 or index < 0 else f"{name}:{index}",
        allocations=int((size > 0).sum()),
        frees=int((size < 0).sum()),
        start_bytes=int(allocated[0] - size[0]),
        end_bytes=int(allocated[-1]),
        peak_bytes=int(allocated[peak]),
        peak_ns=int(at[peak]),
        peak_reserved_bytes=int(reserved.max()) if has_reserved else None,
        fragmentation_at_peak_bytes=None if spare is None else int(spare[peak]),
        fragmentation_most_bytes=None if spare is None else int(spare.max()),
        before_bytes=int(allocated[peak] - size[alive].sum()),
        alive=_sums(blocks[alive], "op", "python"),
        kept=_sums(blocks[(size > 0) & (freed == len(size))], "op", "python"),
        uses=_sums(blocks[alive], "use"),
        curve=_curve(at, allocated, reserved if has_reserved else None),
        exact=exact,
    )


def _freed_by(address: Rows, size: Rows) -> Rows:
    """Position of the event that frees each event's block, the number of events where none does."""
    order = np.argsort(address, kind="stable")
    freed = np.full(len(size), len(size), np.int64)
    same = (address[order][1:] == address[order][:-1]) & (address[order][1:] != NULL_INT)
    pairs = np.flatnonzero(same & (size[order][1:] < 0))
    freed[order[pairs]] = order[pairs + 1]
    return freed


def _uses(phase: Names, freed: Rows) -> Names:
    """What blocks are for: backward frees what forward keeps for it, gradients outlive it, optimizer state stays."""
    until = np.append(phase, _NEVER)[freed]
    uses = {
        "activations": (phase == _FORWARD) & (until == _BACKWARD),
        "gradients": (phase == _BACKWARD) & (until != _BACKWARD),
        "optimizer state": (phase == _OPTIMIZER) & (until == _NEVER),
        "not freed": until == _NEVER,
    }
    return np.select([*uses.values()], [*uses], "temporary").astype(object)


def _sums(blocks: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Largest first; blocks and bytes per value of the keys."""
    sums = blocks.groupby([*keys], sort=True, as_index=False)[["blocks", "bytes"]].sum()
    return sums.sort_values("bytes", ascending=False, kind="stable", ignore_index=True)


def _curve(at: Rows, allocated: Rows, reserved: Rows | None) -> pd.DataFrame:
    frame = pd.DataFrame({"time_ns": at, "allocated_bytes": allocated})
    frame["reserved_bytes"] = pd.array([pd.NA] * len(at) if reserved is None else reserved, dtype="Int64")
    return frame


def _calls(trace: Trace) -> pd.DataFrame:
    wanted = [name for name in trace.cpu["name"].cat.categories if _ALLOCATOR_CALL.match(str(name))]
    rows = trace.cpu[trace.cpu["name"].isin(wanted) & ~trace.cpu["category"].isin(["cpu_op"])]
    frame = pd.DataFrame({"name": rows["name"].astype(str), "calls": 1, "total_ns": rows["dur_ns"]})
    sums = frame.groupby("name", as_index=False).sum()
    return sums.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
