"""The limit of a step in which CPU and GPU wait for each other: what it says besides that, or instead."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.report.report_samples import MS
from tests.report.test_limits import limit
from traceanalyzer.report.costs import Cost


@pytest.mark.parametrize(
    ("kind", "share", "waits"),
    [("communication", 0.5, False), ("communication", 0.49, True), ("copy", 0.5, False), ("idle", 0.9, True)],
)
def test_half_of_a_step_in_one_exchange_is_named_first(
    kind: Literal["communication", "copy", "idle"], share: float, waits: bool
) -> None:
    costs = (Cost("recv", kind, share * 18 * MS, share),)
    for wrong in (True, False):
        said = limit(costs, wrong=wrong, bound="wait")
        assert said.startswith("CPU and GPU wait for each other in turn; ") is waits
        assert f"{100 * share:.0f} %" in said
    assert limit(costs, bound="wait", bounds=("gpu", "wait")).startswith("undecided, ")


@pytest.mark.parametrize(
    ("step_ns", "whole"), [(18.17 * MS, "the predicted step"), (18.19 * MS, "all GPU work")]
)
def test_what_streams_do_at_once_is_told_of_all_work(step_ns: float, whole: str) -> None:
    """A step of 18 ms."""
    costs = (Cost("aten::mm", "gpu", step_ns / 2, 0.5), Cost("aten::add", "gpu", step_ns / 4, 0.25))
    assert limit(costs, bound="gpu") == f"the GPU: it spends 50 % of {whole} in aten::mm"
    said = limit(costs, wrong=False, bound="gpu")
    assert said == f"the GPU: the largest parts of {whole} are aten::mm (50 %), aten::add (25 %)"


def test_largest_cost_is_named_unless_idle_precedes_exchanges() -> None:
    mm, sent = Cost("aten::mm", "gpu", 7.74 * MS, 0.43), Cost("recv", "communication", 2.34 * MS, 0.13)
    idle = Cost("while data is loaded", "idle", 3 * MS, 0.15)
    assert limit((mm, sent), bound="wait").endswith(
        "in turn; the GPU spends 43 % of the predicted step in aten::mm"
    )
    assert limit((mm, idle, sent), bound="wait").endswith(
        "15 % of the predicted step, mostly while data is loaded"
    )
