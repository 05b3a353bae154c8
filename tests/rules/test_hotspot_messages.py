"""Messages about the hottest op, in traces and jobs."""

from pathlib import Path
from typing import Any

import pytest

from tests.job.ranks import REDUCES, Reductions, job_of
from tests.report.test_cost_items import ALL_REDUCE, steps_of
from tests.rules.kernel_programs import BF16, F32, NVJET, US, Op, changed, found, program
from tests.support.hotspot_programs import ADD, SHAPES, TERA, UNKNOWN, copying, mm, one
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer import Finding, diagnose
from traceanalyzer.rules.facts.hotspot import Limits

SPAN = 1_000 * US


def of_ranks(folder: Path, *compute_us: int) -> Finding:
    """The first rank's hotspot, where ranks compute so long and then reduce together for 100 us."""
    made = Reductions({rank: [us] * 6 for rank, us in enumerate(compute_us)})
    facts = diagnose(job_of(made, folder), select=["hotspot"]).findings
    return next(one for one in facts if one.rank == 0)


@pytest.mark.parametrize(("begin_us", "by"), [(315, "allreduce"), (305, "aten::mm")])
def test_communication_that_compute_runs_beside_is_no_hot_spot(begin_us: int, by: str) -> None:
    """Of 390 us, 205 or 195 are alone; the product takes 200, from 300 to 500 us."""
    trace = steps_of(("aten::mm", NVJET, 300, 200), ("record_param_comms", ALL_REDUCE, begin_us, 390))
    (fact,) = found(trace.load(), "hotspot")
    assert (fact.by, fact.evidence["gpu_ns"]) == (by, (390 if by == "allreduce" else 200) * US)


def test_waiting_for_another_rank_is_no_work(tmp_path: Path) -> None:
    """The first waits 800 us of each 1,100 in the collective, and computes 200 us."""
    fact = of_ranks(tmp_path, 200, 1_000)
    assert fact.evidence["gpu_ns"] == 200 * US
    assert next(iter(fact.evidence["kernels"])).startswith("nvjet")
    assert fact.evidence["part_share"] == pytest.approx(200 / 1_110, rel=0.05)
    assert "of the predicted step" in fact.message


def test_where_collectives_take_most_their_transfer_alone_counts(tmp_path: Path) -> None:
    """Both compute for less than the 100 us of transfer; the first waits 40 us more."""
    fact = of_ranks(tmp_path, 30, 70)
    assert (fact.evidence["gpu_ns"], fact.cause) == (100 * US, "communication")
    assert "only transfer counts here, not the measured waiting for other ranks" in fact.message
    assert fact.advice == "Overlap it with compute, or send fewer bytes."


@pytest.mark.parametrize("outlier", [5_000, 100])
def test_an_uneven_step_is_no_part_of_the_mean(outlier: int) -> None:
    """The first of eight steps, which the loop's usual steps are not like."""
    trace, begin = TraceBuilder(), 0
    for step in range(8):
        dur = outlier if step == 0 else 900
        span = max(dur + 100, 300) * US
        trace.step(step, begin, span)
        trace.op("aten::mm", begin + US, 50 * US)
        trace.launched((begin + 5 * US, 5 * US), (begin + 20 * US, dur * US), step + 1, name=NVJET)
        begin += span
    (fact,) = found(trace.load(), "hotspot")
    assert fact.evidence["gpu_ns"] == 900 * US
    assert fact.count == 8


@pytest.mark.parametrize(("us", "said"), [(50, True), (49, False)])
def test_op_at_the_least_share_is_reported(us: int, said: bool) -> None:
    """Nothing is predicted: no launch is in the file. Steps of a millisecond; many kernels take less."""
    assert Limits().min_part_share == 0.05
    trace = TraceBuilder()
    for step in range(4):
        trace.step(step, step * SPAN, SPAN)
        trace.kernel(step * SPAN + 50 * US, us * US, 2 * step + 1, name=NVJET)
        trace.kernel(step * SPAN + 990 * US, 10 * US, 2 * step + 2, name=ADD)
    facts = found(trace.load(), "hotspot")
    assert bool(facts) is said


def test_far_from_its_peak_few_blocks_are_what_limits_an_op() -> None:
    fact = one(program([mm(400, grid=10)]))
    assert fact.cause == "few-blocks"
    assert f"it reaches {TERA / 400:,.0f} TFLOP/s, 35 % of the compute peak" in fact.message
    assert "; its longest kernel has 10 blocks for 132 SMs" in fact.message


