"""Loops of small calls, on recorded and on built traces."""

from pathlib import Path
from typing import Any

import pytest

from tests.rules.launches import GEMM, POINTWISE, US, loop, of_rule, steps_of
from tests.support.execution_traces import Call, Tensor, written
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding, diagnose
from traceanalyzer.model.finding import Confidence

NODE = "autograd::engine::evaluate_function: "


def test_picking_one_sample_after_the_other() -> None:
    (one,) = of_rule(loop(["aten::select", "aten::mul"], 20), "repeated-calls")
    assert (one.count, one.steps, one.evidence["members"]) == (60, 3, 2)
    assert one.message.startswith(
        "a sequence of 2 ops, aten::mul (50 % of their time), aten::select (50 %), runs 20 times a step"
    )


def test_inner_ops_of_an_idle_row_are_no_repeat() -> None:
    for views, members in ((1, 2), (2, 3), (3, 3), (5, 3)):
        ops: list[tuple[str, dict[str, Any]]] = [*[("aten::select", {})] * views, ("aten::mul", {})] * 20
        (one,) = of_rule(steps_of(ops, quiet="aten::select"), "repeated-calls")
        assert (one.count, one.evidence["members"]) == (60, members)


def test_fewer_repeats_need_changing_shapes() -> None:
    assert of_rule(loop(["aten::select", "aten::mm"], 8, kernel=GEMM), "repeated-calls") == []
    changing = loop(["aten::select", "aten::mm"], 8, kernel=GEMM, dims=_growing)
    (one,) = of_rule(changing, "repeated-calls")
    assert one.confidence is Confidence.MEDIUM


def gathering(*rows: int) -> TraceBuilder:
    """A repeat for each row that is selected: then rows are gathered, and multiplied."""
    ops = []
    for row in rows:
        ops.append(("aten::select", {"Input Dims": [[2, 900], [], []], "Concrete Inputs": ["", "0", str(row)]}))
        ops.append(("aten::index_select", {"Input Dims": [[64, 16], [], [900]]}))
        ops.append(("aten::addmm", {"Input Dims": [[64, 16]]}))
    return steps_of(ops, kernel=GEMM)


def test_layers_that_read_the_same_rows_are_no_loop() -> None:
    assert of_rule(gathering(*[1] * 20), "repeated-calls") == []
    (one,) = of_rule(gathering(*range(20)), "repeated-calls")
    assert one.confidence is Confidence.LOW


def test_images_of_other_sizes_are_no_loop() -> None:
    level = ["aten::conv2d", "aten::relu", "aten::select"]
    assert of_rule(loop(level, 6, dims=_growing), "repeated-calls") == []


def test_experts_of_other_sizes_are_a_loop() -> None:
    expert = ["aten::nonzero", "aten::index_select", *["aten::linear", "aten::gelu"] * 5]
    (one,) = of_rule(loop(expert, 6, kernel=GEMM, dims=_rows), "repeated-calls")
    assert one.confidence is Confidence.MEDIUM
    assert "grouped GEMM" in one.advice
    larger = loop([*expert, *["aten::mul"] * 13], 6, kernel=GEMM, dims=_rows)
    assert of_rule(larger, "repeated-calls") == []


def _rows(repeat: int) -> object:
    return [[(700, 640, 715, 690)[repeat % 4], 64], [64, 64]]


def _growing(repeat: int) -> object:
    return [[repeat + 1, 64], [64, 64]]


def test_layers_of_growing_width_are_no_loop() -> None:
    assert of_rule(loop(["aten::linear", "aten::silu"], 20, kernel=GEMM, dims=_growing), "repeated-calls") == []


def test_results_that_are_stacked_come_from_a_loop() -> None:
    ops = [(name, {}) for name in (*["aten::linear", "aten::relu"] * 20, "aten::stack")]
    trace = steps_of(ops, kernel=GEMM)
    (one,) = of_rule(trace, "repeated-calls")
    assert (one.confidence, one.evidence["repeats"]) == (Confidence.LOW, 20)
    assert "call the layer once" in one.advice


def test_large_kernels_gain_nothing() -> None:
    trace = TraceBuilder()
    for number in range(90):
        at = 200 * US * number
        trace.op("aten::select", at, 10 * US)
        trace.launched((at + 4 * US, 5 * US), (at + 9 * US, 100 * US), number + 1, name=POINTWISE)
    for step in range(3):
        trace.step(step, 6_000 * US * step, 6_000 * US)
    assert of_rule(trace, "repeated-calls") == []


