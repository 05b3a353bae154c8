"""What larger buckets of gradients would be, and how long they would take."""

from __future__ import annotations

import numpy as np
import pytest

from traceanalyzer.rules.communication.small_buckets import joined_ns, larger_buckets


@pytest.mark.parametrize(
    ("step", "sizes", "bucket", "surplus"),
    [
        ([0, 0, 0, 0], [4, 4, 4, 4], [0, 0, 0, 1], [1, 1, 0, 0]),  # begins where 10 are full
        ([0, 0, 0], [5, 5, 5], [0, 0, 1], [1, 0, 0]),
        ([0, 0, 1, 1], [4, 4, 4, 4], [0, 0, 1, 1], [1, 0, 1, 0]),  # each step anew
        ([0, 0, 0], [30, 1, 1], [0, 1, 1], [0, 1, 0]),  # a large one stays whole
        ([3], [1], [0], [0]),
    ],
)
def test_buckets_hold_whole_gradients_of_one_step(
    step: list[int], sizes: list[int], bucket: list[int], surplus: list[int]
) -> None:
    """Of 10 bytes each."""
    found, gone = larger_buckets(np.array(step), np.array(sizes), 10)
    assert found.tolist() == bucket
    assert gone.astype(int).tolist() == surplus


@pytest.mark.parametrize(
    ("sizes", "as_made", "took", "left"),
    [
        ([10, 20, 30], [10, 20, 30], [120.0, 140.0, 160.0], [160.0, 160.0]),  # 100 and 2 a byte
        ([10, 20, 30], [5, 10, 15], [120.0, 140.0, 160.0], [130.0, 130.0]),  # half as wide
        ([10, 10, 10], [10, 10, 10], [120.0, 120.0, 130.0], [120.0, 120.0]),  # of one size: latency alone
        ([10, 20, 30], [10, 20, 30], [160.0, 140.0, 120.0], [140.0, 140.0]),  # no byte takes less than none
        ([10, 20, 30], [10, 20, 30], [20.0, 40.0, 61.0], [61.5, 61.5]),
    ],
)
def test_a_bucket_takes_one_latency_and_the_time_of_its_bytes(
    sizes: list[int], as_made: list[int], took: list[float], left: list[float]
) -> None:
    """The first two in one bucket, the third in another."""
    made = joined_ns(np.array(sizes), np.array(as_made), np.array(took), np.array([0, 0, 1]))
    assert made.tolist() == pytest.approx(left, abs=0.01)
