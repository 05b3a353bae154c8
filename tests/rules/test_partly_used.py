"""Tensors of which only a part is used."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, US, Op, found, program
from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer import Trace

WHOLE = [8, 512, 32_000]
SMALL = "void at::native::reduce_kernel<512, 1, at::native::argmax>(float)"


def head(view: Op | None, reader: list[int], between: Op | None = None) -> list[Op]:
    """A product of all positions, a view of it, and what reads that."""
    product = Op("aten::linear", NVJET, 900, [[8, 512, 1024], [32_000, 1024]], [BF16, BF16])
    last = Op("aten::argmax", SMALL, 10, [reader, []], [BF16, "Scalar"])
    return [product, *(one for one in (between, view) if one), last]


def select(*scalars: Any) -> Op:
    return Op(
        "aten::select", SMALL, 1, [WHOLE, [], []], [BF16, "Scalar", "Scalar"], scalars=list(map(str, scalars))
    )


def test_the_last_position_of_many_is_all_that_is_used() -> None:
    (one,) = found(program(head(select("", 1, -1), [8, 32_000])), "partly-used")
    assert "takes only 0.2 % of it" in one.message
    assert "head(hidden[:, -1:])" in one.advice


def test_a_slice_keeps_its_part() -> None:
    types = [BF16, "Scalar", "Scalar", "Scalar", "Scalar"]
    few = Op("aten::slice", SMALL, 1, [WHOLE, [], [], [], []], types, scalars=["", "1", "0", "64", "1"])
    (one,) = found(program(head(few, [8, 64, 32_000])), "partly-used")
    assert "takes only 12 % of it" in one.message
    most = Op("aten::slice", SMALL, 1, [WHOLE, [], [], [], []], types, scalars=["", "1", "0", "511", "1"])
    assert found(program(head(most, [8, 511, 32_000])), "partly-used") == []


def test_what_is_read_whole_beside_the_slice_is_used() -> None:
    loss = Op("aten::log_softmax", SMALL, 100, [WHOLE, []], [BF16, "Scalar"])
    assert found(program(head(select("", 1, -1), [8, 32_000], loss)), "partly-used") == []
    assert found(program(head(None, WHOLE)), "partly-used") == []


def mean(dims: str) -> Op:
    return Op(
        "aten::mean", SMALL, 20, [WHOLE, [], []], [BF16, "ScalarList", "Scalar"], scalars=["", dims, "False"]
    )


def test_rows_are_averaged_before_the_product() -> None:
    (one,) = found(program(head(mean("[1]"), [8, 32_000])), "partly-used")
    assert one.cause == "averaged"
    assert "8x512x32000 is computed in full, and then averaged" in one.message
    assert one.cost_ns == pytest.approx(6 * 900e3 * (1 - 1 / 512))
    gate = [Op("aten::sigmoid", SMALL, 1, [[8, 32_000]], [BF16])] * 10
    gated = [
        *head(mean("[1]"), [8, 32_000]),
        *gate,
        Op("aten::mul", SMALL, 90, [WHOLE, [8, 1, 32_000]], [BF16] * 2),
    ]
    for ops in (head(mean("[1, 2]"), [8]), head(mean("[-1]"), [8, 512]), gated):
        assert found(program(ops), "partly-used") == []


def test_a_sum_of_products_of_different_matrices_stays() -> None:
    types, shape = [F32, F32], [512, 12, 32]
    product = Op("aten::bmm", NVJET, 900, [[512, 12, 4_096], [512, 4_096, 32]], types)
    total = Op(
        "aten::sum", SMALL, 20, [shape, [], []], [F32, "ScalarList", "Scalar"], scalars=["", "[0]", "False"]
    )
    assert found(program([product, total]), "partly-used") == []


def between(name: str, dims: list[Any], types: list[str], *scalars: Any) -> Op:
    """An op that passes over the whole result, for half of the product's time."""
    return Op(name, SMALL, 450, dims, types, scalars=list(map(str, scalars)))