def test_a_loop_of_more_repeats_tells_how_often_it_runs() -> None:
    """The first step has sixteen repeats, the others twenty."""
    trace = loop(["aten::select", "aten::mul"], 16, steps=1)
    at = 40 * 12 * US
    for step in (1, 2):
        begin = at
        for name in ["aten::select", "aten::mul"] * 20:
            trace.op(name, at, 10 * US)
            trace.launched((at + 4 * US, 5 * US), (at + 9 * US, 1 * US), name=POINTWISE)
            at += 12 * US
        trace.step(step, begin, at - begin)
    (one,) = of_rule(trace, "repeated-calls")
    assert (one.count, one.evidence["repeats"]) == (56, 20)


def test_an_optimizer_s_own_loop_is_not_told_twice() -> None:
    """unfused-optimizer tells of it."""
    trace = loop(["aten::mul_", "aten::add_"], 30, kernel=GEMM)
    (one,) = of_rule(trace, "repeated-calls")
    for step in range(3):
        trace.annotation("Optimizer.step#SGD.step", step * 720 * US, 719 * US)
    assert one.count == 90
    assert of_rule(trace, "repeated-calls") == []


def test_loops_of_other_ops_in_one_step_are_each_told() -> None:
    """One of 20 repeats, one of 18, and one of 16."""
    counts = {"mul": 20, "exp": 18, "log": 16}
    ops: list[tuple[str, dict[str, Any]]] = [
        (f"aten::{name}", {}) for op, count in counts.items() for name in ("select", op) * count
    ]
    said = {min(one.evidence["ops"]): one.count for one in of_rule(steps_of(ops, steps=2), "repeated-calls")}
    assert said == {f"aten::{op}": 2 * count for op, count in counts.items()}


def test_decoding_loop_is_no_loop_of_samples() -> None:
    ops = ["aten::slice", "aten::linear"]
    assert of_rule(loop([*ops, "aten::argmax"], 20, kernel=GEMM), "repeated-calls") == []
    assert len(of_rule(loop(ops, 20, kernel=GEMM), "repeated-calls")) == 1


def trained(*names: str) -> TraceBuilder:
    """Steps of 24 repeats of these ops, and their backward."""
    ops: list[tuple[str, dict[str, Any]]] = [
        (name, {"Sequence number": 100 * repeat + place}) for repeat in range(24) for place, name in enumerate(names)
    ]
    nodes: list[tuple[str, dict[str, Any]]] = []
    for repeat in reversed(range(24)):
        for place, name in reversed([*enumerate(names)]):
            node = name.removeprefix("aten::").title()
            nodes.append((f"{NODE}{node}Backward0", {"Sequence number": 100 * repeat + place}))
    return steps_of([*ops, *nodes], backward_tid=2_000)


def test_a_loop_saves_its_backward_as_well() -> None:
    """Two ops and two nodes of each of 24 repeats, of which one repeat stays."""
    (one,) = of_rule(trained("aten::select", "aten::mul"), "repeated-calls")
    assert (one.count, one.evidence["repeats"]) == (72, 24)
    assert one.saving is not None
    assert one.saving.share == pytest.approx(23 / 24, abs=0.03)


def test_backward_of_one_network_for_each_row_is_a_loop() -> None:
    """The rows of a Jacobian: 24 times through the nodes of a network that ran once."""
    network = [("aten::addmm", {"Sequence number": 3}), ("aten::select", {"Sequence number": 2})]
    nodes = [(f"{NODE}{name}Backward0", {"Sequence number": n}) for name, n in (("Select", 2), ("Addmm", 3))]
    (one,) = of_rule(steps_of([*network, *nodes * 24], backward_tid=2_000), "repeated-calls")
    assert (one.evidence["repeats"], one.confidence) == (24, Confidence.LOW)


@pytest.mark.parametrize(
    "names",
    [
        ("aten::mul", "aten::mul", "aten::add", "aten::sum"),
        ("aten::select", "aten::lstm_cell"),
        ("aten::select", "aten::gru_cell", "aten::linear"),
        ("aten::select", "torch.distributed.ddp.reducer::copy_bucket_to_grad"),
    ],
    ids=["a scan", "an LSTM", "a GRU", "a library"],
)
def test_repeats_that_need_the_one_before_are_no_loop(names: tuple[str, ...]) -> None:
    assert of_rule(trained(*names), "repeated-calls") == []


