"""Batches that pad_sequence makes of sequences of unlike lengths."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.rules.kernel_programs import F32, NVJET, Op, found, program
from traceanalyzer import Trace


def copied(length: int) -> Op:
    """What pad_sequence writes of one sequence, on the host."""
    return Op("aten::copy_", "", 0, [[length, 80], [length, 80], []], [F32, F32, "Scalar"])


def batch(lengths: Sequence[int], work: Sequence[int], *, steps: int = 6, inside: bool = True) -> Trace:
    """One batch a step, and a layer of 1,000 us on a tensor of this shape; another one of 200 us on no batch."""
    layer = Op("aten::linear", NVJET, 1_000, [list(work), [512, 512]], [F32, F32])
    other = Op("aten::linear", NVJET, 200, [[7, 512], [512, 512]], [F32, F32])
    around = {0: ("aten::pad_sequence", len(lengths), {})} if inside else None
    return program([*map(copied, lengths), layer, other], steps=steps, around=around)


@pytest.mark.parametrize("shape", [[4, 100, 512], [400, 512], [4, 48, 512], [4, 27, 512], [4, 14, 512]])
def test_sorted_by_length_the_same_sequences_need_fewer_positions(shape: list[int]) -> None:
    """Sorted batches of six times 10, 50, 60 and 100 are 10, 50, 50, 60, 100 and 100 long; encoders shorten by 8."""
    (one,) = found(batch([100, 10, 60, 50], shape), "padded-batch")
    assert one.cause == "uneven"
    assert (one.evidence["used"], one.evidence["sorted"], one.evidence["batches"]) == ("55 %", "62 %", 6)
    assert one.cost_ns == pytest.approx(6 * 1_000_000 * (1 - 370 / 600), rel=0.001)
    assert one.evidence["gpu_share"] == pytest.approx(1_000 / 1_200)


@pytest.mark.parametrize(
    "trace",
    [
        batch([100, 10, 60, 50], [4, 101, 512]),
        batch([100, 10, 60, 50], [4, 45, 512]),
        batch([100, 10, 60, 50], [5, 90, 512]),
        batch([100, 95, 90, 85], [4, 100, 512]),
        batch([100, 10, 60, 50], [4, 100, 512], steps=2),
        batch([100, 10, 60, 50], [4, 100, 512], inside=False),
        batch([], [4, 100, 512]),
    ],
    ids=["longer", "shorter", "another batch", "alike", "two steps", "other copies", "none"],
)
def test_what_is_no_padded_batch_of_unlike_lengths_is_left_alone(trace: Trace) -> None:
    assert found(trace, "padded-batch") == []


def test_sequences_of_which_one_length_is_not_recorded_tell_nothing() -> None:
    unknown = Op("aten::copy_", "", 0)
    layer = Op("aten::linear", NVJET, 1_000, [[4, 100, 512], [512, 512]], [F32, F32])
    ops = [*map(copied, [100, 10, 50]), unknown, layer]
    assert found(program(ops, around={0: ("aten::pad_sequence", 4, {})}), "padded-batch") == []


def test_batches_of_another_size_are_sorted_among_themselves() -> None:
    """Two of 100 and 20, and three of 40: sorting helps the first ones alone, of which twelve are in six batches."""
    layer = Op("aten::linear", NVJET, 1_000, [[2, 100, 512], [512, 512]], [F32, F32])
    ops = [*map(copied, [100, 20, 40, 40, 40]), layer]
    around = {0: ("aten::pad_sequence", 2, {}), 2: ("aten::pad_sequence", 3, {})}
    (one,) = found(program(ops, around=around), "padded-batch")
    assert one.evidence["sorted"] == f"{100 * (3 * 2 * 120 + 6 * 120) / (6 * 320):.0f} %"
    assert one.evidence["batches"] == 12
