"""Tensors of which only a part is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, US, Op, changed, found, program
from tests.support.op_calls import op
from tests.support.partly_used_results import CAST, ROW, SMALL, WHOLE, between, head, in_order, select
from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer import Trace
from traceanalyzer.rules.tensors.partly_used import Thresholds, chains
from traceanalyzer.rules.tensors.partly_used.sources import cuts_alike
from traceanalyzer.tensors.signatures import Signature


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


LIMITS = Thresholds(max_part=0.3, near_ops=4, tried=4, min_ns=1.0)
FIRST = op("select", [4, 9, 7], "0", "0")
HALF, PRODUCT = op("slice", [8, 9, 5], "0", "0", "4", "1"), op("bmm", [4, 9, 5], [4, 5, 7])


def makers(*ops: Signature, views: Sequence[int] = ()) -> list[tuple[list[int], float]]:
    """Positions of the ops of which a part is enough, and the largest share of what one of them makes."""
    alike = chains(in_order(*ops, views=views), np.full(len(ops), 100.0), LIMITS)
    return [(sorted(one.makers.tolist()), one.part) for one in alike]


def test_slices_of_slices_multiply_their_parts() -> None:
    cut = op("slice", [8, 9, 7], "0", "0", "4", "1")
    ops = [op("relu", [8, 9, 7]), cut, op("tanh", [4, 9, 7]), FIRST]
    assert makers(*ops, views=[1]) == [([0, 1, 2], 1 / 4)]


def test_a_slice_before_an_op_of_several_tensors_ends_the_chain() -> None:
    """What it keeps of one of them says nothing of the others."""
    assert makers(op("relu", [8, 9, 5]), HALF, PRODUCT, FIRST, views=[1]) == [([2], 1 / 4)]
    assert makers(op("relu", [4, 9, 5]), op("tanh", [4, 5, 7]), PRODUCT, FIRST) == [([0, 1, 2], 1 / 4)]


MEAN, LAYER = op("mean", [4, 9, 7], "[1]", "False"), op("linear", [4, 9, 5], [7, 5])


@pytest.mark.parametrize(
    ("ops", "views", "places"),
    [
        ([LAYER, MEAN], [], [0]),
        ([op("linear", [36, 5], [7, 5]), op("view", [36, 7], "[4, 9, 7]"), MEAN], [1], [0, 1]),
        ([LAYER, op("relu", [4, 9, 7]), MEAN], [], []),  # a mean of what is no product
        ([op("bmm", [4, 9, 5], [4, 5, 7]), MEAN], [], []),  # each row of the mean has a matrix of its own
        ([op("linear", [4, 9, 5], [7, 5], [7]), MEAN], [], [0]),
        ([op("exp", [4, 9, 5]), LAYER, MEAN], [], [1]),
    ],
)
def test_averages_after_views_move_before_the_product(
    ops: list[Signature], views: list[int], places: list[int]
) -> None:
    assert makers(*ops, views=views) == ([(places, 1 / 9)] if places else [])


def test_a_part_that_is_taken_twice_beside_the_cut_counts_twice() -> None:
    """Of 40 rows one is taken, and two times two others."""
    whole = [40, 9]
    beside = op("slice", whole, "0", "4", "6", "1")
    ops = [op("linear", [40, 5], [9, 5]), op("select", whole, "0", "0"), beside, beside]
    assert makers(*ops) == [([0], 1 / 40 + 2 * (2 / 40))]
    assert makers(*ops[:3]) == [([0], 1 / 40 + 2 / 40)]


@pytest.mark.parametrize(("other", "places"), [("[0]", [0, 1, 2]), ("[1]", [1, 2])])
def test_parts_along_other_dimensions_end_the_chain(other: str, places: list[int]) -> None:
    """Two sums over a tensor of four by four: an item of the second one's result is its second dimension's."""
    whole, added = [4, 4, 5, 7], op("add", [4, 5, 7], [4, 5, 7])
    sums = [op("sum", whole, other, "False"), op("sum", whole, "[0]", "False")]
    ((own, _),) = makers(*sums, added, op("select", [4, 5, 7], "0", "0"))
    assert own == places


def test_an_index_by_nothing_takes_no_part() -> None:
    for call in (op("index", [8, 64]), Signature("aten::index", ([8, 64], [[], []]), ("float", ""), ())):
        assert list(cuts_alike(in_order(call), 0.5)) == []
    known = Signature("aten::index", ([8, 64], []), ("float", ""), ())  # by indices that are not recorded
    assert [places.tolist() for places in cuts_alike(in_order(known), 0.5)] == [[0]]


@pytest.mark.parametrize(
    ("category", "name", "counts"),
    [
        ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", True),
        ("gpu_memcpy", "Memcpy DtoD (Device -> Device)", True),
        ("gpu_memset", "Memset (Device)", True),
        ("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", False),
    ],
)
def test_copies_to_the_device_are_of_the_chain(category: str, name: str, counts: bool) -> None:
    """A product of 900 us, and a conversion for 450 us of which the last position is all that is used."""

    def copies(event: dict[str, Any]) -> None:
        if event.get("name") == "moves":
            event.update(cat=category, name=name)

    trace = changed(
        program(head(select("", 1, -1), [8, 32_000], replace(CAST, kernel="moves"))),
        copies,
    )
    (one,) = found(trace, "partly-used")
    assert one.cost_ns == pytest.approx(6e3 * (900 + 450 * counts) * (1 - 1 / 512))


SLUG = "partly-used"
PIECE = [128, 197, 384]


def made(shape: list[int]) -> Op:
    """A product of so many rows, for 900 us."""
    return Op("aten::linear", NVJET, 900, [shape, [384, 384]], [F32, F32])


def cut(name: str, shape: list[int], *scalars: Any) -> Op:
    types = [F32, *["Scalar"] * len(scalars)]
    return Op(name, SMALL, 1, [shape, *[[]] * len(scalars)], types, scalars=["", *map(str, scalars)])


@pytest.mark.parametrize(
    ("shape", "cut_", "reads", "kept"),
    [
        ([512, 197, 384], ("aten::chunk", 4, 0), [PIECE], "25 %"),
        ([512, 197, 384], ("aten::chunk", 4, 0), [PIECE, PIECE], "50 %"),
        ([512, 197, 384], ("aten::split", 128, 0), [PIECE], "25 %"),
        ([128, 4, 197, 384], ("aten::unbind", 1), [PIECE], "25 %"),
        ([4, 128, 197, 384], ("aten::unbind", 0), [PIECE], "25 %"),
        ([512, 197, 384], ("aten::split", 100, 0), [[100, 197, 384]], None),  # the last one is smaller
    ],
)
def test_as_many_pieces_are_used_as_ops_read(
    shape: list[int], cut_: tuple[Any, ...], reads: list[list[int]], kept: str | None
) -> None:
    reader = Op("aten::mul", SMALL, 9, reads, [F32] * len(reads))
    said = found(program([made(shape), cut(cut_[0], shape, *cut_[1:]), reader]), SLUG)
    assert [one.evidence["kept"] for one in said] == ([kept] if kept else [])


@pytest.mark.parametrize(
    ("indices", "taken", "part"),
    [
        ([[8], [1]], [8, 32_000], 8 / (8 * 512)),  # one of them for all rows
        ([[1], [8]], [8, 32_000], 8 / (8 * 512)),
        ([[2, 4]], [2, 4, 512, 32_000], None),  # a table of indices takes as many as it has
    ],
)
def test_an_index_takes_as_many_as_its_longest_list(
    indices: list[list[int]], taken: list[int], part: float | None
) -> None:
    index = between("aten::index", [WHOLE, indices], [BF16, "TensorList"])
    product, *_, reader = head(None, taken)
    said = found(program([product, index, reader]), SLUG)
    assert [one.cost_ns for one in said] == ([pytest.approx(6 * 900e3 * (1 - part))] if part else [])


def test_a_slice_of_a_slice_keeps_a_part_of_the_part() -> None:
    shape, most = [64, 8, 384], [64, 5, 384]
    ops = [made(shape), cut("aten::slice", shape, 1, 0, 5, 1), cut("aten::select", most, 1, 0)]
    (one,) = found(program([*ops, Op("aten::exp", SMALL, 9, [[64, 384]], [F32])]), SLUG)
    assert one.cost_ns == pytest.approx(6 * 901e3 * 7 / 8, rel=0.01)


@pytest.mark.parametrize(("others", "said"), [(7, True), (8, False)])
def test_each_op_is_looked_for_near_the_one_that_reads_it(others: int, said: bool) -> None:
    """Among the 8 ops before, and again before each op that is found."""
    apart = [Op("aten::neg", SMALL, 1, [[9, 9]], [F32])] * others
    product, *_, reader = head(None, ROW)
    ops = [product, *apart, CAST, *apart, select("", 1, -1), reader]
    assert [one.cost_ns for one in found(program(ops), SLUG)] == (
        [pytest.approx(6 * (900e3 + 450e3) * 511 / 512)] if said else []
    )
