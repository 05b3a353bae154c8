"""One process of a loop by chance."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.trace_builder import TraceBuilder

US = 1_000


@dataclass
class Rank:
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
