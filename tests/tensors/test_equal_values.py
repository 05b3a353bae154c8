"""Which ops compute the same values as others, or as in other steps."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.execution_traces import Call, Tensor
from tests.support.flows import HOST, OUT, W, X, Y, Z, flow, mul, reader_of


def again(folder: Path, *calls: Call) -> list[int]:
    """Positions of the ops of a step that compute what was computed before; an op at its end reads all."""
    found = flow(folder, *[[*calls, reader_of(*calls)]] * 2)
    return np.flatnonzero(found.again[found.recorded.outer][: len(calls)] >= 0).tolist()


def test_equal_inputs_give_equal_results(tmp_path: Path) -> None:
    assert again(tmp_path, mul(X, W, Y), mul(X, W, Z), mul(Y, W, OUT), mul(Z, W, Tensor(6))) == [1, 3]


def product(left: Tensor, result: Tensor, sequence: int | None = None) -> Call:
    return Call("aten::mul", (left, W), (result,), sequence=sequence)


# Two products of an op that has no gradient; with numbers they have a backward pass.
PLAIN = [Call("aten::cos", (X,), (Y,)), product(Y, Z), product(Z, OUT)]
TRAINED = [Call("aten::cos", (X,), (Tensor(6),)), product(Tensor(6), Tensor(7), 10), product(Tensor(7), Tensor(8), 11)]
BACKWARD = [Call("aten::mul", (W, W), (Tensor(20 + at),), backward=True, sequence=11 - at) for at in range(2)]


@pytest.mark.parametrize(
    ("calls", "repeats"),
    [
        pytest.param([*PLAIN, *TRAINED, *BACKWARD], [0, 1, 2], id="it is the second one"),
        pytest.param([*TRAINED, *PLAIN, *BACKWARD], [3, 4, 5], id="it is the first one"),
        pytest.param([*PLAIN, *TRAINED], [3, 4, 5], id="its backward pass does not run"),
        pytest.param([*PLAIN[:2], *TRAINED, *BACKWARD], [0, 1], id="part of it"),
        pytest.param(
            [*PLAIN, Call("aten::div_", (OUT, X), (OUT,), writes=(0,)), *TRAINED, *BACKWARD],
            [0, 1],
            id="a result of the other one is overwritten",
        ),
        pytest.param(
            [PLAIN[0], Call("aten::cos", (X,), (Tensor(9),)), *PLAIN[1:], *TRAINED, *BACKWARD],
            [0, 1, 2, 3],
            id="three of an op",
        ),
    ],
)
def test_the_pass_with_a_backward_pass_is_kept(tmp_path: Path, calls: list[Call], repeats: list[int]) -> None:
    assert [op for op in again(tmp_path, *calls) if not calls[op].backward] == repeats


def test_a_benchmark_that_drops_equal_results_computes_nothing_again(tmp_path: Path) -> None:
    assert not (flow(tmp_path, *[[mul(X, W, Y), mul(X, W, Z)]] * 2).again >= 0).any()


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param([mul(X, W, Y), mul(W, X, Z)], id="other order"),
        pytest.param([mul(X, W, Y), Call("aten::add_", (X, W), (X,), writes=(0,)), mul(X, W, Z)], id="written between"),
        pytest.param([mul(X, W, Y), mul(W, W, X), mul(X, W, Z)], id="a freed storage used again"),
        pytest.param([Call("aten::bernoulli", (X,), (Y,)), Call("aten::bernoulli", (X,), (Z,))], id="random"),
        pytest.param([Call("mine::op", (X,), (Y,)), Call("mine::op", (X,), (Z,))], id="op of a library"),
        pytest.param([Call("aten::to", (HOST,), (Y,)), Call("aten::to", (HOST,), (Z,))], id="from the host"),
        pytest.param(
            [Call("aten::mul", (X,), (Y,), numbers=(1.0,)), Call("aten::mul", (X,), (Z,), numbers=(2.0,))],
            id="another number",
        ),
        pytest.param(
            [
                Call("aten::zeros_like", (X,), (Y,)),
                Call("aten::zeros_like", (X,), (Z,)),
                Call("aten::add_", (Z, W), (Z,), writes=(0,)),
            ],
            id="a buffer that is written",
        ),
        pytest.param([Call("aten::view", (X,), (X,)), Call("aten::view", (X,), (X,))], id="views"),
    ],
)
def test_what_may_differ_is_not_the_same(tmp_path: Path, calls: list[Call]) -> None:
    assert again(tmp_path, *calls) == []


def test_writes_to_what_was_computed_again_are_again(tmp_path: Path) -> None:
    relu = [Call("aten::relu_", (tensor,), (tensor,), writes=(0,)) for tensor in (Y, Z)]
    assert again(tmp_path, mul(X, W, Y), relu[0], mul(X, W, Z), relu[1]) == [2, 3]


def wrapped(name: str, inside: str, read: tuple[Tensor, ...], result: Tensor) -> Call:
    """An op on tensors that vmap wraps: their storages are those of the op in it."""
    hidden = Tensor(50, device="")
    return Call(name, (hidden, hidden), (hidden,), inside=inside, unwrapped=(read, (result,)))


@pytest.mark.parametrize(("left", "expected"), [(X, [1]), (OUT, [])], ids=["same input", "another input"])
def test_ops_under_vmap_read_what_the_ops_in_them_read(tmp_path: Path, left: Tensor, expected: list[int]) -> None:
    linear = [wrapped("aten::linear", "aten::bmm", *tensors) for tensors in [((X, W), Y), ((left, W), Z)]]
    assert again(tmp_path, *linear, Call("mine::read", (Y, Z))) == expected


def test_ops_on_tensors_without_storages_may_differ(tmp_path: Path) -> None:
    sparse = Tensor(50, device="")
    assert again(tmp_path, *[Call("aten::mm", (sparse,), (each,)) for each in (Y, Z)]) == []


def python_number(storage: int) -> Tensor:
    """A number that Python passes as a tensor: its value is not recorded."""
    return Tensor(storage, (), device="cpu")


def test_numbers_of_python_are_equal_after_recomputed_ops(tmp_path: Path) -> None:
    """Ops 0 and 1 run again as 2 and 3; op 5 reads stored data, as the scales of a loop do."""
    calls = [
        mul(X, W, Y),
        mul(Y, python_number(20), Z),
        mul(X, W, OUT),
        mul(OUT, python_number(21), Tensor(6)),
        mul(W, python_number(22), Tensor(7)),
        mul(W, python_number(23), Tensor(8)),
    ]
    found = flow(tmp_path, *[[*calls, reader_of(*calls)]] * 2)
    assert [op for op in range(6) if found.again[op] >= 0] == [2, 3]
    assert [op for op in range(6) if found.guessed[op]] == [3]


@pytest.mark.parametrize(("steps", "expected"), [(11, 0), (12, 12)])
def test_long_chains_with_numbers_of_python_are_the_same(tmp_path: Path, steps: int, expected: int) -> None:
    def chain(begin: int) -> list[Call]:
        made = [W, *(Tensor(begin + place) for place in range(steps))]
        return [mul(made[at], python_number(begin + 50 + at), made[at + 1]) for at in range(steps)]

    assert len(again(tmp_path, *chain(100), *chain(200))) == expected


@pytest.mark.parametrize(("size", "expected"), [(8, 14), (1, 0)])
def test_a_mask_that_is_filled_again_is_again(tmp_path: Path, size: int, expected: int) -> None:
    """Twelve parts of a buffer get numbers of Python; single elements differ mostly."""

    def mask(begin: int) -> list[Call]:
        whole = Tensor(begin, (12 * size,))
        parts = [Tensor(begin, (size,), offset=size * at) for at in range(12)]
        fills = [
            Call("aten::fill_", (part, python_number(begin + 20 + at)), (part,), writes=(0,))
            for at, part in enumerate(parts)
        ]
        return [Call("aten::zeros", (), (whole,)), *fills, Call("aten::neg", (whole,), (Tensor(begin + 1),))]

    assert len(again(tmp_path, *mask(100), *mask(200))) == expected


def solve(matrix: Tensor, side: Tensor, result: Tensor) -> Call:
    return Call("aten::linalg_solve", (matrix, side), (result,))


def test_a_matrix_is_the_same_for_other_right_hand_sides(tmp_path: Path) -> None:
    """Op 2 solves with the matrix of op 1, op 4 with one that is computed again, op 5 with another."""
    calls = [mul(X, W, Y), solve(Y, X, Z), solve(Y, Z, OUT), mul(X, W, Tensor(6))]
    calls += [solve(Tensor(6), OUT, Tensor(7)), solve(X, OUT, Tensor(8))]
    found = flow(tmp_path, *[[*calls, reader_of(*calls)]] * 2)
    assert found.matrix_again[:6].tolist() == [-1, -1, 1, -1, 1, -1]


@pytest.mark.parametrize(("side", "expected"), [(Z, [-1, 0]), (Y, [-1, -1])])
def test_a_stored_matrix_is_the_same_in_each_step(tmp_path: Path, side: Tensor, expected: list[int]) -> None:
    """But a benchmark solves for the same right-hand side."""
    found = flow(tmp_path, [solve(X, Y, OUT)], [solve(X, side, OUT)])
    assert found.matrix_again.tolist() == expected


@pytest.mark.parametrize(("batch", "trains", "stored"), [(11, True, 2), (10, True, 0), (11, False, 0)])
def test_training_computes_the_same_of_stored_tensors(tmp_path: Path, batch: int, trains: bool, stored: int) -> None:
    """Ops 0 and 1 compute of stored tensors, op 2 is a layer; the second batch is the first one, 10, or another."""

    def step(batch: int) -> list[Call]:
        calls = [mul(X, W, Y), Call("aten::relu", (Y,), (Z,)), Call("aten::linear", (Z, W), (OUT,))]
        calls.append(mul(OUT, Tensor(batch, (512,)), Tensor(6)))
        return [*calls, Call("aten::neg", (OUT,), (Tensor(7),), backward=trains), reader_of(*calls)]

    found = flow(tmp_path, step(10), step(batch))
    assert [op for op in range(4) if found.stored[op]] == list(range(stored))


def row(storage: int, number: int) -> Tensor:
    """Row of a buffer of 4 x 64."""
    return Tensor(storage, (64,), offset=64 * number)


def copy(to: Tensor, source: Tensor) -> Call:
    return Call("aten::copy_", (to, source), (to,), writes=(0,))


@pytest.mark.parametrize(
    "buffers", [pytest.param([Call("aten::empty", (), (Tensor(30, (4, 64)),))], id="new"), pytest.param([], id="kept")]
)
def test_rows_that_are_written_again_are_again(tmp_path: Path, buffers: list[Call]) -> None:
    """The second pass writes the same rows, and a sum over all of them is the same."""
    passes = [
        call
        for _ in range(2)
        for call in [
            *buffers,
            copy(row(30, 0), X),
            copy(row(30, 1), W),
            Call("aten::sum", (Tensor(30, (4, 64)),), (OUT,)),
        ]
    ]
    half = len(passes) // 2
    assert again(tmp_path, *passes) == list(range(half, 2 * half))


def test_another_row_is_another_value(tmp_path: Path) -> None:
    """Row 0 keeps its content while row 1 changes; rows 0 and 1 together do not."""
    both = Tensor(30, (2, 64))
    calls = [
        copy(row(30, 0), X),
        Call("aten::sum", (row(30, 0),), (Y,)),
        Call("aten::sum", (both,), (Z,)),
        copy(row(30, 1), W),
        Call("aten::sum", (row(30, 0),), (Tensor(6),)),
        Call("aten::sum", (both,), (Tensor(7),)),
    ]
    assert again(tmp_path, *calls) == [4]


def test_work_on_weights_is_the_same_in_each_step(tmp_path: Path) -> None:
    """The weight is read by layers as a weight alone, the input as data."""
    calls = [
        Call("aten::to", (W,), (Y,)),
        Call("aten::to", (X,), (Z,)),
        Call("aten::linear", (Z, Y), (OUT,)),
        Call("aten::argmax", (OUT,), (Tensor(6),)),
    ]
    found = flow(tmp_path, calls, calls)
    assert found.constant.tolist() == [True, False, False, False] * 2
    trained = [*calls, Call("aten::add_", (W, OUT), (W,), writes=(0,))]
    assert not flow(tmp_path, trained, trained).constant.any()


@pytest.mark.parametrize(
    ("source", "batches", "constant"),
    [
        pytest.param(None, (60, 61), [1, 2, 3, 4], id="of numbers"),
        pytest.param(X, (60, 61), [], id="of stored data"),
        pytest.param(None, (60, 60), [], id="for the same batch"),
    ],
)
def test_layers_may_compute_weights(
    tmp_path: Path, source: Tensor | None, batches: tuple[int, ...], constant: list[int]
) -> None:
    """Two layers, from an identity or a stored tensor, are added to a weight, whose norms scale new data."""
    identity, down, up, total, norms = (Tensor(50 + at) for at in range(5))
    steps = [
        [
            Call("aten::eye", (), (identity,)),
            Call("aten::linear", (source or identity, W), (down,)),
            Call("aten::linear", (down, Y), (up,)),
            Call("aten::add", (Z, up), (total,)),
            Call("aten::linalg_norm", (total,), (norms,)),
            Call("aten::mul", (Tensor(batch, (300,)), norms), (OUT,)),
            Call("aten::argmax", (OUT,), (HOST,)),
        ]
        for batch in batches
    ]
    assert np.flatnonzero(flow(tmp_path, *steps).constant[:7]).tolist() == constant
