"""Gradients that nobody needs: of rows that no step looked up, of parameters that no optimizer has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pytest

from tests.builder import TraceBuilder
from tests.loaded import reported
from tests.recorded import FIXTURES
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

    def args(self, name: str, start: int, dur: int, dims: Sequence[Any], scalars: Sequence[str] = ()) -> None:
        """An op that launches nothing itself, with the arguments that it was called with."""
        recorded: dict[str, Any] = {"Input Dims": list(dims), "Concrete Inputs": list(scalars)}
        self.trace.op(name, start, dur, **(recorded if dims else {}))

    def op(
        self, name: str, *dims: Any, kernels: tuple[int, ...] = (50 * US,), scalars: tuple[str, ...] = ()
    ) -> None:
        """An op on tensors of these shapes that launches kernels of these durations."""
        self.args(name, self.now, 20 * US * len(kernels) + 5 * US, dims, scalars)
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
    long_list: bool = False,
    accumulates: bool = False,
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
            name = "aten::embedding_dense_backward"
            scalars: tuple[str, ...] = ("", "", str(ROWS), "-1", "False")
            dims: tuple[Any, ...] = ([looked_up, WIDTH], [looked_up], [], [], [])
            if bag:
                name = "aten::_embedding_bag_dense_backward"
                scalars = ("", "", "", "", "", str(ROWS), "False", "0")
                dims = ([512, WIDTH], [looked_up], [looked_up], [512], [512], [], [], [])
            run.args(name, start, run.now - start, dims if shapes else (), scalars)
        start = run.now
        run.now += 5 * US
        params = [table, [512, WIDTH], [512]]
        for shape in params:
            before = run.now
            if accumulates and shape is table:
                run.op("aten::add_", shape, shape, [], kernels=(150 * US,))
            run.args("torch::autograd::AccumulateGrad", before, run.now - before + US, [shape])
            run.now += 2 * US
        lists = {"Input Dims": [[], [], []], "Input type": ["TensorList", "TensorList", "Scalar"]}
        run.op("aten::_foreach_add_", params, params, [], kernels=(200 * US,) * 4)
        if long_list:
            next(e for e in reversed(run.trace.events) if e["name"] == "aten::_foreach_add_")["args"] |= lists
        run.trace.annotation(f"Optimizer.step#{optimizer}.step", start, run.now - start)
    return run.trace


def test_filling_the_table_and_passing_over_it_is_needless() -> None:
    (dense,) = found(recommender(), "dense-gradient")
    assert (dense.by, dense.count, dense.steps) == ("embedding", 3, 3)
    assert "at most 0.41 % are looked up" in dense.message
    assert dense.evidence["filling_ns"] == 3 * 300 * US
    assert dense.cost_ns == pytest.approx(3 * 1_100 * US, rel=0.01)
    assert dense.saving is not None
    assert dense.saving.share > 0.5
    assert "SGD" in dense.advice


def test_adding_to_the_last_gradient_passes_over_it_too() -> None:
    (dense,) = found(recommender(accumulates=True), "dense-gradient")
    assert dense.cost_ns == pytest.approx(3 * 1_250 * US, rel=0.01)


def test_what_a_sparse_gradient_saves_is_within_the_interval() -> None:
    folder = FIXTURES / "dense-gradient"
    (dense,) = [one for one in reported(folder / "bad.json.gz").findings if one.rule == "dense-gradient"]
    metas = [orjson.loads((folder / f"{name}.meta.json").read_bytes()) for name in ("bad", "good")]
    bad, good = (float(np.median(meta["unprofiled_step_ms"])) for meta in metas)
    assert dense.saving is not None
    assert dense.saving.low_share < 1 - good / bad < dense.saving.high_share


def test_summing_equal_rows_takes_time_of_the_cpu() -> None:
    """SGD adds the rows of a sparse gradient as they are; SparseAdam sums equal ones first."""
    savings = [found(recommender(optimizer=name), "dense-gradient")[0].saving for name in ("SGD", "AdamW")]
    assert savings[0] is not None
    assert savings[1] is not None
    assert savings[0].share > savings[1].share


def test_looking_up_a_tenth_and_more_costs_more_where_equal_rows_are_summed() -> None:
    """SGD adds rows as they are; Adagrad's gathers and scatters take most of what its passes took here."""
    shares = []
    for name in ("SGD", "Adagrad"):
        (dense,) = found(recommender(110_000, optimizer=name), "dense-gradient")
        assert dense.saving is not None
        shares.append(dense.saving.share)
    assert shares[0] > 0.4 > 0.2 > shares[1]


def test_where_summing_takes_longer_than_the_passes_nothing_is_needless() -> None:
    assert found(recommender(150_000, optimizer="Adagrad"), "dense-gradient") == []


def test_long_lists_are_all_parameters() -> None:
    (dense,) = found(recommender(long_list=True), "dense-gradient")
    assert dense.cost_ns == pytest.approx(3 * 1_100 * US, rel=0.01)


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
        pytest.param(recommender(looked_up=50_000, micro_steps=4), id="a fifth in four micro-steps"),
        pytest.param(recommender(tied=True), id="the output layer's weight"),
    ],
)
def test_a_gradient_that_is_dense_anyway_is_none(trace: TraceBuilder) -> None:
    assert found(trace, "dense-gradient") == []


def test_without_shapes_nothing_is_known() -> None:
    (outcome,) = diagnose(recommender(shapes=False).load(), select=["dense-gradient"]).outcomes
    assert (outcome.status, outcome.why) == ("not applicable", "no shapes recorded")


HEAD, LAYER = [100, 512], [512, 512]


