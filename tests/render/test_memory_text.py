"""The memory view as people read it: amounts with their shares, what is left out, and what allocators asked for."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.allocator.memory_view import MemoryView, ops_by_memory
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.render.text.memory import render_memory, sparkline

MIB = 1 << 20


def lines_of(trace: TraceBuilder, *, limit: int = 10, width: int = 80, ascii_only: bool = False) -> list[str]:
    """The text, without blanks at the ends of lines."""
    loaded = trace.load()
    text = render_memory(
        Analysis(loaded).index(MemoryView),
        ops_by_memory(loaded),
        origin_ns=loaded.meta.origin_ns,
        limit=limit,
        width=width,
        ascii_only=ascii_only,
    )
    return [line.strip() for line in text.splitlines()]


def blocks(*mib: int, before: int = 0, step: bool = True) -> TraceBuilder:
    """A block for each op, of so many MiB; a negative amount frees the block of the op before."""
    trace = TraceBuilder(profile_memory=1)
    total = before * MIB
    if step:
        trace.step(0, 0, 100_000)
    for number, size in enumerate(mib):
        total += size * MIB
        trace.op(f"aten::op{number}", 1_000 * number, 900)
        address = number if size > 0 else number - 1
        trace.memory(
            1_000 * number + 500, size * MIB, address=address, allocated=total, reserved=total + 2 * MIB
        )
    return trace


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_places_beyond_the_limit_are_one_line(limit: int) -> None:
    trace = blocks(8, 4, 2)
    for at, size in ((2_700, MIB), (2_800, MIB)):  # in the last op
        trace.memory(at, size, address=at, allocated=15 * MIB + (at == 2_800) * MIB, reserved=18 * MIB)
    said = lines_of(trace, limit=limit)
    begin = said.index("alive at the peak:") + 1
    every = [
        "8.00 MiB   50.0 %     1 x aten::op0",
        "4.00 MiB   25.0 %     1 x aten::op1",
        "4.00 MiB   25.0 %     3 x aten::op2",
    ]
    rest = {1: "8.00 MiB   50.0 %     4 x other places (2)", 2: "4.00 MiB   25.0 %     3 x other places (1)"}
    shown = [*every[:limit], *([rest[limit]] if limit in rest else [])]
    assert said[begin : begin + len(shown)] == shown
    assert said[begin + len(shown)] == "allocated in the recording and not freed: 16.0 MiB"
    ops = said[said.index("self      total   CPU self  CPU total   calls  op") + 1 :]
    assert [line.split()[-1] for line in ops[: ops.index("")]] == [f"aten::op{n}" for n in range(limit)]


@pytest.mark.parametrize(("before", "told"), [(0, False), (4, True)])
def test_what_was_allocated_before_is_a_part_of_the_peak(before: int, told: bool) -> None:
    said = lines_of(blocks(12, before=before))
    amount = "4.00 MiB   25.0 %         allocated before the recording"
    assert (amount in said) is told
    assert (
        said[1]
        == f"1 allocations, 0 frees; {f'{before}.00 MiB' if before else '0 B'} before, {12 + before}.0 MiB after"
    )


def test_freed_memory_is_not_alive_and_empty_has_no_share() -> None:
    said = lines_of(blocks(8, -8))
    assert said[said.index("alive at the peak:") + 1].split() == [
        "8.00",
        "MiB",
        "100.0",
        "%",
        "1",
        "x",
        "aten::op0",
    ]
    at = said.index("allocated in the recording and not freed: 0 B")
    assert said[at + 1] == ""
    assert said[2] == "reserved at most 10.0 MiB"
    assert said[3] == "reserved less allocated: 2.00 MiB at the peak, 2.00 MiB at most"


def test_shares_of_what_is_kept_are_of_all_that_is() -> None:
    """Not of the peak, before which more was there."""
    said = lines_of(blocks(8, -8, 4))
    at = said.index("allocated in the recording and not freed: 4.00 MiB")
    assert said[at + 1].split() == ["4.00", "MiB", "100.0", "%", "1", "x", "aten::op2"]
    assert said[0].startswith("CUDA:0: peak 8.00 MiB at ")


@pytest.mark.parametrize(("change", "said"), [(-3, "3.00 MiB freed"), (3, "3.00 MiB allocated"), (0, None)])
def test_what_happens_between_the_ops_of_steps_is_said_apart(change: int, said: str | None) -> None:
    trace = blocks(8)
    if change:
        trace.memory(50_000, change * MIB, address=77, allocated=(8 + change) * MIB, reserved=16 * MIB)
    lines = lines_of(trace)
    told = [line for line in lines if line.startswith("in steps")]
    assert told == ([f"in steps, but between ops: {said}"] if said else [])
    assert not [line for line in lines if line.endswith("ProfilerStep#0") and "x" not in line]


def test_net_allocation_is_in_mib_of_the_device_and_of_the_cpu() -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.op("aten::outer", 0, 10_000)
    trace.op("aten::inner", 1_000, 2_000)
    trace.memory(1_500, 3 * MIB, address=1, allocated=3 * MIB, reserved=4 * MIB)
    trace.memory(1_600, MIB // 2, address=2, device_type=0, device=-1)
    trace.memory(5_000, -MIB, address=3, allocated=2 * MIB, reserved=4 * MIB)
    said = lines_of(trace)
    rows = {line.split()[-1]: line.split()[:-1] for line in said if "aten::" in line and " x " not in line}
    assert rows == {
        "aten::inner": ["3.00", "3.00", "0.50", "0.50", "1"],
        "aten::outer": ["-1.00", "2.00", "0.00", "0.50", "1"],
    }


@pytest.mark.parametrize(
    ("times", "said"), [(0, None), (1, "Out of memory: 1 time."), (2, "Out of memory: 2 times.")]
)
def test_how_often_memory_ran_out_is_the_last_line(times: int, said: str | None) -> None:
    trace = blocks(8)
    for at in range(times):
        trace.memory(90_000 + at, MIB, name="[OutOfMemory]", allocated=8 * MIB, reserved=8 * MIB)
    lines = lines_of(trace)
    assert lines[-1] == (said or "Allocator calls to the driver: none; all blocks came from the cache.")


def test_calls_to_the_driver_are_counted_with_their_time() -> None:
    trace = blocks(8)
    for number in range(2):
        trace.launch("cudaMalloc", 60_000 + 2_000 * number, 1_500, number + 1)
    lines = lines_of(trace)
    assert lines[-2:] == ["Allocator calls to the driver:", f"2 x {'cudaMalloc':<28} 3.00 µs"]


def test_without_totals_amounts_count_from_zero() -> None:
    trace = blocks(8, 4)
    doubt = "the trace has no running totals: amounts count from 0 at its start"
    assert doubt not in lines_of(trace)
    for event in trace.events:
        if event.get("cat") == "cpu_instant_event":
            event["args"] = {
                key: value for key, value in event["args"].items() if not key.startswith("Total")
            }
    said = lines_of(trace)
    assert said[0].startswith("CUDA:0: peak 12.0 MiB at ")
    assert said[2] == doubt
    assert not [line for line in said if line.startswith("reserved")]


def test_memory_curve_uses_letters_without_block_characters() -> None:
    trace = blocks(8, 4)
    assert lines_of(trace)[4] == "▅" * 75 + "█"  # 8 of 12 MiB, and 12 at the end
    assert lines_of(trace, ascii_only=True)[4] == "+" * 75 + "@"
    assert not [line for line in lines_of(trace, ascii_only=True) if not line.isascii()]


def curve(values: list[int], at: list[int], width: int) -> str:
    return sparkline(np.array(values, np.int64), np.array(at, np.int64), width=width)


def test_a_curve_shows_the_most_of_each_part_of_the_time() -> None:
    """Eight levels from nothing to the most; a part without a change has what was there before it."""
    assert curve([0, 7, 0, 0], [0, 10, 20, 40], 4) == "▁█▁▁"
    assert curve([7, 1], [0, 40], 4) == "████"  # changes only at the end
    assert curve([7, 3, 0], [0, 10, 40], 4) == "█▄▄▄"  # the change at 10 ns is of the second part
    assert curve([0, 6, 7], [0, 5, 40], 4) == "▇▇▇█"
    assert curve([7, -7], [0, 40], 2) == "██"
    assert curve([-7, 7], [0, 40], 3) == "▁▁█"
    assert curve([-1, 0], [0, 40], 3) == curve([], [], 3) == "▁▁▁"


def test_a_device_of_which_nothing_was_reserved_says_so() -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.op("aten::empty", 0, 900)
    trace.memory(500, MIB, address=1, allocated=MIB, reserved=0)
    said = lines_of(trace)
    assert "reserved at most 0 B" in said


@pytest.mark.parametrize("shift_ns", [77_000_000, 1_700_000_000_000_000_123])
def test_the_sparkline_is_the_same_wherever_the_clock_begins(shift_ns: int) -> None:
    values, at = np.array([10, 20, 30, 15]), np.array([1_000, 101_000, 201_000, 301_000])
    for width in (60, 76, 100):
        assert sparkline(values, at + shift_ns, width=width) == sparkline(values, at, width=width)
