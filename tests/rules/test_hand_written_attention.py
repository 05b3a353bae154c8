"""Attention that is written as two products and a softmax: what belongs to it, and what it costs."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.rules.kernel_programs import BF16, NVJET, SGEMM, US, Op, by_step, found, program
from tests.support.trace_builder import content_of, load_bytes
from traceanalyzer.model.finding import Confidence

PRODUCT = Op("aten::bmm", NVJET, 100)
SOFTMAX = Op("aten::_softmax", "void softmax_warp_forward<c10::BFloat16>(int)", 80)
BACKWARD = Op("aten::_softmax_backward_data", "void softmax_warp_backward<c10::BFloat16>(int)", 90)
SCALE = Op("aten::mul", "void at::native::vectorized_elementwise_kernel<4, MulFunctor>(int)", 20)
OTHER = Op("aten::mm", NVJET, 100)
SLUG = "hand-written-attention"


@pytest.mark.parametrize(
    ("product", "left_us"),
    [
        pytest.param(PRODUCT, 0.475 * 200, id="of the products, in bfloat16"),
        pytest.param(replace(PRODUCT, kernel=SGEMM), 0.7 * 300, id="of all, in float32"),
    ],
)
def test_without_shapes_a_share_of_what_it_takes_is_left(product: Op, left_us: float) -> None:
    (one,) = found(program([product, SCALE, SOFTMAX, product, *[OTHER] * 9]), SLUG)
    assert (one.count, one.evidence["forward"], one.evidence["backward"]) == (6 * 4, 6, 0)
    assert one.cost_ns == pytest.approx(6 * (300 - left_us) * US, rel=1e-3)
    assert "attention by hand runs once a step in forward and takes" in one.message


def test_backward_has_two_products_on_either_side() -> None:
    ops = [PRODUCT, SOFTMAX, PRODUCT, *[OTHER] * 9, PRODUCT, PRODUCT, BACKWARD, PRODUCT, PRODUCT, OTHER]
    (one,) = found(program(ops), SLUG)
    assert (one.count, one.evidence["forward"], one.evidence["backward"]) == (6 * 8, 6, 6)
    assert "runs once a step in forward and once in backward" in one.message
    assert one.cost_ns == pytest.approx(6 * (280 + 490 - 0.475 * 600) * US, rel=1e-3)


def test_far_products_in_backward_belong_to_other_ops() -> None:
    far = [PRODUCT, *[OTHER] * 9, PRODUCT, BACKWARD, PRODUCT, *[OTHER] * 9, PRODUCT]
    (one,) = found(program(far), SLUG)
    assert (one.count, one.evidence["backward"]) == (6 * 3, 6)


def test_a_product_between_two_softmaxes_belongs_to_the_first() -> None:
    (one,) = found(program([PRODUCT, SOFTMAX, PRODUCT, SOFTMAX, PRODUCT, *[OTHER] * 9]), SLUG)
    assert (one.count, one.evidence["forward"]) == (6 * 3, 6)
    assert one.cost_ns == pytest.approx(6 * (280 - 0.475 * 200) * US, rel=1e-3)


CHOICE, LOOK_UP = Op("aten::topk", "topk", 20), Op("aten::index_select", "indexSelect", 20)


@pytest.mark.parametrize(
    ("ops", "said"),
    [
        pytest.param([PRODUCT, CHOICE, SOFTMAX, PRODUCT], 0, id="chosen before"),
        pytest.param([PRODUCT, SOFTMAX, CHOICE, PRODUCT], 0, id="chosen after"),
        pytest.param([PRODUCT, SOFTMAX, LOOK_UP, PRODUCT], 0, id="looked up after"),
        pytest.param([PRODUCT, LOOK_UP, SOFTMAX, PRODUCT], 1, id="a bias that is looked up before"),
        pytest.param([PRODUCT, BACKWARD, LOOK_UP, PRODUCT], 1, id="looked up in backward"),
        pytest.param([PRODUCT, SOFTMAX, *[SCALE] * 9, PRODUCT], 0, id="far"),
        pytest.param([PRODUCT, SOFTMAX], 0, id="one product"),
        pytest.param([SOFTMAX, PRODUCT, PRODUCT], 0, id="no product before"),
    ],
)
def test_attention_lies_between_two_near_products(ops: list[Op], said: int) -> None:
    assert len(found(program([*ops, *[OTHER] * 9], steps=1), SLUG)) == said


@pytest.mark.parametrize(("stream", "said"), [(7, 1), (13, 0)])
def test_a_product_on_another_stream_is_no_part_of_it(stream: int, said: int) -> None:
    """The last of its stream is the neighbour of the first of the next one, in order of streams."""
    ops = [*[OTHER] * 9, PRODUCT, SOFTMAX, replace(PRODUCT, stream=stream)]
    assert len(found(program(ops, steps=1), SLUG)) == said


def test_a_product_of_the_next_step_is_no_part_of_it() -> None:
    assert found(program([PRODUCT, *[OTHER] * 9, PRODUCT, SOFTMAX]), SLUG) == []


def shaped(rows: int, dur: int) -> list[Op]:
    """Attention of 96 heads of 64 numbers, in three kernels that take as long each."""
    left, right = [96, rows, 64], [96, 64, rows]
    attends = [96, rows, rows], [96, rows, 64]
    return [
        Op("aten::bmm", NVJET, dur, [left, right], [BF16] * 2),
        replace(SOFTMAX, dur=dur),
        Op("aten::bmm", NVJET, dur, attends, [BF16] * 2),
    ]


def test_attention_at_fused_speed_saves_nothing() -> None:
    """412 billion operations in 3 us are more than any device does; those of 64 rows take next to nothing."""
    slow, quick = shaped(64, 200), shaped(4_096, 1)
    (alone,) = found(program([*slow, *[OTHER] * 9]), SLUG)
    (beside,) = found(program([*slow, *[OTHER] * 9, *quick, *[OTHER] * 9]), SLUG)
    assert (alone.count, beside.count) == (6 * 3, 6 * 6)
    assert alone.cost_ns == pytest.approx(6 * 600 * US, rel=0.01)
    assert beside.cost_ns == alone.cost_ns


def test_what_clears_memory_for_a_product_is_not_the_product() -> None:
    """A product in several parts sets its result to zero first: attention ends with the kernel, not before it."""
    content = json.loads(content_of(program([PRODUCT, SOFTMAX, PRODUCT, *[OTHER] * 9])))
    events = content["traceEvents"]
    began = {one["args"]["correlation"]: one for one in events if one.get("cat") == "kernel"}
    products = [one for one in events if one.get("name") == "aten::bmm"]
    for number, op in enumerate(products):
        (launch,) = [one for one in events if one.get("cat") == "cuda_runtime" and 0 < one["ts"] - op["ts"] < 8][:1]
        kernel = began[launch["args"]["correlation"]]
        ids = {"correlation": 90_000 + number}
        clears = {**launch, "name": "cudaMemsetAsync", "ts": op["ts"] + 5, "dur": 1, "args": ids}
        args = {**kernel["args"], **ids, "bytes": 64}
        place = {"ts": kernel["ts"] - 0.8, "dur": 0.5}
        memset = {**kernel, "cat": "gpu_memset", "name": "Memset (Device)", **place}
        events += [clears, {**memset, "args": args}]
    (one,) = found(load_bytes(json.dumps(content).encode()), SLUG)
    assert one.evidence["forward"] == 6
    assert one.count == 6 * 4  # the second product's clearing is between the softmax and its kernel
    assert one.cost_ns == pytest.approx(6 * (280 - 0.475 * 200) * US, rel=0.01)


def test_where_some_shapes_are_known_it_is_sure() -> None:
    """One attention whose operations are counted is enough; the other takes 0.475 of its products."""
    alone, counted = [PRODUCT, SOFTMAX, PRODUCT, *[OTHER] * 9], [*shaped(64, 200), *[OTHER] * 9]
    (guessed,) = found(program(alone), SLUG)
    (one,) = found(program([*alone, *counted]), SLUG)
    assert (guessed.confidence, one.confidence) == (Confidence.MEDIUM, Confidence.HIGH)
    assert one.cost_ns == pytest.approx(6 * (280 - 0.475 * 200 + 600) * US, rel=0.01)


def test_where_steps_differ_all_of_them_are_counted_together() -> None:
    """Two attentions a step, of which the first of six steps lacks one."""
    softmaxes = []

    def change(event: dict[str, Any], step: int) -> None:
        if step == 0 and event.get("name") == "aten::_softmax":
            softmaxes.append(event)
            event["name"] = "aten::relu" if len(softmaxes) == 1 else event["name"]

    (one,) = found(by_step(program([PRODUCT, SOFTMAX, PRODUCT, *[OTHER] * 9] * 2), change), SLUG)
    assert one.evidence["forward"] == 11
    assert "attention by hand runs 11 times in all in forward and takes" in one.message


@pytest.mark.parametrize(
    ("around", "said", "advice"),
    [
        pytest.param(
            "aten::scaled_dot_product_attention",
            "scaled_dot_product_attention without a fused kernel runs once a step in forward",
            "Find out why: `with torch.nn.attention.sdpa_kernel",
            id="of torch",
        ),
        pytest.param("own::attention", "attention by hand runs once a step", "Use F.scaled_dot", id="own"),
    ],
)
def test_unfused_attention_advises_to_find_the_reason(around: str, said: str, advice: str) -> None:
    ops = [replace(one, inside=around) for one in (PRODUCT, SOFTMAX, PRODUCT)]
    (one,) = found(program([*ops, *[OTHER] * 9]), SLUG)
    assert one.message.startswith(said)
    assert one.advice.startswith(advice)
