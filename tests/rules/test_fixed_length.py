"""Batches of one width whose padding a mask hides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.rules.kernel_programs import BF16, NVJET, Op, by_step, changed, found, program
from traceanalyzer import Severity, Trace

FLASH = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop"
MASK = "void at::native::elementwise_kernel<128, 4, at::native::masked_fill_kernel>(int)"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>(float)"
SLUG = "fixed-length"


def layer(mask: Sequence[int], width: int = 512, queries: int | None = None) -> list[Op]:
    """A product and attention with a mask, which is a single op here."""
    q, kv = [32, 12, queries or width, 64], [32, 12, width, 64]
    return [
        Op("aten::addmm", NVJET, 300, [[3_072], [32 * width, 768], [768, 3_072]], [BF16] * 3),
        Op("aten::scaled_dot_product_attention", FLASH, 100, [q, kv, kv, mask], [BF16] * 3 + ["bool"]),
        Op("aten::mm", NVJET, 100, [[32, 768], [768, 768]], [BF16] * 2),
    ]


def by_hand(name: str, mask: Sequence[int], scores: Sequence[int] = (32, 12, 512, 512)) -> list[Op]:
    return [
        Op("aten::addmm", NVJET, 300, [[3_072], [32 * 512, 768], [768, 3_072]], [BF16] * 3),
        Op(name, MASK, 100, [scores, mask, []], [BF16, "bool"]),
        Op("aten::_softmax", SOFTMAX, 100, [scores, [], []], [BF16]),
    ]


def test_key_mask_gives_the_work_of_padding() -> None:
    (one,) = found(program(layer([32, 1, 1, 512])), SLUG)
    assert (one.severity, one.cost_ns, one.saving) == (Severity.INFO, 0, None)
    assert "all batches are 512 positions wide (up to 32 sequences)" in one.message
    assert "80.0 % of all GPU work" in one.message
    assert one.advice.startswith("First check how much of the width is filled: mask.float().mean().")


@pytest.mark.parametrize(
    ("steps", "said"), [([512, 512, 0, 1], True), ([262_144, 512, 512, 1], False), ([0, 0, 0, 1], False)]
)
def test_a_mask_that_is_expanded_over_queries_is_one_of_keys(steps: list[int], said: bool) -> None:
    dense, attention, other = layer([32, 1, 512, 512])
    whole = [12 * 512 * 64, 512 * 64, 64, 1]
    ops = [dense, replace(attention, strides=[whole, whole, whole, steps]), other]
    assert bool(found(program(ops), SLUG)) is said


@pytest.mark.parametrize("name", ["aten::masked_fill", "aten::add", "aten::where"])
def test_scores_that_are_masked_by_hand_count_too(name: str) -> None:
    (one,) = found(program(by_hand(name, [32, 1, 1, 512])), SLUG)
    assert one.evidence["width"] == 512


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param(layer([]), id="no mask"),
        pytest.param(layer([1, 1, 1, 512]), id="the same for all sequences"),
        pytest.param(
            [*layer([1, 1, 1, 512]), Op("aten::mm", NVJET, 900, [[1, 512, 768], [768, 768]], [BF16] * 2)],
            id="the same for all sequences, beside rows as wide",
        ),
        pytest.param(layer([512, 512]), id="a causal mask"),
        pytest.param(layer([32, 1, 1, 48], 48), id="short"),
        pytest.param(layer([32, 1, 1, 512], queries=1), id="one query against a cache"),
        pytest.param(layer([32, 1, 1, 512], queries=4), id="a query of each group of heads against a cache"),
        pytest.param([*layer([32, 1, 1, 512]), *layer([32, 1, 1, 384], 384)], id="several widths"),
        pytest.param(
            [*layer([32, 1, 1, 512]), Op("aten::mm", NVJET, 3_000, [[768, 768]] * 2)], id="a small part"
        ),
        pytest.param(by_hand("aten::add", [32, 12, 512, 512]), id="a bias for each head"),
        pytest.param(by_hand("aten::add", [32, 1, 1, 512], [32, 16, 512, 512])[:2], id="no softmax"),
        pytest.param(
            [*layer([32, 1, 1, 512]), Op("aten::_ctc_loss", MASK, 10, [[512, 32, 9]])], id="known lengths"
        ),
    ],
)
def test_unpadded_batches_are_not_reported(ops: list[Op]) -> None:
    assert found(program(ops), SLUG) == []


def short(steps: int) -> Trace:
    return program(layer([32, 1, 1, 512]), steps=steps)


def test_two_ops_are_too_few() -> None:
    assert found(short(2), SLUG) == []
    assert len(found(short(3), SLUG)) == 1


def test_of_few_marked_steps_all_have_a_mask() -> None:
    (one,) = found(program(layer([32, 1, 1, 512]) * 2, steps=2), SLUG)
    assert one.evidence["width"] == 512


@pytest.mark.parametrize(("width", "queries", "said"), [(64, 64, True), (63, 64, False), (64, 63, False)])
def test_a_mask_is_of_padding_from_64_keys_and_queries_on(width: int, queries: int, said: bool) -> None:
    assert bool(found(program(layer([32, 1, 1, width], width, queries)), SLUG)) is said


@pytest.mark.parametrize(
    ("mask", "scores", "said"),
    [
        ([384, 1, 512], (384, 512, 512), True),  # of a head of each sequence
        ([12, 1, 512], (384, 512, 512), False),
        ([384, 512, 512], (384, 512, 512), False),
        ([384, 512], (384, 512), False),
    ],
)
def test_scores_of_three_dimensions_have_a_mask_too(
    mask: list[int], scores: tuple[int, ...], said: bool
) -> None:
    ops = [*by_hand("aten::masked_fill", mask, scores), Op("aten::mul", MASK, 900, [[384, 512, 64]], [BF16])]
    assert bool(found(program(ops), SLUG)) is said


def test_the_largest_batch_of_a_width_is_said() -> None:
    last = [
        replace(op, dims=[[16, *dims[1:]] if dims[0] == 32 else dims for dims in op.dims])
        for op in layer([32, 1, 1, 512])
    ]
    (one,) = found(program([*layer([32, 1, 1, 512]), *last[1:2]]), SLUG)
    assert "all batches are 512 positions wide (up to 32 sequences)" in one.message


def test_host_copies_are_no_work_on_positions() -> None:
    ops = [*layer([32, 1, 1, 512]), Op("aten::copy_", "sent", 500, [[32 * 512, 768]] * 2, [BF16] * 2)]

    def send(event: dict[str, Any]) -> None:
        if event["name"] == "sent":
            event.update(cat="gpu_memcpy", name="Memcpy HtoD (Pageable -> Device)")

    (one,) = found(program(layer([32, 1, 1, 512]), unlinked_us=100), SLUG)
    assert one.evidence["gpu_share"] == 0.8
    (one,) = found(changed(program(ops), send), SLUG)
    assert one.evidence["gpu_share"] == 0.4


@pytest.mark.parametrize(("masked", "said"), [(2, False), (3, True)])
def test_three_steps_have_a_mask_however_many_ops_do(masked: int, said: bool) -> None:
    def unmask(event: dict[str, Any], step: int) -> None:
        if event["name"] == "aten::scaled_dot_product_attention" and step >= masked:
            event["args"]["Input Dims"][3] = []

    assert bool(found(by_step(program(layer([32, 1, 1, 512]) * 2), unmask), SLUG)) is said


def test_what_lies_before_the_first_step_is_no_step() -> None:
    trace = program(layer([32, 1, 1, 512]) * 2, steps=3)

    def unmark(event: dict[str, Any]) -> None:
        if event["name"] == "ProfilerStep#0":
            event.update(name="warm-up")

    (one,) = found(changed(trace, unmark), SLUG)
    assert one.evidence["width"] == 512


def test_without_shapes_it_cannot_be_said() -> None:
    ops: list[Any] = [Op("aten::scaled_dot_product_attention", FLASH, 100)]
    assert found(program(ops), SLUG) == []


def test_the_work_of_another_device_is_no_work_beside_it() -> None:
    """400 of 500 us on the one; 3 ms on the other."""
    ops = [*layer([32, 1, 1, 512]), Op("aten::mm", NVJET, 3_000, [[768, 768]] * 2, [BF16] * 2, stream=8)]

    def move(event: dict[str, Any]) -> None:
        if event.get("args", {}).get("stream") == 8:
            event["pid"] = event["args"]["device"] = 1

    assert found(program(ops), SLUG) == []
    (one,) = found(changed(program(ops), move), SLUG)
    assert (one.device, one.evidence["gpu_share"]) == (0, 0.8)
