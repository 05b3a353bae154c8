"""Which values ops read and make, and what follows from that."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.execution_traces import Call, Tensor, document, written
from tests.support.flows import HOST, OUT, W, X, Y, Z, flow, mul, reader_of
from tests.support.paths import SHARED
from traceanalyzer import Unavailable, load
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.needed_values import known_factors


def test_results_that_are_freed_unread_are_unread(tmp_path: Path) -> None:
    """The mean of the product is dropped. The number goes to the host."""
    number = Call("aten::_local_scalar_dense", (Z,))
    before, after = [mul(X, W, Y), mul(X, X, Z)], [mul(W, W, Y), mul(Y, X, Z)]
    calls = [*before, number, Call("aten::mean", (Y,), (OUT,)), *after, number]
    found = flow(tmp_path, calls, calls)
    assert found.unread.tolist() == [True, False, False, True, False, False, False] * 2


def test_results_of_a_read_op_may_be_unread(tmp_path: Path) -> None:
    """The gradient of the input is read, those of the weight and the bias are not."""
    gradients = Call("aten::convolution_backward", (X, W, W), (Y, Z, Tensor(6)), backward=True)
    calls = [gradients, Call("aten::add_", (OUT, Y), (OUT,), writes=(0,))]
    found = flow(tmp_path, calls, calls)
    assert found.unread_results[found.recorded.outer].tolist() == [0b110, 0] * 2


SQUARE, OTHER = Tensor(40, (64, 64)), Tensor(41, (64, 64))
DIAGONAL = Tensor(41, (64,), strides=(65,))
COLUMN = Tensor(41, (63,), strides=(64,))


@pytest.mark.parametrize(
    ("readers", "expected"),
    [
        pytest.param([Call("aten::diag", (OTHER,), (Y,))], [64, 64], id="its diagonal alone"),
        pytest.param([Call("aten::diag", (OTHER,), (Y,)), Call("aten::sum", (OTHER,), (Z,))], [0, 0], id="all"),
        pytest.param([Call("aten::sqrt", (DIAGONAL,), (Y,))], [64, 64], id="a view"),
        pytest.param([Call("aten::sqrt", (COLUMN,), (Y,))], [0, 0], id="a column"),
        pytest.param([Call("aten::sum", (OTHER,), (Y,))], [0, 0], id="no diagonal"),
    ],
)
def test_a_matrix_may_be_needed_for_its_diagonal(tmp_path: Path, readers: list[Call], expected: list[int]) -> None:
    """A product of 64 x 8 and 8 x 64 elements, and an op element by element, whose result these ops read."""
    product = Call("aten::matmul", (Tensor(1, (64, 8)), Tensor(2, (8, 64))), (SQUARE,))
    last = [Call("aten::argmax", (Y,), (HOST,)), Call("aten::argmax", (Z,), (HOST,))][: len(readers)]
    found = flow(tmp_path, *[[product, Call("aten::exp", (SQUARE,), (OTHER,)), *readers, *last]] * 3)
    assert found.diagonal[:2].tolist() == expected


LAYERS = [Tensor(30 + place) for place in range(4)]


def linear(source: Tensor, result: Tensor) -> Call:
    return Call("aten::linear", (source, W), (result,))


def abandoned(folder: Path, *calls: Call) -> list[int]:
    """Positions of the ops of a step whose results its caller does not read."""
    found = flow(folder, list(calls), list(calls), list(calls))
    return np.flatnonzero(found.abandoned[: len(calls)]).tolist()


def test_more_of_the_layers_that_are_read_is_abandoned(tmp_path: Path) -> None:
    """The third and fourth layer repeat the first two, whose result is the last that is read."""
    layers = [linear(X, LAYERS[0]), *(linear(LAYERS[at], LAYERS[at + 1]) for at in range(3))]
    assert abandoned(tmp_path, *layers, Call("aten::argmax", (LAYERS[1],), (OUT,))) == [2, 3]


def test_another_head_may_be_returned(tmp_path: Path) -> None:
    head = Call("aten::softmax", (LAYERS[0],), (LAYERS[1],))
    assert abandoned(tmp_path, linear(X, LAYERS[0]), head, Call("aten::argmax", (LAYERS[0],), (OUT,))) == []


def test_results_of_one_form_may_be_a_list(tmp_path: Path) -> None:
    ends = (X, LAYERS[0]), (LAYERS[0], LAYERS[1]), (X, LAYERS[2]), (LAYERS[2], LAYERS[3])
    calls = [linear(before, after) for before, after in ends]
    assert abandoned(tmp_path, *calls) == []


def test_what_is_freed_within_the_step_is_abandoned(tmp_path: Path) -> None:
    softmax = Call("aten::softmax", (LAYERS[0],), (Y,))
    calls = [linear(X, LAYERS[0]), softmax, mul(LAYERS[0], W, Y), linear(Y, OUT)]
    assert abandoned(tmp_path, *calls) == [1]


def test_gradients_that_no_optimizer_reads_are_unread(tmp_path: Path) -> None:
    grads = [Call("aten::mul", (X, W), (result,), backward=True) for result in (Y, Z)]
    step = Call("aten::add_", (W, Y), (W,), writes=(0,))
    found = flow(tmp_path, [*grads, step], [*grads, step])
    outer = found.recorded.outer
    assert found.unread[outer].tolist() == [False, True, False] * 2
    assert not flow(tmp_path, grads, grads).unread.any()


@pytest.mark.parametrize("trains", [False, True])
def test_functions_in_python_run_ops_of_the_forward_pass(tmp_path: Path, trains: bool) -> None:
    """They may save what no op reads, here storage 11, for their backward where that runs; 12 is handed on."""
    saved = Call("aten::exp", (Tensor(1),), (Tensor(11),), function="Matmul")
    product = Call("aten::matmul", (Tensor(1), Tensor(2)), (Tensor(12),), function="Matmul")
    best = Call("aten::argmax", (Tensor(12),), (HOST,))
    update = Call("aten::mul_", (Tensor(2), Tensor(3)), (Tensor(2),), writes=(0,), backward=True)
    calls = [saved, product, best, *([update] if trains else [])]
    found = flow(tmp_path, calls, calls)
    outer = found.recorded.outer
    assert found.recorded.backward[outer].tolist() == [False, False, False, *([True] if trains else [])] * 2
    assert found.unread[outer].tolist() == [not trains, False, False, *([False] if trains else [])] * 2


def test_ops_on_rows_need_what_later_ops_read(tmp_path: Path) -> None:
    """One row of eight is read of a cast of a product."""
    rows, wide = Tensor(3, (8, 8)), Tensor(4, (8, 8))
    calls = [
        Call("aten::mul", (X, W), (rows,)),
        Call("aten::to", (rows,), (wide,)),
        Call("aten::argmax", (Tensor(4, (8,)),), (OUT,)),
        Call("aten::mul", (X, X), (rows,)),
        Call("aten::sort", (rows,), (wide,)),
        Call("aten::argmax", (Tensor(4, (8,)),), (OUT,)),
        Call("aten::mul", (X, X), (rows,)),
        Call("aten::mul", (X, X), (wide,)),
    ]
    found = flow(tmp_path, calls, calls)
    assert found.read_share[:5].tolist() == [1 / 8, 1 / 8, 1.0, 1.0, 1.0]


def shares(folder: Path, *calls: Call) -> list[float]:
    """Share of each op's result that later ops read; what nobody reads is read by an op at the end."""
    last = reader_of(calls[-1])
    found = flow(folder, [*calls, last], [*calls, last])
    return found.read_share[: len(calls)].tolist()


