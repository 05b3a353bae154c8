"""One rank without its peers' traces: what it waits for them while all launch is the profiler's doing."""

from __future__ import annotations

import pytest

from tests.support.kernels_alone import recorded
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.saving import Forecast


def rank(*, op_us: int, waits_us: tuple[int, ...]) -> Forecast:
    """The prediction of such a recording."""
    return Analysis(recorded(op_us=op_us, waits_us=waits_us)).index(Forecast)


def test_rank_that_always_launches_waits_less_unprofiled() -> None:
    made = rank(op_us=20, waits_us=(2_000, 0, 2_000, 2_000, 2_000))
    quick = rank(op_us=20, waits_us=(0, 0, 0, 0, 0))
    assert made.program.awaited == pytest.approx(1_500 / 5_600, abs=0.05)
    assert "other ranks' launching" in made.step.basis
    # The peers' launching is quickened as its own is: the recorded step and the predicted one have one ratio.
    ratio = quick.step.unprofiled_ns / quick.step.traced_ns
    assert made.step.unprofiled_ns / made.step.traced_ns == pytest.approx(ratio, abs=0.03)


def test_rank_with_little_to_launch_waits_as_long() -> None:
    made = rank(op_us=6, waits_us=(4_000, 0, 4_000, 4_000, 4_000))
    assert made.program.awaited == 0
    assert "other ranks' launching" not in made.step.basis
    assert made.step.unprofiled_ns >= 0.8 * made.step.traced_ns


def test_steps_with_one_longer_recorder_wait_predict_alike() -> None:
    """The first step of other ranks begins late: two cuts of one recording say the same."""
    early = rank(op_us=20, waits_us=(0, 2_500, 100, 100, 100, 100))
    late = rank(op_us=20, waits_us=(100, 100, 100, 100))
    assert early.step.unprofiled_ns == pytest.approx(late.step.unprofiled_ns, rel=0.15)


@pytest.mark.parametrize(
    ("kernel_us", "wait_us", "low", "says"),
    [
        (5, 2_000, False, True),
        (10, 3_900, True, True),
        (5, 0, False, False),
    ],
)
def test_launch_bound_says_what_it_takes_for_the_peers_launching(
    kernel_us: int, wait_us: int, low: bool, says: bool
) -> None:
    """The confidence is low where most of it is the peers'."""
    trace = recorded(op_us=20, waits_us=(wait_us, 0, wait_us, wait_us, wait_us), kernel_us=kernel_us)
    (one,) = (one for one in diagnose(trace).findings if one.rule == "launch-bound")
    words = (
        "mostly within collectives: probably for other ranks, which launch"
        if low
        else "waits for other ranks that launch"
    )
    assert (words in one.message) == says
    assert ("Pass the files of all ranks" in one.advice) == says
    assert (one.confidence is Confidence.LOW) == low
