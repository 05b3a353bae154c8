"""Layers on rows that were copied before."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rules.kernel_programs import F32, US, Op, found, program
from tests.support.execution_traces import Call, Tensor, written
from tests.support.gathered_products import GEMM, MOVE, joined, messages
from traceanalyzer import diagnose, load
from traceanalyzer.model.finding import Confidence

SLUG = "computed-on-copies"
EDGES = 600_000


def edges(*between: Op, nodes: int = 30_000) -> list[Op]:
    """Rows of nodes gathered for 600,000 edges, joined, and multiplied in one layer."""
    return [replace(op, inside=None) for op in messages(*between, nodes=nodes)[:-1]]


GATHER, _, JOINED, LAYER = edges()
ADD = Op("aten::add", MOVE, 9, [[EDGES, 64], [EDGES, 64]], [F32] * 2)


@pytest.mark.parametrize(
    ("changes", "copies"),
    [
        pytest.param({}, True, id="along the rows"),
        pytest.param({"scalars": ["", "1", ""]}, False, id="along the columns"),
        pytest.param(
            {"name": "aten::index", "dims": [[30_000, 64], [EDGES]], "types": [F32, "bool"], "scalars": []},
            False,
            id="by a mask",
        ),
        pytest.param({"name": "aten::index", "dims": [[30_000, 64], []]}, False, id="unknown index"),
        pytest.param(
            {"name": "aten::index", "dims": [[30_000, 64], [EDGES]], "types": [F32, "long int"], "scalars": []},
            True,
            id="x[index]",
        ),
        pytest.param({"name": "aten::gather"}, False, id="another op"),
    ],
)
def test_rows_are_copies_where_a_matrix_is_indexed_by_its_rows(
    changes: dict[str, Sequence[object]], copies: bool
) -> None:
    gather = replace(GATHER, **changes)  # type: ignore[arg-type]
    assert bool(found(program([gather, gather, JOINED, LAYER]), SLUG)) is copies


def test_parts_of_a_row_are_multiplied_before_the_gather() -> None:
    """Each of the two halves of a row is there 20 times."""
    (one,) = found(program(edges()), SLUG)
    assert (one.cause, one.confidence) == ("product-of-copies", Confidence.MEDIUM)
    assert one.evidence["times_copied"] == 20
    assert one.cost_ns == pytest.approx(6 * 900 * US * (1 - 1 / 20))


def test_only_the_part_that_is_copied_is_spared() -> None:
    """cat joins centers that are expanded, and neighbors that are not."""
    (one,) = found(program(joined(24_576, 20)), SLUG)
    assert one.cost_ns == pytest.approx(6 * 900 * US * (1 - 1 / 20) / 2)


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param(edges(Op("aten::relu", MOVE, 300, [[EDGES, 128]], [F32])), id="an activation of joined rows"),
        pytest.param(edges(nodes=300_000), id="two copies"),
        pytest.param(
            [GATHER, ADD, Op("aten::mm", GEMM, 900, [[EDGES, 64], [64, 64]], [F32] * 2)], id="other data added"
        ),
        pytest.param(
            [GATHER, Op("aten::mm", GEMM, 900, [[64, EDGES], [EDGES, 64]], [F32] * 2)], id="rows that are mixed"
        ),
    ],
)
def test_other_products_are_left_alone(ops: Sequence[Op]) -> None:
    assert found(program(ops), SLUG) == []


def test_several_layers_on_copies_are_a_network() -> None:
    rows = [EDGES, 64]
    layers = [Op("aten::linear", GEMM, 300, [rows, [64, 64], [64]], [F32] * 3)] * 2
    relu = Op("aten::relu", MOVE, 50, [rows], [F32])
    (one,) = found(program([GATHER, layers[0], relu, layers[1]]), SLUG)
    assert (one.cause, one.confidence) == ("encoded-copies", Confidence.LOW)
    assert one.cost_ns == pytest.approx(6 * 650 * US * (1 - 1 / 20))


@pytest.mark.parametrize(
    ("trains", "left_ns"), [("False", 6 * 650 * US * (1 - 1 / 20)), ("True", 6 * 300 * US * (1 - 1 / 20))]
)
def test_layers_after_a_dropout_differ_between_copies(trains: str, left_ns: float) -> None:
    """It draws numbers for each copy, so only the layer before it computes the same."""
    rows = [EDGES, 64]
    layer = Op("aten::linear", GEMM, 300, [rows, [64, 64], [64]], [F32] * 3)
    dropout = Op("aten::dropout", MOVE, 50, [rows, [], []], [F32, "Scalar", ""], scalars=["", "0.1", trains])
    (finding,) = found(program([GATHER, layer, dropout, layer]), SLUG)
    assert finding.cost_ns == pytest.approx(left_ns)


@pytest.mark.parametrize("other", [0, 1])
def test_ids_tell_copies_from_other_data_of_their_size(tmp_path: Path, other: int) -> None:
    """A product of what is gathered 4 times, or of another tensor of the same shape."""
    shapes = [(256, 64), (1024,), (1024, 64), (64, 64)]
    nodes, index, gathered, weight = (Tensor(number, shape) for number, shape in enumerate(shapes, 1))
    data = [gathered, Tensor(5, (1024, 64))][other]
    calls = [
        Call("aten::index", (nodes, index), (gathered,)),
        Call("aten::linear", (data, weight), (Tensor(6, (1024, 64)),)),
    ]
    report = diagnose(load(written(tmp_path, [calls] * 3)), select=[SLUG])
    assert len(report.findings) == 1 - other
    assert all(one.confidence is Confidence.HIGH for one in report.findings)


@pytest.mark.parametrize(("rows", "ops"), [(384, 3), (224, 0)])
def test_fewer_than_two_copies_of_a_row_are_copies(tmp_path: Path, rows: int, ops: int) -> None:
    """Windows of 208 frames that overlap by half, or hardly."""
    gathered = Tensor(3, (rows, 16, 64))
    layers = [
        Call("aten::linear", (Tensor(at, gathered.shape), WEIGHT), (Tensor(at + 1, gathered.shape),))
        for at in (3, 4, 5)
    ]
    calls = [Call("aten::index", (Tensor(1, (208, 16, 64)), Tensor(2, (rows,))), (gathered,), indexes=True), *layers]
    found_there = diagnose(load(written(tmp_path, [calls] * 3)), select=[SLUG]).findings
    assert sum(one.evidence["layers"] for one in found_there) == ops


WEIGHT = Tensor(9, (64, 64))


@pytest.mark.parametrize(("dimensions", "ops"), [([1, 2], 4), ([0], 0)])
def test_ops_along_other_dimensions_keep_copies_apart(tmp_path: Path, dimensions: list[int], ops: int) -> None:
    """A window for each of 24 variants, 8 of each window, read backwards."""
    backwards, mean = Tensor(4, (24, 16, 64)), Tensor(7, (24, 64))
    hidden, encoded = Tensor(5, (24, 16, 64)), Tensor(6, (24, 16, 64))
    windows = Call("aten::index", (Tensor(1, (3, 16, 64)), Tensor(2, (24,))), (Tensor(3, (24, 16, 64)),), indexes=True)
    calls = [
        Call("aten::flip", (Tensor(3, (24, 16, 64)),), (backwards,), numbers=(dimensions,)),
        Call("aten::linear", (backwards, WEIGHT), (hidden,)),
        Call("aten::mean", (hidden,), (mean,), numbers=([1],)),
        Call("aten::linear", (mean, WEIGHT), (encoded,)),
    ]
    found_there = diagnose(load(written(tmp_path, [[windows, *calls]] * 3)), select=[SLUG]).findings
    assert sum(one.evidence["layers"] for one in found_there) == ops


CACHE, BATCH = Tensor(30, (0,)), (12, 16, 64)


@pytest.mark.parametrize(("creates", "ops"), [("empty", 1), ("zeros", 3)])
def test_networks_work_on_copies_to_their_end(tmp_path: Path, creates: str, ops: int) -> None:
    """Each of 3 windows is there 4 times; a cache begins empty. Of the states, only zeros are known."""
    repeated, cached, hidden, state = (Tensor(at, BATCH) for at in (3, 4, 5, 6))
    numbers = ([], True, 1, 0.0, False, False, True)
    calls = [
        Call("aten::index", (Tensor(1, (3, 16, 64)), Tensor(2, (12,))), (repeated,), indexes=True),
        Call("aten::cat", (CACHE, repeated), (cached,)),
        Call("aten::linear", (cached, WEIGHT), (hidden,)),
        Call(f"aten::{creates}", (), (Tensor(7, (1, 12, 64)),)),
        Call("aten::gru", (hidden, Tensor(7, (1, 12, 64))), (state,), numbers=numbers),
        Call("aten::linear", (state, WEIGHT), (Tensor(8, BATCH),)),
    ]
    found_there = diagnose(load(written(tmp_path, [calls] * 3)), select=[SLUG]).findings
    assert [one.evidence["layers"] for one in found_there] == [ops]


def encoder(data: Tensor, mask: Tensor, *, by_hand: bool) -> list[Call]:
    """A layer, attention of each sample, and a layer."""
    q, y, z = (Tensor(number, (16, 2, 8, 64)) for number in (20, 21, 22))
    scores, masked, weights = (Tensor(number, (16, 2, 8, 8)) for number in (23, 24, 25))
    attention = [Call("aten::scaled_dot_product_attention", (q, q, q, mask), (y,))]
    if by_hand:
        attention = [
            Call("aten::matmul", (q, Tensor(20, (16, 2, 64, 8), strides=(1024, 512, 1, 64))), (scores,)),
            Call("aten::add", (scores, mask), (masked,)),
            Call("aten::softmax", (masked,), (weights,)),
            Call("aten::matmul", (weights, q), (y,)),
        ]
    return [Call("aten::linear", (data, WEIGHT), (q,)), *attention, Call("aten::linear", (y, WEIGHT), (z,))]


@pytest.mark.parametrize(("place", "by_hand", "ops"), [(0, False, 3), (0, True, 6), (16, False, 1), (16, True, 2)])
def test_masks_are_copied_as_the_samples_they_belong_to(tmp_path: Path, place: int, by_hand: bool, ops: int) -> None:
    """Each sample is there 4 times, and so is its mask, which is multiplied by one of positions."""
    samples, positions = Tensor(12, (16, 2, 8, 64)), Tensor(15, (8, 8))
    copied, mask = Tensor(13, (16, 1, 8, 8)), Tensor(16, (16, 1, 8, 8))
    calls = [
        Call("aten::index", (Tensor(1, (4, 2, 8, 64)), Tensor(2, (16,))), (samples,)),
        Call("aten::index", (Tensor(4, (4, 1, 8, 8)), Tensor(2, (16,), offset=place)), (copied,)),
        Call("aten::ones", (), (positions,)),
        Call("aten::mul", (copied, positions), (mask,)),
        *encoder(samples, mask, by_hand=by_hand),
    ]
    (one,) = diagnose(load(written(tmp_path, [calls] * 3)), select=[SLUG]).findings
    assert one.evidence["layers"] == ops


def test_windows_that_overlap_hold_copies() -> None:
    """16 windows of 8 frames, 2 frames apart, hold 38 frames."""
    shape, strides = [16, 8, 64, 64], [2 * 4096, 4096, 64, 1]
    windows = Op(
        "aten::flatten",
        MOVE,
        50,
        [shape, [], []],
        [F32, "Scalar", "Scalar"],
        strides=[strides, [], []],
        scalars=["", "0", "1"],
    )
    layers = [Op("aten::linear", GEMM, 300, [[128, 64, 64], [64, 64], [64]], [F32] * 3)] * 2
    (one,) = found(program([windows, *layers]), SLUG)
    assert one.evidence["times_copied"] == round(128 / 38, 1)