ROW = [8, 32_000]
CAST = between("aten::to", [WHOLE, [], []], [BF16, "Scalar", "Scalar"], "", 6, False)
LOGITS = between("aten::log_softmax", [WHOLE, [], []], [BF16, "Scalar", ""], "", -1, "")
FLAT = Op("aten::reshape", SMALL, 1, [WHOLE, []], [BF16, "ScalarList"], scalars=["", "[4096, 32000]"])


@pytest.mark.parametrize(
    ("ops", "part"),
    [
        ([CAST, select("", 1, -1)], 1 / 512),
        ([between("aten::div", [WHOLE, []], [BF16, "double"], "", ""), CAST, select("", 1, -1)], 1 / 512),
        ([LOGITS, select("", 1, 0)], 1 / 512),
        (
            [
                between("aten::add", [WHOLE, [32_000], []], [BF16, BF16, "Scalar"], "", "", 1),
                between("aten::index", [WHOLE, [[8], [8]]], [BF16, "TensorList"]),
            ],
            8 / (8 * 512),
        ),
        (
            [
                CAST,
                FLAT,
                between(
                    "aten::index_select", [[4_096, 32_000], [], [8]], [BF16, "Scalar", "long int"], "", 0
                ),
            ],
            8 / 4_096,
        ),
    ],
)
def test_scaling_all_rows_before_the_slice_is_needless(ops: list[Op], part: float) -> None:
    product, *_, reader = head(None, ROW)
    (one,) = found(program([product, *ops, reader]), "partly-used")
    assert one.cost_ns == pytest.approx(6e3 * (900 + sum(op.dur for op in ops[:-1])) * (1 - part))


@pytest.mark.parametrize(
    "ops",
    [
        [between("aten::softmax", [WHOLE, [], []], [BF16, "Scalar", ""], "", 1, ""), select("", 1, -1)],
        [CAST, select("", 1, -1), LOGITS],
        [
            between("aten::mul", [WHOLE, [8, 512, 1]], [BF16] * 2),
            CAST,
            between("aten::index", [WHOLE, [[8, 512]]], [BF16]),
        ],
        [LOGITS, between("aten::gather", [WHOLE, [], [8, 512, 1]], [BF16, "Scalar", "long int"], "", -1)],
        [between("aten::copy_", [WHOLE, WHOLE, []], [BF16, BF16, "Scalar"]), select("", 1, -1)],
        [select("", 1, at) for at in range(512)],
    ],
    ids=["across-rows", "whole-later", "mask", "one-of-each-row", "kept-in-a-buffer", "many-slices"],
)
def test_what_needs_all_rows_or_many_of_them_is_left_alone(ops: list[Op]) -> None:
    product, *_, reader = head(None, ROW)
    assert found(program([product, *ops, reader]), "partly-used") == []


FRAMES, CLIPS = [256, 3, 360, 640], [4, 64, 3, 224, 224]
SCALARS = ["Scalar"] * 4


def resized(cut: list[str], *more: Op) -> list[Op]:
    """Frames are converted, scaled in place and resized; then some of them are taken."""
    sizes = [F32, "ScalarList", "Scalar", ""]
    return [
        between(
            "aten::to", [FRAMES, *[[]] * 4], ["unsigned char", *SCALARS[1:], ""], "", 6, "False", "False"
        ),
        between("aten::sub_", [FRAMES, [1, 3, 1, 1], []], [F32, F32, "Scalar"], "", "", 1),
        between("aten::upsample_bilinear2d", [FRAMES, [], [], []], sizes, "", [224, 224], "False", ""),
        Op("aten::view", SMALL, 1, [[256, 3, 224, 224], []], sizes[:2], scalars=["", str(CLIPS)]),
        Op("aten::slice", SMALL, 1, [CLIPS, *[[]] * 4], [F32, *SCALARS], scalars=["", *cut]),
        *more,
        Op("aten::conv2d", NVJET, 900, [[64, 3, 224, 224], [64, 3, 7, 7]], [F32] * 2),
    ]