FRAMES, RESIZED, INDEX = Tensor(50, (8, 3, 16, 16)), Tensor(51, (8, 3, 6, 6)), Tensor(52, (2,))
TO_FLOAT = Call("aten::to", (Tensor(49, (8, 3, 16, 16)),), (FRAMES,))
RESIZE = Call("aten::_upsample_bilinear2d_aa", (FRAMES,), (RESIZED,))
TAKEN = Call("aten::index_select", (RESIZED, INDEX), (Tensor(53, (2, 3, 6, 6)),))


def test_an_index_reads_as_much_as_it_takes(tmp_path: Path) -> None:
    in_place = Call("aten::div_", (RESIZED, Tensor(54, (3, 1, 1))), (RESIZED,), writes=(0,))
    assert shares(tmp_path, TO_FLOAT, RESIZE, in_place, TAKEN) == [0.25, 0.25, 0.25, 1.0]


def test_a_resize_needs_whole_images_for_a_crop_of_each(tmp_path: Path) -> None:
    crop = Tensor(51, (8, 3, 4, 4), strides=(108, 36, 6, 1))
    read = Call("aten::mean", (crop,), (Tensor(53, (8,)),))
    assert shares(tmp_path, TO_FLOAT, RESIZE, read) == [1.0, 1.0, 1.0]


