"""What is said of the op that takes most of a step: collectives, annotations, sizes and rates of its own alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.job.ranks import REDUCES
from tests.rules.kernel_programs import BF16, F32, NVJET, US, Op, changed, found, program
from tests.support.hotspot_programs import ADD, SHAPES, TERA, UNKNOWN, copying, one
from tests.support.trace_builder import H200, TraceBuilder


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
        trace.launch("cudaLaunchKernel", begin + 5 * US, 5 * US, step + 1)
        trace.kernel(begin + 20 * US, 900 * US, step + 1, name=NVJET)
    (fact,) = found(trace.load(), "hotspot")
    assert ("under the annotation" in fact.message) is told
    assert (annotation in fact.message) is told


@pytest.mark.parametrize("before", [0, 1])
def test_a_call_of_the_op_before_the_first_step_is_not_counted(before: int) -> None:
    trace = TraceBuilder()
    for step in range(-before, 4):
        begin = (step + 1) * 1_000 * US
        if step >= 0:
            trace.step(step, begin, 990 * US)
        trace.op("aten::mm", begin + 2 * US, 50 * US)
        trace.launch("cudaLaunchKernel", begin + 5 * US, 5 * US, step + 2)
        trace.kernel(begin + 20 * US, 900 * US, step + 2, name=NVJET)
    (fact,) = found(trace.load(), "hotspot")
    assert (fact.count, fact.evidence["gpu_ns"]) == (4, 900 * US)


def test_a_device_that_works_in_no_usual_step_has_a_hotspot_too() -> None:
    """The second one sorts for 3 ms in the first of six steps of 1 ms, which takes longer for that."""
    trace, number = TraceBuilder(devices=[H200, {**H200, "id": 1}]), 0
    begin = 0
    for step in range(6):
        span = (1_000 if step else 3_500) * US
        trace.step(step, begin, span - 10 * US)
        for device, dur in [(0, 900), *[(1, 3_000)] * (step == 0)]:
            number += 1
            at = begin + (2 + 60 * device) * US
            trace.op("aten::sort" if device else "aten::mm", at, 50 * US)
            trace.launch("cudaLaunchKernel", at + 5 * US, 5 * US, number)
            trace.kernel(at + 20 * US, dur * US, number, name=NVJET, device=device)
        begin += span
    facts = {fact.device: fact for fact in found(trace.load(), "hotspot")}
    assert facts[0].message.startswith("aten::mm takes")
    assert "aten::sort takes" in facts[1].message