def test_a_loop_is_found_beside_one_that_covers_more() -> None:
    """24 layers of 8 ops, and norms of 48 gradients."""
    layer = ["aten::linear", "aten::gelu", "aten::linear", "aten::add", "aten::layer_norm", "aten::linear"]
    layer += ["aten::transpose", "aten::softmax"]
    ops = [(name, {}) for name in (*layer * 24, *["aten::norm", "aten::item"] * 48)]
    (one,) = of_rule(steps_of(ops), "repeated-calls")
    assert (one.evidence["repeats"], set(one.evidence["ops"])) == (48, {"aten::norm", "aten::item"})


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (["aten::zero_"], "Set gradients to None"),
        (["aten::copy_"], "If DistributedDataParallel copies its buffers"),
        (["aten::lerp_"], "Update all tensors with one call"),
        (["aten::select", "aten::add"], "If no repeat needs the one before, stack the inputs and use one op"),
        (["aten::linear", "aten::select"], "If no repeat needs the one before, stack the inputs, and call"),
        (["aten::norm", "aten::item"], "Compute all norms at once"),
    ],
)
def test_one_call_for_all_depends_on_the_ops(names: list[str], advice: str) -> None:
    (one,) = of_rule(loop(names, 30), "repeated-calls")
    assert one.advice.startswith(advice)


def recorded(folder: Path, *steps: list[Call], rules: tuple[str, ...] = ("repeated-calls",)) -> list[Finding]:
    """What the rules say of steps with an execution trace."""
    return list(diagnose(written(folder, steps), select=rules).findings)


def models(count: int, *, chained: bool) -> list[Call]:
    """Calls of a small model with weights of its own, on one input or on the result of the model before."""
    calls, given = [], Tensor(1, (16, 16))
    for number in range(count):
        weight, hidden, result = (Tensor(100 * place + number, (16, 16)) for place in (1, 2, 3))
        calls += [
            Call("aten::mm", (given, weight), (hidden,), gpu=2 * US),
            Call("aten::tanh", (hidden,), (result,), gpu=2 * US),
        ]
        given = result if chained else given
    return [*calls, Call("mine::read", tuple(call.results[0] for call in calls[1::2]))]


def test_few_models_are_a_loop_where_tensors_show_that_none_needs_another(tmp_path: Path) -> None:
    (one,) = recorded(tmp_path, *[models(5, chained=False)] * 3)
    assert (one.evidence["repeats"], one.confidence) == (5, Confidence.MEDIUM)
    assert one.advice.startswith("Stack the inputs, and call the layer once")
    assert recorded(tmp_path, *[models(5, chained=True)] * 3) == []


def test_a_recurrence_gets_another_remedy_than_a_batch(tmp_path: Path) -> None:
    """A model of 30 layers, and 40 times the state times a weight, plus an input."""
    calls, state, weight = models(15, chained=True), Tensor(1), Tensor(2)
    for number in range(40):
        product, following = Tensor(100 + number), Tensor(200 + number)
        calls += [
            Call("aten::mul", (state, weight), (product,), gpu=2 * US),
            Call("aten::add", (product, Tensor(300 + number)), (following,), gpu=2 * US),
        ]
        state = following
    steps = [[*calls, Call("mine::read", (state,))]] * 3
    one, *_ = recorded(tmp_path, *steps, rules=("repeated-calls", "launch-bound"))
    assert (one.rule, one.cause) == ("launch-bound", "region")
    assert one.advice.startswith("Capture the loop in a CUDA graph")


def test_a_loop_over_columns_within_a_recurrence_is_one_call(tmp_path: Path) -> None:
    """A linear-chain CRF: each of 20 tokens needs the one before, but none of its 6 tags another one."""
    calls, state = [], Tensor(1, (8, 6))
    for token in range(20):
        columns = [Tensor(1000 * token + 10 * tag + 100, (8,)) for tag in range(6)]
        for tag, column in enumerate(columns):
            arriving = Tensor(1000 * token + 10 * tag + 101, (8, 6))
            calls += [
                Call("aten::add", (state, Tensor(2, (6,), offset=6 * tag)), (arriving,), gpu=2 * US),
                Call("aten::logsumexp", (arriving,), (column,), gpu=2 * US),
            ]
        state = Tensor(1000 * token + 200, (8, 6))
        calls.append(Call("aten::stack", tuple(columns), (state,), gpu=2 * US))
    (one,) = recorded(tmp_path, *[[*calls, Call("mine::read", (state,))]] * 3)
    assert one.title == "A loop runs add, logsumexp 120 times a step, with 2 launches each time"
    assert one.advice.startswith("Stack the inputs and use one op for all of them")


