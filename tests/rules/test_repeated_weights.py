"""Weights that are computed several times within a training step, on built traces."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.launches import US, of_rule, steps_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.registry import find_rule

Op = tuple[str, dict[str, Any]]
NODE = "autograd::engine::evaluate_function: "
LEAF = "torch::autograd::AccumulateGrad"
W, X = [512, 512], [64, 512]
OP_US = 12  # from op to op in `steps_of`


def op(name: str, *dims: list[int]) -> Op:
    return name, ({"Input Dims": list(dims)} if dims else {})


def step(call: list[Op], calls: int, nodes: list[str], leaves: list[Op]) -> list[Op]:
    """So many calls of layers, then backward of each, and a gradient for each parameter."""
    ops = [
        (name, {**args, "Sequence number": number * 10 + at})
        for number in range(calls)
        for at, (name, args) in enumerate(call)
    ]
    for number in reversed(range(calls)):
        last = number * 10 + len(call) - 1
        ops += [(f"{NODE}{node}", {"Sequence number": last - at}) for at, node in enumerate(nodes)]
    return [*ops, *leaves]


def normed(calls: int, leaves: int) -> TraceBuilder:
    """A layer with weight norm, without shapes."""
    call = [op("aten::_weight_norm"), op("aten::linear")]
    return steps_of(
        step(call, calls, ["AddmmBackward0", "WeightNormInterfaceBackward0"], [op(LEAF)] * leaves)
    )


def test_weight_norm_in_a_rollout_is_computed_for_each_time_step() -> None:
    """24 calls of two layers, which have 3 parameters each: of 48 weights at most 3 differ."""
    (one,) = of_rule(normed(48, 6), "computed-weight")
    assert (one.cause, one.count, one.steps) == ("repeated", 45 * 3, 3)
    assert (one.evidence["computed"], one.evidence["weights"]) == (48, 3)
    assert "parametrize.cached()" in one.advice
    assert "backward goes through each" in one.message
    assert one.saving is not None
    assert one.saving.share == pytest.approx(45 * 2 / (48 * 4 + 6), abs=0.03)


@pytest.mark.parametrize(
    ("calls", "leaves"), [(24, 72), (24, 36), (24, 0)], ids=["layers", "two passes", "no gradients"]
)
def test_one_computation_per_layer_or_pass_is_needed(calls: int, leaves: int) -> None:
    assert of_rule(normed(calls, leaves), "computed-weight") == []


MASKED = [op("aten::mul", W, W), op("aten::linear", X, W, [512]), op("aten::relu", X)]
SCALED = [op("aten::mul", W, []), op("aten::linear", X, W, [512]), op("aten::relu", X)]
CAST = [op("aten::to", W), op("aten::linear", X, W, [512]), op("aten::relu", X)]
SPECTRAL = [
    op("aten::mv", W, [512]),
    op("aten::dot", [512], [512]),
    op("aten::div", W, []),
    op("aten::linear", X, W, [512]),
    op("aten::relu", X),
]


@pytest.mark.parametrize(
    ("call", "nodes"),
    [
        (MASKED, "MulBackward0"),
        (SCALED, "MulBackward0"),
        (CAST, "ToCopyBackward0"),
        (SPECTRAL, "DivBackward0"),
    ],
    ids=["mask", "scale", "cast", "spectral norm"],
)
def test_gradient_shapes_identify_weights(call: list[Op], nodes: str) -> None:
    """Of 24 weights two differ, whatever other parameters there are."""
    backward = ["ReluBackward0", "AddmmBackward0", nodes]
    others = [op(LEAF, [512])] * 40
    trace = steps_of(step(call, 24, backward, [op(LEAF, W)] * 2 + others))
    (one,) = of_rule(trace, "computed-weight")
    assert (one.cause, one.evidence["computed"], one.evidence["weights"]) == ("repeated", 24, 2)
    assert one.count == 22 * 3
    enough = steps_of(step(call, 24, backward, [op(LEAF, W)] * 12 + others))
    assert of_rule(enough, "computed-weight") == []


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        ("torch/nn/utils/parametrize.py(307): forward", True),
        ("torch/nn/utils/spectral_norm.py(50): compute_weight", True),
        ("torch/nn/modules/linear.py(120): forward", False),
    ],
)
def test_a_parametrization_is_known_by_its_frame(frame: str, found: bool) -> None:
    call = [op("aten::exp"), op("aten::sum"), op("aten::linear")]
    ops = step(call, 24, ["AddmmBackward0", "SumBackward1", "ExpBackward0"], [op(LEAF)] * 4)
    trace, number = steps_of(ops), 0
    for at, (name, _) in enumerate(ops * 3):
        if name == "aten::exp":
            trace.python(frame, at * OP_US * US, 2 * OP_US * US, python_id=(number := number + 1))
    said = of_rule(trace, "computed-weight")
    assert [(one.cause, one.count) for one in said] == ([("repeated", 20 * 3)] if found else [])


@pytest.mark.parametrize(("calls", "count"), [(5, 0), (6, 12)])
def test_gradients_of_the_previous_step_do_not_count(calls: int, count: int) -> None:
    """Two gradients a step, right after each other's steps: 6 computations are three for each, 4 of them needless."""
    trace = steps_of(step(MASKED, calls, ["ReluBackward0"], [op(LEAF, W)] * 2))
    assert sum(one.count for one in of_rule(trace, "computed-weight") if one.cause == "repeated") == count