def test_writing_to_a_part_leaves_the_rest_needed(tmp_path: Path) -> None:
    part = Tensor(51, (1, 3, 6, 6))
    write = Call("aten::mul_", (part, W), (part,), writes=(0,))
    first = Call("aten::mean", (part,), (Tensor(55, (1,)),))
    calls = [first, write, Call("aten::mean", (RESIZED,), (Tensor(53, (8,)),))]
    assert shares(tmp_path, TO_FLOAT, RESIZE, *calls)[:2] == [1.0, 1.0]


HIDDEN, NORMED, LOGITS = Tensor(60, (8, 32)), Tensor(61, (8, 32)), Tensor(62, (8, 64))
WEIGHT, CAST = Tensor(63, (64, 32)), Tensor(64, (64, 32))
NORM = Call("aten::layer_norm", (HIDDEN,), (NORMED,))
HEAD = Call("aten::linear", (NORMED, CAST), (LOGITS,))
LAST_ROW = Call("aten::argmax", (Tensor(62, (1, 64), offset=7 * 64),), (Tensor(65, (1,)),))


def test_rows_of_a_product_need_rows_of_its_data_and_all_weights(tmp_path: Path) -> None:
    cast = Call("aten::to", (WEIGHT,), (CAST,))
    assert shares(tmp_path, cast, NORM, HEAD, LAST_ROW) == [1.0, 1 / 8, 1 / 8, 1.0]


CLASSES = Tensor(62, (2, 4, 64))
ALL_BUT_LAST = Tensor(62, (2, 3, 64), strides=(256, 64, 1))
IN_FLOAT, TARGETS, LOSSES = Tensor(70, (6, 64)), Tensor(71, (6,)), Tensor(72, (6,))
LAST_OF_EACH = Tensor(72, (2, 1), offset=2, strides=(3, 1))


def of_classes(dim: int, *index: int) -> list[Call]:
    likely, picked = Tensor(75, (6, 64)), Tensor(73, index)
    softmax = Call("aten::log_softmax", (IN_FLOAT,), (likely,), numbers=(dim,))
    return [softmax, Call("aten::gather", (likely, picked), (LOSSES,), numbers=(dim,))]


@pytest.mark.parametrize(
    ("of_rows", "share"),
    [
        pytest.param([Call("aten::cross_entropy_loss", (IN_FLOAT, TARGETS), (LOSSES,))], 1 / 3, id="loss"),
        pytest.param(of_classes(-1, 6, 1), 1 / 3, id="softmax of rows"),
        pytest.param(of_classes(0, 6, 1), 1.0, id="softmax of columns"),
        pytest.param(of_classes(1, 3, 2), 1.0, id="other rows"),
    ],
)
def test_rows_of_a_loss_need_rows_of_the_logits(tmp_path: Path, of_rows: list[Call], share: float) -> None:
    """Of two sequences of four positions all but the last get a loss, of which the last of each is read."""
    head = Call("aten::linear", (Tensor(61, (2, 4, 32)), WEIGHT), (CLASSES,))
    cast = Call("aten::to", (ALL_BUT_LAST,), (IN_FLOAT,))
    calls = [head, cast, *of_rows, Call("aten::neg", (LAST_OF_EACH,), (Tensor(74, (2, 1)),))]
    of_head = 1 / 4 if share < 1 else 3 / 4
    assert shares(tmp_path, *calls)[:2] == pytest.approx([of_head, share])