def test_preprocessing_dropped_frames_is_needless() -> None:
    (one,) = found(program(resized(["1", "0", "9223372036854775807", "4"])), "partly-used")
    assert one.cost_ns == pytest.approx(6 * (3 * 450e3 + 1e3) * 3 / 4)
    assert "4x64x3x224x224 is computed in full, but aten::slice takes only 25 % of it" in one.message
    assert one.advice == "Take the part of 256x3x360x640 before aten::to, and compute only that."


def test_a_crop_of_resized_frames_needs_all_of_each_frame() -> None:
    assert found(program(resized(["3", "0", "100", "1"])), "partly-used") == []
    assert found(program(resized(["1", "0", "40", "1"])), "partly-used") == []  # 40 of 64 are too many


def test_parts_that_make_up_the_whole_are_all_used() -> None:
    others = [resized(["1", str(at), "9223372036854775807", "4"])[-2] for at in range(1, 4)]
    assert found(program(resized(["1", "0", "9223372036854775807", "4"], *others)), "partly-used") == []


def test_what_is_written_in_place_may_be_read_later() -> None:
    _, *rest = resized(["1", "0", "9223372036854775807", "4"])
    (one,) = found(program(rest), "partly-used")
    assert one.cost_ns == pytest.approx(6 * (450e3 + 1e3) * 3 / 4)  # of sub_ nothing


def test_what_the_next_op_reads_tells_what_an_index_takes() -> None:
    index = Op("aten::index", SMALL, 5, [WHOLE, []], [BF16, ""])
    few = Op("aten::div", SMALL, 1, [ROW, []])
    (one,) = found(program([*head(None, ROW)[:1], index, few]), "partly-used")
    assert "takes only 0.2 % of it" in one.message
    for after in (WHOLE, [8, 512], [4_096, 32_000], [6, 512, 32_000]):
        program_ = program([*head(None, ROW)[:1], index, Op("aten::div", SMALL, 1, [after, []])])
        assert found(program_, "partly-used") == []


SCORES = [512, 1_024, 1_024]


def scored(*readers: Op) -> list[Op]:
    return [Op("aten::bmm", NVJET, 900, [[512, 1_024, 64], [512, 64, 1_024]], [BF16, BF16]), *readers]


def test_a_diagonal_needs_no_product() -> None:
    diagonal = between("aten::diagonal", [SCORES, [], [], []], [BF16, *SCALARS[1:]], "", 0, -2, -1)
    (one,) = found(program(scored(diagonal)), "partly-used")
    assert one.cost_ns == pytest.approx(6 * 900e3 * (1 - 1 / 1_024))
    assert one.advice.startswith("Multiply row by row")
    softmax = between("aten::softmax", [SCORES, [], []], [BF16, "Scalar", ""], "", -1, "")
    assert found(program(scored(softmax, diagonal)), "partly-used") == []


def test_pairs_of_rows_and_columns_need_the_product() -> None:
    flat = between("aten::view", [SCORES, []], [BF16, "ScalarList"], "", [512, 1_048_576])
    sizes = [[512, 1_048_576], [], [400_000]]
    triangle = between("aten::index_select", sizes, [BF16, "Scalar", "long int"], "", 1, "")
    assert found(program(scored(flat, triangle)), "partly-used") == []


