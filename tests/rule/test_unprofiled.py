"""Whether idle time is there without the profiler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.cached_reports import analysed
from traceanalyzer.replay.saving import MIN_OPEN_SHARE, Forecast, busy_share, is_busy, only_profiled
from traceanalyzer.rule.advice import busy_advice


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


@pytest.mark.parametrize(
    ("name", "busy"),
    [("real/resnet50.eager", False), ("pairs/clean_train.fixed", True), ("noise/gemm.a1", True)],
)
def test_idle_with_the_slowest_plausible_cpu_is_not_busy(
    shared: Callable[[str], Path], name: str, busy: bool
) -> None:
    """The step of resnet50 takes 21 ms, 16 ms of them on the GPU; the replay's interval goes from 15 to 22 ms."""
    forecast = analysed(shared(name)).index(Forecast)
    assert is_busy(forecast) is busy
    assert forecast.step.open is not busy


def test_without_a_replay_nothing_is_known() -> None:
    assert busy_share(None) is None
    assert not only_profiled(None)
    assert not is_busy(None)


def replayed(*steps: tuple[float, float], open_: bool = False) -> Any:
    """A forecast whose step takes (ns, work of the busiest stream in ns) with each plausible CPU."""
    base = [SimpleNamespace(ns=ns, gpu_ns=gpu_ns) for ns, gpu_ns in steps]
    replays = SimpleNamespace(steps=lambda edits: (base * 3)[:3])
    return Forecast(replays, SimpleNamespace(open=open_))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("steps", "share"),
    [
        ([(100, 50), (80, 50)], 0.625),  # the quickest CPU
        ([(80, 50), (100, 50)], 0.625),
        ([(100, 120)], 1.0),
        ([(0, 0)], 0.0),
    ],
)
def test_the_busiest_stream_works_all_of_the_step_at_most(
    steps: list[tuple[float, float]], share: float
) -> None:
    assert busy_share(replayed(*steps)) == share


@pytest.mark.parametrize(("more", "busy"), [(-1e-6, False), (0.0, False), (1e-6, True)])
def test_device_is_busy_if_idle_is_below_the_replay_error(more: float, busy: bool) -> None:
    """And surely so where a slow CPU leaves it busy as well."""
    step = (1.0, 1 - MIN_OPEN_SHARE + more)
    assert only_profiled(replayed(step)) is busy
    assert is_busy(replayed(step)) is busy
    assert not is_busy(replayed(step, open_=True))


def test_what_to_do_where_the_device_is_busy_is_nothing_first() -> None:
    assert busy_advice("Take .item() out of the loop.") == (
        "Nothing to do: without the profiler the GPU is probably busy all the time. If you measure that it is not, "
        "take .item() out of the loop."
    )