@pytest.mark.parametrize("shared_weight", [True, False])
def test_a_readout_within_a_recurrence_can_run_after_it(tmp_path: Path, shared_weight: bool) -> None:
    """A decoder of 30 time steps, each with a state from the one before, and an output layer that no step needs.

    Where each has an output layer of its own, as stages of a network have, one call cannot do for all.
    """
    calls, state, total = list[Call](), Tensor(1, (8, 16)), Tensor(2, (8, 16))
    cell = Tensor(3, (16, 16))
    for number in range(30):
        output = Tensor(4 if shared_weight else 1000 + number, (16, 16))
        product, following, read, act, added = (Tensor(100 + 5 * number + place, (8, 16)) for place in range(5))
        calls += [
            Call("aten::mm", (state, cell), (product,), gpu=2 * US),
            Call("aten::tanh", (product,), (following,), gpu=2 * US),
            Call("aten::linear", (following, output), (read,), gpu=2 * US),
            Call("aten::sigmoid", (read,), (act,), gpu=2 * US),
            Call("aten::add", (total, act), (added,), gpu=2 * US),
        ]
        state, total = following, added
    found = recorded(tmp_path, *[[*calls, Call("mine::read", (total,))]] * 3)
    assert len(found) == shared_weight
    if not shared_weight:
        return
    (one,) = found
    assert one.title == "A loop runs linear, sigmoid, add 30 times a step, with 3 launches each time"
    assert one.advice.startswith("Some layers of this loop do not feed its next iteration")
    assert one.saving is not None
    assert one.saving.share == pytest.approx(0.6 * 29 / 30, abs=0.05)


@pytest.mark.parametrize("picks", [True, False])
def test_experts_within_layers_are_a_loop(tmp_path: Path, picks: bool) -> None:
    """20 layers of 6 products, each on another number of rows: experts pick them, layers of other sizes do not."""
    calls, state = [], Tensor(1, (64, 16))
    for layer in range(20):
        results = []
        for expert in range(6):
            rows, result = (Tensor(1000 * layer + 10 * expert + n, (8 + expert, 16)) for n in (100, 101))
            places = Tensor(1000 * layer + 10 * expert + 102, (8 + expert,))
            calls += [
                Call("aten::index" if picks else "aten::add", (state, places), (rows,), gpu=2 * US),
                Call("aten::mm", (rows, Tensor(2 + expert, (16, 16))), (result,), gpu=2 * US),
            ]
            results.append(result)
        state = Tensor(1000 * layer + 200, (64, 16))
        calls.append(Call("mine::join", tuple(results), (state,), gpu=2 * US))
    found = recorded(tmp_path, *[[*calls, Call("mine::read", (state,))]] * 3)
    assert [one.title for one in found] == ["A loop runs index, mm 120 times a step, with 2 launches each time"] * picks


def test_backward_in_stages_leaves_one_for_each(tmp_path: Path) -> None:
    """A solver evaluates its network four times a step; each time code calls backward six times."""
    trace, number, at = TraceBuilder(), 0, 0
    node = (f"{NODE}SelectBackward0", f"{NODE}AddmmBackward0")
    for step in range(3):
        begin = at
        for _ in range(4):
            stage = [("aten::addmm", 1000)] * 12
            for name, tid in [*stage, *[("aten::add", 1000), *((each, 2000) for each in node)] * 6]:
                trace.op(name, at, 10 * US, tid=tid)
                trace.launched((at + 4 * US, 5 * US), (at + 9 * US, 1 * US), tid=tid, name=POINTWISE)
                number, at = number + 1, at + 12 * US
        trace.step(step, begin, at - begin)
    (one,) = of_rule(trace, "repeated-calls")
    assert one.title.startswith("A loop runs backward 24 times a step")
    assert one.advice.startswith("Compute all rows in one backward pass")
    assert one.saving is not None
    # Of 30 ops a stage, 18 are six repeats of two nodes and a sum: one pass for all takes as long as four.
    assert one.saving.share == pytest.approx(6 / 30, abs=0.06)
