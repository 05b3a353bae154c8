"""Embedding gradients as large as the table, with and without shapes."""

import numpy as np
import orjson
import pytest

from tests.rules.kernel_programs import US
from tests.rules.programs import found
from tests.support.cached_reports import reported
from tests.support.fixtures import FIXTURES
from tests.support.recommenders import ROWS, STEP, WIDTH, Training, recommender
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose


@pytest.mark.parametrize("other", ["AdamW", "Adam", "SGD"])
def test_of_two_optimizers_that_of_the_table_is_spoken_of(other: str) -> None:
    trace = recommender(optimizer="Adagrad")
    alone = found(recommender(optimizer="Adagrad"), "dense-gradient")
    for number in range(3):
        trace.annotation(f"Optimizer.step#{other}.step", number * STEP, 21 * US)  # around the product
    two = found(trace, "dense-gradient")
    assert [one.advice for one in two] == [one.advice for one in alone]
    assert two[0].saving is not None
    assert alone[0].saving is not None
    assert two[0].saving.step_ns == alone[0].saving.step_ns


def tables(*rows: int, looked_up: int = 4_096) -> TraceBuilder:
    """Three steps in which each table gets a dense gradient, and SGD passes over all of them."""
    run = Training(400 * US)
    for number in range(3):
        run.step(number)
        for count in rows:
            run.op("aten::mm", [looked_up, WIDTH], [WIDTH, 512])
            start = run.now
            run.now += 5 * US
            run.op("aten::fill_", [count, WIDTH], [], kernels=(300 * US,))
            run.op("aten::sort", [looked_up])
            dims = ([looked_up, WIDTH], [looked_up], [], [], [])
            scalars = ("", "", str(count), "-1", "False")
            run.args("aten::embedding_dense_backward", start, run.now - start, dims, scalars)
        start, shapes = run.now + 5 * US, [[count, WIDTH] for count in rows]
        run.now = start
        for shape in shapes:
            run.args("torch::autograd::AccumulateGrad", run.now, US, [shape])
            run.now += 2 * US
        run.op("aten::_foreach_add_", shapes, shapes, [], kernels=(200 * US,) * 4)
        run.trace.annotation("Optimizer.step#SGD.step", start, run.now - start)
    return run.trace


def test_largest_table_is_named_with_its_share() -> None:
    for rows in ((1_000_000, 100_000), (100_000, 1_000_000)):
        (dense,) = found(tables(*rows), "dense-gradient")
        assert (dense.count, dense.evidence["rows"]) == (3 * 2, 1_000_000)
        assert dense.evidence["touched_share"] == 4_096 / 1_000_000
        assert "for an embedding of 1,000,000 rows" in dense.message


def test_without_shapes_what_forward_adds_is_no_other_gradient() -> None:
    """An addition that takes more than twice the fill, in backward or before it."""
    found_in = []
    for around in ("autograd::engine::evaluate_function: AddBackward0", "my::loss"):
        trace = recommender(shapes=False, lookup_us=6, summed_us=700, long_list=True)
        for event in trace.events:
            if event["name"].endswith("EmbeddingBackward0"):
                event["name"] = around
        found_in.append(len(found(trace, "dense-gradient")))
    assert found_in == [0, 1]


