"""Values at the ends of what a column holds, and what pids and labels say."""

import pytest

from tests.read.raw_events import kernel, of, op
from tests.support.trace_builder import TraceBuilder

GIB = 1 << 30


@pytest.mark.parametrize("large", [2 * GIB - 1, 2 * GIB, 5 * GIB, -2 * GIB, -2 * GIB - 1])
def test_a_number_of_more_than_32_bits_is_kept_beside_small_ones(large: int) -> None:
    """Bytes of copies and of memsets, and of the allocator: rows with other args, which make one column."""
    trace = TraceBuilder()
    trace.memcpy(0, 100, 1, size=abs(large))
    trace.memset(200, 10, 2, size=4)
    trace.kernel(300, 10, 3)
    trace.op("aten::empty", 0, 100)
    trace.memory(10, 512)
    trace.memory(20, large)
    loaded = trace.load()
    assert loaded.gpu["bytes"].fillna(-1).tolist() == [abs(large), 4, -1]
    assert loaded.memory["bytes"].tolist() == [512, large]


@pytest.mark.parametrize(("ordinal", "kept"), [(0, True), (1023, True), (1024, False), (-1, False), (2**62, False)])
def test_the_largest_number_of_a_device(ordinal: int, kept: bool) -> None:
    trace = of(op(), kernel(args={"device": ordinal, "stream": 7}))
    assert trace.gpu["device"].notna().tolist() == [kept]
    assert trace.meta.anomalies == ({} if kept else {"unreadable device": 1})


def test_unreadable_recurring_value_counts_in_every_row() -> None:
    rows = [op(args={"Fwd thread id": value}) for value in ("x", "x", "", None, 0)]
    assert of(*rows).meta.anomalies == {"unreadable Fwd thread id": 2}


def test_a_column_of_two_spellings_has_the_value_of_either() -> None:
    """torch has written an External id with a small letter, too, and Input Dims with a small d."""
    trace = of(
        op(args={"External id": None, "external id": 7, "Input Dims": None, "Input dims": [[1]]}),
        op(args={"External id": 8, "external id": None, "Input Dims": [[2]], "Input dims": None}),
        op(args={"external id": 9, "Input dims": [[3]]}),
    )
    assert trace.cpu["external_id"].tolist() == [7, 8, 9]
    assert trace.cpu["input_dims"].tolist() == ["[[1]]", "[[2]]", "[[3]]"]


def test_numbers_beyond_32_bits_are_kept_on_either_side() -> None:
    for stream in (2**31 - 1, 2**31, -(2**31) + 1, -(2**31), -(2**31) - 1, 2**62):
        trace = of(op(tid=stream), kernel(args={"device": 0, "stream": stream}), kernel(args={"device": 0}, tid=3))
        assert trace.gpu["stream"].tolist() == [stream, 3]
        assert trace.cpu["tid"].tolist() == [stream]
