"""Collectives that a step does not need: of micro-batches, of single values, of batch norms."""

from typing import Any

import pytest

from tests.rules.launches import US, of_rule
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding
from traceanalyzer.model.finding import Confidence

REDUCES = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


class Rank:
    """Steps of ops of 20 us, one after the other, and of collectives."""

    def __init__(self) -> None:
        self.trace = TraceBuilder(distributedInfo={"rank": 0, "world_size": 8})
        self.now = self.number = self.steps = self._begin = 0

    def op(self, name: str, elements: int | None = None, around: str = "", copies: bool = False) -> None:
        """An op with a kernel of 10 us: a collective of so many numbers, if given."""
        self.number += 1
        if around:
            self.trace.op(around, self.now, 22 * US)
        self.trace.op(name, self.now + US, 18 * US)
        if elements is not None:
            args: dict[str, Any] = {"In msg nelems": elements, "Out msg nelems": elements}
            self.trace.op("record_param_comms", self.now + 2 * US, 16 * US, **args, **{"Collective name": "allreduce"})
        start = self.now + 15 * US
        if copies:
            self.trace.launch("cudaMemcpyAsync", self.now + 6 * US, 5 * US, self.number)
            self.trace.memcpy(start, 2 * US, self.number, name="Memcpy DtoH (Device -> Pageable)", size=4)
        else:
            self.trace.launch("cudaLaunchKernel", self.now + 6 * US, 5 * US, self.number)
            kernel = "gemm" if elements is None else REDUCES
            self.trace.kernel(start, 10 * US, self.number, name=kernel)
        self.now += 30 * US

    def end(self) -> None:
        self.trace.step(self.steps, self._begin, self.now - self._begin)
        self.steps, self._begin = self.steps + 1, self.now


def said(rank: Rank) -> dict[str, Finding]:
    return {one.cause: one for one in of_rule(rank.trace, "needless-collectives")}


def accumulating(micro: int, *, stepping: bool = True, hooked: bool = True) -> Rank:
    """Steps of some micro-batches that each reduce two buckets, and one update."""
    rank = Rank()
    for _ in range(3):
        for _ in range(micro):
            rank.op("aten::mm", around="DistributedDataParallel.forward")
            for _ in range(2):
                rank.op(
                    "c10d::allreduce_",
                    1 << 20,
                    around="autograd::engine::evaluate_function: AddmmBackward0" if hooked else "",
                )
        begin = rank.now
        rank.op("aten::_foreach_add_")
        if stepping:
            rank.trace.annotation("Optimizer.step#SGD.step", begin, rank.now - begin)
        rank.end()
    return rank


@pytest.mark.parametrize(("micro", "count"), [(1, 0), (2, 2), (4, 6)])
def test_all_micro_batches_but_the_last_reduce_without_need(micro: int, count: int) -> None:
    found = said(accumulating(micro))
    assert [one.count for one in found.values()] == [3 * count] * bool(count)
    for one in found.values():
        assert one.cause == "every-micro-step"
        assert f", of {2 * micro} in all)" in one.message
        assert one.cost_ns == 3 * count * 10 * US


def test_accumulation_needs_optimizer_and_backward() -> None:
    assert said(accumulating(4, stepping=False)) == {}
    assert said(accumulating(4, hooked=False)) == {}


def logging(values: int = 3, *, elements: int = 64, between: int = 0, reads: int = 0, around: str = "") -> Rank:
    """Steps that reduce some small values, with kernels between them; the first `reads` are read back at once."""
    rank = Rank()
    for _ in range(3):
        for value in range(values):
            rank.op("c10d::allreduce_", elements, around=around)
            if value < reads:
                rank.op("aten::_local_scalar_dense", copies=True)
            for _ in range(between if value < values - 1 else 20):
                rank.op("aten::mm")
        rank.end()
    return rank


@pytest.mark.parametrize(
    ("how", "count"),
    [
        ({"values": 3}, 2),
        ({"values": 2}, 0),  # a loss and its count
        ({"elements": 1_024}, 2),
        ({"elements": 1_025}, 0),
        ({"between": 8}, 2),
        ({"between": 9}, 0),
    ],
)
def test_small_values_belong_together_that_follow_one_another(how: dict[str, int], count: int) -> None:
    found = said(logging(**how))
    assert [one.count for one in found.values()] == [3 * count] * bool(count)
    for one in found.values():
        assert (one.cause, one.by, one.confidence) == ("one-by-one", "c10d::allreduce_", Confidence.MEDIUM)
        assert one.cost_ns == 3 * count * 10 * US


@pytest.mark.parametrize(("reads", "logged"), [(3, True), (2, True), (1, False), (0, False)])
def test_values_that_are_each_read_before_the_next_are_logged(reads: int, logged: bool) -> None:
    """Then none is needed in each step; else the first stays."""
    (one,) = said(logging(reads=reads)).values()
    assert one.advice.startswith("The host reads each value.") is logged


@pytest.mark.parametrize(("elements", "between"), [(64, 0), (4_097, 20)])
def test_sync_batch_norm_statistics_are_needed(elements: int, between: int) -> None:
    (one,) = said(logging(elements=elements, between=between, around="SyncBatchNorm")).values()
    assert (one.cause, one.count) == ("batch-norm", 3 * 3)
    assert "GroupNorm" in one.advice
    assert "elements" not in one.evidence


def test_steps_whose_collectives_have_no_op_do_not_count() -> None:
    """Of three steps that reduce eight times each, and a fourth of which only the kernels are known."""
    rank = accumulating(4)
    for _ in range(8):
        rank.number += 1
        rank.trace.launch("cudaLaunchKernel", rank.now + 6 * US, 5 * US, rank.number)
        rank.trace.kernel(rank.now + 15 * US, 10 * US, rank.number, name=REDUCES)
        rank.now += 30 * US
    rank.end()
    (one,) = said(rank).values()
    assert (one.cause, one.count) == ("every-micro-step", 3 * 6)
    assert ", of 8 in all)" in one.message


def test_collectives_without_size_are_not_small() -> None:
    rank = logging(8)
    for event in rank.trace.events:
        for side in ("In", "Out"):
            event.get("args", {}).pop(f"{side} msg nelems", None)
    assert said(rank) == {}
