"""Ops whose results no op reads, in traces of a few ops."""

from pathlib import Path

import pytest

from tests.support.execution_traces import Call, Tensor, written
from traceanalyzer import Finding, diagnose, load

X, W, P = (Tensor(storage) for storage in (1, 2, 3))
GPU_NS = 200_000
OF_INPUT, OF_WEIGHT = "sm90_xmma_dgrad_implicit_gemm", "sm90_xmma_wgrad_implicit_gemm"


def findings(folder: Path, *calls: Call) -> list[Finding]:
    steps = [list(calls)] * 4
    return list(diagnose(load(written(folder, steps)), select=["computed-unused"]).findings)


def gradients(of: Tensor, result: Tensor, of_weight: Tensor) -> Call:
    """Backward of a convolution, half of its time for each gradient."""
    results = result, of_weight
    kernels = OF_INPUT, OF_WEIGHT
    return Call("aten::convolution_backward", (of, X, W), results, backward=True, kernels=kernels, gpu=GPU_NS)


def test_gradients_of_frozen_weights_are_part_of_an_op(tmp_path: Path) -> None:
    """Three frozen layers hand their gradient on to a trained parameter: half of their 600 us a step is in vain."""
    layers = [gradients(Tensor(10 + at), Tensor(11 + at), Tensor(20 + at)) for at in range(3)]
    update = Call("aten::add_", (P, Tensor(13)), (P,), writes=(0,))
    (finding,) = findings(tmp_path, *layers, update)
    assert (finding.cause, finding.evidence["ops_a_step"]) == ("unread-gradients", 3)
    assert finding.evidence["gpu_ns"] == pytest.approx(300_000, rel=0.01)
    assert "3 ops a step (3 of them: some of the results)" in finding.message
    updates = [Call("aten::add_", (P, Tensor(20 + at)), (P,), writes=(0,)) for at in range(3)]
    assert findings(tmp_path, *layers, update, *updates) == []


def test_a_product_for_its_diagonal_need_not_be_computed(tmp_path: Path) -> None:
    """A kernel takes at least 2 us: that is what remains of 200 us for a product, and of 200 us for its logarithm."""
    square, other = Tensor(10, (1024, 1024)), Tensor(11, (1024, 1024))
    product = Call("aten::matmul", (Tensor(1, (1024, 64)), Tensor(2, (64, 1024))), (square,), gpu=GPU_NS)
    logarithm = Call("aten::log", (square,), (other,), gpu=GPU_NS)
    diagonal = Call("aten::diag", (other,), (Tensor(12, (1024,)),))
    best = Call("aten::argmax", (Tensor(12, (1024,)),), (Tensor(13, device="cpu"),))
    (finding,) = findings(tmp_path, product, logarithm, diagonal, best)
    assert (finding.cause, finding.by, finding.evidence["rest_ns"]) == ("diagonal", "1024 x 1024", 396_000)
    assert finding.title == "Only the diagonal of a 1024 x 1024 matrix is read: computing the rest takes 396 µs"
    everything = Call("aten::sum", (other,), (Tensor(14, device="cpu"),))
    assert findings(tmp_path, product, logarithm, diagonal, best, everything) == []


@pytest.mark.parametrize("graph", [True, False], ids=["summed over edges", "other rows"])
def test_rows_that_are_not_read_need_not_be_computed(tmp_path: Path, graph: bool) -> None:
    """Four of 64 rows are read of a layer of 200 us and its activation of 200 us, of which 2 x 12.5 us remain."""
    rows, wide, active = Tensor(10, (64, 32)), Tensor(11, (64, 128)), Tensor(12, (64, 128))
    index = Tensor(14, (64,))
    first = Call("aten::index_add", (Tensor(13, (64, 32)), index, Tensor(15, (64, 32))), (rows,), gpu=GPU_NS)
    layer = Call("aten::linear", (rows, Tensor(16, (128, 32))), (wide,), gpu=GPU_NS)
    activation = Call("aten::relu", (wide,), (active,), gpu=GPU_NS)
    read = Call("aten::argmax", (Tensor(12, (4, 128)),), (Tensor(17, (4,)),))
    other = Call("aten::cumsum", first.reads, first.results, gpu=GPU_NS)
    calls = [first if graph else other, layer, activation, read, Call("mine::read", read.results)]
    (finding,) = findings(tmp_path, *calls)
    assert (finding.cause, finding.evidence["ops_a_step"]) == ("partly-read", 2)
    assert finding.cost_per_step_ns == pytest.approx(375_000, rel=0.01)
    assert finding.advice.startswith("In a graph network" if graph else "Slice first")


