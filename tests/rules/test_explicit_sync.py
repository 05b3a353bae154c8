"""Synchronisations that the program calls itself: which calls go with them, and where they are called."""

from __future__ import annotations

import pytest

from tests.rules.programs import US, Program, found
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
def test_a_synchronisation_is_told_with_its_line_where_stacks_are_recorded(line: str | None) -> None:
    message = timing("cudaDeviceSynchronize", line=line).message
    assert ("called at train.py" in message) is bool(line)
    assert ("called at" in message) is bool(line)