class FineTuning(Training):
    """A head that is trained on top of ten layers."""

    def layer(self, shape: list[int], *, added: bool = False) -> None:
        """Backward of a layer, and the gradient of its weight: kept, or added to what is there."""
        start = self.now
        self.now += 2 * US
        self.op("aten::mm", [64, 512], shape)
        self.trace.op("autograd::engine::evaluate_function: MmBackward0", start, self.now - start)
        start = self.now
        self.now += 4 * US
        if added:
            self.op("aten::add_", shape, shape, [], kernels=(5 * US,))
        self.now += 4 * US
        self.args("torch::autograd::AccumulateGrad", start + US, self.now - start - 2 * US, [shape])
        self.trace.op(
            "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", start, self.now - start
        )

    def optimizer(self, *shapes: list[int], name: str = "aten::_fused_adamw_", more: bool = False) -> None:
        start = self.now
        self.now += 2 * US
        lists = [list(shapes)] if any(shapes) else [[]] * len(shapes)
        self.op(name, *lists, kernels=(5 * US,))
        if more:  # another group, whose list is too long to be recorded
            self.op(name, [], [], kernels=(5 * US,))
        self.trace.annotation("Optimizer.step#AdamW.step", start, self.now - start)


def fine_tuning(
    *, added: bool = True, in_optimizer: bool = False, every: int = 1, changed: str = ""
) -> FineTuning:
    """Four steps: backward of the head, then of ten layers that no optimizer has unless asked for."""
    run = FineTuning(900 * US)
    for number in range(4):
        run.step(number)
        run.op("aten::linear", [64, 512], LAYER)
        run.layer(HEAD)
        for _ in range(10):
            run.layer(LAYER, added=added)
        if number % every == 0:
            run.optimizer(*([HEAD, LAYER] if in_optimizer else [HEAD]))
        if changed:
            run.op(changed, LAYER, LAYER)
    return run


def test_backward_of_what_no_optimizer_has_is_needless() -> None:
    (unused,) = found(fine_tuning().trace, "unused-gradient")
    assert (unused.evidence["unused"], unused.evidence["gradients"]) == (10, 11)
    assert "nothing clears" in unused.message
    assert unused.confidence == "high"
    assert unused.cost_ns == 4 * 10 * 55 * US
    assert unused.saving is not None
    assert unused.saving.share > 0.5


def test_gradients_that_are_cleared_are_less_sure() -> None:
    (unused,) = found(fine_tuning(added=False).trace, "unused-gradient")
    assert "nothing clears" not in unused.message
    assert unused.confidence == "medium"


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(fine_tuning(in_optimizer=True), id="the optimizer has them"),
        pytest.param(fine_tuning(every=2), id="gradients accumulate over two steps"),
        pytest.param(fine_tuning(changed="aten::sub_"), id="the program changes such parameters itself"),
    ],
)
def test_gradients_that_may_be_used_are_left_alone(run: FineTuning) -> None:
    assert found(run.trace, "unused-gradient") == []


@pytest.mark.parametrize("shapes", [[], [[]]], ids=["no shapes", "none of long lists"])
def test_an_optimizer_without_recorded_shapes_is_not_judged(shapes: list[list[int]]) -> None:
    run = fine_tuning()
    run.optimizer(*shapes)
    (outcome,) = diagnose(run.trace.load(), select=["unused-gradient"]).outcomes
    why = "the shapes that the optimizer works on are not recorded"
    assert (outcome.status, outcome.why) == ("not applicable", why)


def test_lists_that_the_program_changes_itself_have_to_be_recorded() -> None:
    run = fine_tuning()
    run.op("aten::_foreach_add_", [], [], [])
    (outcome,) = diagnose(run.trace.load(), select=["unused-gradient"]).outcomes
    assert outcome.status == "not applicable"


def test_several_ranks_are_not_judged() -> None:
    run = fine_tuning()
    run.trace.launch("cudaLaunchKernel", 10, US, 999)
    run.trace.kernel(
        20 * US, US, 999, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", stream=20
    )
    (outcome,) = diagnose(run.trace.load(), select=["unused-gradient"]).outcomes
    assert outcome.status == "not applicable"


def adversaries(
    *, detached: bool = False, cleared: bool = True, read: str = "", groups: bool = False
) -> FineTuning:
    """Three steps: the critic's loss on what the maker made, then the maker's own; both have layers of one shape."""
    run = FineTuning(900 * US)
    for number in range(3):
        run.step(number)
        run.op("aten::linear", [64, 512], LAYER)
        for shape in (HEAD, LAYER):
            run.layer(shape)
        if not detached:
            for shape in (LAYER, [512, 64]):
                run.layer(shape, added=True)
        if read:
            run.op(read, [512, 64], [512, 64])
        run.optimizer(HEAD, LAYER, more=groups)
        run.op("aten::linear", [64, 512], LAYER)
        for shape in (LAYER, [512, 64]):
            run.layer(shape, added=not cleared)
        run.optimizer(LAYER, [512, 64])
    return run


def test_gradients_that_the_other_part_makes_and_clears_are_needless() -> None:
    (unused,) = found(adversaries().trace, "unused-gradient")
    assert (unused.evidence["unused"], unused.evidence["gradients"]) == (2, 6)
    assert "cleared before any optimizer reads them" in unused.message
    assert unused.cost_ns == 3 * 2 * 55 * US


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(adversaries(detached=True), id="none are made"),
        pytest.param(adversaries(cleared=False), id="the next pass adds to them"),
        pytest.param(adversaries(read="aten::mul"), id="the program computes with them"),
        pytest.param(adversaries(groups=True), id="a list of the optimizer is too long to be recorded"),
    ],
)
def test_gradients_of_another_part_that_may_be_used_are_left_alone(run: FineTuning) -> None:
    assert found(run.trace, "unused-gradient") == []
