"""Idle time that every program has between its ops, and more than that."""

from __future__ import annotations

import pytest

from tests.rules.loops import Loop, loop_of
from traceanalyzer import diagnose


@pytest.mark.parametrize(("pause_us", "severity"), [(100, "info"), (800, "high")], ids=["2.5 %", "26 %"])
def test_little_time_between_ops_is_no_first_finding(pause_us: int, severity: str) -> None:
    """A kernel of 2 ms, and Python or other code that takes so much longer."""

    def body(loop: Loop, _: int) -> None:
        loop.launched(kernel_ns=2_000_000)
        loop.pause(1_940_000 + pause_us * 1_000)

    found = {one.cause: one for one in diagnose(loop_of(body), select=["scheduler-gap"]).findings}
    assert found["host-code"].severity == severity
    assert found["host-code"].cost_share < 0.03 or severity == "high"
