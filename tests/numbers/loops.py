"""Loops by chance: the same items in each step, whose times differ, on one rank or on several that reduce together.

The first step is cold, one step has a hiccup, some items are not in each step; work runs on two devices and several
streams, alone or in graphs; the CPU launches from two threads, waits, copies, allocates and reads back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.builder import H200, PID, TraceBuilder
from tests.numbers.loop_items import ADD, COLLECTIVES, OPS, SORTS

US = 1_000
_JOINT = 40 * US  # of a collective, at least


@dataclass
class _Rank:
    """One process: its trace, its clocks, and when its streams are free."""

    trace: TraceBuilder
    rng: Random
    pace: float  # its kernels' time by that of others
    ahead_ns: int
    cpu: int = 1_000_000
    number: int = 0
    reserved: int = 64 << 20
    allocated: int = 32 << 20
    free: dict[tuple[int, int], int] = field(default_factory=dict)

    def jitter(self, us: float) -> int:
        """About so many us, in ns."""
        return int(us * US * (0.8 + 0.4 * self.rng.random())) + self.rng.randrange(9)

    def launch(self, call: str, us: float = 4, **fields: Any) -> int:
        """A call, after which the CPU goes on; its correlation."""
        self.number += 1
        took = self.jitter(us)
        self.trace.launch(call, self.cpu + self.ahead_ns, took, self.number, **fields)
        self.cpu += took
        return self.number

    def work(
        self,
        sort: str,
        us: float,
        number: int,
        place: tuple[int, int] = (0, 7),
        until: int = 0,
        **fields: Any,
    ) -> int:
        """A piece of work behind what its stream has; when it ends."""
        begin = max(self.free.get(place, 0) + self.rng.randrange(1, 900), self.cpu + self.jitter(3))
        end = max(begin + self.jitter(us * (self.pace if sort == "kernel" else 1)), until)
        where = {"device": place[0], "stream": place[1]}
        getattr(self.trace, sort)(begin + self.ahead_ns, end - begin, number, **where, **fields)
        self.free[place] = end
        return end

    def wait(self, call: str, until: int, us: float = 5) -> None:
        """A call that returns after `until`."""
        self.number += 1
        end = max(until + self.jitter(us), self.cpu + self.jitter(us))
        self.trace.launch(call, self.cpu + self.ahead_ns, end - self.cpu, self.number)
        self.cpu = end

    def op(self, name: str, begin: int, **fields: Any) -> None:
        """An op from `begin` until a little later than now."""
        self.cpu += self.jitter(2)
        self.trace.op(name, begin + self.ahead_ns, self.cpu - begin, **fields)


def loop(
    seed: int, *, ranks: int = 1, steps: int = 5, slow: float = 1.0, marked: bool = True, chance: int = 0
) -> list[TraceBuilder]:
    """The ranks' traces; the last rank's kernels take `slow` times as long, and with another `chance` all times differ.

    Only `random()`, `randrange()` and `choice` by them choose, which are the same in all versions of Python.
    """
    rng = Random(seed)
    items = [(SORTS[rng.randrange(len(SORTS))], rng.randrange(1 << 20)) for _ in range(9 + rng.randrange(5))]
    items += (
        [("op", 1), ("reduce", 4), ("graph", 8), ("reduce", 5)]
        if ranks > 1
        else [("op", 1), ("op", 2), ("item", 3)]
    )
    made = [_rank(seed + 1_000 * chance, one, ranks, slow) for one in range(ranks)]
    hiccup = rng.randrange(1, steps)
    for step in range(steps):
        begins = [one.cpu for one in made]
        for place, (sort, which) in enumerate(items):
            if which % 11 == 0 and step % 2:
                continue
            for one in made:
                if step == 0 and place % 3 == 0:
                    one.launch(
                        ("cudaMalloc", "cuModuleLoadData", "cudaFuncGetAttributes")[place % 9 // 3], 400
                    )
                if step == hiccup and place == 2:
                    one.cpu += one.jitter(700)
            _item(made, sort, which, step)
        for one, begin in zip(made, begins, strict=True):
            if step == steps - 1 or which % 3:
                one.wait("cudaDeviceSynchronize", max(one.free.values(), default=0))
            if marked:
                one.trace.step(step + 3, begin + one.ahead_ns, one.cpu - begin)
            if step % 2:
                one.trace.python(
                    "train.py(7): step", begin + one.ahead_ns - 1, one.cpu - begin + 1, python_id=step + 1
                )
            one.cpu += one.jitter(6)
    return [one.trace for one in made]


def _rank(seed: int, rank: int, ranks: int, slow: float) -> _Rank:
    header = {"distributedInfo": {"rank": rank, "world_size": ranks, "backend": "nccl"}} if ranks > 1 else {}
    gpus = [{**H200, "id": device, **({"numSms": 108} if device else {})} for device in (0, 1)]
    stacks = {"record_shapes": 1, "profile_memory": 1, "with_stack": 1}
    pace = slow if rank == ranks - 1 else 1.0
    return _Rank(
        TraceBuilder(devices=gpus, **stacks, **header), Random(f"{seed} {rank}"), pace, 3_333_333 * rank
    )


def _item(made: list[_Rank], sort: str, which: int, step: int) -> None:
    """The same item on all ranks."""
    if sort in COLLECTIVES:
        _together(made, sort, which, step)
        return
    for one in made:
        begin = one.cpu
        one.cpu += one.jitter(2)
        name = _alone(one, sort, which)
        if name:
            dims, kind = OPS[which % len(OPS)][3:]
            shapes = {"Input Dims": dims, "Input type": [kind] * len(dims), "Sequence number": which % 97}
            shapes |= {"Concrete Inputs": ["" if shape else "1" for shape in dims]}
            one.op(name, begin, **shapes)
        one.cpu += one.jitter(which % 7)


def _alone(one: _Rank, sort: str, which: int) -> str:
    """What one rank does; the op around it."""
    name, kernel, us, *_ = OPS[which % len(OPS)]
    named = {"name": kernel, "grid": (1 + which % 400, 1, 1)}
    match sort:
        case "op" | "lost":
            number = one.launch("cudaLaunchKernel")
            if sort == "op" or one.rng.random() < 0.5:
                one.work("kernel", us, number, **named)
        case "nested":
            for _ in range(2 + which % 2):
                inner = one.cpu
                one.work("kernel", us / 3, one.launch("cudaLaunchKernel"), **named)
                one.op(name, inner)
            return "aten::linear"
        case "backward":
            at, number = one.cpu, one.number + 1
            one.launch("cudaLaunchKernel", tid=PID + 1)
            one.work("kernel", us, number, **named)
            inputs = {"Sequence number": which % 97, "Fwd thread id": 1}
            one.trace.op(
                f"{name}Backward0", at + one.ahead_ns - 900, one.cpu - at + 1_800, tid=PID + 1, **inputs
            )
            one.wait("cudaEventSynchronize", one.cpu)
            return ""
        case "graph":
            number = one.launch("cudaGraphLaunch", 9)
            for place in range(2 + which % 4):
                one.work("kernel", us / 2, number, name=OPS[(which + place) % len(OPS)][1])
            return ""
        case "upload":
            pinned = which % 2
            source = "Pinned" if pinned else "Pageable"
            number = one.launch("cudaMemcpyAsync", 6)
            end = one.work(
                "memcpy", 25, number, name=f"Memcpy HtoD ({source} -> Device)", size=1 + which, place=(0, 20)
            )
            if not pinned:
                one.wait("cudaStreamSynchronize", end)
            return "aten::copy_"
        case "item":
            end = one.work(
                "memcpy", 2, one.launch("cudaMemcpyAsync"), name="Memcpy DtoH (Device -> Pageable)", size=4
            )
            one.wait("cudaStreamSynchronize", end)
            return "aten::item"
        case "sync":
            one.wait("cudaDeviceSynchronize", max(one.free.values(), default=0))
            return ""
        case "side" | "device":
            place = (0, 13) if sort == "side" else (1, 7)
            one.launch("cudaEventRecord", 2)
            one.launch("cudaStreamWaitEvent", 2)
            one.work("kernel", us * 1.5, one.launch("cudaLaunchKernel"), place, **named)
        case "memset":
            one.work("memset", 2, one.launch("cudaMemsetAsync"), size=which % 5_000)
            return "aten::zero_"
        case "host":
            one.cpu += one.jitter(60 + which % 90)
            return "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" if which % 2 else ""
        case "alloc":
            _allocate(one, which)
            return "aten::empty"
        case _:
            for _ in range(4):
                inner = one.cpu
                one.work("kernel", 5, one.launch("cudaLaunchKernel"), name=ADD)
                one.op("aten::add_", inner)
            return "Optimizer.step#SGD.step"
    return name


def _allocate(one: _Rank, which: int) -> None:
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


def _together(made: list[_Rank], sort: str, which: int, step: int) -> None:
    """A collective, which ends on all ranks together; a pair sends, where there are several ranks."""
    collective, kernel = COLLECTIVES[sort]
    pair = sort == "send" and len(made) > 1
    members = made[:2] if pair else made
    place, count = (0, 7 if which % 2 else 28), (1 + which % 5) << 18
    ready = [max(one.free.get(place, 0), one.free.get((0, 7), 0), one.cpu + 12 * US) for one in members]
    end = max(ready) + _JOINT + count // 20
    for rank, one in enumerate(members):
        begin = one.cpu
        args = {
            "Collective name": ("send", "recv")[rank] if pair else collective,
            "In msg nelems": count,
            "Out msg nelems": count * (len(made) if sort == "gather" else 1),
            "dtype": "BFloat16",
            "Group size": len(members),
            "Process Group Name": str(which % 2),
            "Process Group Description": "default_pg" if which % 2 else "mesh_tp",
            "Process Group Ranks": str(list(range(len(members)))),
            "Seq": step * 100 + which % 100,
        }
        one.cpu += one.jitter(1)
        inner = one.cpu
        number = one.launch("cudaLaunchKernelExC", 5)
        one.free[place] = max(ready[rank], one.free.get(place, 0))
        one.work(
            "kernel",
            1,
            number,
            place,
            until=end + one.rng.randrange(800),
            name=kernel,
            grid=(16, 1, 1),
            **args,
        )
        one.op("record_param_comms", inner, **args)
        one.op(f"c10d::{collective}_", begin)
        if place[1] != 7 and which % 3 == 0:
            one.launch("cudaStreamWaitEvent", 2)
            one.free[0, 7] = max(one.free.get((0, 7), 0), one.free[place])
