"""Loops by chance: the same items in each step, whose times differ, on one rank or on several that reduce together.

The first step is cold, one step has a hiccup, some items are not in each step; work runs on two devices and several
streams, alone or in graphs; the CPU launches from two threads, waits, copies, allocates and reads back.
"""

from __future__ import annotations

from random import Random

from tests.numbers.loop_alone import ALONE
from tests.numbers.loop_items import COLLECTIVES, OPS, SORTS
from tests.numbers.loop_rank import US, Rank
from tests.support.trace_builder import H200, TraceBuilder

_JOINT = 40 * US  # of a collective, at least


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


def _rank(seed: int, rank: int, ranks: int, slow: float) -> Rank:
    header = {"distributedInfo": {"rank": rank, "world_size": ranks, "backend": "nccl"}} if ranks > 1 else {}
    gpus = [{**H200, "id": device, **({"numSms": 108} if device else {})} for device in (0, 1)]
    stacks = {"record_shapes": 1, "profile_memory": 1, "with_stack": 1}
    pace = slow if rank == ranks - 1 else 1.0
    return Rank(
        TraceBuilder(devices=gpus, **stacks, **header), Random(f"{seed} {rank}"), pace, 3_333_333 * rank
    )


def _item(made: list[Rank], sort: str, which: int, step: int) -> None:
    """The same item on all ranks."""
    if sort in COLLECTIVES:
        _together(made, sort, which, step)
        return
    for one in made:
        begin = one.cpu
        one.cpu += one.jitter(2)
        name = ALONE[sort](one, which)
        if name:
            dims, kind = OPS[which % len(OPS)][3:]
            shapes = {"Input Dims": dims, "Input type": [kind] * len(dims), "Sequence number": which % 97}
            shapes |= {"Concrete Inputs": ["" if shape else "1" for shape in dims]}
            one.op(name, begin, **shapes)
        one.cpu += one.jitter(which % 7)


def _together(made: list[Rank], sort: str, which: int, step: int) -> None:
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
