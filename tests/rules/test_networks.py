"""Networks that run one after the other, where one call on a batch, or on stacked weights, would do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.launches import of_rule, steps_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding
from traceanalyzer.model.finding import Confidence

IMAGE, FEATURES = [2, 4, 32, 32], [2, 64, 32, 32]
EMBEDDING: tuple[str, list[list[int]]] = ("aten::linear", [[1, 64], [64, 64], [64]])


def guided(
    *,
    layers: int = 20,
    between: str = "",
    first: tuple[str, list[list[int]]] = EMBEDDING,
    taken: int = 2,
    others: int = 0,
    other: str = "aten::mul",
    passes: int = 2,
    rounds: int = 1,
    taker: str = "aten::sub",
    result: list[int] = IMAGE,
    last: str = "",
) -> TraceBuilder:
    """Three steps of passes through a network of `layers` convolutions, whose results an op combines.

    Args:
        between: an op that is called after each pass but the last.
        first: the op that begins a pass.
        taken: results that the op after them takes.
        others, other: ops of the step that are in no pass, and their name; backward has a thread of its own.
        rounds: how often all of it is done within a step, with another op after all but the first.
        last: the last op of a pass, which is read where it is "aten::to".
        taker, result: the op after them, and the shape of what it takes.
    """
    deep = ("aten::conv2d", [FEATURES, [64, 64, 3, 3]]), ("aten::relu", [FEATURES])
    network = [first, ("aten::conv2d", [IMAGE, [64, 4, 3, 3]])]
    network += [deep[at % 2] for at in range(2 * layers)] + [("aten::conv2d", [FEATURES, [4, 64, 3, 3]])]
    network += [(last, [IMAGE])] if last else []
    ops = [*network, *([(between, [IMAGE])] if between else [])] * (passes - 1) + network
    ops += [(taker, [result] * taken), *[(other, [[7, at + 1]]) for at in range(others)]]
    ops = [op for number in range(rounds) for op in (*ops, *[("aten::mul", [[9, number]])] * (number > 0))]
    return steps_of([(name, {"Input Dims": dims}) for name, dims in ops], read="aten::to", backward_tid=1001)


def test_two_passes_through_one_network_are_one_batch() -> None:
    (one,) = of_rule(guided(), "repeated-calls")
    assert (one.cause, one.confidence, one.count) == ("passes", Confidence.MEDIUM, 6)
    assert one.message.startswith(
        "the same 43 ops run twice in a row on tensors of the same shapes, with 43 launches"
    )
    assert "aten::sub combines the results" in one.message
    assert one.saving is not None
    assert 0.4 < one.saving.share < 0.6


def test_sampler_passes_begin_with_inputs_of_result_size() -> None:
    """Guidance of a denoiser, which takes an image and makes one, and puts its pixels in order at the end."""
    image = ("aten::conv2d", [IMAGE, [64, 4, 3, 3]])
    for result in (IMAGE, [2, 1, 64, 64]):
        (one,) = of_rule(guided(first=image, rounds=3, result=result), "repeated-calls")
        assert (one.cause, one.count) == ("passes", 18)


def test_more_passes_are_counted() -> None:
    (one,) = of_rule(guided(passes=3), "repeated-calls")
    assert "run 3 times in a row" in one.message


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(guided(between="aten::add"), id="an op changes the result before the next pass"),
        pytest.param(guided(taken=1), id="the next op takes one result: a chain"),
        pytest.param(
            guided(first=("aten::relu", [IMAGE])), id="the first layer may take the last pass's result"
        ),
        pytest.param(
            guided(first=("aten::conv2d", [IMAGE, [64, 4, 3, 3]]), rounds=3, taker="aten::add"),
            id="blocks of one network, and a residual",
        ),
        pytest.param(
            guided(first=("aten::conv2d", [IMAGE, [64, 4, 3, 3]]), rounds=3, passes=3), id="a chain of three"
        ),
        pytest.param(guided(result=[2, 4, 32, 16]), id="the next op takes something else"),
        pytest.param(guided(last="aten::to"), id="the host reads each result first: actions"),
        pytest.param(guided(last="aten::argmax"), id="each draws a token, with which the next one begins"),
        pytest.param(
            guided(last="aten::index_copy_"), id="each writes into a cache, which the next one reads"
        ),
        pytest.param(guided(layers=15), id="few launches: a layer"),
        pytest.param(guided(others=90), id="a small part of the step"),
        pytest.param(guided(others=90, other="MulBackward0"), id="backward is most of the step"),
    ],
)
def test_passes_that_may_be_a_chain_or_are_few_are_left_alone(trace: TraceBuilder) -> None:
    assert [one for one in of_rule(trace, "repeated-calls") if one.cause] == []


@pytest.mark.parametrize(
    "last", ["multinomial", "exponential_", "index_put_", "index_copy_", "scatter_", "gather", "exp"]
)
def test_random_or_in_place_passes_depend_on_each_other(last: str) -> None:
    found = [one for one in of_rule(guided(last=f"aten::{last}"), "repeated-calls") if one.cause]
    assert [one.cause for one in found] == ["passes"] * (last in ("gather", "exp"))


@pytest.mark.parametrize(("others", "said"), [(85, True), (86, False)])
def test_passes_are_told_that_make_half_of_a_step_s_launches(others: int, said: bool) -> None:
    """86 launches of two passes, one of the op after them, and others."""
    causes = [one.cause for one in of_rule(guided(others=others), "repeated-calls")]
    assert ("passes" in causes) is said


def test_four_equal_blocks_are_not_two_passes() -> None:
    """Blocks of 23 launches are layers, though a layer elsewhere recurs after 46 ops."""
    deep = [("aten::conv2d", [FEATURES, [64, 64, 3, 3]]), ("aten::relu", [FEATURES])] * 10
    ends = ("aten::conv2d", [IMAGE, [64, 4, 3, 3]]), ("aten::conv2d", [FEATURES, [4, 64, 3, 3]])
    layer = ("aten::linear", [[3, 5], [5, 5]])
    others = [("aten::mul", [[7, number]]) for number in range(45)]
    ops = [*[EMBEDDING, ends[0], *deep, ends[1]] * 4, ("aten::sub", [IMAGE] * 2), layer, *others, layer]
    trace = steps_of([(name, {"Input Dims": dims}) for name, dims in ops], read="aten::to", backward_tid=1001)
    assert [one.cause for one in of_rule(trace, "repeated-calls") if one.cause] == []


def ensemble(
    *,
    parts: int = 7,
    axis: str = "0",
    width: int = 40,
    state: bool = False,
    together: int = 0,
    entering: bool = False,
    views: int = 0,
) -> TraceBuilder:
    """Three steps of seven small networks and their backward.

    Args:
        parts, axis: how a batch is taken apart before them.
        width: of what their first layer takes; its result has 200.
        state: a second layer comes right after the first.
        together: so many of their results are put together.
        entering: a second tensor is added on the way through each network.
        views: of parameters before all, which launch nothing.
    """
    hidden = [256, 200]
    layer: list[tuple[str, list[Any]]] = [("aten::linear", [[256, width], [200, width], [200]])]
    layer += [("aten::linear", [hidden, [200, 200]])] if state else [("aten::silu", [hidden])]
    layer += [("aten::add", [hidden, hidden])] if entering else [("aten::tanh", [hidden])]
    layer += [("aten::linear", [hidden, [66, 200], [66]])]
    back = ("AddmmBackward0", [[256, 66]]), ("TanhBackward0", [hidden]), ("AddmmBackward0", [hidden])
    ops: list[tuple[str, list[Any]]] = [("aten::detach", [[9]])] * views
    ops += [("aten::unbind", [[parts, 256, 40], []]), *layer * 7]
    ops += [("aten::stack", [[[256, 66]] * together])] if together else [("aten::sum", [[3]])]
    ops += [("aten::ones_like", [[3]]), *back * 7]
    args = [{"Input Dims": dims, "Concrete Inputs": ["", axis] if dims[-1] == [] else []} for _, dims in ops]
    named = zip((name for name, _ in ops), args, strict=True)
    return steps_of(list(named), quiet="aten::detach", backward_tid=1001)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(ensemble(), id="each takes a part"),
        pytest.param(ensemble(parts=8, together=7), id="their results are put together"),
        pytest.param(ensemble(views=40), id="views of parameters are no loop"),
    ],
)
def test_small_networks_and_their_backward_are_one_call(trace: TraceBuilder) -> None:
    found = of_rule(trace, "repeated-calls")
    assert [(one.evidence["repeats"], one.confidence) for one in found] == [(7, Confidence.MEDIUM)] * 2
    assert {one.evidence["members"] for one in found} == {3, 4}
    assert "bmm" in found[0].advice


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(ensemble(parts=8), id="more parts than repeats"),
        pytest.param(ensemble(axis="1"), id="taken apart along another dimension"),
        pytest.param(ensemble(width=50), id="the first layer takes something else"),
        pytest.param(ensemble(state=True), id="two layers in a row: one may take a state"),
        pytest.param(ensemble(parts=8, together=6), id="fewer are put together"),
        pytest.param(ensemble(parts=8, together=7, width=200), id="a result fits where the next begins"),
        pytest.param(ensemble(parts=8, together=7, entering=True), id="a state may enter on the way"),
    ],
)
def test_seven_repeats_that_may_be_layers_are_left_alone(trace: TraceBuilder) -> None:
    assert of_rule(trace, "repeated-calls") == []


ENGINE = "autograd::engine::evaluate_function: "
STATE, EMBEDDED = [16, 512], [16, 128]


def observed(
    *,
    repeats: int = 10,
    state_first: bool = False,
    writes: str = "",
    trained: bool = False,
    index: int = 1,
    others: int = 0,
    foreign: int = 0,
) -> TraceBuilder:
    """A recurrent loop that encodes x[t], 16 frames of 3x64x64, and joins the result with its state.

    Args:
        state_first: the first op that reads a tensor of x[t]'s shape reads another, too.
        writes: an op that writes into a frame.
        trained: each frame's encoder goes backward after the loop.
        index: by which x's index grows.
        others: so many of the last repeats have another encoder.
        foreign: nodes that no encoder recorded, between those of each one's backward.
    """
    frames, frame, wide = [repeats, 16, 3, 64, 64], [16, 3, 64, 64], [16, 8, 32, 32]
    ops: list[tuple[str, dict[str, Any]]] = []
    for at in range(repeats):
        chain = [
            ("aten::conv2d", [frame, [8, 3, 4, 4 if at < repeats - others else 2]], None),
            ("aten::silu", [wide], None),
            ("aten::flatten", [wide, [], []], ["", "1", "-1"]),
            ("aten::linear", [[16, 8_192], [128, 8_192]], None),
        ]
        ops.append(
            ("aten::select", {"Input Dims": [frames, [], []], "Concrete Inputs": ["", "0", str(index * at)]})
        )
        ops += [("aten::add", {"Input Dims": [frame, frame]})] * state_first
        for place, (name, dims, values) in enumerate(chain):
            told: dict[str, Any] = {"Input Dims": dims, "Sequence number": 10 * at + place}
            ops.append((name, {**told, "Concrete Inputs": values} if values else told))
        ops += [(writes, {"Input Dims": [frame, frame]})] * bool(writes)
        ops.append(("aten::cat", {"Input Dims": [[STATE, EMBEDDED], []]}))
        ops.append(("aten::gru_cell", {"Input Dims": [[16, 640], STATE, [1_536, 640], [1_536, 512]]}))
    backward = [(f"{name}Backward0", at) for at, name in ((3, "Addmm"), (1, "Silu"), (0, "Convolution"))]
    for at in reversed(range(repeats if trained else 0)):
        nodes = [(f"{ENGINE}{name}", {"Sequence number": 10 * at + place}) for name, place in backward]
        ops += [*nodes[:2], *[(f"{ENGINE}MulBackward0", {})] * foreign, *nodes[2:]]
        ops.append(("torch::autograd::AccumulateGrad", {}))
        ops.append(("GruCellBackward0", {"Sequence number": 10 * at + 9}))
    return steps_of(ops, steps=1 if trained else 3, quiet="aten::select")


def inputs_of_loops(trace: TraceBuilder) -> list[Finding]:
    return [one for one in of_rule(trace, "repeated-calls") if one.cause == "loop-inputs"]


def test_an_encoder_in_a_recurrent_loop_could_run_before_it() -> None:
    (one,) = inputs_of_loops(observed())
    assert (one.count, one.evidence["repeats"], one.evidence["part"]) == (30, 10, "16x3x64x64")
    assert one.evidence["ops"] == "aten::conv2d, aten::silu, aten::linear"
    assert one.saving is not None
    assert 0.3 < one.saving.share < 0.6


def test_its_backward_goes_as_well() -> None:
    (trained,), (plain,) = inputs_of_loops(observed(trained=True)), inputs_of_loops(observed())
    assert trained.count == 20
    assert trained.cost_ns > 1.5 * plain.cost_ns / 3  # of one step, not of three


@pytest.mark.parametrize(("foreign", "count"), [(1, 2 * 10), (2, 10)])
def test_backward_with_other_nodes_between_stays(foreign: int, count: int) -> None:
    (one,) = inputs_of_loops(observed(trained=True, foreign=foreign))
    assert one.count == count


@pytest.mark.parametrize(
    "trace",
    [
        observed(repeats=6),
        observed(index=0),
        observed(writes="aten::copy_"),
        observed(state_first=True),
        guided(),
    ],
)
def test_state_and_written_tensors_are_not_loop_inputs(
    trace: TraceBuilder,
) -> None:
    assert inputs_of_loops(trace) == []


@pytest.mark.parametrize(("others", "said"), [(0, 16), (4, 12), (5, None)])
def test_an_encoder_is_that_of_three_quarters_of_the_repeats(others: int, said: int | None) -> None:
    """Of sixteen, of which eight would be a loop."""
    found = inputs_of_loops(observed(repeats=16, others=others))
    assert [one.evidence["repeats"] for one in found] == [said] * (said is not None)