@pytest.mark.parametrize("us", [2, 201])
def test_a_collective_is_limited_by_communication_however_short(us: int) -> None:
    fact = one(program([Op("c10d::allreduce_", REDUCES, us)] * 4))
    assert fact.cause == "communication"
    assert "this includes transfer, any waiting for other ranks" in fact.message
    assert "of the recorded step" not in fact.message
    assert "of the predicted step" not in fact.message


def test_copies_of_unknown_sizes_have_no_rate() -> None:
    def forget(event: dict[str, Any]) -> None:
        event.get("args", {}).pop("bytes", None)

    fact = one(changed(copying(("copy", 400)), forget))
    assert fact.cause == "link"
    assert "; transfer over the link to the host" in fact.message
    assert "GB/s" not in fact.message


def beside(device: dict[str, Any] = H200) -> str:
    """A block that adds, 300 us, and multiplies, 200 us; another one multiplies as much again, and is quicker."""
    size = [[8_192, 8_192]] * 2
    ops = [
        Op("aten::add", ADD, 300, size, [F32] * 2, inside="block"),
        Op("aten::mul", ADD, 200, size, [F32] * 2, inside="block"),
        Op("aten::mul", ADD, 210, size, [F32] * 2, inside="other"),
    ]
    return one(program(ops, device=device)).message


def test_the_rate_is_that_of_the_op_that_takes_most_of_the_block() -> None:
    rate = 3 * 8_192**2 * 4 / 300_000
    assert beside().startswith("block takes")
    assert f"it reaches {rate:,.0f} GB/s, {100 * rate / 4_800:.0f} % of the memory peak" in beside()
    assert f"it reaches {rate:,.0f} GB/s, by the shapes of its inputs" in beside(UNKNOWN)


def test_one_shape_is_one_however_many_other_inputs_are_given() -> None:
    """Five ways to call it with the same tensors, each a fifth of the time."""
    rows, inner, columns = SHAPES[0]
    dims = [[[rows, inner], [inner, columns], *[[]] * more] for more in range(5)]
    ops = [Op("aten::mm", NVJET, 200, each, [BF16] * 2 + ["Scalar"] * (len(each) - 2)) for each in dims]
    assert f"it reaches {TERA / 200:,.0f} TFLOP/s" in one(program(ops)).message


def test_what_fills_memory_has_no_blocks() -> None:
    def fill(event: dict[str, Any]) -> None:
        if event["name"] == "fills":
            event.update(cat="gpu_memset", name="Memset (Device)")
            del event["args"]["grid"], event["args"]["block"]

    fact = one(changed(program([Op("aten::zero_", "fills", 200)]), fill))
    assert fact.cause == ""
    assert "block" not in fact.message


@pytest.mark.parametrize(
    ("annotation", "told"),
    [
        ("loss", True),
        ("Optimizer.step#SGD.step", False),
        ("nccl:all_reduce", False),
        ("[param|ddp]", False),
        ("## Call CompiledFxGraph f1 ##", False),
        ("DistributedDataParallel.forward", False),
        ("FSDP::all_gather", False),
    ],
)
def test_user_annotation_around_an_op_is_reported(annotation: str, told: bool) -> None:
    trace = TraceBuilder()
    for step in range(3):
        begin = step * 1_000 * US
        trace.step(step, begin, 990 * US)
        trace.annotation(annotation, begin + US, 60 * US)
        trace.op("aten::mm", begin + 2 * US, 50 * US)
        trace.launched((begin + 5 * US, 5 * US), (begin + 20 * US, 900 * US), step + 1, name=NVJET)
    (fact,) = found(trace.load(), "hotspot")
    assert ("under the annotation" in fact.message) is told
    assert (annotation in fact.message) is told


def test_a_device_that_works_in_no_usual_step_has_a_hotspot_too() -> None:
    """The second one sorts for 3 ms in the first of six steps of 1 ms, which takes longer for that."""
    trace = TraceBuilder(devices=[H200, {**H200, "id": 1}])
    begin = 0
    for step in range(6):
        span = (1_000 if step else 3_500) * US
        trace.step(step, begin, span - 10 * US)
        for device, dur in [(0, 900), *[(1, 3_000)] * (step == 0)]:
            at = begin + (2 + 60 * device) * US
            trace.op("aten::sort" if device else "aten::mm", at, 50 * US)
            trace.launched((at + 5 * US, 5 * US), (at + 20 * US, dur * US), name=NVJET, device=device)
        begin += span
    facts = {fact.device: fact for fact in found(trace.load(), "hotspot")}
    assert facts[0].message.startswith("aten::mm takes")
    assert "aten::sort takes" in facts[1].message
