"""What work is called: by the op that the user called, the collective, or what runs forward again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.evidence_texts import (
    called_names,
    called_ops,
    conversion_of,
    differentiated_twice,
    shapes_in_words,
)
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.backward_nodes import recomputed_ops

US = 1_000
Nested = tuple[str, int | None]  # op, its number


class Nests(TraceBuilder):
    """Ops within ops, the last of which launches a kernel, one nest every 100 us."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def nest(
        self, *ops: Nested, kernel: str = "void k<float>(int)", launches: bool = True, **last: Any
    ) -> None:
        at = 100 * US * self.made
        self.made += 1
        for depth, (name, number) in enumerate(ops):
            args = {} if number is None else {"Sequence number": number}
            self.op(
                name,
                at + depth * US,
                (60 - 2 * depth) * US,
                **args,
                **(last if depth == len(ops) - 1 else {}),
            )
        if launches:
            if ops:
                self.launch("cudaLaunchKernel", at + 20 * US, US, self.made)
            self.kernel(at + 30 * US, 10 * US, self.made, name=kernel)

    def all_work(self) -> Work:
        return Analysis(self.load()).index(Work)


NODE = "autograd::engine::evaluate_function: CheckpointFunctionBackward"


def test_work_has_the_users_op_and_in_nodes_its_own() -> None:
    trace = Nests()
    trace.nest(("aten::linear", None), ("aten::addmm", None))
    trace.nest(
        ("autograd::engine::evaluate_function: MmBackward0", None), ("MmBackward0", None), ("aten::mm", None)
    )
    trace.nest(kernel="void other<float>(int)")
    trace.nest(("mine::aten::fused", None), ("aten::mul", None))  # of a library of the user's
    work = trace.all_work()
    assert called_names(work).values().tolist() == [
        "aten::linear",
        "autograd::engine::evaluate_function: MmBackward0",
        "void other<float>(int)",
        "mine::aten::fused",
    ]
    assert called_ops(work).values().tolist() == ["aten::linear", "aten::mm", "other", "aten::mul"]


def test_collectives_are_named_by_groups() -> None:
    trace = Nests()
    reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"
    for group in ("tensor", "data", "tensor"):
        known = {"Collective name": "allreduce", "Process Group Description": group}
        trace.nest(("c10d::allreduce_", None), ("record_param_comms", None), kernel=reduce, **known)
        trace.nest(("aten::mm", None))
    assert called_names(trace.all_work()).values().tolist() == [
        "allreduce of tensor",
        "aten::mm",
        "allreduce of data",
        "aten::mm",
        "allreduce of tensor",
        "aten::mm",
    ]


def test_checkpoint_recomputation_has_its_forward_op() -> None:
    trace = Nests()
    trace.nest((NODE, None), ("CheckpointFunctionBackward", 3), ("aten::linear", 7), ("aten::addmm", 7))
    trace.nest((NODE, None), ("CheckpointFunctionBackward", 3), ("aten::mm", None))
    trace.nest((NODE, None), ("TanhBackward0", 4), ("aten::mul", 9))
    work = trace.all_work()
    assert recomputed_ops(work.events).name.values().tolist() == ["aten::linear"]
    assert called_names(work).values().tolist() == ["aten::linear", NODE, NODE]


@pytest.mark.parametrize(
    ("plain", "again"),
    [
        (("aten::neg", None, True), ["aten::mul"]),  # a gradient is computed beside: a second forward
        (("aten::neg", None, False), []),  # without work it is none
        (("aten::neg", 9, True), []),  # gradients of gradients
    ],
)
def test_node_that_computes_unrecorded_reruns_forward(
    plain: tuple[str, int | None, bool], again: list[str]
) -> None:
    trace = TraceBuilder()
    name, number, launches = plain
    trace.op("MineBackward", 0, 90 * US, **{"Sequence number": 3})
    trace.op("aten::mul", 10 * US, 20 * US, **{"Sequence number": 8})
    trace.op(name, 40 * US, 20 * US, **({} if number is None else {"Sequence number": number}))
    trace.op("autograd::engine::evaluate_function: MulBackward0", 70 * US, 5 * US, **{"Sequence number": 8})
    if launches:
        trace.launch("cudaLaunchKernel", 45 * US, US, 1)
    trace.kernel(60 * US, 10 * US, 1)
    events = Analysis(trace.load()).index(Calls).events
    assert recomputed_ops(events).name.values().tolist() == again


@pytest.mark.parametrize(
    ("op", "twice"),
    [("TanhBackward0", False), ("TanhBackwardBackward0", True), ("BackwardBackwardHelper", False)],
)
def test_gradients_of_gradients_are_nothing_that_torch_compiles(op: str, twice: bool) -> None:
    trace = Nests()
    trace.nest(("aten::mm", None))
    trace.nest((op, None), ("aten::mul", None))
    said = differentiated_twice(trace.all_work())
    assert ("does not differentiate compiled code twice" in said) is twice
    assert bool(said) is twice


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ("", ""),
        ("[[]]", ""),
        ("[[7],[8,4],[4,7]]", "8x4, 4x7, 7"),  # a bias last
        ("[[1],[2],[3,3],[4,4],[5,5],[6,6]]", "3x3, 4x4, 5x5"),
        ("[[3],[2,2],[3],[2,2]]", "2x2, 3"),
    ],
)
def test_shapes_are_said_in_words_with_vectors_last(dims: str, said: str) -> None:
    assert shapes_in_words(dims) == said


def test_a_conversion_is_of_the_first_two_tensors() -> None:
    assert conversion_of(["double", "c10::Half", "float", "int"]) == "from float16 to float64"
    assert conversion_of(["c10::Float8_e4m3fn", "c10::BFloat16"]) == "from bfloat16 to Float8_e4m3fn"
