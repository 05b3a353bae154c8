"""Pairs of which forward selects few, where several products have one size."""

from __future__ import annotations

import pytest

from tests.rules.kernel_programs import F32, NVJET, US, Op, program
from tests.rules.test_dense_gradient import nearest, said


@pytest.mark.parametrize("first", [True, False])
def test_the_product_with_longer_sums_is_recomputed(*, first: bool) -> None:
    """Either may be the one of which the largest is taken."""
    dims = [[[4, 1024, inner], [4, inner, 2048]] for inner in (8192, 3)]
    long, short = (Op("aten::bmm", NVJET, 400, one, [F32, F32], inside="aten::matmul") for one in dims)
    ops = [short, *nearest(made=long)] if first else [long, *nearest(made=short)]
    (alone,) = said(program(nearest(made=long)))
    (both,) = said(program(ops))
    assert both.cost_ns == pytest.approx(alone.cost_ns, rel=0.001)
    (quick,) = said(program(nearest(made=short)))
    assert quick.cost_ns > alone.cost_ns + 6 * 50 * US
