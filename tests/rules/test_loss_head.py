"""What the scores of a vocabulary cost: which ops work on them, and from which share on that is said."""

from dataclasses import replace
from typing import Any

import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, Op, changed, found, program
from traceanalyzer import Severity

SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>(float)"
ENGINE = "autograd::engine::evaluate_function: "


def head(classes: int = 32_000, *, positions: int = 4_096, loss: int = 100, product: int = 200) -> list[Op]:
    """The product and the loss over its scores, and both backward, which take twice as long."""
    hidden, weight, scores = [positions, 512], [512, classes], [positions, classes]
    return [
        Op("aten::mm", NVJET, product, [hidden, weight], [BF16] * 2),
        Op("aten::_log_softmax", SOFTMAX, loss, [scores, [], []], [F32, "Scalar", "Scalar"]),
        Op(
            "aten::_log_softmax_backward_data",
            SOFTMAX,
            2 * loss,
            [scores, scores, [], []],
            [F32, F32, "Scalar", "Scalar"],
            inside=f"{ENGINE}LogSoftmaxBackward0",
        ),
        Op("aten::mm", NVJET, 2 * product, [scores, [classes, 512]], [BF16] * 2, inside=f"{ENGINE}MmBackward0"),
    ]


def other(us: int) -> Op:
    return Op("aten::mm", NVJET, us, [[4_096, 512], [512, 2_048]], [BF16] * 2)


def test_each_part_of_the_head_is_told_the_longest_first() -> None:
    (one,) = found(program([*head(), other(100)]), "loss-head")
    assert (one.severity, one.cost_ns, one.saving) == (Severity.INFO, 0, None)
    assert {name: ns / 6_000 for name, ns in one.evidence["parts"].items()} == {
        "head": 200,
        "loss and conversions": 100,
        "backward of the head": 400,
        "backward of the loss": 200,
    }
    assert next(iter(one.evidence["parts"])) == "backward of the head"
    assert (one.evidence["classes"], one.evidence["positions"]) == (32_000, 4_096)
    assert "The 90 % of all GPU work" in one.advice


@pytest.mark.parametrize(("classes", "said"), [(999, False), (1_000, True)])
def test_a_vocabulary_has_a_thousand_classes(classes: int, said: bool) -> None:
    assert bool(found(program(head(classes)), "loss-head")) is said


@pytest.mark.parametrize(("others", "said"), [(3_600, True), (3_650, False)])
def test_a_fifth_of_the_work_is_worth_a_look(others: int, said: bool) -> None:
    """The head takes 900 us."""
    assert bool(found(program([*head(), other(others)]), "loss-head")) is said


def test_two_heads_are_two_facts() -> None:
    said = found(program([*head(), *head(64_000, positions=2_048)]), "loss-head")
    assert {one.evidence["classes"]: one.count for one in said} == {32_000: 6 * 4, 64_000: 6 * 4}


def test_a_tensor_of_one_of_both_sizes_holds_no_scores() -> None:
    """The optimizer's pass over the weight has the classes, the next layer the positions."""
    passes = [Op("aten::add_", SOFTMAX, 500, [[512, 32_000]] * 2, [F32] * 2), other(500)]
    (one,) = found(program([*head(), *passes]), "loss-head")
    assert one.count == 6 * 4


def masked(shape: list[int], product: list[int], sizes: int = 2) -> list[Op]:
    """A loss over three dimensions, and a product of two tensors of one number for each position, as with a mask."""
    batch, length, classes = shape
    hidden = [batch * length, 512]
    return [
        Op("aten::mm", NVJET, 600, [hidden, [512, classes]], [BF16] * 2),
        Op("aten::_log_softmax", SOFTMAX, 300, [shape, [], []], [F32, "Scalar", "Scalar"]),
        Op("aten::mul", SOFTMAX, 100, [product] * sizes, [F32] * sizes),
    ]


@pytest.mark.parametrize(
    ("product", "sizes", "said"),
    [
        ([8, 512], 2, True),
        ([8, 512], 1, False),  # by a number
        ([8, 256], 2, False),
        ([8, 512, 1], 2, False),
    ],
)
def test_logits_of_texts_need_a_masked_loss(product: list[int], sizes: int, said: bool) -> None:
    facts = found(program(masked([8, 512, 32_000], product, sizes)), "loss-head")
    assert bool(facts) is said
    for one in facts:
        assert (one.evidence["positions"], one.evidence["classes"]) == (4_096, 32_000)
        assert one.evidence["parts"] == {"head": 6 * 600_000, "loss and conversions": 6 * 300_000}


def test_a_mask_is_no_product_of_unlike_tensors() -> None:
    ops = masked([8, 512, 32_000], [8, 512])
    unlike = Op("aten::mul", SOFTMAX, 100, [[8, 512], [8, 1]], [F32] * 2)
    assert found(program([*ops[:2], unlike]), "loss-head") == []


def test_kernels_without_an_op_are_in_no_share() -> None:
    (one,) = found(program([*head(), other(100)], unlinked_us=50), "loss-head")
    assert one.evidence["gpu_share"] == 0.9


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_share_is_that_of_the_device_that_has_the_head(elsewhere: bool) -> None:
    """What takes four times as long keeps another device busy, or the same."""

    def move(event: dict[str, Any]) -> None:
        if elsewhere and event.get("name") == "other":
            event["pid"] = event["args"]["device"] = 1

    long = Op("aten::mm", "other", 3_650, [[4_096, 512], [512, 2_048]], [BF16] * 2)
    facts = found(changed(program([*head(), long]), move), "loss-head")
    assert [(one.device, one.evidence["gpu_share"]) for one in facts] == ([(0, 1.0)] if elsewhere else [])


def test_two_devices_that_have_a_head_each_are_two_facts() -> None:
    def move(event: dict[str, Any]) -> None:
        if event.get("cat") == "kernel" and event["args"]["stream"] == 9:
            event["pid"] = event["args"]["device"] = 1

    ops = [*head(), *[replace(one, stream=9, dur=2 * one.dur) for one in head()]]
    facts = {one.device: one for one in found(changed(program(ops), move), "loss-head")}
    assert {device: one.count for device, one in facts.items()} == {0: 6 * 4, 1: 6 * 4}
    assert facts[0].evidence["parts"]["head"] == 6 * 200_000
    assert facts[1].evidence["parts"]["head"] == 6 * 400_000
    assert facts[0].evidence["gpu_share"] == facts[1].evidence["gpu_share"] == 1.0