def test_columns_of_a_product_need_all_of_its_data(tmp_path: Path) -> None:
    columns = Call("aten::argmax", (Tensor(62, (8, 4), strides=(64, 1)),), (Tensor(65, (8,)),))
    assert shares(tmp_path, NORM, HEAD, columns) == [1.0, 1 / 16, 1.0]


def test_rows_of_a_transposed_view_are_columns(tmp_path: Path) -> None:
    turned = Tensor(61, (32, 7), strides=(1, 32))
    head = Call("aten::linear", (turned, Tensor(63, (64, 7))), (Tensor(62, (32, 64)),))
    assert (
        shares(tmp_path, Call("aten::layer_norm", (Tensor(60, (7, 32)),), (Tensor(61, (7, 32)),)), head, LAST_ROW)[0]
        == 1.0
    )


def test_backward_needs_no_more_than_forward_reads(tmp_path: Path) -> None:
    backward = Call("aten::mm", (Tensor(66, (64, 8)), NORMED), (Tensor(67, (64, 32)),), backward=True)
    assert shares(tmp_path, NORM, HEAD, LAST_ROW, backward)[:2] == [1 / 8, 1 / 8]


def test_ops_that_hand_values_on_to_each_other_alone_are_closed(tmp_path: Path) -> None:
    """The first product is read by the second one, or by another op as well."""
    calls = [mul(X, W, Y), mul(Y, W, Z), Call("aten::sum", (Z,), (OUT,))]
    for more, closed in (([], True), ([Call("aten::neg", (Y,), (Tensor(6),))], False)):
        found = flow(tmp_path, [*calls, *more], [*calls, *more])
        products = found.ops[found.ops.name.one_of("aten::mul")]
        assert found.is_closed(products) is closed
        assert found.is_read_once(products) is closed


def test_steps_are_joined_by_their_ops_and_shapes(tmp_path: Path) -> None:
    calls = [mul(X, W, Y), mul(Y, W, Z)]
    path = written(tmp_path, [calls, [mul(X, W, Y)], calls])
    (tmp_path / "built.et.json").write_text(json.dumps(document([calls])))
    joined = Analysis(load(path)).index(Flow)
    assert joined.ops.step.tolist() == [0, 0, 2, 2]
    assert joined.number.tolist() == [0, 1, 0, 1]


def test_steps_whose_data_grows_are_joined(tmp_path: Path) -> None:
    """Of ten ops eight have the shapes of the recorded step, and two others a size that is another one everywhere."""
    layers = [mul(X, W, Y)] * 8
    for sizes, expected in (((3, 3), 20), ((3, 4), 20), ((3, 4, 5), 11)):
        grown = [*layers, *(mul(Tensor(8, (size,)), W, Y) for size in sizes)]
        path = written(tmp_path, [[*layers, *[mul(Tensor(8, (2,)), W, Y)] * len(sizes)], grown])
        (tmp_path / "built.et.json").write_text(json.dumps(document([grown])))
        ops = Analysis(load(path)).index(Flow).ops
        assert len(ops) == expected


def test_ops_that_differ_amid_a_step_are_left_out(tmp_path: Path) -> None:
    """Two texts of the batch are padded, or one: the other ten ops are those of the recorded step."""
    pad, layers = Call("aten::pad", (X,), (Y,)), [mul(X, W, Y)] * 9
    path = written(tmp_path, [[mul(X, X, Z), pad, pad, *layers], [*layers, pad, pad, mul(X, X, Z)]])
    (tmp_path / "built.et.json").write_text(json.dumps(document([[mul(X, X, Z), pad, *layers]])))
    joined = Analysis(load(path)).index(Flow)
    assert joined.ops.step.tolist() == [0] * 11
    assert joined.number.tolist() == list(range(11))


