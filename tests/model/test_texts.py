"""Texts of rows: what is summed by text, whatever their codes are."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.texts import Texts


def test_a_text_that_two_tables_have_is_one_sum_and_the_largest_comes_first() -> None:
    ops = Texts(np.array([0, -1, 1]), np.array(["mm", "add"], object))
    launches = Texts(np.array([0, 0, 0]), np.array(["mm"], object))
    both = ops.or_else(launches)
    assert both.values().tolist() == ["mm", "mm", "add"]
    assert list(both.sums(np.array([20, 40, 50])).items()) == [("mm", 60), ("add", 50)]
