"""Loops of small calls that backward goes through, too, on built traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.rules.launches import of_rule, steps_of
from tests.support.trace_builder import TraceBuilder

Op = tuple[str, dict[str, Any]]
NODE = "autograd::engine::evaluate_function: "
DIMS, INPUTS = "Input Dims", "Concrete Inputs"


def trained(repeats: list[list[Op]], nodes: list[str], *, before: list[Op] | None = None) -> TraceBuilder:
    """Steps of what comes before, of these repeats, and of as many repeats of these nodes, the last one first.

    Args:
        nodes: what backward does for a repeat: the node of its last op first.
    """
    ops = list(before or [])
    for number, repeat in enumerate(repeats):
        ops += [
            (name, {**args, "Sequence number": number * 100 + at}) for at, (name, args) in enumerate(repeat)
        ]
    for number in reversed(range(len(repeats))):
        last = len(repeats[number]) - 1
        for back, node in enumerate(nodes):
            ops.append((f"{NODE}{node}", {"Sequence number": number * 100 + last - back}))
    return steps_of(ops, backward_tid=2000)


def named(*names: str) -> list[Op]:
    return [(name, {}) for name in names]


PENALTY = named("aten::pow", "aten::sum", "aten::add")


def test_a_penalty_on_each_parameter_goes_with_its_backward() -> None:
    """40 parameters: 3 ops and 3 nodes each, of which one repeat stays."""
    trace = trained([PENALTY] * 40, ["AddBackward0", "SumBackward0", "PowBackward0"])
    (one,) = of_rule(trace, "repeated-calls")
    assert (one.count, one.steps, one.evidence["repeats"], one.evidence["nodes"]) == (120, 3, 40, 3.0)
    assert "weight_decay" in one.advice
    assert one.saving is not None
    assert one.saving.share == pytest.approx(39 / 40, abs=0.03)
    (alone,) = of_rule(trained([PENALTY] * 40, []), "repeated-calls")
    assert "nodes" not in alone.evidence
    assert "weight_decay" not in alone.advice
    assert alone.saving is not None
    assert one.saving.step_ns == pytest.approx(2 * alone.saving.step_ns, rel=0.1)


@pytest.mark.parametrize(
    ("repeat", "nodes", "begins"),
    [
        (["aten::mse_loss", "aten::add"], ["AddBackward0", "MseLossBackward0"], "Take all"),
        (
            ["aten::abs", "aten::sum", "aten::add"],
            ["AddBackward0", "SumBackward0", "AbsBackward0"],
            "Take all",
        ),
        (
            ["aten::sub", "aten::pow", "aten::mul", "aten::sum", "aten::add"],
            ["AddBackward0", "SumBackward0", "MulBackward0", "PowBackward0", "SubBackward0"],
            "Take all",
        ),
        (["aten::norm", "aten::add"], ["AddBackward0", "NormBackward0"], "An L2 penalty"),
    ],
    ids=["distilled layers", "L1", "distance to old weights", "norms"],
)
def test_losses_of_a_list_are_one(repeat: list[str], nodes: list[str], begins: str) -> None:
    (one,) = of_rule(trained([named(*repeat)] * 24, nodes), "repeated-calls")
    assert (one.count, one.evidence["nodes"]) == (72, float(len(repeat)))
    assert one.advice.startswith(begins)
    assert one.saving is not None
    assert one.saving.share == pytest.approx(23 / 24, abs=0.03)


def test_a_scan_needs_the_state_of_the_step_before() -> None:
    """h = a h + b x, and y = sum(c h)."""
    scan = named("aten::mul", "aten::mul", "aten::add", "aten::mul", "aten::sum")
    nodes = ["SumBackward0", "MulBackward0", "AddBackward0", "MulBackward0", "MulBackward0"]
    assert of_rule(trained([scan] * 40, nodes), "repeated-calls") == []


def test_a_loop_is_found_beside_one_that_covers_more() -> None:
    """24 layers of 8 ops, and norms of 48 gradients."""
    layer = ["aten::linear", "aten::gelu", "aten::linear", "aten::add", "aten::layer_norm", "aten::linear"]
    layer += ["aten::transpose", "aten::softmax"]
    ops = named(*layer * 24, *["aten::norm", "aten::add"] * 48)
    (one,) = of_rule(steps_of(ops), "repeated-calls")
    assert (one.evidence["repeats"], one.evidence["ops"]) == (48, "aten::norm, aten::add")
    assert "_foreach_norm" in one.advice


def step_of(t: int, *, known: bool, then: list[str], way: list[str], steps: int = 24) -> list[Op]:
    """One time step of a decoder that takes x[:, t] of so many."""
    taken = (
        {DIMS: [[64, steps, 32], [], [], [], []], INPUTS: ["", "1", str(t), str(t + 1), "1"]} if known else {}
    )
    layer = {DIMS: [[64, 1, 32], [[1, 64, 32], [1, 64, 32]]]} if known else {}
    return [("aten::slice", taken), *named(*way), ("aten::lstm", layer), *named(*then)]


HEAD = ["aten::linear", "aten::mse_loss", "aten::add"]
NODES = ["AddBackward0", "MseLossBackward0", "AddmmBackward0", "CudnnRnnBackward0"]


@pytest.mark.parametrize("known", [True, False], ids=["shapes", "no shapes"])
def test_a_decoder_with_known_inputs_takes_one_call(known: bool) -> None:
    trace = trained([step_of(t, known=known, then=HEAD, way=[]) for t in range(24)], NODES)
    (one,) = of_rule(trace, "repeated-calls")
    assert (one.cause, one.confidence, one.count) == ("recurrent-steps", "medium", 72)
    assert (one.evidence["layer"], one.evidence["repeats"], one.evidence["nodes"]) == ("aten::lstm", 24, 4.0)
    assert one.evidence["follows"] == "aten::linear, aten::mse_loss, aten::add"
    assert one.saving is not None
    assert one.saving.share > 0.85


def test_a_cell_that_takes_the_next_token_takes_a_layer_for_all() -> None:
    def repeat(t: int) -> list[Op]:
        taken = {DIMS: [[64, 24], [], []], INPUTS: ["", "1", str(t)]}
        token = {DIMS: [[1_000, 32], [64]]}
        cell = {DIMS: [[64, 32], [[64, 32], [64, 32]], [128, 32], [128, 32]]}
        return [("aten::select", taken), ("aten::embedding", token), ("aten::lstm_cell", cell)]

    (one,) = of_rule(
        trained([repeat(t) for t in range(24)], ["AddmmBackward0", "EmbeddingBackward0"]), "repeated-calls"
    )
    assert (one.cause, one.evidence["layer"]) == ("recurrent-steps", "aten::lstm_cell")
    assert one.advice.startswith("Use nn.LSTM or nn.GRU with the weights of the cell once")


@pytest.mark.parametrize(("last", "found"), [([64, 6], True), ([64, 7], False)], ids=["known", "own output"])
def test_cell_with_several_known_parts_is_one_layer_call(last: list[int], found: bool) -> None:
    """What an agent sees and did, and its number, are joined; what it would do now is known only after the cell."""

    def repeat(t: int) -> list[Op]:
        def part(size: int) -> Op:
            return "aten::select", {DIMS: [[24, 64, size], [], []], INPUTS: ["", "0", str(t)]}

        own = ("aten::expand", {DIMS: [[1, 3], [], []], INPUTS: ["", "[64, 3]", "False"]})
        joined = ("aten::cat", {DIMS: [[[64, 32], last, [64, 3]], []], INPUTS: ["", "-1"]})
        cell = ("aten::gru_cell", {DIMS: [[64, 41], [64, 16], [48, 41], [48, 16]]})
        return [part(32), part(6), own, joined, cell, ("aten::linear", {DIMS: [[64, 16], [7, 16], [7]]})]

    said = of_rule(trained([repeat(t) for t in range(24)], ["AddmmBackward0"]), "repeated-calls")
    assert [one.cause for one in said if one.cause] == ["recurrent-steps"] * found


@pytest.mark.parametrize(("size", "found"), [(32, True), (16, False)], ids=["part", "own output"])
def test_cell_with_unbound_parts_is_one_layer_call(size: int, found: bool) -> None:
    """24 time steps of a batch of 64; a cell of its own outputs has other sizes."""
    cell = ("aten::gru_cell", {DIMS: [[64, size], [64, 16], [48, size], [48, 16]]})
    unbound = ("aten::unbind", {DIMS: [[64, 24, 32], []], INPUTS: ["", "1"]})
    trace = trained([[cell, *named("aten::linear", "aten::relu")]] * 24, ["AddmmBackward0"], before=[unbound])
    said = of_rule(trace, "repeated-calls")
    assert [one.cause for one in said] == ["recurrent-steps"] * found


@pytest.mark.parametrize(
    "repeat",
    [
        lambda t: step_of(t, known=True, then=HEAD, way=["aten::cat"]),  # with what attention gave
        lambda t: step_of(0, known=True, then=HEAD, way=[]),  # of the last output
        lambda t: step_of(
            t, known=True, then=HEAD, way=[], steps=24 + t % 2
        ),  # of the one and the other in turn
        lambda t: [*named("aten::lstm", "aten::select", "aten::linear", "aten::unsqueeze")],
        lambda t: step_of(t, known=False, then=HEAD, way=["aten::argmax", "aten::embedding"]),
        lambda t: step_of(t, known=False, then=HEAD, way=["aten::linear"]),  # perhaps of the last output
    ],
    ids=["joined", "same", "two tensors", "own output", "sampled", "not known"],
)
def test_a_decoder_that_takes_what_it_makes_needs_its_loop(repeat: Callable[[int], list[Op]]) -> None:
    said = of_rule(trained([repeat(t) for t in range(24)], NODES), "repeated-calls")
    assert "recurrent-steps" not in [one.cause for one in said]


def test_a_decoder_that_is_not_trained_may_sample() -> None:
    trace = trained([step_of(t, known=True, then=HEAD, way=[]) for t in range(24)], [])
    assert "recurrent-steps" not in [one.cause for one in of_rule(trace, "repeated-calls")]


def test_library_ops_per_parameter_are_no_loop() -> None:
    names = ["aten::select", "aten::item", "torch.distributed.ddp.reducer::copy_bucket_to_grad"]
    assert of_rule(steps_of(named(*names * 40)), "repeated-calls") == []
