"""Which rows of a table of embeddings a step needs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.rules.memory.dense_gradient import needed_part, passes_of, rarely_touched, tables_of

US = 1_000


class Gradients:
    """Dense gradients, a thread's ops one after the other in us."""

    def __init__(self) -> None:
        self.trace = TraceBuilder(record_shapes=1)

    def of(self, at: int, rows: int, width: int, indices: int, bag: bool = False) -> int:
        if bag:
            dims = [[7, width], [indices], [indices], [7], [], [], [], [], [], []]
            scalars = ["", "", "", "", "", str(rows), "False", "0", "", "-1"]
        else:
            dims, scalars = [[indices, width], [indices], [], [], []], ["", "", str(rows), "-1", "False"]
        name = "aten::_embedding_bag_dense_backward" if bag else "aten::embedding_dense_backward"
        return self.op(name, at, dims, scalars)

    def op(self, name: str, at: int, dims: list[list[int]], scalars: list[str]) -> int:
        types = ["float" if one else "Scalar" for one in dims]
        args = {"Input Dims": dims, "Input type": types, "Concrete Inputs": scalars}
        return self.trace.op(name, at * US, US, **(args if dims else {}))

    def step(self, at: int, name: str = "SGD") -> None:
        self.trace.annotation(f"Optimizer.step#{name}.step", at * US, US)

    def few(self, most: float) -> tuple[list[int], dict[tuple[int, ...], float]]:
        """(rows of the gradients, shares) of tables of which a step looks up less than that."""
        calls = Analysis(self.trace.load()).index(Calls)
        found, shares = rarely_touched(calls, calls[calls.is_annotation], most)
        return found.rows.tolist(), shares


def test_table_shares_are_of_one_step_over_all_lookups() -> None:
    """Two of one table in each of two steps; the optimizer that steps most often counts."""
    one = Gradients()
    later = one.of(9, 1_000, 8, 30)
    first = one.of(1, 1_000, 8, 10)
    one.of(3, 500, 4, 300)
    one.of(2, 1_000, 8, 20)
    one.of(8, 1_000, 8, 40)
    assert one.few(0.101) == ([first, 3, 4, later], {(1_000, 8): 0.1})
    for at, name in ((4, "SGD"), (10, "SGD"), (12, "Adam")):
        one.step(at, name)
    assert one.few(0.051)[1] == {(1_000, 8): 0.05}
    assert one.few(0.05) == ([], {})
    assert one.few(0.301)[1] == {(1_000, 8): 0.05, (500, 4): 0.3}


def test_a_bag_has_its_rows_in_another_place() -> None:
    one = Gradients()
    one.of(1, 1_000, 8, 10, bag=True)
    one.of(2, 2_000, 8, 10)
    calls = Analysis(one.trace.load()).index(Calls)
    tables, indices = tables_of(calls)
    assert (tables, indices.tolist()) == ([(1_000, 8), (2_000, 8)], [10, 10])


@pytest.mark.parametrize(
    ("other", "shares"), [(1_000, {}), (8, {(1_000, 8): 0.01}), (1_001, {(1_000, 8): 0.01})]
)
def test_table_with_gemm_rows_may_be_an_output_layer(
    other: int, shares: dict[tuple[int, ...], float]
) -> None:
    one = Gradients()
    one.of(1, 1_000, 8, 10)
    one.op("aten::mm", 2, [[16, 8], [8, other]], ["", ""])
    one.op("aten::add", 3, [[1_000, 8], [1_000, 8], []], ["", "", "1"])
    assert one.few(0.5)[1] == shares


def test_without_shapes_only_missing_gradients_are_known() -> None:
    one = Gradients()
    one.op("aten::mm", 0, [], [])
    assert one.few(0.5) == ([], {})
    one.op("aten::embedding_dense_backward", 1, [], [])
    with pytest.raises(Unavailable, match="no shapes recorded"):
        one.few(0.5)
    one.of(2, 1_000, 8, 10)
    assert one.few(0.5) == ([2], {(1_000, 8): 0.01})


def test_of_several_tensors_the_part_is_by_their_elements() -> None:
    shares = {(100, 4): 0.25}
    assert needed_part([(100, 4)], shares) == 0.75
    assert needed_part([(100, 4), (50, 4)], shares) == pytest.approx(0.5)
    assert needed_part([(50, 4)], shares) == 0.0
    assert needed_part([], shares) == 0.0


def test_optimizer_clipping_and_accumulation_pass_gradients() -> None:
    trace = TraceBuilder()
    for number, (around, op) in enumerate(
        (
            ("Optimizer.step#SGD.step", "aten::add_"),
            ("Optimizer.zero_grad#SGD.zero_grad", "aten::zero_"),
            ("torch::autograd::AccumulateGrad", "aten::add_"),
            ("mine", "aten::_foreach_mul_"),
            ("mine", "aten::linalg_vector_norm"),
            ("mine", "aten::norm"),
            ("mine", "aten::mul_"),
            ("mine", "aten::mul"),
            ("mine", "aten::layer_norm"),
        )
    ):
        trace.annotation(around, number * 10 * US, 8 * US)
        trace.op(op, number * 10 * US + 10, 7 * US)
        trace.launch("cudaLaunchKernel", number * 10 * US + 20, US, number + 1)
        trace.kernel(number * 10 * US + 2 * US, US, number + 1)
    analysis = Analysis(trace.load())
    passes = passes_of(analysis.index(Calls), analysis.index(Work))
    assert np.flatnonzero(~passes).tolist() == [7, 8]
