"""Products of tensors that a loop does not change, in each of its iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, Op, changed, found, program
from tests.support.sampling_loops import (
    ADD,
    CONTEXT,
    ENCODE,
    KEYS,
    NOISE,
    NORM,
    STATE,
    WIDE,
    add,
    attention,
    layer,
    linear,
    of_one,
    sampler,
)

CAST = Op("aten::to", ADD, 20, [CONTEXT, [], []], [F32, "Scalar", "Scalar"], scalars=["", "15", "False"])
FLAT = [616, 1_024]


@pytest.mark.parametrize(
    ("context", "spent"),
    [
        (KEYS, 100),
        ([of_one("layer_norm", CONTEXT), *KEYS], 120),
        ([CAST, linear(CONTEXT, 1_000), linear(CONTEXT, 1_000)], 220),
        ([linear(FLAT, 1_000, name="aten::addmm"), linear(FLAT, 1_000, name="aten::addmm")], 200),
        ([linear(CONTEXT, 1_000, name="aten::matmul")], 100),
        ([linear(CONTEXT, 1_000), of_one("silu", [8, 77, 1_000]), linear([8, 77, 1_000], 1_003)], 220),
    ],
    ids=["linear", "norm", "autocast", "addmm", "matmul", "two-layers"],
)
def test_work_on_a_fixed_condition_is_needed_once(context: list[Op], spent: int) -> None:
    (one,) = found(program(sampler(context)), "loop-invariant")
    assert "each of 4 iterations of a loop runs" in one.message
    assert one.cost_ns == pytest.approx(6 * 3 * 3 * spent * 1e3)  # steps, iterations but the first, layers
    assert one.saving is not None
    assert one.saving.share > 0.05


def test_layers_with_weights_of_their_own_are_no_loop() -> None:
    assert found(program(layer(KEYS) * 12), "loop-invariant") == []
    assert (
        found(program([linear(NOISE, 512), *layer(KEYS * 2) * 12, linear(STATE, 64)]), "loop-invariant") == []
    )


def test_guided_passes_have_different_conditions() -> None:
    assert found(program(sampler(KEYS, iterations=2)), "loop-invariant") == []


MADE = [linear(STATE, 1_024), Op("aten::bmm", NVJET, 50, [[8, 77, 256], [8, 256, 1_024]], [BF16] * 2)]
DRAWN = Op("aten::randn", ADD, 5, [[], []], ["ScalarList", ""], scalars=[str(NOISE), ""])
SCALED = Op("aten::mul", ADD, 5, [CONTEXT, []], [BF16, "double"], scalars=["", ""])


@pytest.mark.parametrize(
    "ops",
    [
        sampler([*MADE, *KEYS]),
        sampler(KEYS, last=[DRAWN]),
        sampler([SCALED, *KEYS]),
        sampler(KEYS, last=[linear([8, 12, 96], 7)]),
        sampler(KEYS, last=[ENCODE]),
        sampler([Op("aten::add_", ADD, 5, [CONTEXT, CONTEXT], [BF16] * 2), *KEYS]),
    ],
    ids=["made", "drawn", "unknown-number", "two-inputs-from-outside", "unknown-op", "in-place"],
)
def test_a_possibly_changing_condition_is_not_reported(ops: list[Op]) -> None:
    assert found(program(ops), "loop-invariant") == []


def of_shape(name: str, shape: list[int]) -> Op:
    return Op(f"aten::{name}", NORM, 20, [shape, [], []], [BF16, "ScalarList", "Scalar"])


@pytest.mark.parametrize(
    ("op", "may"),
    [
        pytest.param(of_shape("mean", STATE), True, id="reduced from something larger"),
        pytest.param(of_shape("mean", NOISE), False, id="reduced from something smaller"),
        pytest.param(of_shape("topk", WIDE), True, id="chosen from something larger"),
        pytest.param(of_shape("as_strided", [16, 77, 1_024]), True, id="a part of twice as much"),
        pytest.param(of_shape("as_strided", [16, 77, 1_000]), False, id="a view of other numbers"),
        pytest.param(of_shape("as_strided", [4, 77, 1_024]), False, id="a view of less"),
    ],
)
def test_what_may_make_the_condition_anew_leaves_it_open(op: Op, may: bool) -> None:
    assert bool(found(program(sampler(KEYS, last=[op])), "loop-invariant")) is not may


@pytest.mark.parametrize(("name", "same"), [("gelu", True), ("dropout", False), ("relu_", False)])
def test_what_draws_or_writes_before_a_layer_is_computed_anew(name: str, same: bool) -> None:
    ops = sampler([of_one(name, CONTEXT), *KEYS])
    assert bool(found(program(ops), "loop-invariant")) is same


def test_micro_batches_take_their_data_from_outside() -> None:
    back = Op(
        "aten::mm",
        NVJET,
        100,
        [[512, 77], [77, 9]],
        [BF16] * 2,
        inside="autograd::engine::evaluate_function: AddmmBackward0",
    )
    assert found(program(sampler(KEYS, last=[back])), "loop-invariant") == []
    (one,) = found(program([*sampler(KEYS), back]), "loop-invariant")  # a rollout, and backward after it
    assert one.count == 6 * 3 * 3


COPY = "copy of a batch"
QUIET = replace(ENCODE, kernel="", dur=0)
WORDS = Op("aten::embedding", ADD, 20, [[49_408, 1_024], [8, 77]], [BF16, "long int"])
CHOSEN = Op("aten::argmax", NORM, 20, [NOISE, [], []], [BF16, "Scalar", "Scalar"])


@pytest.mark.parametrize(
    ("last", "said"),
    [
        pytest.param([], 1, id="nothing else"),
        pytest.param([QUIET], 0, id="an unknown op without a kernel of its own"),
        pytest.param([CHOSEN, WORDS], 0, id="words that each iteration chooses"),
        pytest.param([CHOSEN, replace(WORDS, dims=[[49_408, 1_200], [8, 77]])], 1, id="of another width"),
    ],
)
def test_possible_results_of_an_iteration_are_not_inputs(last: list[Op], said: int) -> None:
    assert len(found(program(sampler(KEYS, last=last)), "loop-invariant")) == said


@pytest.mark.parametrize(("scalars", "said"), [(["", "", "1"], 1), (["", "", ""], 0)])
def test_an_unrecorded_scale_may_change_the_condition(scalars: list[str], said: int) -> None:
    """A sum of two tensors from outside, of which one is multiplied by the number."""
    both = Op("aten::sub", ADD, 20, [[77, 1_024], [8, 1, 1_024], []], [BF16, BF16, "double"], scalars=scalars)
    assert len(found(program(sampler([both, *KEYS])), "loop-invariant")) == said


@pytest.mark.parametrize(
    ("copied", "said"),
    [("HtoD (Pageable -> Device)", 0), ("HtoD (Pinned -> Device)", 0), ("DtoD (Device -> Device)", 1)],
)
def test_an_uploaded_batch_is_new_in_each_iteration(copied: str, said: int) -> None:
    """A copy on the device makes the same of the same."""
    batch = Op("aten::to", COPY, 20, [CONTEXT, [], []], [BF16, "Scalar", ""], scalars=["", "15", ""])

    def copy(event: dict[str, Any]) -> None:
        if event["name"] == COPY:
            event |= {"cat": "gpu_memcpy", "name": f"Memcpy {copied}"}
            event["args"] |= {"bytes": 2 * 8 * 77 * 1_024}

    trace = changed(program(sampler([batch, *KEYS])), copy)
    findings = found(trace, "loop-invariant")
    assert len(findings) == said
    assert all(one.count == 6 * 3 * 3 * 2 for one in findings)  # with the copy


def test_another_type_in_an_iteration_is_not_the_same() -> None:
    """Of five iterations the third has another condition, of the same shape."""
    same, other = sampler(KEYS, iterations=1), sampler([replace(KEYS[0], types=[F32] * 3)], iterations=1)
    assert found(program([*same * 2, *other, *same * 2]), "loop-invariant") == []
    assert len(found(program(same * 5), "loop-invariant")) == 1


@pytest.mark.parametrize(("iterations", "said"), [(3, 1), (2, 0)])
def test_three_iterations_are_a_loop(iterations: int, said: int) -> None:
    assert len(found(program(sampler(KEYS, iterations=iterations)), "loop-invariant")) == said


def test_an_uploaded_condition_may_change() -> None:
    context = [replace(CAST, kernel="upload"), linear(CONTEXT, 1_000), linear(CONTEXT, 1_000)]

    def from_host(event: dict[str, Any]) -> None:
        if event.get("name") == "upload":
            event |= {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)"}
            event["args"]["bytes"] = 1 << 20

    trace = program(sampler(context), steps=3)
    assert len(found(trace, "loop-invariant")) == 1
    assert found(changed(trace, from_host), "loop-invariant") == []


TOKEN, INNER, WIDE_STATE = [8, 1, 1_024], [8, 1, 4_096], [8, 77, 2_048]
SAME = [linear(CONTEXT, 1_024), linear(CONTEXT, 1_024)]  # as wide as the condition


def decoder_layer(condition: Sequence[Op], cached: int) -> list[Op]:
    """Attention to what was decoded so far, which grows by a token, and to the condition."""
    return [
        of_one("layer_norm", TOKEN, 3),
        linear(TOKEN, 3_072, 10),
        attention(cached),
        *condition,
        attention(77),
        linear(TOKEN, 4_096, 10),
        of_one("gelu", INNER, 3),
        linear(INNER, 1_024, 10),
        add(TOKEN, TOKEN),
    ]


def decoding(condition: Sequence[Op], *, tokens: int = 4, layers: int = 3, grows: int = 1) -> list[Op]:
    ops = []
    for number in range(tokens):
        ops += [
            *decoder_layer(condition, 100 + number * grows) * layers,
            linear(TOKEN, 5_000, 20),
            of_one("argmax", [8, 5_000], 5),
        ]
    return ops


@pytest.mark.parametrize("grows", [0, 1])
@pytest.mark.parametrize("condition", [SAME, [linear(CONTEXT, 1_000)]], ids=["same-width", "other-width"])
def test_condition_is_projected_once_for_any_cache_length(condition: list[Op], grows: int) -> None:
    (one,) = found(program(decoding(condition, grows=grows)), "loop-invariant")
    assert one.evidence["iterations"] == 4
    assert one.cost_ns == pytest.approx(
        6 * 3 * 3 * 100e3 * len(condition)
    )  # steps, tokens but the first, layers


@pytest.mark.parametrize(
    "more",
    [
        [add(CONTEXT, CONTEXT)],
        [of_one("gelu", CONTEXT)],
        [add(WIDE_STATE, WIDE_STATE), linear(WIDE_STATE, 1_024)],
    ],
    ids=["residual", "activation", "made"],
)
def test_a_state_that_layers_change_is_no_condition(more: list[Op]) -> None:
    """Each layer computes it anew, of the same shape."""
    assert found(program(decoding([*SAME, *more])), "loop-invariant") == []


def test_iterations_that_have_other_ops_are_no_loop() -> None:
    ops = decoding(SAME)
    assert found(program([*ops[:14], of_one("tanh", TOKEN), *ops[14:]]), "loop-invariant") == []
