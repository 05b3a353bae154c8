"""Synthetic traces for tests: events in nanoseconds in, the exporter's JSON out.

    trace = TraceBuilder()
    op = trace.op("aten::mm", start=0, dur=50_000)
    trace.launch("cudaLaunchKernel", start=10_000, dur=5_000, correlation=1)
    trace.kernel(start=20_000, dur=100_000, correlation=1)
    loaded = trace.load()

Every method that adds an event returns its event_id. Nothing is added that was not asked for.
"""

import random
from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from tests.support.exporter_layouts import Layout, laid_out
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.load import load_file

H200 = {
    "id": 0,
    "name": "NVIDIA H200",
    "totalGlobalMem": 150109880320,
    "computeMajor": 9,
    "computeMinor": 0,
    "numSms": 132,
}
PID = TID = 1000
_RENUMBERED = {"correlation", "External id", "external id", "Python id", "Python parent id"}


class TraceBuilder:
    """Events of one process in the order in which they were added, and the file's own metadata."""

    def __init__(self, *, devices: Iterable[dict[str, Any]] = (H200,), **header: Any) -> None:
        self.header: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [dict(device) for device in devices],
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 1790857026000000000,
            **header,
        }
        self.events: list[dict[str, Any]] = []
        self._external_id = 0
        self._correlation = 1_000_000

    # -- the CPU lane ------------------------------------------------------------------------------------

    def step(self, number: int, start: int, dur: int, **fields: Any) -> int:
        """A ProfilerStep window."""
        return self.annotation(f"ProfilerStep#{number}", start, dur, **fields)

    def annotation(self, name: str, start: int, dur: int, **fields: Any) -> int:
        """A record_function block; fields as for `op`."""
        return self.op(name, start, dur, category="user_annotation", **fields)

    def op(
        self,
        name: str,
        start: int,
        dur: int,
        *,
        category: str = "cpu_op",
        external_id: int | None = None,
        pid: int = PID,
        tid: int = TID,
        **args: Any,
    ) -> int:
        """An operator; external_id counts up by itself. `args` by the exporter's keys: **{"Input Dims": ..}."""
        self._external_id = external_id = external_id or self._external_id + 1
        return self.span(category, name, start, dur, pid, tid, {"External id": external_id, **args})

    def launch(
        self,
        name: str,
        start: int,
        dur: int,
        correlation: int,
        *,
        category: str = "cuda_runtime",
        external_id: int | None = None,
        pid: int = PID,
        tid: int = TID,
        **args: Any,
    ) -> int:
        """A runtime or driver call; synchronisations, too."""
        linked = _linked(correlation, external_id)
        return self.span(category, name, start, dur, pid, tid, {"cbid": 211, **linked, **args})

    def overhead(self, name: str, start: int, dur: int) -> int:
        """A row of the profiler's own overhead, such as Activity Buffer Request."""
        return self.span("overhead", name, start, dur, -1, 0, None)

    def python(
        self,
        name: str,
        start: int,
        dur: int,
        *,
        python_id: int,
        parent: int | None = None,
        pid: int = PID,
        tid: int = TID,
        **args: Any,
    ) -> int:
        """A python_function row of a trace recorded with stacks."""
        ids = {"Python id": python_id, "Python parent id": parent}
        return self.span("python_function", name, start, dur, pid, tid, {**ids, **args})

    def memory(
        self,
        start: int,
        change: int,
        *,
        address: int = 0x7F00_0000_0000,
        allocated: int = 0,
        reserved: int = 0,
        device: int = 0,
        device_type: int = 1,
        name: str = "[memory]",
        pid: int = PID,
        tid: int = TID,
    ) -> int:
        """An instant of the allocator: `change` bytes allocated (+) or freed (-)."""
        args = {
            "Total Reserved": reserved,
            "Total Allocated": allocated,
            "Bytes": change,
            "Addr": address,
            "Device Id": device,
            "Device Type": device_type,
        }
        lane = {"pid": pid, "tid": tid, "ts": us(start)}
        return self.event(ph="i", cat="cpu_instant_event", s="t", name=name, **lane, args=args)

    # -- the GPU lane ------------------------------------------------------------------------------------

    def kernel(
        self,
        start: int,
        dur: int,
        correlation: int,
        *,
        name: str = "void kernel(float*)",
        stream: int = 7,
        device: int = 0,
        external_id: int | None = None,
        grid: tuple[int, int, int] = (132, 1, 1),
        block: tuple[int, int, int] = (256, 1, 1),
        **args: Any,
    ) -> int:
        """A kernel."""
        shape = {"grid": list(grid), "block": list(block), "registers per thread": 32, "shared memory": 0}
        shape |= {"blocks per SM": round(grid[0] * grid[1] * grid[2] / 132, 6)}
        ids = _linked(correlation, external_id)
        return self.work("kernel", name, start, dur, device, stream, {**ids, **shape, **args})

    def launched(
        self,
        call: tuple[int, int],
        work: tuple[int, int],
        correlation: int | None = None,
        *,
        tid: int = TID,
        **kernel: Any,
    ) -> int:
        """A launch and its kernel, each by start and duration; the correlation counts up by itself."""
        number = self._numbered(correlation)
        self.launch("cudaLaunchKernel", *call, number, tid=tid)
        return self.kernel(*work, number, **kernel)

    def copied(
        self,
        call: tuple[int, int],
        work: tuple[int, int],
        correlation: int | None = None,
        *,
        tid: int = TID,
        **copy: Any,
    ) -> int:
        """As `launched`, a copy."""
        number = self._numbered(correlation)
        self.launch("cudaMemcpyAsync", *call, number, tid=tid)
        return self.memcpy(*work, number, **copy)

    def _numbered(self, correlation: int | None) -> int:
        self._correlation += correlation is None
        return self._correlation if correlation is None else correlation

    def memcpy(
        self,
        start: int,
        dur: int,
        correlation: int,
        *,
        name: str = "Memcpy DtoD (Device -> Device)",
        size: int = 1 << 20,
        stream: int = 7,
        device: int = 0,
        external_id: int | None = None,
        **args: Any,
    ) -> int:
        """A copy of `size` bytes."""
        content = {"bytes": size, "memory bandwidth (GB/s)": size / max(dur, 1)}
        ids = _linked(correlation, external_id)
        return self.work("gpu_memcpy", name, start, dur, device, stream, {**ids, **content, **args})

    def memset(
        self,
        start: int,
        dur: int,
        correlation: int,
        *,
        size: int = 4,
        stream: int = 7,
        device: int = 0,
        external_id: int | None = None,
        **args: Any,
    ) -> int:
        """A memset of `size` bytes."""
        content = {"bytes": size, "memory bandwidth (GB/s)": size / max(dur, 1)}
        ids = _linked(correlation, external_id)
        return self.work("gpu_memset", "Memset (Device)", start, dur, device, stream, {**ids, **content, **args})

    def gpu_annotation(
        self, name: str, start: int, dur: int, *, external_id: int, stream: int = 7, device: int = 0
    ) -> int:
        """What an annotation covers on one stream; its args name neither device nor stream."""
        args = {"External id": external_id}
        return self.span("gpu_user_annotation", name, start, dur, device, stream, args)

    def work(
        self, category: str, name: str, start: int, dur: int, device: int, stream: int, args: dict[str, Any]
    ) -> int:
        """Any row of the GPU lane."""
        lane = {"queued": 0, "device": device, "context": 1, "stream": stream}
        return self.span(category, name, start, dur, device, stream, {**lane, **args})

    # -- anything ----------------------------------------------------------------------------------------

    def span(
        self, category: str, name: str, start: int, dur: int, pid: Any, tid: Any, args: dict[str, Any] | None
    ) -> int:
        """An event with a duration."""
        times = {"ts": us(start), "dur": us(dur)}
        more = {} if args is None else {"args": args}
        return self.event(ph="X", cat=category, name=name, pid=pid, tid=tid, **times, **more)

    def event(self, **fields: Any) -> int:
        """An event exactly as given, by the exporter's keys."""
        self.events.append(fields)
        return len(self.events) - 1

    # -- out ---------------------------------------------------------------------------------------------

    def to_json(self, layout: Layout = "kineto") -> bytes:
        """The file: as Kineto lays it out, without blanks, or as a bare array of events."""
        return laid_out(self.header, self.events, layout)

    def write(self, path: Path, layout: Layout = "kineto") -> Path:
        """Write the plain JSON and return the path."""
        path.write_bytes(self.to_json(layout))
        return path

    def load(self, layout: Layout = "kineto") -> Trace:
        """The trace as the reader gives it."""
        return load_bytes(self.to_json(layout))

    # -- variations that must not change what is found -----------------------------------------------------

    def shuffled(self, seed: int) -> Self:
        """The same events in another order; event ids follow the order."""
        return self._varied(lambda events: random.Random(seed).shuffle(events))

    def shifted(self, ns: int) -> Self:
        """Everything later by `ns`."""

        def shift(events: list[dict[str, Any]]) -> None:
            for event in events:
                event["ts"] = us(round(event["ts"] * 1000) + ns)

        return self._varied(shift)

    def renumbered(self, by: int = 77_777) -> Self:
        """Other processes, threads, correlations and External ids; devices and streams stay."""

        def renumber(events: list[dict[str, Any]]) -> None:
            for event in events:
                args = event.get("args", {})
                if "stream" not in args and event.get("cat") not in ("overhead", "gpu_user_annotation"):
                    event |= {key: event[key] + by for key in ("pid", "tid") if isinstance(event[key], int)}
                args |= {key: args[key] + by for key in _RENUMBERED & args.keys() if args[key] is not None}

        return self._varied(renumber)

    def _varied(self, change: Callable[[list[dict[str, Any]]], None]) -> Self:
        other = deepcopy(self)
        change(other.events)
        return other


def us(ns: int) -> float:
    """Nanoseconds in the exporter's microseconds; prints as the exact decimal below 2**53 ns."""
    return ns / 1000


def load_bytes(content: bytes, name: str = "built.json", **options: Any) -> Trace:
    """What the reader makes of a file with this content."""
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        trace = load_file(path, **options)
    trace.lanes.built = content  # type: ignore[attr-defined]
    return trace


def content_of(trace: Trace) -> bytes:
    """The file that was read, of a trace that was built in memory; nothing of other traces."""
    return getattr(trace.lanes, "built", b"")


def _linked(correlation: int, external_id: int | None) -> dict[str, int]:
    ids = {} if external_id is None else {"External id": external_id}
    return {**ids, "correlation": correlation}
