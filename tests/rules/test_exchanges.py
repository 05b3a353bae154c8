"""Pipelines with few micro-batches, and experts that get more tokens than others, by what ranks send each other."""

import pytest

from tests.rules.loops import Loop, loop_of
from tests.rules.programs import US, found
from tests.support.exchanges import BACK, FORWARD, STEPS, T, experts, pipeline
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Severity, Trace, diagnose


def test_a_pipeline_with_few_micro_batches_idles_for_its_bubble() -> None:
    (one,) = found(pipeline([FORWARD, FORWARD, BACK, BACK]), "pipeline-bubble")
    assert (one.evidence["stages"], one.evidence["micro_batches"]) == (4, 2)
    assert one.evidence["bubble_share"] == pytest.approx(3 / 5)
    assert one.evidence["idle_share"] == pytest.approx(0.7, abs=0.02)
    assert one.severity is Severity.INFO
    assert "4 stages and 2 micro-batches a step: at least 60.0 %" in one.message
    assert "the bubble is 27 %" in one.advice


def test_micro_batches_are_those_of_the_direction_that_has_more() -> None:
    """What goes on to the next stage may be sent in more parts than what comes back."""
    (one,) = found(pipeline([FORWARD] * 3 + [BACK]), "pipeline-bubble")
    assert (one.evidence["micro_batches"], one.evidence["bubble_share"]) == (3, 0.5)


@pytest.mark.parametrize("beside", [[1], [None], [4, 8], [1, None, 4]])
def test_other_groups_leave_one_pipeline(beside: list[int | None]) -> None:
    (one,) = found(pipeline([FORWARD, FORWARD, BACK, BACK], beside=beside), "pipeline-bubble")
    assert (one.evidence["stages"], one.evidence["micro_batches"]) == (4, 2)


def test_the_first_stage_and_the_last_are_neighbours() -> None:
    """As where each rank has several stages, one after the other in turn."""
    for sends in (["send 0->3", "recv 0<-1"], ["send 3->0", "recv 3<-2"]):
        (one,) = found(pipeline(sends), "pipeline-bubble")
        assert one.evidence["stages"] == 4


@pytest.mark.parametrize(
    "trace",
    [
        pipeline([FORWARD] * 30),
        pipeline([FORWARD, BACK], compute=600 * US),
        pipeline(["send 1->3", FORWARD]),
        pipeline(["send 1->2", "send 1->9"]),
        pipeline([FORWARD, BACK], beside=[2]),
        pipeline([FORWARD, BACK], beside=[1, 4, 3]),
        pipeline([FORWARD, BACK], ranks="[0, 1, 2, ...]"),
        pipeline([]),
    ],
    ids=[
        "many",
        "computes more than the bubble leaves",
        "no neighbours",
        "of another group",
        "data parallel, too",
        "or of three ranks",
        "ranks not all told",
        "none",
    ],
)
def test_no_bubble_is_said(trace: TraceBuilder) -> None:
    assert found(trace, "pipeline-bubble") == []


def test_sends_in_two_groups_may_be_of_two_pipelines() -> None:
    trace = pipeline([FORWARD, BACK])
    told = [event["args"] for event in trace.events if event["name"] == "record_param_comms"]
    assert len(found(trace, "pipeline-bubble")) == 1
    told[0]["Process Group Ranks"] = "[1, 2, 3, 4]"
    assert found(trace, "pipeline-bubble") == []


def test_a_rank_that_gets_more_tokens_than_it_sends() -> None:
    (one,) = found(experts([(T, 2 * T), (2 * T, T), (T, 3 * T), (3 * T, T)]), "uneven-experts")
    assert (one.evidence["times_sent"], one.evidence["most"]) == (2.5, 3.0)
    assert one.count == 2 * STEPS
    assert one.severity is Severity.INFO


