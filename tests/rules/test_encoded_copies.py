"""A network that runs on copies of the same items."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.rules.kernel_programs import F32, NVJET, Op, changed, found, program
from traceanalyzer.rules.tensors.encoded_copies.networks import Ops
from traceanalyzer.tensors.signatures import Signature

MOVE = "void at::native::vectorized_gather_kernel<16, long>(char*)"
CONV = "sm90_xmma_fprop_implicit_gemm_f32f32_f32f32"


def windows(*between: Op, frames: int = 64, layers: int = 6) -> list[Op]:
    """Frames gathered for 13 windows of 16, convolutions on all of them, and one product of each window."""
    gather = Op("aten::index", MOVE, 50, [[frames, 8, 56, 56], []], [F32, ""])
    frame = [208, 8, 56, 56]
    convs = [Op("aten::conv2d", CONV, 300, [frame, [8, 8, 3, 3]], [F32, F32]) for _ in range(layers)]
    means = Op("aten::mean", MOVE, 20, [frame], [F32])
    head = Op("aten::linear", NVJET, 100, [[13, 16, 8], [512, 8]], [F32, F32])
    return [gather, *between, *convs, means, head]


def test_overlapping_windows_encode_items_repeatedly() -> None:
    (one,) = found(program(windows()), "encoded-copies")
    assert (one.evidence["copies"], one.evidence["items"], one.evidence["repeats"]) == (208, 64, 3.25)
    assert one.evidence["maker"] == "aten::index"
    assert one.cost_ns == pytest.approx(6 * 1_820_000 * (1 - 64 / 208), rel=0.001)


NOISE = Op("aten::randn_like", MOVE, 20, [[208, 8, 56, 56]], [F32])
OTHER = Op("aten::add", MOVE, 20, [[208, 8, 56, 56], [208, 8, 1, 1]], [F32, F32])
SAME = Op("aten::mul", MOVE, 20, [[208, 8, 56, 56], [208, 8, 56, 56]], [F32, F32])
WRITE = Op("aten::index_put_", MOVE, 20, [[208, 8, 56, 56], [], [5]], [F32, "", F32])


@pytest.mark.parametrize("between", [NOISE, OTHER, SAME, WRITE])
def test_copies_that_something_changes_are_other_items(between: Op) -> None:
    assert found(program(windows(between)), "encoded-copies") == []


def test_a_filter_for_each_channel_is_no_item() -> None:
    """One kernel of 23 x 23, expanded to the weight of a convolution with a group for each of three channels."""
    expand = Op("aten::expand", MOVE, 0, [[1, 1, 23, 23], []], [F32, "ScalarList"])
    blur = Op("aten::conv2d", CONV, 900, [[192, 3, 246, 246], [3, 1, 23, 23]], [F32, F32])
    assert found(program([expand, blur]), "encoded-copies") == []


def test_few_copies_are_no_fault() -> None:
    assert found(program(windows(frames=128)), "encoded-copies") == []


def test_windows_that_are_the_items_are_no_copies() -> None:
    cut = Op("aten::unfold", MOVE, 50, [[4, 160_000]], [F32])
    layer = Op("aten::linear", NVJET, 900, [[4_000, 400], [64, 400]], [F32, F32])
    assert found(program([cut, layer, layer]), "encoded-copies") == []


def conditioned(*, stride: int = 0, made: str = "aten::expand", other: bool = False) -> list[Op]:
    """A condition of 64 images that is given to each of 256 tokens, and then goes through a layer."""
    wide, steps = [64, 256, 768], [768, stride, 1]
    copy = Op(made, MOVE, 20, [[64, 1, 768], []], [F32, ""], scalars=["", "[1, 256, 1]"])
    silu = Op(
        "aten::silu",
        MOVE,
        100,
        [wide],
        [F32],
        strides=[steps if made == "aten::expand" else [196_608, 768, 1]],
    )
    token = Op("aten::add", MOVE, 100, [wide, [256, 768]], [F32, F32], strides=[[196_608, 768, 1], [768, 1]])
    layer = Op(
        "aten::linear", NVJET, 900, [wide, [4_608, 768]], [F32, F32], strides=[[196_608, 768, 1], [768, 1]]
    )
    work = Op("aten::mm", NVJET, 1_000, [[768, 768], [768, 768]], [F32, F32])
    return [copy, silu, *([token] if other else []), layer, work]


@pytest.mark.parametrize("made", ["aten::expand", "aten::repeat"])
def test_layers_on_equal_rows_compute_each_of_them_several_times(made: str) -> None:
    (one,) = found(program(conditioned(made=made)), "encoded-copies")
    assert (one.evidence["copies"], one.evidence["items"], one.evidence["maker"]) == (16_384, 64, made)
    assert one.cost_ns == pytest.approx(6 * 1_000_000 * (1 - 1 / 256), rel=0.01)


def test_rows_that_differ_are_no_copies() -> None:
    assert found(program(conditioned(stride=768)), "encoded-copies") == []


def test_rows_to_which_something_is_added_are_no_copies() -> None:
    assert found(program(conditioned(other=True)), "encoded-copies") == []


@pytest.mark.parametrize(("between", "layers"), [(199, 3), (200, 2)])
def test_a_network_ends_after_200_other_ops(between: int, layers: int) -> None:
    conv = windows()[1]
    others = [Op("aten::relu", MOVE, 1, [[7, 7]], [F32])] * between
    ops = [windows()[0], conv, conv, *others, conv]
    (one,) = found(program(ops, steps=2), "encoded-copies")
    assert one.cost_ns == pytest.approx(2 * layers * 300_000 * (1 - 64 / 208), rel=0.001)


@pytest.mark.parametrize(("frames", "said"), [(104, 1), (105, 0)])
def test_two_copies_of_each_item_on_average_are_several(frames: int, said: int) -> None:
    assert len(found(program(windows(frames=frames)), "encoded-copies")) == said


@pytest.mark.parametrize("made", ["aten::expand", "aten::repeat"])
@pytest.mark.parametrize(("tokens", "said"), [(2, 1), (1, 0)])
def test_two_equal_rows_are_several(tokens: int, said: int, made: str) -> None:
    ops = [
        replace(one, dims=[[64, tokens, 768], *one.dims[1:]])
        if one.name in ("aten::silu", "aten::linear")
        else replace(one, scalars=["", f"[1, {tokens}, 1]"] if one.name == made else [])
        for one in conditioned(made=made)
    ]
    assert [one.evidence["copies"] for one in found(program(ops), "encoded-copies")] == [128] * said


def test_rows_scaled_per_image_stay_equal() -> None:
    """A scale with a dimension of one is the same for all tokens, whatever stride that dimension has."""
    copy, silu, *rest = conditioned()
    scaled = replace(
        silu,
        name="aten::mul",
        dims=[[64, 256, 768], [64, 1, 768]],
        types=[F32, F32],
        strides=[[768, 0, 1], [768, 768, 1]],
    )
    (one,) = found(program([copy, scaled, *rest]), "encoded-copies")
    assert (one.evidence["copies"], one.evidence["items"]) == (16_384, 64)


@pytest.mark.parametrize(("training", "said"), [("False", 1), ("True", 0)])
def test_dropout_makes_copies_differ_in_training_alone(training: str, said: int) -> None:
    frame = [208, 8, 56, 56]
    dropout = Op(
        "aten::dropout", MOVE, 20, [frame, [], []], [F32, "Scalar", "Scalar"], scalars=["", "0.1", training]
    )
    assert len(found(program(windows(dropout)), "encoded-copies")) == said


def test_rows_plus_other_rows_are_not_copies() -> None:
    """Of two tensors of the rows' shape one is not known to be equal rows."""
    copy, _, layer, work = conditioned(made="aten::repeat")
    wide = [64, 256, 768]
    added = Op("aten::add", MOVE, 100, [wide, wide], [F32, F32], strides=[[196_608, 768, 1]] * 2)
    assert found(program([copy, added, layer, work]), "encoded-copies") == []


