"""What one rank of a loop does alone; each item makes its work, and says the op around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.numbers.loop_items import ADD, OPS
from tests.numbers.loop_rank import Rank
from tests.support.trace_builder import PID


def _kernel(which: int) -> tuple[float, dict[str, Any]]:
    """(us, name and grid) of an op's kernel."""
    _, kernel, us, *_ = OPS[which % len(OPS)]
    return us, {"name": kernel, "grid": (1 + which % 400, 1, 1)}


def _op(one: Rank, which: int) -> str:
    us, named = _kernel(which)
    one.work("kernel", us, one.launch("cudaLaunchKernel"), **named)
    return OPS[which % len(OPS)][0]


def _lost(one: Rank, which: int) -> str:
    """A launch whose work is recorded only half of the time."""
    us, named = _kernel(which)
    number = one.launch("cudaLaunchKernel")
    if one.rng.random() < 0.5:
        one.work("kernel", us, number, **named)
    return OPS[which % len(OPS)][0]


def _nested(one: Rank, which: int) -> str:
    us, named = _kernel(which)
    for _ in range(2 + which % 2):
        inner = one.cpu
        one.work("kernel", us / 3, one.launch("cudaLaunchKernel"), **named)
        one.op(OPS[which % len(OPS)][0], inner)
    return "aten::linear"


def _backward(one: Rank, which: int) -> str:
    us, named = _kernel(which)
    at, number = one.cpu, one.number + 1
    one.launch("cudaLaunchKernel", tid=PID + 1)
    one.work("kernel", us, number, **named)
    inputs = {"Sequence number": which % 97, "Fwd thread id": 1}
    name = f"{OPS[which % len(OPS)][0]}Backward0"
    one.trace.op(name, at + one.ahead_ns - 900, one.cpu - at + 1_800, tid=PID + 1, **inputs)
    one.wait("cudaEventSynchronize", one.cpu)
    return ""


def _graph(one: Rank, which: int) -> str:
    us, _ = _kernel(which)
    number = one.launch("cudaGraphLaunch", 9)
    for place in range(2 + which % 4):
        one.work("kernel", us / 2, number, name=OPS[(which + place) % len(OPS)][1])
    return ""


def _upload(one: Rank, which: int) -> str:
    pinned = which % 2
    name = f"Memcpy HtoD ({'Pinned' if pinned else 'Pageable'} -> Device)"
    number = one.launch("cudaMemcpyAsync", 6)
    end = one.work("memcpy", 25, number, name=name, size=1 + which, place=(0, 20))
    if not pinned:
        one.wait("cudaStreamSynchronize", end)
    return "aten::copy_"


def _item_read(one: Rank, which: int) -> str:
    number = one.launch("cudaMemcpyAsync")
    end = one.work("memcpy", 2, number, name="Memcpy DtoH (Device -> Pageable)", size=4)
    one.wait("cudaStreamSynchronize", end)
    return "aten::item"


def _sync(one: Rank, which: int) -> str:
    one.wait("cudaDeviceSynchronize", max(one.free.values(), default=0))
    return ""


def _elsewhere(place: tuple[int, int]) -> Callable[[Rank, int], str]:
    """Work on another stream or device, which waits for an event."""

    def work(one: Rank, which: int) -> str:
        us, named = _kernel(which)
        one.launch("cudaEventRecord", 2)
        one.launch("cudaStreamWaitEvent", 2)
        one.work("kernel", us * 1.5, one.launch("cudaLaunchKernel"), place, **named)
        return OPS[which % len(OPS)][0]

    return work


def _memset(one: Rank, which: int) -> str:
    one.work("memset", 2, one.launch("cudaMemsetAsync"), size=which % 5_000)
    return "aten::zero_"


def _host(one: Rank, which: int) -> str:
    one.cpu += one.jitter(60 + which % 90)
    return "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" if which % 2 else ""


def _optimizer(one: Rank, which: int) -> str:
    for _ in range(4):
        inner = one.cpu
        one.work("kernel", 5, one.launch("cudaLaunchKernel"), name=ADD)
        one.op("aten::add_", inner)
    return "Optimizer.step#SGD.step"


def _allocate(one: Rank, which: int) -> str:
    """A tensor is made and another goes; the pool grows, and shrinks at other times."""
    size = (1 + which % 9) << 20
    for change in (size, -(size if one.rng.random() < 0.7 else size // 2)):
        one.allocated += change
        if one.rng.random() < 0.4:
            one.launch("cudaMalloc", 30)
            one.reserved += 8 << 20
        elif one.rng.random() < 0.2 and one.reserved > one.allocated + (24 << 20):
            one.launch("cudaFree", 50)
            one.reserved -= 16 << 20
        totals = {"allocated": one.allocated, "reserved": one.reserved, "device": which % 2}
        one.trace.memory(one.cpu + one.ahead_ns, change, address=which % 6, **totals)
        one.cpu += one.jitter(2)
    return "aten::empty"


ALONE: dict[str, Callable[[Rank, int], str]] = {
    "op": _op,
    "lost": _lost,
    "nested": _nested,
    "backward": _backward,
    "graph": _graph,
    "upload": _upload,
    "item": _item_read,
    "sync": _sync,
    "side": _elsewhere((0, 13)),
    "device": _elsewhere((1, 7)),
    "memset": _memset,
    "host": _host,
    "alloc": _allocate,
    "optimizer": _optimizer,
}
