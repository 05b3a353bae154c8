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
