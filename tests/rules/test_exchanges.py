"""Experts that get more tokens than others, by what ranks send each other."""

import pytest

from tests.rules.loops import Loop, loop_of
from tests.rules.programs import US, found
from tests.support.exchanges import STEPS, T, experts
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Severity, Trace, diagnose


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
    ids=["even", "fewer", "not sent back", "more comes back", "more is sent back", "counts of tokens", "backward"],
)
def test_other_exchanges_are_not(trace: TraceBuilder) -> None:
    assert found(trace, "uneven-experts") == []


@pytest.mark.parametrize(
    ("sent", "received", "said"),
    [(4 * T, 5 * T, True), (4 * T, 5 * T - 1, False), (32_768, 65_536, True), (32_768, 65_535, False)],
)
def test_a_rank_gets_more_from_1_25_times_and_65_536_elements_on(sent: int, received: int, said: bool) -> None:
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
def test_an_exchange_that_is_hidden_already_needs_no_second_half(kernel: str, beside: int, advised: str) -> None:
    (one,) = found(exchanges(kernel, beside), "exposed-communication")
    assert one.advice.startswith(advised)


@pytest.mark.parametrize(("ops", "status"), [((), "not applicable"), (("DistributedDataParallel.forward",), "clear")])
def test_unused_parameters_are_searched_by_ddp_alone(ops: tuple[str, ...], status: str) -> None:
    assert [one.status.value for one in diagnose(searching(*ops), select=["find-unused-parameters"]).outcomes] == [
        status
    ]


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