def test_other_processes_may_look_up_more_rows() -> None:
    trace = tables(1_000_000)
    (alone,) = found(trace, "dense-gradient")
    trace.launch("cudaLaunchKernel", 10 * US, 2 * US, 9_000)
    trace.kernel(20 * US, 30 * US, 9_000, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", stream=20)
    (beside,) = found(trace, "dense-gradient")
    assert [one.confidence.value for one in (alone, beside)] == ["high", "medium"]
    assert alone.cost_ns == beside.cost_ns


def test_without_shapes_a_fused_adam_passes_over_five_tensors() -> None:
    """Five of the table take 1.5 ms at the fill's speed, and the pass takes 0.8 ms: all of it is for the table."""
    trace = recommender(shapes=False, long_list=True, lookup_us=6)
    for event in trace.events:
        if event["name"] == "aten::_foreach_add_":
            event["name"] = "aten::_fused_adamw_"
    (dense,) = found(trace, "dense-gradient")
    assert dense.cost_ns == pytest.approx(3 * (300 + 800) * 0.99 * US, rel=0.01)


@pytest.mark.parametrize(("lookup_us", "said"), [(119, True), (120, False)])
def test_without_shapes_a_fifth_of_the_rows_is_too_many(lookup_us: int, said: bool) -> None:
    """A fill of 300 us writes the table; to look up all rows reads and writes as much again: 600 us."""
    assert bool(found(recommender(shapes=False, long_list=True, lookup_us=lookup_us), "dense-gradient")) is said


def timed(op: str, fill_us: int = 300) -> TraceBuilder:
    """An optimizer that passes for 800 us over all parameters in such an op; a fill takes so long."""
    trace = recommender(shapes=False, long_list=True, lookup_us=6)
    for event in trace.events:
        if event["name"] == "aten::_foreach_add_":
            event["name"] = op
        if event["cat"] == "kernel" and event["dur"] == 300:
            event["dur"] = fill_us
    return trace


@pytest.mark.parametrize(
    ("op", "passed_us"),
    [
        ("aten::_fused_adam_", 500),  # reads and writes a parameter, a gradient and two states
        ("aten::_foreach_addcdiv_", 400),
        ("aten::_foreach_addcmul_", 400),
        ("aten::_foreach_lerp_", 300),
        ("aten::_foreach_norm", 100),  # reads alone
        ("aten::_foreach_mul_", 200),
    ],
)
def test_without_shapes_a_pass_takes_a_fill_per_tensor(op: str, passed_us: int) -> None:
    """A fill of 100 us; looking up takes 6 of 200 us, that is 3 % of the rows."""
    (dense,) = found(timed(op, fill_us=100), "dense-gradient")
    assert dense.cost_ns == pytest.approx(3 * (100 + passed_us) * 0.97 * US, rel=0.001)
    assert dense.evidence["filling_ns"] == 3 * 100 * US


@pytest.mark.parametrize(("launch_us", "counts"), [(150, True), (149, False)])
def test_without_shapes_long_passes_are_over_the_table(launch_us: int, counts: bool) -> None:
    """Of four launches; to read and write the table takes two fills of 300 us. Where none counts, fills are left."""
    trace = timed("aten::mul_")
    for event in trace.events:
        if event["cat"] == "kernel" and event["dur"] == 200:
            event["dur"] = launch_us
    (dense,) = found(trace, "dense-gradient")
    assert dense.cost_ns == pytest.approx(3 * (300 + 600 * counts) * 0.99 * US, rel=0.001)
    assert (dense.evidence["passes_ns"] > 0) is counts


@pytest.mark.parametrize(("summed_us", "said"), [(599, True), (600, False)])
def test_without_shapes_a_sum_may_be_of_two_gradients(summed_us: int, said: bool) -> None:
    trace = recommender(shapes=False, long_list=True, lookup_us=6, summed_us=summed_us)
    assert bool(found(trace, "dense-gradient")) is said


def test_without_shapes_the_busiest_optimizer_counts_steps() -> None:
    """A second one that stepped once changes nothing; one that clips twice as often is no optimizer."""
    trace = recommender(shapes=False, long_list=True, lookup_us=6)
    (alone,) = found(trace, "dense-gradient")
    trace.annotation("Optimizer.step#Adam.step", 890 * US, 2 * US)
    (both,) = found(trace, "dense-gradient")
    assert both.cost_ns == alone.cost_ns == pytest.approx(3 * (300 + 600) * 0.99 * US, rel=0.001)
    assert both.advice == alone.advice


def test_filling_the_table_and_passing_over_it_is_needless() -> None:
    (dense,) = found(recommender(), "dense-gradient")
    assert (dense.by, dense.count, dense.steps) == ("embedding", 3, 3)
    assert "at most 0.41 % of its rows are looked up" in dense.message
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


def test_large_lookups_cost_sums_of_equal_rows() -> None:
    """SGD adds rows as they are; Adagrad's gathers and scatters take most of what its passes took here."""
    shares = []
    for name in ("SGD", "Adagrad"):
        (dense,) = found(recommender(110_000, optimizer=name), "dense-gradient")
        assert dense.saving is not None
        shares.append(dense.saving.share)
    assert shares[0] > 0.4 > 0.2 > shares[1]


def test_long_sums_make_nothing_needless() -> None:
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


def test_without_shapes_times_tell_that_few_rows_were_looked_up() -> None:
    """A fill of 300 us writes a table once; looking up rows reads and writes them in 6 us: a hundredth of them."""
    (dense,) = found(recommender(shapes=False, long_list=True, lookup_us=6), "dense-gradient")
    assert dense.evidence["touched_share"] == pytest.approx(6 / 600)
    assert dense.confidence.value == "medium"
    # the fill, and of the pass over all parameters what reading and writing the table takes at the fill's speed
    assert dense.cost_ns == pytest.approx(3 * (300 + 600) * 0.99 * US, rel=0.01)
    assert "at most 1.0 % of its rows are looked up" in dense.message
