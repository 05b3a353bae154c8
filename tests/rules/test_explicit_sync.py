"""Synchronisations that the program calls itself: which calls go with them, and where they are called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rules.programs import PINNED_TO_HOST, STEP, TO_HOST, US, Program, found
from tests.support.cached_reports import reported
from traceanalyzer.model.finding import Finding


def timing(call: str, *, orders: bool = False, line: str | None = None, steps: int = 5) -> Finding:
    """Steps of two quick kernels, an event that takes the CPU 60 us to record, and a synchronisation of 20 us."""
    program = Program()
    for number in range(steps):
        program.step(number)
        for _ in range(2):
            program.kernel(dur=10 * US)
        program.trace.launch("cudaEventRecord", program.now, 60 * US, 7_000 + number)
        if orders:
            program.trace.launch("cudaStreamWaitEvent", program.now + 62 * US, US, 8_000 + number)
        if line:
            program.trace.python(line, program.now + 64 * US, 34 * US, python_id=number + 1)
        program.trace.launch(call, program.now + 70 * US, 20 * US, 9_000 + number)
        program.now += 100 * US
        program.kernel(dur=10 * US)
    (one,) = found(program.trace, "long-device-sync")
    return one


@pytest.mark.parametrize(
    ("call", "orders", "gone"),
    [
        ("cudaEventSynchronize", False, True),
        ("cudaEventSynchronize", True, False),  # another stream waits for what is recorded
        ("cudaDeviceSynchronize", False, False),
    ],
)
def test_events_that_only_measure_go_with_the_wait_for_them(call: str, orders: bool, gone: bool) -> None:
    one, least = timing(call, orders=orders), timing("cudaDeviceSynchronize")
    assert one.saving is not None
    assert least.saving is not None
    assert (one.saving.step_ns - least.saving.step_ns >= 40 * US) is gone


@pytest.mark.parametrize("line", ["train.py(7): timed", None])
def test_synchronisation_reports_its_line(line: str | None) -> None:
    message = timing("cudaDeviceSynchronize", line=line).message
    assert ("called at train.py" in message) is bool(line)
    assert ("called at" in message) is bool(line)


def waiting(call: str, *, op: str = "", copies: bool = False, busy: bool = False) -> list[Finding]:
    """Five steps of a kernel, a call of 200 us after it that may be in an op or copy, and a kernel."""
    program = Program()
    for number in range(5):
        program.step(number)
        program.kernel(dur=(600 if busy else 100) * US)
        at = program.now
        if op:
            program.trace.op(op, at, 210 * US)
        program.trace.launch(call, at + 2 * US, 200 * US, 9_000 + number)
        if copies:
            start = program.device + 3 * US
            program.trace.memcpy(start, 20 * US, 9_000 + number, name=TO_HOST, size=1 << 20)
            program.device = start + 20 * US
        program.now += 212 * US
        program.kernel()
    return found(program.trace, "long-device-sync")


def test_waits_in_ops_and_copies_are_not_explicit() -> None:
    (bare,) = waiting("cudaStreamSynchronize")
    assert (bare.count, bare.evidence["waited_ns"]) == (5, 5 * 200 * US)
    assert waiting("cudaStreamSynchronize", op="aten::cudnn_convolution") == []
    assert waiting("cudaMemcpyAsync", copies=True) == []
    assert waiting("cudaStreamSynchronize", busy=True) == []


def test_the_profilers_own_wait_is_not_counted() -> None:
    """It waits for the device after the last op, when it stops."""
    program = Program()
    for number in range(5):
        program.step(number)
        program.kernel()
        program.trace.launch("cudaDeviceSynchronize", program.now, 150 * US, 9_000 + number)
        program.now += 150 * US
        program.kernel()
    program.trace.launch("cudaDeviceSynchronize", 5 * STEP + 20 * US, 10 * US, 9_100)
    (one,) = found(program.trace, "long-device-sync")
    assert (one.count, one.evidence["waited_ns"]) == (5, 5 * 150 * US)


def test_line_that_waits_longest_is_first() -> None:
    program, number = Program(), 0
    for step in range(4):
        program.step(step)
        for line, wait in (("often.py(3): log", 30), ("often.py(3): log", 30), ("once.py(9): end", 300)):
            number += 1
            program.kernel(dur=10 * US)
            program.trace.python(line, program.now, (wait + 4) * US, python_id=number)
            program.trace.launch("cudaDeviceSynchronize", program.now + 2 * US, wait * US, 9_000 + number)
            program.now += (wait + 6) * US
        program.kernel(dur=10 * US)
    (one,) = found(program.trace, "long-device-sync")
    assert list(one.evidence["lines"].items()) == [
        ("once.py(9): end", 4 * 300 * US),
        ("often.py(3): log", 4 * 60 * US),
    ]


@pytest.mark.parametrize("at", [0, 2])
def test_a_single_synchronisation_is_told(at: int) -> None:
    """A kernel ends after 115 us, and the next one, whose op begins at 224 us, starts after 239 us."""
    program = Program()
    for number in range(3):
        program.step(number)
        program.kernel()
        if number == at:
            program.trace.launch("cudaDeviceSynchronize", program.now + 2 * US, 200 * US, 9_000)
            program.now += 202 * US
            program.kernel()
    (one,) = found(program.trace, "long-device-sync")
    assert (one.count, one.cost_ns, one.evidence["waited_ns"]) == (1, 124 * US, 200 * US)


@pytest.mark.parametrize(("pinned", "cause", "saves"), [(True, "read-back", False), (False, "", True)])
def test_a_wait_for_copies_to_the_host_is_needed(pinned: bool, cause: str, saves: bool) -> None:
    """The CPU computes 300 us with what was copied, and only then launches again."""
    program = Program()
    for number in range(5):
        program.step(number)
        program.kernel()
        if pinned:
            program.copy(PINNED_TO_HOST, 1 << 20, 20 * US, ("aten::copy_",), sync=False)
        program.trace.launch("cudaDeviceSynchronize", program.now, 200 * US, 9_000 + number)
        program.now += 200 * US
        program.trace.op("aten::_fused_adamw_", program.now, 300 * US)
        program.now += 310 * US
        program.kernel()
    (one,) = found(program.trace, "long-device-sync")
    assert (one.cause, one.saving is not None) == (cause, saves)
    assert ("Keep the wait" in one.advice) is pinned


def test_the_optimizer_on_the_host_keeps_its_wait(shared: Callable[[str], Path]) -> None:
    report = reported(shared("sixth/mlp_finetune.bad"))
    (one,) = (finding for finding in report.findings if finding.rule == "long-device-sync")
    assert (one.cause, one.saving) == ("read-back", None)
    assert one.cost_share < 0.05