def trained() -> Trace:
    """A product in a training step, of which one position is taken: backward takes twice as long."""
    trace, begin = TraceBuilder(record_shapes=1), 0
    for step in range(4):
        nodes: list[tuple[str, int, dict[str, Any], int, int]] = [
            ("aten::linear", 300, {"Input Dims": [[8, 512, 1024], [1000, 1024]]}, 40, TID),
            (
                "aten::select",
                0,
                {"Input Dims": [[8, 512, 1000], [], []], "Concrete Inputs": ["", "1", "0"]},
                41,
                TID,
            ),
            ("aten::exp", 100, {"Input Dims": [[8, 1000]]}, 42, TID),
            ("ExpBackward0", 100, {"Input Dims": [[8, 1000]]}, 42, 7),
            ("SelectBackward0", 50, {"Input Dims": [[8, 1000]]}, 41, 7),
            ("AddmmBackward0", 600, {"Input Dims": [[8, 512, 1000]]}, 40, 7),
        ]
        gpu = begin + 20_000
        for at, (name, took, args, sequence, thread) in enumerate(nodes):
            start, key = begin + 10_000 * at, 10 * step + at
            told: dict[str, Any] = {
                "Input type": [F32] * len(args["Input Dims"]),
                "Sequence number": 100 * step + sequence,
            }
            trace.op(name, start, 8_000, tid=thread, **args, **told)
            if took:
                trace.launch("cudaLaunchKernel", start + 1_000, 3_000, key, tid=thread)
                trace.kernel(gpu, took * US, key, name=NVJET if took > 100 else SMALL)
                gpu += took * US
        trace.step(step, begin, gpu - begin - 1)
        begin = gpu
    return trace.load()


def test_backward_passes_over_the_zeros_as_well() -> None:
    (one,) = found(trained(), "partly-used")
    assert one.cost_ns == pytest.approx(4 * (300e3 + 600e3 + 50e3) * (1 - 1 / 512))


BATCH, WIDE = [512, 197, 384], [512, 197, 1_536]


def network(*readers: Op, blocks: int = 3) -> list[Op]:
    """Blocks with a residual path on a whole batch, then a head; an eighth of its results is taken."""
    block = [
        between("aten::layer_norm", [BATCH, [], [384]], [F32, "ScalarList", F32], "", "[384]", ""),
        between("aten::linear", [BATCH, [1_536, 384]], [F32, F32]),
        between("aten::gelu", [WIDE, []], [F32, ""]),
        between("aten::linear", [WIDE, [384, 1_536]], [F32, F32]),
        between("aten::add", [BATCH, BATCH, []], [F32, F32, "Scalar"], "", "", 1),
    ]
    few = Op("aten::slice", SMALL, 1, [BATCH, *[[]] * 4], [F32, *SCALARS], scalars=["", "0", "0", "64", "1"])
    return [
        *block * blocks,
        *readers,
        few,
        Op("aten::linear", NVJET, 450, [[64, 197, 384], [9, 384]], [F32, F32]),
    ]


def test_a_network_on_a_whole_batch_for_a_part_is_named() -> None:
    (one,) = found(program(network()), "partly-used")
    assert one.cost_ns == pytest.approx(6 * 15 * 450e3 * 7 / 8, rel=1e-3)
    loss = Op(
        "aten::sum", SMALL, 90, [BATCH, [], []], [F32, "ScalarList", "Scalar"], scalars=["", "[0]", "False"]
    )
    assert found(program(network(loss)), "partly-used") == []


def test_pieces_that_no_op_reads_are_computed_for_nothing() -> None:
    types = [F32, *SCALARS[2:]]
    cut = Op("aten::chunk", SMALL, 1, [BATCH, [], []], types, scalars=["", "4", "0"])
    one_of_four = Op("aten::exp", SMALL, 9, [[128, 197, 384]], [F32])
    (one,) = found(program([*network()[:15], cut, one_of_four]), "partly-used")
    assert "aten::chunk takes only 25 % of it" in one.message
    for readers in ([one_of_four] * 4, [Op("my::unknown", SMALL, 9), one_of_four]):
        assert found(program([*network()[:15], cut, *readers]), "partly-used") == []
    assert found(program([between("aten::unbind", [[512], []], [F32, "Scalar"], "", 0)]), "partly-used") == []
