"""Decisions of the report, each by an example at either side of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from traceanalyzer.report.job_facts import _pace
from traceanalyzer.report.overlay.counters import MOST_SAMPLES, _drawn


def test_the_rank_that_waits_least_sets_the_pace() -> None:
    waits = {0: 5, 1: 1, 2: None, 3: 9}
    ranks: Any = [SimpleNamespace(rank=rank, predicted_waiting_ns=ns) for rank, ns in waits.items()]
    step: Any = SimpleNamespace(bound="cpu")
    assert _pace(ranks, step).startswith("rank 1 sets the pace")


def test_the_mean_of_a_curve_that_does_not_change_is_its_value() -> None:
    at = np.arange(2 * MOST_SAMPLES) * 10
    steps: Any = SimpleNamespace(window_start_ns=0, window_end_ns=int(at[-1]))
    _, mean, note = _drawn(at, np.ones(len(at)), steps)
    assert note
    assert mean.tolist() == [1.0] * len(mean)
