"""Exposed collectives, and advice on waiting and transfer."""

from typing import Any

import numpy as np
import pytest

from tests.rules.launches import US, found, loop, of_rule
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding, diagnose
from traceanalyzer.job.links import RankLinks, SlowLink
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Status
from traceanalyzer.rule import Work
from traceanalyzer.rules.communication.exposed_communication import late_ranks_text, waited_by_rank
from traceanalyzer.rules.communication.slow_link import slow_link

NODE = "autograd::engine::evaluate_function: MmBackward0"
DDP = "DistributedDataParallel.forward"


def talking(kind: str, **how: Any) -> Finding:
    """The finding on `talk`."""
    (one,) = of_rule(talk(kind, **how), "exposed-communication")
    return one


def talk(
    kind: str,
    *,
    count: int = 2,
    around: str = "",
    marked: str = "",
    ddp: bool = False,
    trains: bool = False,
    beside_us: int = 0,
) -> TraceBuilder:
    """Four steps of a kernel and so many collectives of 100 us, alike.

    Args:
        around: an op around each collective.
        marked: an annotation around each collective.
        ddp: the model is one of DistributedDataParallel.
        trains: the kernel is of a backward pass.
        beside_us: how long another stream computes beside each collective.
    """
    trace, number, at = TraceBuilder(distributedInfo={"rank": 0, "world_size": 8}), 0, 0
    args: dict[str, Any] = {"Collective name": kind, "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20}
    for step in range(4):
        begin = at
        for place in range(count + 1):
            number += 2
            outer = (DDP if ddp else NODE if trains else "aten::linear") if place == 0 else around
            if outer:
                trace.op(outer, at, 60 * US)
            if marked and place:
                trace.annotation(marked, at, 60 * US)
            trace.op("c10d::op_" if place else "aten::mm", at + US, 50 * US)
            if place:
                trace.op("record_param_comms", at + 2 * US, 48 * US, **args)
            trace.launch("cudaLaunchKernel", at + 6 * US, 5 * US, number)
            trace.kernel(at + 20 * US, 100 * US, number, name=f"ncclDevKernel_{kind}" if place else "gemm")
            if place and beside_us:
                trace.launch("cudaLaunchKernel", at + 12 * US, 5 * US, number + 1)
                trace.kernel(at + 20 * US, beside_us * US, number + 1, name="gemm", stream=13)
            at += 125 * US
        trace.step(step, begin, at - begin - US)
    return trace


@pytest.mark.parametrize("kind", ["allreduce", "alltoall", "broadcast"])
def test_collectives_that_compute_hides_are_clear(kind: str) -> None:
    report = diagnose(talk(kind, beside_us=100).load())
    (outcome,) = (one for one in report.outcomes if one.rule == "exposed-communication")
    assert outcome.status is Status.CLEAR, outcome.why


@pytest.mark.parametrize(
    ("kind", "how", "advice"),
    [
        ("allgather", {}, "If possible, let the next op work only on this rank's part of the tensor."),
        ("allgather", {"around": "FullyShardedDataParallel.fsdp"}, "Prefetch the next layer's parameters"),
        ("allgather", {"marked": "FSDP::all_gather"}, "Prefetch the next layer's parameters"),
        ("reducescatter", {}, "Overlap it with the next layer's backward pass"),
        ("alltoall", {}, "Split the batch in two"),
        ("alltoall", {"beside_us": 50}, "Split the batch in two"),
        ("alltoall", {"beside_us": 51}, "Most of it already overlaps with compute"),
        ("broadcast", {}, "Start it earlier, with async_op=True"),
        ("broadcast", {"beside_us": 51}, "Start it earlier, with async_op=True"),
        ("barrier", {}, "Remove the barrier from the loop"),
        ("allreduce", {}, "If the result is needed at once"),
        ("allreduce", {"trains": True}, "Reduce gradients during the backward pass, not after it"),
        ("allreduce", {"around": NODE}, "Overlap it with the backward pass"),
        ("allreduce", {"around": NODE, "ddp": True}, "Try another size of DistributedDataParallel's buckets"),
        ("allreduce", {"ddp": True}, "If the result is needed at once"),
    ],
)
def test_what_to_do_is_that_of_its_kind_and_place(kind: str, how: dict[str, Any], advice: str) -> None:
    one = talking(kind, **how)
    assert one.by == kind
    assert one.advice.startswith(advice)


@pytest.mark.parametrize(("beside_us", "exposed_us"), [(0, 100), (30, 70), (60, 40)])
def test_what_computes_beside_a_collective_is_no_exposed_time(beside_us: int, exposed_us: int) -> None:
    one = talking("broadcast", beside_us=beside_us)
    assert one.cost_ns == 4 * 2 * exposed_us * US
    assert ("the GPU computes nothing meanwhile" in one.message) is (beside_us == 0)
    assert one.evidence["all_ns"] == 4 * 2 * 100 * US


@pytest.mark.parametrize(
    ("kind", "waited_ns", "advice"),
    [
        ("allreduce", [10, 50, 40], "Rank 3 comes last"),
        ("allreduce", [0, 60, 40], "Rank 3 comes last"),
        ("allreduce", [0, 59, 41], "The last rank changes from call to call"),
        ("allreduce", [50, 10, 40], "Rank 3 comes last"),
        ("barrier", [0, 100, 0], "Remove the barrier"),
    ],
)
def test_a_rank_is_late_that_most_of_the_waiting_is_for(kind: str, waited_ns: list[int], advice: str) -> None:
    """Rank 3 comes last in two calls, rank 1 in the third."""
    last = np.array([3, 3, 1])
    assert late_ranks_text(kind, last, np.array(waited_ns)).startswith(advice)
    total = waited_by_rank(last, np.array(waited_ns))
    assert total == {"rank 3": sum(waited_ns[:2]), "rank 1": waited_ns[2]}
    assert list(total.values()) == sorted(total.values(), reverse=True)


def few_and_many(few_ns: int) -> TraceBuilder:
    """By turns all-reduces of 4 million elements, in 2 ms, and of a tenth of a million."""
    trace = TraceBuilder()
    for number in range(1, 7):
        few, at = number % 2 == 0, 5_000 * US * number
        elements, took = (100_000, few_ns) if few else (4_000_000, 2_000 * US)
        args = {"Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements}
        trace.op("record_param_comms", at, 20 * US, **args)
        trace.launch("cudaLaunchKernel", at + 5 * US, 5 * US, number)
        trace.kernel(at + 15 * US, took, number, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    return trace


@pytest.mark.parametrize(
    ("few_ns", "cause", "waiting_ns"),
    [(150 * US, "transfer", 0), (2_000 * US, "waiting", 3 * 1_850 * US)],
    ids=["in proportion", "as long as many"],
)
def test_few_elements_that_take_as_long_as_many_wait(few_ns: int, cause: str, waiting_ns: int) -> None:
    """4 million elements move in 2 ms, so that a tenth of a million take 0.05 ms and 0.1 of latency."""
    (one,) = of_rule(few_and_many(few_ns), "exposed-communication")
    assert (one.cause, one.evidence["waiting_ns"]) == (cause, waiting_ns)


def first_late(first_ns: int, steps: int = 4) -> TraceBuilder:
    """Four steps of eight all-reduces of 600 µs, but for the first of the first `steps` of them."""
    trace = TraceBuilder()
    for number in range(32):
        step, at = divmod(number, 8)
        begun = 20_000 * US * step + 1_000 * US * at + (7_000 * US if at else 0)
        if not at:
            trace.step(step, begun, 19_000 * US)
        args = {"Collective name": "allreduce", "In msg nelems": 4_000_000, "Out msg nelems": 4_000_000}
        trace.op("record_param_comms", begun + 10 * US, 20 * US, **args)
        trace.launch("cudaLaunchKernel", begun + 15 * US, 5 * US, number + 1)
        took = 600 * US if at or step >= steps else first_ns
        trace.kernel(begun + 25 * US, took, number + 1, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    return trace


@pytest.mark.parametrize(
    ("first_ns", "counts"),
    [(1_700 * US, {"waiting": 4, "transfer": 28}), (690 * US, {"transfer": 32}), (6_000 * US, {"waiting": 32})],
    ids=["waits", "latency", "most of the time"],
)
def test_the_first_of_a_step_waits_and_the_others_transfer(first_ns: int, counts: dict[str, int]) -> None:
    trace = first_late(first_ns)
    assert {one.cause: one.count for one in of_rule(trace, "exposed-communication")} == counts


def test_waiting_in_one_of_several_steps_is_no_finding() -> None:
    """The other ranks' recordings begin later."""
    assert [one.cause for one in of_rule(first_late(1_700 * US, steps=1), "exposed-communication")] == ["transfer"]
    assert len(of_rule(first_late(1_700 * US, steps=2), "exposed-communication")) == 2


def test_collectives_before_the_recording_do_not_count() -> None:
    """The device is a step behind: what the warm-up launched has no op, and its sizes are unknown."""
    trace = TraceBuilder()
    for step in range(4):
        at, before = 1_000 * US * step, step == 0
        if not before:
            trace.step(step, at, 900 * US)
        for number, took in enumerate((30 * US, 400 * US)):
            correlation, begun = 2 * step + number + 1, at + 50 * US * number
            if not before:
                size = {"In msg nelems": took, "Out msg nelems": took}
                trace.op("record_param_comms", begun, 20 * US, **{"Collective name": "allreduce", **size})
                trace.launch("cudaLaunchKernel", begun + 5 * US, 5 * US, correlation)
            name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
            trace.kernel(at + 100 * US + 300 * US * number, took, correlation, name=name)
    (one,) = of_rule(trace, "exposed-communication")
    cost = "allreduce runs twice a step and takes 430 µs a step; the GPU computes nothing meanwhile"
    assert cost in one.message
    assert (one.count, one.cause, one.evidence["waiting_ns"]) == (6, "transfer", 0)


def test_the_recorded_steps_reduce_as_often_as_said() -> None:
    (one,) = found(FIXTURES / "exposed-communication" / "bad.json.gz", "exposed-communication")
    assert "allreduce runs 9 times a step" in one.message


def test_one_gpu_does_not_communicate() -> None:
    report = diagnose(loop(["aten::add"], 4).load(), select=["exposed-communication", "needless-collectives"])
    assert {outcome.status for outcome in report.outcomes} == {Status.NOT_APPLICABLE}


def small_ones(kernels: int) -> TraceBuilder:
    """Three steps of six all-reduces of 64 numbers, each with so many kernels behind it."""
    args: Any = {"Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 64}
    trace, at, number = TraceBuilder(distributedInfo={"rank": 0, "world_size": 8}), 0, 0
    for step in range(3):
        begin = at
        for _ in range(6):
            for name in ["c10d::allreduce_", *["aten::mm"] * kernels]:
                number += 1
                talks = name.startswith("c10d")
                trace.op(name, at, 18 * US)
                if talks:
                    trace.op("record_param_comms", at + US, 16 * US, **args)
                trace.launch("cudaLaunchKernel", at + 5 * US, 5 * US, number)
                kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if talks else "gemm"
                trace.kernel(at + 12 * US, 10 * US, number, name=kernel)
                at += 25 * US
        trace.step(step, begin, at - begin)
    return trace


@pytest.mark.parametrize(("kernels", "count"), [(0, 3 * 5), (12, 0)])
def test_small_collectives_stack_without_compute_between(kernels: int, count: int) -> None:
    """Iterations of one mark, and layers, exchange a few numbers each: each needs what lies before it."""
    said = of_rule(small_ones(kernels), "needless-collectives")
    assert sum(one.count for one in said) == count


def test_slow_link_saves_the_excess_over_peers() -> None:
    """Of six collectives those at a slow link, in another order than they ran."""
    work = Analysis(few_and_many(150 * US).load()).index(Work).in_order()
    entry, more_ns = work.entries[[4, 0, 3]], np.array([900 * US, 500 * US, 60 * US])
    links = RankLinks((SlowLink((1, 3), None, None, 0.5, entry, more_ns),))
    (hits,) = slow_link(work, links, None, None)
    assert hits.named_by == "ranks 1 and 3"
    assert (hits.fix.work.tolist(), hits.fix.dur_ns.tolist()) == (
        work.entries[[0, 3, 4]].tolist(),
        [1_500 * US, 90 * US, 1_100 * US],
    )
    assert (hits.lost.end_ns - hits.lost.start_ns).tolist() == [500 * US, 60 * US, 900 * US]
    assert hits.evidence["more_ns"] == 1_460 * US
    assert (hits.evidence["part"], hits.evidence["longer_times"]) == ("50 %", 1.5)
    of_group = RankLinks((SlowLink((0, 1), "tp", "allreduce", 0.5, entry, more_ns),))
    (named,) = slow_link(work, of_group, None, None)
    assert (hits.evidence["what"], named.evidence["what"]) == ("exchanges", "allreduce")
    assert (hits.cause, named.cause, named.named_by) == ("pair", "group", "tp")
    assert [one.evidence["where"] for one in (hits, named)] == ["link between ranks 1 and 3", "group tp"]
