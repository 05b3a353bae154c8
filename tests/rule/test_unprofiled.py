"""Whether idle time is there without the profiler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.loaded import analysed
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.rule.unprofiled import busy_share, only_profiled


@pytest.mark.parametrize(
    ("name", "expected"),
    [("pairs/launch_bound.bad", False), ("pairs/clean_train.fixed", True), ("real/gpt2_train.eager", True)],
)
def test_a_busy_device_idles_under_the_profiler_only(
    shared: Callable[[str], Path], name: str, expected: bool
) -> None:
    forecast = analysed(shared(name)).index(Forecast)
    assert only_profiled(forecast) is expected
    assert 0 < (busy_share(forecast) or 0) <= 1.0 + 1e-9


def test_without_a_replay_nothing_is_known() -> None:
    assert busy_share(None) is None
    assert not only_profiled(None)