@pytest.mark.parametrize(("dimension", "found"), [(1, True), (0, False)])
def test_each_row_picks_one_of_several_layers(tmp_path: Path, dimension: int, found: bool) -> None:
    """Of four layers of 200 us on 64 rows, 16 rows each on average are picked: 600 us of 800 us are in vain."""
    rows, scores, picked = Tensor(10, (64, 32)), Tensor(11, (64, 4)), Tensor(12, (64, 1))
    outputs = [Tensor(20 + at, (64, 1)) for at in range(4)]
    layers = [
        Call("aten::linear", (rows, Tensor(30 + at, (1, 32))), (one,), gpu=GPU_NS) for at, one in enumerate(outputs)
    ]
    join = Call("aten::cat", tuple(outputs), (scores,), numbers=(dimension,))
    pick = Call("aten::gather", (scores, Tensor(13, (64, 1))), (picked,), numbers=(1,))
    best = Call("aten::argmax", (picked,), (Tensor(14, device="cpu"),))
    made = findings(tmp_path, *layers, join, pick, best)
    assert [one.cause for one in made] == ["alternatives"] * found
    assert [one.cost_per_step_ns for one in made] == [pytest.approx(600_000, rel=0.01)] * found
    shown = Call("aten::sum", (scores,), (Tensor(15, device="cpu"),))
    assert findings(tmp_path, *layers, join, pick, best, shown) == []


def test_what_is_expanded_before_rows_are_picked_is_read(tmp_path: Path) -> None:
    """Each of 512 rows picks 5 of 5 scores and of one padding score that is expanded to 256."""
    scores, padding, joined = (Tensor(11, (512, 5)), Tensor(13, (512, 256), strides=(1, 0)), Tensor(12, (512, 261)))
    layer = Call("aten::linear", (Tensor(10, (512, 32)), Tensor(30, (5, 32))), (scores,), gpu=GPU_NS)
    join = Call("aten::cat", (scores, padding), (joined,), numbers=(1,))
    pick = Call("aten::gather", (joined, Tensor(14, (512, 5))), (Tensor(16, (512, 5)),), numbers=(1,))
    best = Call("aten::argmax", (Tensor(16, (512, 5)),), (Tensor(17, device="cpu"),))
    assert findings(tmp_path, layer, join, pick, best) == []


def test_steps_picked_of_each_layer_are_no_alternatives(tmp_path: Path) -> None:
    """Of four layers joined as rows, each of six steps, every row picks one step: all layers are needed."""
    length = 6
    outputs = [Tensor(20 + at, (64, length, 8)) for at in range(4)]
    rows, joined, picked = (Tensor(10, (64, length, 32)), Tensor(11, (64, 4, length, 8)), Tensor(12, (256, 1, 8)))
    layers = [
        Call("aten::linear", (rows, Tensor(30 + at, (8, 32))), (one,), gpu=GPU_NS) for at, one in enumerate(outputs)
    ]
    join = Call("aten::stack", tuple(outputs), (joined,), numbers=(1,))
    pick = Call("aten::gather", (Tensor(11, (256, length, 8)), Tensor(13, (256, 1, 8))), (picked,), numbers=(1,))
    best = Call("aten::argmax", (picked,), (Tensor(14, device="cpu"),))
    assert "alternatives" not in [one.cause for one in findings(tmp_path, *layers, join, pick, best)]


def test_halves_of_one_result_that_are_picked_from_are_no_alternatives(tmp_path: Path) -> None:
    halves = [Tensor(11, (64, 4), offset=4 * at, strides=(8, 1)) for at in range(2)]
    layer = Call("aten::linear", (Tensor(10, (64, 32)), Tensor(30, (8, 32))), (Tensor(11, (64, 8)),), gpu=GPU_NS)
    join = Call("aten::stack", tuple(halves), (Tensor(12, (64, 2, 4)),), numbers=(1,))
    pick = Call(
        "aten::gather", (Tensor(12, (64, 2, 4)), Tensor(13, (64, 1, 4))), (Tensor(14, (64, 1, 4)),), numbers=(1,)
    )
    best = Call("aten::argmax", (Tensor(14, (64, 1, 4)),), (Tensor(15, device="cpu"),))
    assert findings(tmp_path, layer, join, pick, best) == []
