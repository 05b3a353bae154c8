"""Dense gradients of embeddings where no shapes are recorded: by times alone."""

from __future__ import annotations

import pytest

from tests.rules.programs import US, found
from tests.rules.test_dense_gradient import recommender


def test_without_shapes_a_fused_adam_passes_over_five_tensors() -> None:
    """Five of the table take 1.5 ms at the fill's speed, and the pass takes 0.8 ms: all of it is for the table."""
    trace = recommender(shapes=False, long_list=True, lookup_us=6)
    for event in trace.events:
        if event["name"] == "aten::_foreach_add_":
            event["name"] = "aten::_fused_adamw_"
    (dense,) = found(trace, "dense-gradient")
    assert dense.cost_ns == pytest.approx(3 * (300 + 800) * 0.99 * US, rel=0.01)


@pytest.mark.parametrize(("lookup_us", "said"), [(119, True), (120, False)])
def test_without_shapes_a_lookup_of_a_fifth_of_the_rows_is_no_small_one(lookup_us: int, said: bool) -> None:
    """A fill of 300 us writes the table; to look up all rows reads and writes as much again: 600 us."""
    assert (
        bool(found(recommender(shapes=False, long_list=True, lookup_us=lookup_us), "dense-gradient")) is said
    )


def test_in_a_job_of_several_ranks_other_ranks_may_have_looked_up_other_rows() -> None:
    """Their gradients are added, so that confidence is only medium."""
    trace = recommender()
    (alone,) = found(trace, "dense-gradient")
    trace.launch("cudaLaunchKernel", 200 * US, 5 * US, 9_000)
    trace.kernel(210 * US, 5 * US, 9_000, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL", stream=9)
    (joined,) = found(trace, "dense-gradient")
    assert (alone.confidence.value, joined.confidence.value) == ("high", "medium")
