"""What a step is spent on: time is counted once, and what the recording only cut is left out."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from tests.support.cached_reports import reported, reported_job
from traceanalyzer.model.finding import Severity
from traceanalyzer.report.verdict import verdict_of
from traceanalyzer.rule.evidence_texts import launched_in_steps, uncovered_ns


class Kinds(list[str]):
    """As `Texts`, as far as it is used here."""

    def one_of(self, *names: str) -> Any:
        return np.array([kind in names for kind in self])


def work(*pieces: tuple[str, int, int]) -> Any:
    kinds, starts, ends = zip(*pieces, strict=True)
    start, end = np.array(starts), np.array(ends)
    return SimpleNamespace(kind=Kinds(kinds), start_ns=start, end_ns=end, dur_ns=end - start)


def test_time_beside_other_work_is_counted_once() -> None:
    pieces = work(("compute", 0, 10), ("communication", 5, 20), ("copy_h2d", 15, 30), ("copy_d2h", 2, 8))
    assert uncovered_ns(pieces).tolist() == [10, 10, 10, 0]


@pytest.mark.parametrize(("launched_ns", "counted"), [(50, [True, False]), (49, [True, True])])
def test_work_without_a_launch_is_left_out_where_most_has_one(launched_ns: int, counted: list[bool]) -> None:
    given: Any = SimpleNamespace(
        dur_ns=np.array([launched_ns, 50]), step=np.array([0, 0]), launch=SimpleNamespace(there=np.array([True, False]))
    )
    assert launched_in_steps(given).tolist() == counted


@pytest.mark.parametrize(("unseen", "said"), [(25, True), (24, False)])
def test_what_the_trace_does_not_show_is_said_from_a_quarter_on(unseen: int, said: bool) -> None:
    parts = {"compute": (100 - unseen) * MS, "idle:waiting": 10 * MS, "idle:unknown": (unseen - 10) * MS}
    time = samples.accounting(parts_ns=parts, idle_causes=())
    limit = verdict_of(samples.trace(step=samples.estimate(), accounting=(time,)), []).limit
    assert (f"for {unseen} % of the window the GPU waits for something that the trace does not show" in limit) is said


def test_an_allocation_of_the_first_step_alone_limits_no_step(shared: Callable[[str], Path]) -> None:
    """316 of the first step's 444 ms; the device works meanwhile in the later ones."""
    limit = reported(shared("jobs/torchrec_a2a/rank0")).traces[0].summary.limit
    assert "allocated" not in limit


def test_copies_beside_kernels_of_other_steps_take_no_time(shared: Callable[[str], Path]) -> None:
    """Each copy of a batch runs beside the products of the step before: the first step's, too, which is not usual."""
    limit = reported(shared("pairs/h2d_in_compute.fixed")).traces[0].summary.limit
    assert "aten::matmul (96 %)" in limit


def test_what_backward_repeats_goes_by_its_own_op(shared: Callable[[str], Path]) -> None:
    """Each block's second forward runs in the first node of the block's backward, a layer norm's."""
    report = reported(shared("pairs4/checkpointing.bad"))
    assert "aten::linear (36 %), AddmmBackward0 (24 %)" in report.traces[0].summary.limit
    assert [one.by for one in report.findings if one.rule == "hotspot"] == ["aten::linear"]


def test_unblocked_rank_time_is_unknown_if_waiting_stays(shared: Callable[[str], Path]) -> None:
    """What is received after it was sent waits in its kernel, 20 of 26 ms a step: the replay keeps that."""
    assert [rank.alone_ns for rank in reported_job(shared("jobs/lightllm_base")).job.ranks] == [None] * 8
    assert all(rank.alone_ns for rank in reported_job(shared("jobs/torchrec_a2a")).job.ranks)


def test_what_waits_for_other_ranks_is_limited_by_that(shared: Callable[[str], Path]) -> None:
    report = reported(shared("jobs/torchrec_sleep/rank0"))
    assert report.traces[0].summary.limit.endswith("of the predicted step in sendrecv (exposed communication)")
    (waiting,) = (one for one in report.findings if one.cause == "waiting")
    assert (waiting.severity, waiting.pedantic) == (Severity.LOW, True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "ranks2/unused.bad.rank1",
            "probably the CPU, here and on other ranks: during 80 % of the predicted step, this GPU waits, mostly "
            "in collectives",
        ),
        (
            "ranks2/unused.bad.rank0",
            "the CPU: the GPU waits for the CPU during 80 % of the predicted step, mostly while the CPU",
        ),
        (  # two kinds of collectives together, of which one is none of the three largest costs
            "ddp/fsdp.rank1",
            "probably the CPU, here and on other ranks: during 41 % of the predicted step, this GPU waits, mostly "
            "in collectives",
        ),
    ],
)
def test_exchange_waiting_is_named_if_most_of_the_waiting(shared: Callable[[str], Path], name: str, said: str) -> None:
    """Of the rank that waits 2 % was said, the idle time outside of collectives, with the CPU as the limit."""
    (trace,) = reported(shared(name)).traces
    assert trace.summary.limit.startswith(said)
