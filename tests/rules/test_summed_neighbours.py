"""Rows of neighbours that are gathered, scaled and summed before a linear layer that narrows them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.execution_traces import US, Call, Tensor, written
from traceanalyzer import Finding, diagnose, load

NODES, NEIGHBOURS, WIDTH = 1_000, 16, 64
X, INDEX, WEIGHT = (Tensor(1, (NODES, WIDTH)), Tensor(2, (NODES, NEIGHBOURS)), Tensor(3, (NODES, NEIGHBOURS, 1)))
ROWS, SCALED = (Tensor(storage, (NODES, NEIGHBOURS, WIDTH)) for storage in (4, 5))
SUM, ACTIVE, RESULT = Tensor(6, (NODES, WIDTH)), Tensor(7, (NODES, WIDTH)), Tensor(8, (NODES, 8))

GATHER = Call("aten::index", (X, INDEX), (ROWS,), gpu=400 * US, indexes=True)
SCALE = Call("aten::mul", (ROWS, WEIGHT), (SCALED,), gpu=400 * US)
ADD = Call("aten::sum", (SCALED,), (SUM,), numbers=([1],), gpu=400 * US)


def layer(data: Tensor = SUM, width: int = 8) -> Call:
    return Call("aten::linear", (data, Tensor(9, (width, WIDTH))), (RESULT,))


def findings(folder: Path, calls: Sequence[Call]) -> Sequence[Finding]:
    steps = [[*calls, Call("mine::read", (RESULT,))]] * 3
    return diagnose(load(written(folder, steps)), select=("late-projection",)).findings


def test_a_layer_moves_before_the_sum_of_neighbours(tmp_path: Path) -> None:
    (one,) = findings(tmp_path, [GATHER, SCALE, ADD, layer()])
    assert (one.cause, one.by, one.confidence) == ("aggregated", "1000x16x64", "high")
    assert one.cost_ns == 3 * 3 * 400 * US * (1 - 8 / WIDTH)
    assert "aten::index makes 1000x16x64, these rows are summed" in one.message


RELU = Call("aten::relu", (SUM,), (ACTIVE,))
BIASED = Call("aten::add", (SUM, Tensor(10, (WIDTH,))), (ACTIVE,))
BY_FEATURE = Call("aten::mul", (ROWS, Tensor(10, (WIDTH,))), (SCALED,), gpu=400 * US)
OVER_FEATURES = Call("aten::sum", (SCALED,), (SUM,), numbers=([2],), gpu=400 * US)


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param([GATHER, SCALE, ADD, layer(width=33)], id="more than half the width"),
        pytest.param([GATHER, SCALE, ADD, RELU, layer(ACTIVE)], id="a nonlinearity"),
        pytest.param([GATHER, SCALE, ADD, BIASED, layer(ACTIVE)], id="a bias"),
        pytest.param([GATHER, SCALE, ADD, layer(), Call("aten::norm", (SUM,), (ACTIVE,))], id="another reader"),
        pytest.param([GATHER, BY_FEATURE, ADD, layer()], id="a weight for each feature"),
        pytest.param([GATHER, SCALE, OVER_FEATURES, layer()], id="a sum over features"),
        pytest.param([SCALE, ADD, layer()], id="rows that are not gathered"),
    ],
)
def test_other_layers_stay_behind_the_sum(tmp_path: Path, calls: list[Call]) -> None:
    assert findings(tmp_path, calls) == ()
