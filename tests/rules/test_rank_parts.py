"""Waiting and transfer of collectives whose last rank is known."""

from typing import Any

import numpy as np
import pytest

from tests.rules.launches import US
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Confidence, Severity
from traceanalyzer.rule import LostTime, Work
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rules.communication.exposed_communication import Limits, measured_hits, waiting_hits
from traceanalyzer.timeline.collective_waits import Arrivals


def collectives(took_us: list[int], *, ops: int | None = None, steps: int = 1) -> Work:
    """All-reduces that take so long, one after the other, of which the first `ops` have an op."""
    trace, each = TraceBuilder(distributedInfo={"rank": 0, "world_size": 4}), len(took_us) // steps
    args: dict[str, Any] = {"Collective name": "allreduce", "In msg nelems": 9, "Out msg nelems": 9}
    at = 0
    for number, took in enumerate(took_us):
        if number % each == 0:
            trace.step(number // each, at, sum(took_us[number : number + each]) * US + each * 50 * US - 1)
        if ops is None or number < ops:
            trace.op("record_param_comms", at + US, 20 * US, **args)
        trace.launch("cudaLaunchKernel", at + 5 * US, 5 * US, number + 1)
        trace.kernel(at + 15 * US, took * US, number + 1, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
        at += (took + 50) * US
    return Analysis(trace.load()).index(Work).in_order()


def measured(
    took_us: list[int], moved_us: list[int], last: list[int], *, name: str = "allreduce", ops: int | None = None
) -> dict[str, Hits]:
    """What is said of collectives without compute beside them, by what they take to move data and who came last."""
    work = collectives(took_us, ops=ops)
    arrivals = Arrivals(np.array(moved_us) * US, np.array(last))
    lost = LostTime.uncovered(work, work[:0])
    return {one.cause: one for one in measured_hits(work, name, lost, arrivals, Limits())}


def test_a_rank_waits_for_the_last_rank_of_each_collective() -> None:
    """Waits of 100, 19, 20 and 300 us, of which the second is none; the last rank of the fourth is not known."""
    said = measured([150, 69, 70, 350], [50, 50, 50, 50], [2, 3, 1, -1])
    waiting, transfer = said["waiting"], said["transfer"]
    assert len(waiting.occurrences) == 2
    assert dict(waiting.evidence or {}) == {
        "waiting_ns": 120 * US,
        "took_ns": 220 * US,
        "late": {"rank 2": 100 * US, "rank 1": 20 * US},
    }
    assert waiting.advice.startswith("Rank 2 comes last")
    assert (waiting.max_severity, waiting.fix) == (Severity.LOW, ())
    assert (waiting.lost.end_ns - waiting.lost.start_ns).tolist() == [100 * US, 20 * US]
    assert len(transfer.occurrences) == 4
    assert transfer.confidence is Confidence.MEDIUM
    assert transfer.evidence is not None
    assert transfer.evidence["exposed_ns"] == transfer.evidence["transfer_ns"] == 200 * US


def test_waiting_goes_and_exposed_transfer_goes_in_part() -> None:
    """Of 50 us that move data 30 % are saved; nobody knows how long the second one waits."""
    (transfer,) = (one for cause, one in measured([150, 80], [50, 50], [2, -1]).items() if cause == "transfer")
    fix: Any = transfer.fix
    assert np.asarray(fix.dur_ns).tolist() == pytest.approx([50 * US - 15 * US, 80 * US - 15 * US])


@pytest.mark.parametrize(("ops", "edit"), [(None, "Drop"), (1, "DropWork")])
def test_needless_gather_goes_with_its_recorded_op(ops: int | None, edit: str) -> None:
    transfer = measured([60, 60], [50, 50], [1, 1], name="allgather", ops=ops)["transfer"]
    assert type(transfer.fix).__name__ == edit
    assert transfer.advice.startswith("If possible, let the next op work only on this rank's part of the tensor")


def estimated(
    took_us: list[int], *, name: str = "allreduce", beside: bool = False, single: bool = True, steps: int = 1
) -> dict[str, Hits]:
    """Of collectives that move data for 200 us each; compute may run beside the second half of each."""
    work = collectives(took_us, steps=steps)
    arrivals = Arrivals(np.full(len(work), 200 * US), np.full(len(work), -1))
    lost = LostTime.all_of(work)
    if beside:
        lost = LostTime.all_of(work)
        half = (lost.end_ns - lost.start_ns) // 2
        lost = type(lost)(**{n: getattr(lost, n) for n in lost.__slots__} | {"end_ns": lost.end_ns - half})
    return {one.cause: one for one in waiting_hits(work, name, lost, arrivals, Limits(), single=single)}


@pytest.mark.parametrize(
    ("took_us", "causes"),
    [
        ([200, 200, 200, 350], {"transfer": 4}),  # 1.75 times, and 150 us more
        ([200, 200, 200, 351], {"transfer": 3, "waiting": 1}),
        ([350, 350, 350, 350], {"transfer": 4}),
        ([350, 350, 350, 351], {"waiting": 4}),  # all of them together
        ([200, 200, 200, 900], {"waiting": 4}),
    ],
)
def test_collective_waits_if_much_longer_than_transfer(took_us: list[int], causes: dict[str, int]) -> None:
    said = estimated(took_us)
    assert {cause: len(one.occurrences) for cause, one in said.items()} == causes
    for cause, one in said.items():
        assert one.confidence is (Confidence.LOW if cause == "waiting" else Confidence.MEDIUM)
        assert one.max_severity is (Severity.LOW if cause == "waiting" else Severity.HIGH)
        apart = {
            "waiting": "of all calls of {by}, the slow ones ({number_a_step}) take",
            "transfer": "of all calls of {by}, the quick ones ({number_a_step}) take",
        }
        assert (apart[cause] in one.message) is (len(causes) > 1)


@pytest.mark.parametrize(("steps", "causes"), [(1, {"transfer", "waiting"}), (2, {"transfer"})])
def test_waiting_in_one_of_two_steps_is_a_hiccup(steps: int, causes: set[str]) -> None:
    assert set(estimated([200, 200, 200, 400], steps=steps)) == causes


@pytest.mark.parametrize("name", ["barrier", "recv"])
def test_a_barrier_and_a_receiver_always_wait(name: str) -> None:
    said = estimated([200, 200], name=name)
    assert set(said) == {"waiting"}
    assert "and waits for another rank" in said["waiting"].message


def test_estimated_waiting_is_told_with_whom_it_is_for() -> None:
    slow, alike, quick = estimated([200, 200, 200, 900]), estimated([350] * 4), estimated([200] * 4)
    told = "; {waiting_of_step} of this is probably waiting for "
    assert slow["waiting"].message.endswith(f"{told}a rank that comes later")
    assert alike["transfer"].message.endswith(f"{told}other ranks")
    assert "waiting" not in quick["transfer"].message


def test_advice_depends_on_traces_of_other_ranks() -> None:
    assert estimated([900], single=True)["waiting"].advice.startswith("Other ranks decide how long this one waits")
    assert estimated([900], single=False)["waiting"].advice.startswith("The rank that waits least is the late one")


def test_overlapping_compute_shortens_exposed_time() -> None:
    """Half of 200 us: of that 30 % are saved."""
    whole, half = estimated([200, 200])["transfer"], estimated([200, 200], beside=True)["transfer"]
    assert "the GPU computes nothing meanwhile" in whole.message
    assert "during {exposed_of_step} of it, the GPU computes nothing" in half.message
    assert [one.evidence["exposed_ns"] for one in (whole, half) if one.evidence] == [400 * US, 200 * US]
    left: list[Any] = [one.fix for one in (whole, half)]
    assert [np.asarray(one.dur_ns).tolist() for one in left] == [[140 * US] * 2, [170 * US] * 2]