@pytest.mark.parametrize(
    ("name", "wide", "modulates"),
    [
        ("aten::silu", 3 * 768, True),
        ("aten::silu", 6 * 768, True),
        ("aten::silu", 2 * 768, False),
        ("aten::silu", 3 * 768 + 1, False),
        ("aten::tanh", 3 * 768, False),
    ],
)
def test_a_condition_becomes_shift_scale_and_gate(name: str, wide: int, modulates: bool) -> None:
    def op(name: str, *dims: list[int]) -> Signature:
        return Signature(name, dims, (F32,) * len(dims), ("",) * len(dims), ())

    condition = [64, 768]
    ops = [op(name, condition), op("aten::linear", condition, [wide, 768])]
    assert Ops.of([0, 1], ops).modulates(0) is modulates


def test_tensors_that_are_joined_are_no_equal_rows() -> None:
    """What strides say of the list of a concatenation is not said of one tensor."""
    half = [64, 256, 384]
    cat = Op(
        "aten::cat",
        MOVE,
        20,
        [[half, half], []],
        ["TensorList", "Scalar"],
        strides=[[[98_304, 384, 1]] * 2, []],
        scalars=["", "2"],
    )
    assert found(program([cat, *conditioned()[2:]]), "encoded-copies") == []


def test_backward_of_copied_items_is_not_counted() -> None:
    """What is computed of each copy has a gradient of its own."""
    frame, begun = [208, 8, 56, 56], [0]
    node = "autograd::engine::evaluate_function: ConvolutionBackward0"
    back = Op("aten::convolution_backward", CONV, 600, [frame, frame, [8, 8, 3, 3]], [F32] * 3, inside=node)

    def numbered(event: dict[str, Any]) -> None:
        begun[0] += event.get("name") == "aten::conv2d"
        if event.get("name") in ("aten::conv2d", node):
            event["args"]["Sequence number"] = begun[0]

    (one,) = found(changed(program([*windows(), back]), numbered), "encoded-copies")
    assert one.cost_ns == pytest.approx(6 * 1_820_000 * (1 - 64 / 208), rel=0.001)