def test_a_large_exchange_counts_for_more_than_a_small_one() -> None:
    """Three times of 3T, and twice of T: 11T came where 4T went."""
    sizes = [(T, 2 * T), (2 * T, T), (3 * T, 9 * T), (9 * T, 3 * T)]
    (one,) = found(experts(sizes), "uneven-experts")
    assert (one.evidence["times_sent"], one.evidence["most"]) == (2.75, 3.0)


@pytest.mark.parametrize(
    "trace",
    [
        experts([(T, T), (T, T)]),
        experts([(2 * T, T), (T, 2 * T)]),
        experts([(T, 2 * T), (T, 2 * T)]),
        experts([(T, 2 * T), (2 * T, 3 * T)]),
        experts([(T, 2 * T), (3 * T, T)]),
        experts([(8, 64), (64, 8)]),
        experts([(T, 2 * T), (2 * T, T)], backward=True),
    ],
    ids=[
        "even",
        "fewer",
        "not sent back",
        "more comes back",
        "more is sent back",
        "counts of tokens",
        "backward",
    ],
)
def test_other_exchanges_are_not(trace: TraceBuilder) -> None:
    assert found(trace, "uneven-experts") == []


@pytest.mark.parametrize(
    ("sent", "received", "said"),
    [(4 * T, 5 * T, True), (4 * T, 5 * T - 1, False), (32_768, 65_536, True), (32_768, 65_535, False)],
)
def test_a_rank_gets_more_from_1_25_times_and_65_536_elements_on(
    sent: int, received: int, said: bool
) -> None:
    assert bool(found(experts([(sent, received), (received, sent)]), "uneven-experts")) is said


def exchanges(kernel: str, beside: int) -> TraceBuilder:
    """Three steps of ten exchanges of 100 µs, of so many of which a product runs beside."""
    trace, number = TraceBuilder(distributedInfo={"rank": 0, "world_size": 8}), 0
    for step in range(3):
        begin = 2_000 * US * step
        for at in range(10):
            start = begin + 150 * US * at
            trace.op("exchange", start, 20 * US)
            for name, stream in [(kernel, 7), *[("gemm", 8)] * (at < beside)]:
                number += 1
                trace.launch("cudaLaunchKernel", start + 5 * US, 3 * US, number)
                trace.kernel(start + 15 * US, 100 * US, number, name=name, stream=stream)
        trace.step(step, begin, 1_500 * US)
    return trace


@pytest.mark.parametrize(
    ("kernel", "beside", "advised"),
    [
        ("deep_ep::internode::combine<8>", 0, "Split the batch"),
        ("deep_ep::internode::combine<8>", 8, "Most of it already overlaps"),
    ],
)
def test_an_exchange_that_is_hidden_already_needs_no_second_half(
    kernel: str, beside: int, advised: str
) -> None:
    (one,) = found(exchanges(kernel, beside), "exposed-communication")
    assert one.advice.startswith(advised)


@pytest.mark.parametrize(
    ("ops", "status"), [((), "not applicable"), (("DistributedDataParallel.forward",), "clear")]
)
def test_unused_parameters_are_searched_by_ddp_alone(ops: tuple[str, ...], status: str) -> None:
    assert [
        one.status.value for one in diagnose(searching(*ops), select=["find-unused-parameters"]).outcomes
    ] == [status]


def searching(*ops: str) -> Trace:
    """Steps in which these run for 500 us each before two kernels."""

    def body(loop: Loop, number: int) -> None:
        for op in ops:
            loop.host_op(op, 500_000)

    return loop_of(body)


def test_unused_parameter_search_is_a_fact() -> None:
    ops = "DistributedDataParallel.forward", "torch::distributed::reducer::search_unused_parameters"
    (found,) = diagnose(searching(*ops), select=["find-unused-parameters"]).findings
    assert (found.severity, found.count, found.device) == (Severity.INFO, 6, None)
    assert "searches for unused parameters once a step" in found.message
    assert found.saving is not None
    assert found.saving.step_ns == pytest.approx(500_000, rel=0.3)