@pytest.mark.parametrize(("calls", "said"), [(5, 0), (6, 1)])
def test_three_times_for_each_gradient_is_often(calls: int, said: int) -> None:
    """Of two gradients of the weight's shape, once a step."""
    trace = steps_of(step(MASKED, calls, ["ReluBackward0"], [*[op(LEAF, W)] * 2, op("aten::relu", X)]))
    found = of_rule(trace, "computed-weight")
    assert [(one.cause, one.count) for one in found] == [("repeated", 3 * (calls - 2))] * said
    for one in found:
        assert "backward goes through each" not in one.message
        assert (one.evidence["computed"], one.evidence["weights"]) == (calls, 2)


def test_frames_of_one_op_and_steps_without_repeats() -> None:
    """Of four steps two have a rollout; the others compute each weight once."""
    rollout = step([op("aten::exp"), op("aten::linear")], 24, ["ExpBackward0"], [op(LEAF)] * 4)
    once = step([op("aten::exp"), op("aten::linear")], 4, ["ExpBackward0"], [op(LEAF)] * 4)
    trace, at = steps_of([]), 0
    for number, ops in enumerate((rollout, once, rollout, once)):
        begin, names = at, [name for name, _ in ops]
        for name in names:
            place = at // (OP_US * US)
            trace.op(name, at, 10 * US)
            trace.launch("cudaLaunchKernel", at + 4 * US, 5 * US, place + 1)
            trace.kernel(at + 9 * US, US, place + 1)
            if name == "aten::exp":
                trace.python("torch/nn/utils/parametrize.py(307): forward", at, 11 * US, python_id=place + 1)
            at += OP_US * US
        trace.step(10 + number, begin, at - begin)
    (one,) = of_rule(trace, "computed-weight")
    assert (one.count, one.steps) == (2 * 20, 2)
    assert (one.evidence["computed"], one.evidence["weights"]) == (24, 4)


def test_of_two_kinds_of_evidence_the_one_with_more_is_said() -> None:
    """Six masked weights by their shapes, and 24 parametrizations by their frames, are one finding: of the 24."""
    masked = step(MASKED, 6, ["ReluBackward0"], [op(LEAF, W)] * 2)
    framed = step([op("aten::exp"), op("aten::linear")], 24, ["ExpBackward0"], [op("aten::relu", X)])
    ops, number = [*framed, *masked, op("aten::relu", X)], 0
    trace = steps_of(ops)
    for at, (name, _) in enumerate(ops * 3):
        if name == "aten::exp":
            frame = "torch/nn/utils/parametrize.py(307): forward"
            trace.python(frame, at * OP_US * US, OP_US * US, python_id=(number := number + 1))
    (one,) = of_rule(trace, "computed-weight")
    assert (one.count, one.evidence["computed"], list(one.evidence["ops"])) == (3 * 22, 24, ["aten::exp"])


def test_nested_and_empty_frames_are_not_weights() -> None:
    """Spectral norm on top of weight norm; in another thread a frame at the same time computes nothing."""
    call = [op("aten::exp"), op("aten::sum"), op("aten::linear")]
    ops = step(call, 24, ["AddmmBackward0", "SumBackward1", "ExpBackward0"], [op(LEAF)] * 4)
    trace, number = steps_of(ops), 0
    frame = "torch/nn/utils/parametrize.py(307): forward"
    for at, (name, _) in enumerate(ops * 3):
        if name == "aten::exp":
            begin, number = at * OP_US * US, number + 4
            trace.python(frame, begin, 11 * US, python_id=number)
            trace.python(frame, begin, 2 * OP_US * US, python_id=number + 1)
            trace.python(frame, begin + OP_US * US, 11 * US, python_id=number + 2)
            trace.python(frame, begin, 2 * OP_US * US, python_id=number + 3, tid=77)
    (one,) = of_rule(trace, "computed-weight")
    assert (one.count, one.evidence["computed"], one.evidence["weights"]) == (20 * 3, 24, 4)
    assert list(one.evidence["ops"]) == ["aten::exp", "aten::sum"]


def test_annotations_locate_weights_without_stacks() -> None:
    """48 calls a step in a rollout: of 45 of them, 10 us each."""
    trace = normed(48, 6)
    for number in range(3):
        trace.annotation("rollout", number * (48 * 4 + 6) * OP_US * US, 96 * OP_US * US - US)
    (one,) = of_rule(trace, "computed-weight")
    assert one.evidence["lines"] == {"rollout": 3 * 45 * 10 * US}
    assert one.message.endswith(", at rollout")


def test_a_narrow_product_that_is_computed_again_is_told_once() -> None:
    """W + B A in 24 calls; the first two, which would be of low rank, take less than 2 % with what they keep."""
    b, a = [512, 8], [8, 512]
    call = [op("aten::matmul", b, a), op("aten::add", W, W), op("aten::linear", X, W, [512])]
    call = [(name, {**args, "Input type": ["float"] * 3}) for name, args in call]
    ops = step(call, 24, ["AddmmBackward0", "AddBackward0", "MmBackward0"], [op(LEAF, b), op(LEAF, a)])
    trace, number = steps_of(ops), 0
    for at, (name, _) in enumerate(ops * 3):
        if name == "aten::matmul":
            frame = "torch/nn/utils/parametrize.py(307): forward"
            trace.python(frame, at * OP_US * US, 2 * OP_US * US, python_id=(number := number + 1))
    (one,) = find_rule("computed-weight").hits(Analysis(trace.load()))
    assert (one.cause, len(one.occurrences)) == ("repeated", 3 * 22)
