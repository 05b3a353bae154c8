"""A stream that waits for another one goes on waiting when an edit takes the work at one end of the wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.replay.programs import program, replay
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.replay.edits import DropWork, MoveToSideStream, Scale
from traceanalyzer.replay.program import Program
from traceanalyzer.replay.rewrites import Fuse

US = 1_000
STEPS = 4
SENT, CLEARED, MADE = 800, 1, 200  # us of what the other stream receives, a memset after it, and a product


def received() -> Program:
    """A product of 50 us, a receive on another stream that waits for it, a memset and a product that wait for that.

    The CPU waits for all at the end of each step, so that nothing of one step runs beside the next.
    """
    trace, at, number = TraceBuilder(), 0, 0

    def launched(name: str, start_us: int, **more: Any) -> int:
        nonlocal number
        number += 1
        trace.launch(name, start_us * US, 5 * US, number, **more)
        return number

    for step in range(STEPS):
        begin = at
        trace.op("aten::mm", at * US, 20 * US)
        trace.kernel((at + 15) * US, 50 * US, launched("cudaLaunchKernel", at + 5))
        launched("cudaStreamWaitEvent", at + 26)
        trace.op("c10d::recv_", (at + 32) * US, 20 * US)
        first_end = at + 67
        trace.kernel(
            first_end * US, SENT * US, launched("cudaLaunchKernel", at + 37), name="ncclRecv", stream=20
        )
        launched("cudaStreamWaitEvent", at + 60)
        trace.op("aten::addmm", (at + 66) * US, 30 * US)
        sent_end = first_end + SENT + 3
        trace.memset(sent_end * US, CLEARED * US, launched("cudaMemsetAsync", at + 68))
        trace.kernel((sent_end + 3) * US, MADE * US, launched("cudaLaunchKernel", at + 80), name="nvjet_gemm")
        end = sent_end + 3 + MADE
        trace.launch("cudaDeviceSynchronize", (at + 100) * US, (end + 5 - at - 100) * US, number + 1_000)
        at = end + 10
        trace.step(step, begin * US, (at - begin) * US)
        at += 10
    built = program(trace.load())
    assert len(built.work.edge_to) >= 2 * (STEPS - 1)
    return built


def of(built: Program, number: int) -> Any:
    """Entries of the work that is so many pieces after the first of its step."""
    return built.work.entry[number::4]


@pytest.mark.parametrize(
    "edit",
    [
        lambda built: DropWork(of(built, 2)),
        lambda built: MoveToSideStream(of(built, 2)),
        lambda built: Fuse(
            np.sort(np.concatenate((of(built, 2), of(built, 3)))),
            np.arange(len(built.work.entry) // 2) // 2,
            np.full(len(built.work.entry) // 4, MADE * US),
        ),
    ],
)
def test_what_follows_the_work_that_goes_still_waits(edit: Callable[[Program], Any]) -> None:
    """Without the memset: it takes 1 us and about 2 more to start."""
    built = received()
    whole, none = replay(built), replay(built, [Scale(of(built, 2), 0.0)])
    assert replay(built, [edit(built)]).ns == pytest.approx(none.ns, abs=8 * US)
    assert whole.ns - none.ns < 5 * US


def test_what_was_waited_for_still_ends_before() -> None:
    """Without the first product the receive waits for the step before, and is not of the CPU's pace alone."""
    built = received()
    shorter = replay(built, [Scale(of(built, 0), 0.0)]).ns
    assert replay(built, [DropWork(of(built, 0))]).ns == pytest.approx(shorter, abs=20 * US)
