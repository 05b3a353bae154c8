"""Gradients that nobody needs: of rows that no step looked up, of parameters that no optimizer has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builder import TraceBuilder
from tests.rules.programs import US, found
from traceanalyzer import diagnose

STEP = 300 * US
ROWS, WIDTH = 1_000_000, 64


class Training:
    """Steps of 0.3 ms on the CPU; the device follows each launch when it can."""

    def __init__(self, step_ns: int = STEP) -> None:
        self.trace, self.step_ns = TraceBuilder(), step_ns
        self.now = self.device = self.correlation = 0

    def step(self, number: int) -> None:
        self.now = max(self.now, number * self.step_ns)
        self.trace.step(number, number * self.step_ns, self.step_ns)

    def op(
        self, name: str, *dims: Any, kernels: tuple[int, ...] = (50 * US,), scalars: tuple[str, ...] = ()
    ) -> None:
        """An op on tensors of these shapes that launches kernels of these durations."""
        shapes = {"Input Dims": list(dims), "Concrete Inputs": list(scalars)} if dims else {}
        self.trace.op(name, self.now, 20 * US * len(kernels) + 5 * US, **shapes)
        for dur in kernels:
            self.correlation += 1
            self.trace.launch("cudaLaunchKernel", self.now + 5 * US, 5 * US, self.correlation)
            self.device = max(self.device, self.now + 15 * US)
            self.trace.kernel(self.device, dur, self.correlation)
            self.device, self.now = self.device + dur, self.now + 20 * US
        self.now += 6 * US


def recommender(
    looked_up: int = 4096,
    *,
    bag: bool = False,
    tied: bool = False,
    shapes: bool = True,
    optimizer: str = "SGD",
    micro_steps: int = 1,
) -> TraceBuilder:
    """Three steps of an embedding with a dense gradient and a linear layer."""
    run, table = Training(STEP * micro_steps), [ROWS, WIDTH]
    for number in range(3):
        run.step(number)
        for _ in range(micro_steps):
            run.op("aten::mm", [4096, WIDTH], [WIDTH, ROWS if tied else 512])
            start = run.now
            run.now += 5 * US
            run.op("aten::fill_", table, [], kernels=(300 * US,))
            run.op("aten::sort", [looked_up])
            name, scalars = "aten::embedding_dense_backward", ("", "", str(ROWS), "-1", "False")
            dims: tuple[Any, ...] = ([looked_up, WIDTH], [looked_up], [], [], [])
            if bag:
                name, scalars = (
                    "aten::_embedding_bag_dense_backward",
                    ("", "", "", "", "", str(ROWS), "False", "0"),
                )
                dims = ([512, WIDTH], [looked_up], [looked_up], [512], [512], [], [], [])
            args = {"Input Dims": list(dims), "Concrete Inputs": list(scalars)} if shapes else {}
            run.trace.op(name, start, run.now - start, **args)
        start = run.now
        run.now += 5 * US
        params = [table, [512, WIDTH], [512]]
        run.op("aten::_foreach_add_", params, params, [], kernels=(200 * US,) * 4)
        run.trace.annotation(f"Optimizer.step#{optimizer}.step", start, run.now - start)
    return run.trace


def test_filling_the_table_and_passing_over_it_is_needless() -> None:
    (dense,) = found(recommender(), "dense-gradient")
    assert (dense.by, dense.count, dense.steps) == ("embedding", 3, 3)
    assert dense.evidence["touched"] == "0.41%"
    assert dense.evidence["filling_ns"] == 3 * 300 * US
    assert dense.cost_ns == pytest.approx(3 * 1_100 * US, rel=0.01)
    assert dense.saving is not None
    assert dense.saving.share > 0.5
    assert "SGD" in dense.advice


def test_bags_of_rows_have_it_too() -> None:
    (dense,) = found(recommender(bag=True), "dense-gradient")
    assert dense.evidence["rows"] == ROWS


def test_the_advice_is_one_that_the_optimizer_takes() -> None:
    (dense,) = found(recommender(optimizer="AdamW"), "dense-gradient")
    assert "SparseAdam" in dense.advice


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(recommender(looked_up=200_000), id="a fifth of the rows"),
        pytest.param(recommender(looked_up=30_000, micro_steps=4), id="an eighth in four micro-steps"),
        pytest.param(recommender(tied=True), id="the output layer's weight"),
    ],
)
def test_a_gradient_that_is_dense_anyway_is_none(trace: TraceBuilder) -> None:
    assert found(trace, "dense-gradient") == []


def test_without_shapes_nothing_is_known() -> None:
    (outcome,) = diagnose(recommender(shapes=False).load(), select=["dense-gradient"]).outcomes
    assert (outcome.status, outcome.why) == ("not applicable", "no shapes recorded")
