"""Which tensors hold a batch of padded sequences."""

from __future__ import annotations

from traceanalyzer.rules.facts.fixed_length import is_padded, padded_sizes
from traceanalyzer.tensors.signatures import Shape


def test_positions_may_be_an_eighth_of_the_frames_at_most() -> None:
    assert padded_sizes(4, 100) == [(4, 100), (4, 200), (4, 400), (4, 800)]


def test_a_batch_has_both_sizes_in_any_order_or_their_product() -> None:
    sizes = padded_sizes(4, 100)
    padded: list[Shape] = [(4, 800, 80), (80, 100, 4), (3_200, 512), (400,)]
    for shape in padded:
        assert is_padded(shape, sizes), shape
    others: list[Shape] = [(4, 1_601), (4, 80), (8, 100), (3_201, 4), ()]
    for shape in others:
        assert not is_padded(shape, sizes), shape
