"""Loops of small calls, on recorded and on built traces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.launches import GEMM, POINTWISE, US, Shared, found, loop, of_rule, steps_of
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer import Analysis
from traceanalyzer.model.finding import Confidence
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Work
from traceanalyzer.rules.gpu_idle.repeated_calls.loop_hits import batched_work, list_ops, loop_advice


def test_a_loop_and_its_backward_are_one(shared: Shared) -> None:
    """96 samples of a loss: 8.83 ms a step in a loop, 0.96 ms at once."""
    (one,) = found(shared("pairs4/sample_loop.bad"), "repeated-calls")
    assert (one.evidence["repeats"], one.evidence["nodes"]) == (96, 3.0)
    assert one.saving is not None
    assert one.saving.low_share <= 0.89 <= one.saving.high_share
    assert one.saving.share == pytest.approx(0.83, abs=0.03)


def test_small_copies_one_by_one(shared: Shared) -> None:
    one = found(shared("pairs4/small_h2d.bad"))[0]
    assert (one.rule, one.confidence, one.evidence["repeats"]) == ("repeated-calls", Confidence.MEDIUM, 64)
    assert one.saving is not None
    assert one.saving.low_share <= 0.74 <= one.saving.high_share
    assert "copy it once" in one.advice
    assert str(one.by).startswith("corpus4.py(36)")


def sent_and_used(kernels: int) -> TraceBuilder:
    """Steps of 20 numbers sent to the device, each followed by so many small kernels."""
    trace, at, number = TraceBuilder(), 0, 0
    for step in range(3):
        begin = at
        for name in ["aten::to", *["aten::select", "aten::mul"] * (kernels // 2)] * 20:
            sends = name == "aten::to"
            trace.op(name, at, 10 * US)
            trace.launch("cudaMemcpyAsync" if sends else "cudaLaunchKernel", at + 2 * US, 4 * US, number)
            if sends:
                trace.memcpy(at + 7 * US, US, number, name="Memcpy HtoD (Pinned -> Device)", size=4)
            else:
                trace.kernel(at + 7 * US, US, number, name=POINTWISE)
            at, number = at + 11 * US, number + 1
        trace.step(step, begin, at - begin)
    return trace


@pytest.mark.parametrize(("kernels", "said"), [(2, True), (12, False)])
def test_one_tensor_on_the_host_is_for_loops_that_mostly_copy(kernels: int, said: bool) -> None:
    (one,) = of_rule(sent_and_used(kernels), "repeated-calls")
    assert ("copy it once" in one.advice) == said


def test_a_loop_over_experts_is_likely(shared: Shared) -> None:
    one = found(shared("pairs4/moe_loop.bad"))[0]
    assert (one.rule, one.confidence, one.evidence["repeats"]) == ("repeated-calls", Confidence.MEDIUM, 8)
    assert one.saving is not None
    assert one.saving.low_share <= 0.85 <= one.saving.high_share


def test_copies_on_the_device_are_called_copies(shared: Shared) -> None:
    (one,) = found(shared("public/hta_a100_nccl"), "repeated-calls")
    assert "; each run launches 1 copy (1.57 µs)" in one.message


def test_a_kernel_and_a_copy_of_a_repeat_are_told_apart(shared: Shared) -> None:
    """200 norms of 14.8 us, each read back by a copy of 1.46 us."""
    (one,) = found(shared("third/clip_loop.bad"), "repeated-calls")
    assert "; each run launches 1 kernel (14.8 µs) and 1 copy (1.46 µs)" in one.message


@pytest.mark.parametrize(
    "name",
    ["pairs4/small_h2d.fixed", "pairs4/moe_loop.fixed", "real/gpt2_train.eager", "real/llama_decode.eager",
     "real/resnet50.eager", "real/vit_infer.eager", "pairs/launch_bound.bad", "slowdown/views.plain",
     "slowdown/views.stack"],
)  # fmt: skip
def test_layers_and_chains_are_no_loops(shared: Shared, name: str) -> None:
    assert found(shared(name), "repeated-calls") == []


def test_picking_one_sample_after_the_other() -> None:
    (one,) = of_rule(loop(["aten::select", "aten::mul"], 20), "repeated-calls")
    assert (one.count, one.steps, one.evidence["members"]) == (60, 3, 2)
    assert one.message.startswith("a sequence of 2 calls runs 20 times a step")


def test_inner_ops_of_an_idle_row_are_no_repeat() -> None:
    for views, members in ((1, 2), (2, 3), (3, 3), (5, 3)):
        ops: list[tuple[str, dict[str, Any]]] = [*[("aten::select", {})] * views, ("aten::mul", {})] * 20
        (one,) = of_rule(steps_of(ops, quiet="aten::select"), "repeated-calls")
        assert (one.count, one.evidence["members"]) == (60, members)


def test_fewer_repeats_need_changing_shapes() -> None:
    assert of_rule(loop(["aten::select", "aten::mm"], 8, kernel=GEMM), "repeated-calls") == []
    changing = loop(["aten::select", "aten::mm"], 8, kernel=GEMM, dims=_growing)
    (one,) = of_rule(changing, "repeated-calls")
    assert one.confidence is Confidence.LOW


def test_few_distribution_checks_are_no_loop() -> None:
    ops = ["aten::select", "aten::gt", "aten::_is_all_true"]
    assert of_rule(loop(ops, 8, dims=_growing), "repeated-calls") == []
    for other in (loop(ops, 20, dims=_growing), loop([*ops[:2], "aten::all"], 8, dims=_growing)):
        assert len(of_rule(other, "repeated-calls")) == 1


EXPERT = [
    "aten::nonzero",
    "aten::index_select",
    *["aten::linear", "aten::gelu", "aten::mul", "aten::add_"] * 5,
]


def test_experts_that_count_rows_are_a_loop() -> None:
    (one,) = of_rule(loop(EXPERT, 6, kernel=GEMM, dims=_rows), "repeated-calls")
    assert one.confidence is Confidence.MEDIUM
    assert (
        "before each repeat, the GPU counts the repeat's rows, and the CPU waits for this number"
        in one.message
    )
    assert one.advice.startswith("Sort the rows once by the expert or class")
    (boxes,) = of_rule(loop([*EXPERT, "torchvision::nms"], 6, kernel=GEMM, dims=_rows), "repeated-calls")
    assert "batched_nms" in boxes.advice
    fixed_sizes = loop(["aten::index_select", *EXPERT[1:]], 6, kernel=GEMM, dims=_rows)
    assert of_rule(fixed_sizes, "repeated-calls") == []


def _rows(repeat: int) -> object:
    return [[(700, 640, 715, 690)[repeat % 4], 64], [64, 64]]


def _growing(repeat: int) -> object:
    return [[repeat + 1, 64], [64, 64]]


def test_layers_of_growing_width_are_no_loop() -> None:
    assert (
        of_rule(loop(["aten::linear", "aten::silu"], 20, kernel=GEMM, dims=_growing), "repeated-calls") == []
    )


MODEL = ["aten::slice", "aten::linear", *["aten::add", "aten::gelu", "aten::linear", "aten::mul"] * 4]


@pytest.mark.parametrize(
    ("batch", "sizes", "loops"),
    [(1, [9, 4, 7, 5], 1), (1, [4, 5, 6, 7], 0), (8, [9, 4, 7, 5], 0)],
    ids=["one sample after the other", "a cache that grows", "a batch"],
)
def test_a_model_that_is_iterated_is_no_loop(batch: int, sizes: list[int], loops: int) -> None:
    steps = loop(MODEL, 4, kernel=GEMM, dims=lambda repeat: [[batch, sizes[repeat % 4], 64], [64, 64]])
    assert len(of_rule(steps, "repeated-calls")) == loops


def test_results_that_are_stacked_come_from_a_loop() -> None:
    trace = TraceBuilder()
    at, number = 0, 0
    for step in range(3):
        begin = at
        for name in [*["aten::linear", "aten::relu"] * 20, "aten::stack"]:
            number += 1
            trace.op(name, at, 10 * US)
            trace.launch("cudaLaunchKernel", at + 4 * US, 5 * US, number)
            trace.kernel(at + 9 * US, 1 * US, number, name=GEMM)
            at += 12 * US
        trace.step(step, begin, at - begin)
    (one,) = of_rule(trace, "repeated-calls")
    assert (one.confidence, one.evidence["repeats"]) == (Confidence.LOW, 20)
    assert "call the layer or model once" in one.advice


def test_gradients_of_what_was_stacked_are_a_loop() -> None:
    engine = "autograd::engine::evaluate_function: "
    trace = TraceBuilder()
    at, number = 0, 0
    for step in range(3):
        begin = at
        for name in ["StackBackward0", *["SliceBackward0"] * 20]:
            number += 1
            trace.op(engine + name, at, 10 * US)
            trace.launch("cudaLaunchKernel", at + 4 * US, 5 * US, number)
            trace.kernel(at + 9 * US, 1 * US, number, name=POINTWISE)
            at += 12 * US
        trace.step(step, begin, at - begin)
    (one,) = of_rule(trace, "repeated-calls")
    assert (one.confidence, one.evidence["repeats"]) == (Confidence.MEDIUM, 20)
    assert "unfold" in one.advice


def test_gradients_of_many_tables_are_a_loop() -> None:
    backward = ["autograd::engine::evaluate_function: EmbeddingBackward0", "torch::autograd::AccumulateGrad"]
    (one,) = of_rule(loop(backward, 30), "repeated-calls")
    assert (one.confidence, "one lookup" in one.advice) == (Confidence.LOW, True)
    assert str(one.by).endswith("EmbeddingBackward0 + 1 op")
    assert of_rule(loop([backward[1], "aten::mul"], 30), "repeated-calls") == []


def test_updates_of_many_tensors_take_a_foreach_op() -> None:
    (one,) = of_rule(loop(["aten::lerp_"], 30), "repeated-calls")
    assert "_foreach_" in one.advice


def test_gradients_that_are_zeroed_one_by_one() -> None:
    (one,) = of_rule(loop(["aten::zero_"], 30), "repeated-calls")
    assert "set_to_none=True" in one.advice


def test_large_kernels_gain_nothing() -> None:
    trace = TraceBuilder()
    for number in range(90):
        at = 200 * US * number
        trace.op("aten::select", at, 10 * US)
        trace.launch("cudaLaunchKernel", at + 4 * US, 5 * US, number + 1)
        trace.kernel(at + 9 * US, 100 * US, number + 1, name=POINTWISE)
    for step in range(3):
        trace.step(step, 6_000 * US * step, 6_000 * US)
    assert of_rule(trace, "repeated-calls") == []


@pytest.mark.parametrize(("kernel", "taken_us"), [("nms_kernel_impl", 10), ("gather_keep_from_mask", 34)])
def test_one_block_kernels_gain_nothing_by_batching(kernel: str, taken_us: int) -> None:
    """Four of 10 us, 2 of which are the start."""
    trace = TraceBuilder(devices=[H200])
    for repeat in range(4):
        at = 100 * US * repeat
        trace.op("torchvision::nms", at, 20 * US)
        trace.launch("cudaLaunchKernel", at + 5 * US, 5 * US, repeat + 1)
        trace.kernel(at + 12 * US, 10 * US, repeat + 1, name=kernel, grid=(1, 1, 1))
    analysis = Analysis(trace.load())
    calls, work = analysis.index(Calls), analysis.index(Work)
    loop_at = calls[calls.name.one_of("torchvision::nms")]
    group = np.zeros(4, np.int64)
    sized = batched_work(work, loop_at.start_ns, loop_at.end_ns, group, analysis.index(Gpus), 2 * US)
    assert np.asarray(sized.dur_ns).tolist() == [taken_us * US] * 4


def test_the_ops_of_a_repeat_add_up() -> None:
    names = ("a", "b", "c", "c", "d", "e", "e", "f")
    assert list_ops(names) == "a, b, c (twice), d and 2 other ops"


def test_copies_of_buffers_are_avoided_where_ddp_makes_them() -> None:
    assert loop_advice(("aten::copy_",), False, ["train.py(12): step"]).startswith(
        "Copy all these tensors with one call"
    )
    told = loop_advice(("aten::copy_",), False, ["DistributedDataParallel.forward"])
    assert told.startswith("DistributedDataParallel copies its buffers to all ranks")
    assert "use broadcast_buffers=False" in told


@pytest.mark.parametrize(
    ("node", "taken_us"),
    [
        ("CudnnRnnBackward0", 34),
        ("MiopenRnnBackward0", 34),
        ("ThnnFusedLstmCellBackward0", 34),
        ("GruCellBackward0", 34),
        ("AddmmBackward0", 10),
    ],
)
def test_time_steps_come_one_after_the_other_in_backward_too(node: str, taken_us: int) -> None:
    """Four of 10 us, 2 of which are the start; of other nodes the few blocks run side by side."""
    trace = TraceBuilder(devices=[H200])
    for repeat in range(4):
        at = 100 * US * repeat
        trace.op(f"autograd::engine::evaluate_function: {node}", at, 20 * US)
        trace.launch("cudaLaunchKernel", at + 5 * US, 5 * US, repeat + 1)
        trace.kernel(at + 12 * US, 10 * US, repeat + 1, name=GEMM, grid=(1, 1, 1))
    analysis = Analysis(trace.load())
    calls, work = analysis.index(Calls), analysis.index(Work)
    nodes = calls[calls.is_top_op]
    group = np.zeros(4, np.int64)
    sized = batched_work(work, nodes.start_ns, nodes.end_ns, group, analysis.index(Gpus), 2 * US)
    assert np.asarray(sized.dur_ns).tolist() == [taken_us * US] * 4
