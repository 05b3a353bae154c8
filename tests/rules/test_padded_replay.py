"""CUDA graphs that were captured for more rows than they are replayed for."""

from __future__ import annotations

import pytest

from tests.rules.kernel_programs import F32, NVJET, US, found
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer import Trace


def served(
    rows: list[int],
    captured: int = 4_096,
    *,
    others: int = 0,
    along: str = "0",
    begin: str = "0",
    by: str = "1",
) -> Trace:
    """Requests of some rows, each with one replay of a graph of two kernels that has room for more.

    Args:
        others: rows of another tensor of which as many are taken before and after the replay; 0 for none.
        along, begin, by: dimension, start and step of the slices.
    """
    trace, now = TraceBuilder(devices=[H200], record_shapes=1), 0
    for number, asked in enumerate(rows, start=1):
        began = now
        for at in (now + 10 * US, now + 50 * US):
            for place, whole in enumerate([captured, others] if others else [captured]):
                shapes = {"Input Dims": [[whole, 8], [], [], [], []], "Input type": [F32, *["Scalar"] * 4]}
                shapes |= {"Concrete Inputs": ["", along, begin, str(asked), by]}
                trace.op("aten::slice", at + 3 * place * US, 2 * US, **shapes)
        trace.launch("cudaGraphLaunch", now + 20 * US, 8 * US, number)
        for place in range(2):
            trace.kernel(now + (30 + 210 * place) * US, 200 * US, number, name=NVJET)
        now += 460 * US
        trace.step(number, began, now - began - US)
    return trace.load()


def test_a_graph_for_many_more_rows_than_are_asked_for() -> None:
    (one,) = found(served([300, 500, 700, 200]), "padded-replay")
    assert "a CUDA graph for 4,096 rows is replayed for 200 to 700 (median 400)" in one.message
    lost = [1 - bucket / 4_096 for bucket in (512, 512, 1_024, 256)]
    assert one.cost_ns == pytest.approx(sum(lost) * 400 * US, rel=0.01)


def test_a_graph_that_is_filled_by_half_or_more_is_no_fault() -> None:
    assert found(served([300, 500, 400, 260], captured=512), "padded-replay") == []
    assert found(served([4_096] * 4), "padded-replay") == []


@pytest.mark.parametrize("slices", [{"along": "1"}, {"begin": "1"}, {"by": "2"}])
def test_columns_later_rows_and_every_second_row_are_no_padding(slices: dict[str, str]) -> None:
    assert found(served([300, 500, 700, 200], **slices), "padded-replay") == []


@pytest.mark.parametrize(("asked", "left"), [(512, 512), (513, 1_024)])
def test_a_power_of_two_fits_into_its_own_graph(asked: int, left: int) -> None:
    (one,) = found(served([asked] * 4), "padded-replay")
    assert one.cost_ns == pytest.approx(4 * (1 - left / 4_096) * 400 * US, rel=0.01)


def test_of_two_slices_of_a_replay_the_fuller_one_tells_its_rows() -> None:
    """The first rows of a longer mask are taken beside those of the input."""
    (one,) = found(served([300, 500, 700, 200], others=65_536), "padded-replay")
    assert (one.evidence["captured"], one.evidence["fewest"], one.evidence["most"]) == (4_096, 200, 700)
    assert found(served([6] * 4, captured=8, others=64), "padded-replay") == []


def test_a_tensor_read_whole_does_not_show_padding() -> None:
    (one,) = found(served([300] * 4, others=300), "padded-replay")
    assert (one.evidence["captured"], one.evidence["most"]) == (4_096, 300)


@pytest.mark.parametrize(
    ("rows", "said"), [([2_048] * 4, True), ([2_049] * 4, False), ([300] * 3, True), ([300] * 2, False)]
)
def test_three_replays_for_half_of_the_rows_or_fewer_are_padded(rows: list[int], said: bool) -> None:
    assert bool(found(served(rows), "padded-replay")) is said


def test_replays_that_are_filled_are_not_told_beside_padded_ones() -> None:
    (one,) = found(served([200, 300, 4_000, 1_000]), "padded-replay")
    told = [one.evidence[name] for name in ("fewest", "most", "median", "replays")]
    assert told == [200, 1_000, 300, 3]
    lost = [1 - bucket / 4_096 for bucket in (256, 512, 1_024)]
    assert one.cost_ns == pytest.approx(sum(lost) * 400 * US, rel=0.01)
