"""What is said to bound a step, and with which numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from traceanalyzer.report.facts import what_bounds


@pytest.mark.parametrize(
    ("unclear", "bound", "said"),
    [
        (True, "cpu", "bound by the CPU or the device, not clear"),
        (False, "cpu", "overhead-bound"),
        (False, "gpu", "bound by the device"),
        (False, "communication", "bound by communication"),
        (False, "wait", "bound by waiting"),
    ],
)
def test_bound_of_a_step_is_stated_unless_open(unclear: bool, bound: str, said: str) -> None:
    step = SimpleNamespace(open=unclear, bound=bound, unprofiled_ns=3e6)
    # The others are of the ends of the interval.
    slowdowns = [SimpleNamespace(cpu_ns=ns, gpu_ns=ns / 2) for ns in (2e6, 1e6, 4e6)]
    forecast = SimpleNamespace(step=step, base=slowdowns)
    given: Any = SimpleNamespace(index=lambda _: forecast)
    (one,) = what_bounds(given)
    assert one.text.startswith(said)
    assert one.text.endswith("(2.00 ms of CPU and 1.00 ms of GPU time in a step of 3.00 ms)")
    assert one.values == {"bound": bound, "cpu_ns": 2_000_000, "gpu_ns": 1_000_000, "step_ns": 3_000_000}
