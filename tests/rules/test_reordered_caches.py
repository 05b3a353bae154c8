"""Caches of all layers whose rows follow the beams, of which no shape is recorded."""

from __future__ import annotations

import pytest

from tests.rules.kernel_programs import NVJET, Op, found, program
from traceanalyzer import Trace
from traceanalyzer.model.finding import Severity

GATHER = Op("aten::index_select", "void vectorized_gather_kernel<16, long>(char*)", 100)
PRODUCT = Op("aten::mm", NVJET, 400)
VIEW = Op("aten::view", "", 0)


def caches(in_a_row: int = 8, between: Op = VIEW, *, pieces: int = 1) -> Trace:
    """So many gathers, one after the other, and then a product; all that again for each piece."""
    row = [one for _ in range(in_a_row) for one in (GATHER, between)]
    return program([*row, PRODUCT] * pieces)


def test_gathers_one_after_the_other_are_caches_without_shapes_too() -> None:
    (one,) = found(caches(), "data-movement")
    assert one.cause == "reorderings"
    assert one.severity is not Severity.INFO
    assert one.evidence["spent_ns"] == 6 * 8 * 100_000
    assert "8 times a step" in one.message


@pytest.mark.parametrize(
    "trace", [caches(7), caches(8, PRODUCT), caches(4, pieces=2)], ids=["seven", "apart", "in two pieces"]
)
def test_gathers_between_which_something_is_computed_are_the_work_itself(trace: Trace) -> None:
    (one,) = found(trace, "data-movement")
    assert (one.cause, one.severity) == ("gathers", Severity.INFO)


def test_of_recorded_shapes_no_row_of_gathers_counts() -> None:
    """Eight tables of which other rows are taken."""
    select = Op(GATHER.name, GATHER.kernel, 100, [[2_000, 64], [], [96]], ["float", "Scalar", "long int"])
    (one,) = found(program([*[select] * 8, PRODUCT]), "data-movement")
    assert one.cause == "gathers"