WIDE = [64, 256, 768]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        pytest.param(
            Op("aten::linear", NVJET, 9, [[64, 256, 90], [768, 90]], [F32, F32]), 0, id="of a layer"
        ),
        pytest.param(
            Op("aten::view", "", 0, [[16_384, 768], []], [F32, "ScalarList"], scalars=["", "[64, 256, 768]"]),
            0,
            id="a view",
        ),
        pytest.param(
            Op("aten::add", MOVE, 9, [[64, 256, 1], [768]], ["c10::BFloat16"] * 2), 1, id="of another type"
        ),
    ],
)
def test_type_separates_rows_from_tensors_of_equal_shape(other: Op, said: int) -> None:
    copy, *rest = conditioned(made="aten::repeat")
    between = Op("aten::relu", MOVE, 1, [[5, 5]], [F32])
    assert len(found(program([copy, other, between, *rest]), "encoded-copies")) == said


def test_mixed_results_of_the_same_shape_end_the_rows() -> None:
    """Positions in float32 are added to rows in bfloat16; the layer may read what the sum was converted to."""
    bf16 = "c10::BFloat16"
    repeat, silu, layer, work = (
        replace(one, types=[bf16, *one.types[1:]]) for one in conditioned(made="aten::repeat")
    )
    added = Op("aten::add", MOVE, 9, [WIDE, [256, 768]], [bf16, F32], strides=[[196_608, 768, 1], [768, 1]])
    (one,) = found(program([repeat, replace(silu, dur=400), added, layer, work]), "encoded-copies")
    assert one.cost_ns == pytest.approx(6 * 400_000 * (1 - 1 / 256), rel=0.01)


FRAME = [208, 8, 56, 56]


@pytest.mark.parametrize(
    ("between", "layers"),
    [
        pytest.param(Op("aten::relu", MOVE, 0, [FRAME], [F32]), 6, id="done to each copy alone"),
        pytest.param(Op("aten::roll", MOVE, 1, [FRAME], [F32]), 3, id="mixes copies, as it may"),
        pytest.param(
            Op("aten::view", "", 0, [FRAME, []], [F32, "ScalarList"], scalars=["", "[208, 8, 3136]"]),
            6,
            id="viewed within each copy",
        ),
        pytest.param(
            Op("aten::view", "", 0, [FRAME, []], [F32, "ScalarList"], scalars=["", "[13, 128, 56, 56]"]),
            3,
            id="viewed as windows",
        ),
    ],
)
def test_a_network_ends_with_what_is_not_done_to_each_copy_alone(between: Op, layers: int) -> None:
    gather, *convs, _, _ = windows()
    (one,) = found(program([gather, *convs[:3], between, *convs[3:]]), "encoded-copies")
    assert one.cost_ns == pytest.approx(6 * layers * 300_000 * (1 - 64 / 208), rel=0.001)


def test_copies_of_memory_within_a_network_are_no_computing() -> None:
    gather, conv, *rest = windows()
    copy = Op("aten::contiguous", "copied", 400, [FRAME], [F32])

    def change(event: dict[str, Any]) -> None:
        if event.get("name") == "copied":
            event |= {"cat": "gpu_memcpy", "name": "Memcpy DtoD (Device -> Device)"}
            event["args"]["bytes"] = 1 << 26

    (one,) = found(changed(program([gather, conv, copy, *rest]), change), "encoded-copies")
    assert one.cost_ns == pytest.approx(6 * 1_820_000 * (1 - 64 / 208), rel=0.001)


@pytest.mark.parametrize("first", [True, False])
def test_the_network_with_the_longest_kernel_is_named(first: bool) -> None:
    """Convolutions of 300 us each, and a layer of 150 us on rows that were repeated for 256 tokens."""
    repeat, silu, layer, _ = conditioned(made="aten::repeat")
    small, large = [repeat, silu, replace(layer, dur=150)], windows()
    (one,) = found(program([*large, *small] if first else [*small, *large]), "encoded-copies")
    assert (one.evidence["maker"], one.evidence["copies"]) == ("aten::index", 208)
    assert one.cost_ns == pytest.approx(6 * (1_820_000 * (1 - 64 / 208) + 250_000 * (1 - 1 / 256)), rel=0.01)


def test_later_blocks_read_the_copies_as_the_first_does() -> None:
    """Four equal blocks of a hundred ops; two begin more than two hundred ops behind what repeats the rows."""
    repeat, silu, layer, _ = conditioned(made="aten::repeat")
    block = [silu, layer, *[Op("aten::relu", MOVE, 1, [[7, 7]], [F32])] * 98]
    (one,) = found(program([repeat, *block * 4], steps=2), "encoded-copies")
    assert one.cost_ns == pytest.approx(2 * 4 * (100_000 - 2_000 + 900_000 * (1 - 1 / 256)))  # at least 2 us
