"""Which idle time is on the way from one launch to the next."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.rules.launches import GEMM, US, of_rule
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.rules.gpu_idle.launch_bound import between_launches


class Pieces:
    """Idle pieces of (cause, ns, call that launches what comes next)."""

    def __init__(self, pieces: list[tuple[str, int, str]], stacks: bool = False) -> None:
        self.pieces, self.stacks = pieces, stacks
        causes, durations, calls = zip(*pieces, strict=True) if pieces else ((), (), ())
        self.dur_ns = np.array(durations, np.int64)
        self.total_ns = int(self.dur_ns.sum())
        self.has_next = np.array([bool(call) for call in calls], bool)
        self.events = SimpleNamespace(user_code=SimpleNamespace(recorded=stacks))
        self.cause = SimpleNamespace(one_of=lambda *names: np.array([one in names for one in causes], bool))
        graphs = np.array(["GraphLaunch" in call for call in calls], bool)
        self.launch = SimpleNamespace(name=SimpleNamespace(matches=lambda _: graphs))

    def __getitem__(self, chosen: Any) -> Pieces:
        return Pieces([one for one, kept in zip(self.pieces, chosen, strict=True) if kept], self.stacks)


def chosen(*pieces: tuple[str, int] | tuple[str, int, str], stacks: bool = False) -> list[int]:
    """Durations of what is kept, of pauses of at most 100 ns, if half is inside ops."""
    whole = [(cause, ns, *(call or ["cudaLaunchKernel"])) for cause, ns, *call in pieces]
    idle: Any = Pieces(whole, stacks)
    return list(between_launches(idle, 100, 0.5).dur_ns)


@pytest.mark.parametrize(
    ("pause", "stacks", "kept"),
    [(100, False, [500, 100]), (101, False, [500]), (200, True, [500, 200]), (201, True, [500])],
)
def test_a_short_pause_is_on_the_way_and_stacks_make_it_longer(
    pause: int, stacks: bool, kept: list[int]
) -> None:
    assert chosen(("dispatching", 500), ("python", pause), stacks=stacks) == kept


@pytest.mark.parametrize(("inside", "kept"), [(100, [100, 60, 40]), (99, [99])])
def test_pauses_count_where_half_of_all_is_inside_ops(inside: int, kept: list[int]) -> None:
    assert chosen(("launch-latency", inside), ("engine", 60), ("host-code", 40)) == kept


def test_gaps_before_graphs_are_not_between_launches() -> None:
    pieces = (("dispatching", 50, ""), ("dispatching", 60, "cudaGraphLaunch"), ("dispatching", 70))
    assert chosen(*pieces, ("data-loading", 20), ("python", 30, "hipGraphLaunch"), ("python", 40)) == [70, 40]


def test_copies_are_launched_as_well() -> None:
    """Forty products and four copies."""
    trace, number, at = TraceBuilder(), 0, 0
    for step in range(4):
        begin = at
        for place in range(44):
            number += 1
            trace.op("aten::mm", at, 10 * US)
            trace.launch("cudaLaunchKernel" if place < 40 else "cudaMemcpyAsync", at + 4 * US, 5 * US, number)
            if place < 40:
                trace.kernel(at + 9 * US, 1 * US, number, name=GEMM)
            else:
                trace.memcpy(at + 9 * US, 1 * US, number, name="Memcpy DtoD (Device -> Device)", size=4)
            at += 12 * US
        trace.step(step, begin, at - begin)
    (one,) = of_rule(trace, "launch-bound")
    assert (one.evidence["kernels"], one.evidence["launches"]) == (40, 44)
