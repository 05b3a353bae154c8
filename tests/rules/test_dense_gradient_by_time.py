"""Dense gradients of embeddings where no shapes are recorded: by times alone."""

from __future__ import annotations

import pytest

from tests.rules.programs import US, found
from tests.support.recommenders import recommender
from tests.support.trace_builder import TraceBuilder


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
    assert (
        bool(found(recommender(shapes=False, long_list=True, lookup_us=lookup_us), "dense-gradient")) is said
    )


def test_other_ranks_may_look_up_other_rows() -> None:
    """Their gradients are added, so that confidence is only medium."""
    trace = recommender()
    (alone,) = found(trace, "dense-gradient")
    trace.launch("cudaLaunchKernel", 200 * US, 5 * US, 9_000)
    trace.kernel(210 * US, 5 * US, 9_000, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL", stream=9)
    (joined,) = found(trace, "dense-gradient")
    assert (alone.confidence.value, joined.confidence.value) == ("high", "medium")


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