@pytest.mark.parametrize(
    "others", [pytest.param([mul(X, X, Y)] * 2, id="ops"), pytest.param([mul(Tensor(1, (8,)), W, Y)], id="shapes")]
)
def test_other_steps_are_refused(tmp_path: Path, others: list[Call]) -> None:
    path = written(tmp_path, [[mul(X, W, Y)]])
    (tmp_path / "built.et.json").write_text(json.dumps(document([others])))
    with pytest.raises(Unavailable, match="of other steps"):
        Analysis(load(path)).index(Flow)


def test_without_an_execution_trace_there_is_no_flow(tmp_path: Path) -> None:
    path = written(tmp_path, [[mul(X, W, Y)]])
    (tmp_path / "built.et.json").unlink()
    with pytest.raises(Unavailable, match="no execution trace"):
        Analysis(load(path)).index(Flow)


@pytest.mark.skipif(not SHARED.exists(), reason="no shared traces")
@pytest.mark.parametrize("name", ["sixth.speech_two.bad", "seventh.char_rnn.bad", "third.weight_cast.bad"])
def test_every_op_of_a_recording_is_joined(name: str) -> None:
    folder = SHARED / "dataflow"
    trace = load(folder / f"{name}.json.gz", tensors=folder / f"et/{name}.json.gz")
    found = Analysis(trace).index(Flow)
    assert len(found.ops) == found.recorded.outer.sum()
    names = [found.recorded.names[name] for name in found.recorded.name[found.number].tolist()]
    assert found.ops.name.values().tolist() == names


def square(storage: int) -> Tensor:
    return Tensor(storage, (8, 24, 24))


LOWER, FACTOR, MATRIX, CHOLESKY = (square(storage) for storage in (41, 42, 43, 44))
TRIL = Call("aten::tril", (square(40),), (LOWER,))
EMBEDDED = Call("aten::diag_embed", (Tensor(45, (8, 24)),), (square(46),))
SUM = Call("aten::add", (LOWER, square(46)), (FACTOR,))
PRODUCT = Call("aten::matmul", (FACTOR, FACTOR), (MATRIX,))


@pytest.mark.parametrize(
    ("calls", "known"),
    [
        ([TRIL, EMBEDDED, SUM, PRODUCT], True),
        ([Call("aten::diag_embed", (Tensor(45, (8, 24)),), (MATRIX,))], True),
        ([TRIL, Call("aten::mul", (LOWER, square(47)), (FACTOR,)), PRODUCT], True),
        ([PRODUCT], False),
        ([TRIL, Call("aten::add", (LOWER, square(47)), (FACTOR,)), PRODUCT], False),
        ([TRIL, Call("aten::exp", (LOWER,), (FACTOR,)), PRODUCT], False),
        ([TRIL, EMBEDDED, SUM, Call("aten::matmul", (FACTOR, LOWER), (MATRIX,))], False),
        ([TRIL, EMBEDDED, SUM, PRODUCT, Call("aten::add_", (MATRIX, square(47)), (MATRIX,), writes=(0,))], False),
    ],
    ids=["L L.T", "diagonal", "scaled", "Gram matrix", "full sum", "exp", "two factors", "jitter added"],
)
def test_cholesky_of_a_known_factor(tmp_path: Path, calls: list[Call], known: bool) -> None:
    factorised = Call("aten::linalg_cholesky", (MATRIX,), (CHOLESKY,))
    found = flow(tmp_path, *[[*calls, factorised, reader_of(*calls, factorised)]] * 2)
    factors = known_factors(found.recorded, found.values)[: len(calls) + 1]
    assert np.flatnonzero(factors).tolist() == [len(calls)] * known
