"""The table and the memory view as text."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.allocator.memory_view import MemoryView, ops_by_memory
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.render.text.table import (
    TableSize,
    format_memory,
    format_share,
    format_time,
    render_table,
    table_markdown,
)
from traceanalyzer.render.text.views import render_memory, sparkline
from traceanalyzer.torch_table.printed import PrintedTable

KB = 1024


def table(*names: str, device: str | None = "CUDA", **columns: Any) -> PrintedTable:
    """One row for each name, of two calls, 10 us on the CPU and 4 us on the device."""
    count = len(names)
    each = {"calls": 2, "is_async": False, "self_cpu_us": 10.0, "cpu_us": 30.0}
    each |= {"self_device_us": 4.0, "device_us": 6.0}
    frame = pd.DataFrame({"name": names, **{name: [value] * count for name, value in each.items()}, **columns})
    memory = "cpu_bytes" in columns
    return PrintedTable(frame, device, device is not None, memory, 10.0 * count, 4.0 * count)


def cells(of: PrintedTable, limit: int = -1) -> list[dict[str, str]]:
    """Title -> text for each row, as a page shows the pipe table."""
    lines = [line for line in table_markdown(of, TableSize(limit)).splitlines() if line.startswith("|")]
    plain = [re.sub(r"\\(.)", r"\1", line) for line in lines]
    parted = [[cell.strip() for cell in line.strip("|").split("|")] for line in plain]
    return [dict(zip(parted[0], row, strict=True)) for row in parted[2:]]


@pytest.mark.parametrize(
    ("length", "width", "shown"),
    [
        *((51, 55, "k" * 51), (52, 55, "k" * 52 + "..."), (54, 55, "k" * 52 + "...")),
        *((90, 55, "k" * 52 + "..."), (9, 12, "k" * 9 + "..."), (8, 12, "k" * 8)),
    ],
)
def test_a_name_is_cut_from_three_characters_below_the_width_on(length: int, width: int, shown: str) -> None:
    """As in torch: already a name that would fit with no room for the dots."""
    line = render_table(table("k" * length), TableSize(name_width=width)).splitlines()[3]
    assert line.split()[0] == shown
    assert line.index("100.00%") + len("100.00%") == min(length + 4, width) + 2 + 12


def titles(of: PrintedTable) -> list[str]:
    return list(cells(of)[0])


def test_flops_stand_after_the_inputs_and_before_the_stacks() -> None:
    """In units of the smallest count that is not zero."""
    known = {"input_shapes": ["[[8, 8]]"] * 3, "flops": [0, 2_000, 3_000_000]}
    made = table("a", "b", "c", **known)
    assert titles(made)[-3:] == ["# of Calls", "Input Shapes", "Total KFLOPs"]
    assert [row["Total KFLOPs"] for row in cells(made)] == ["--", "2.000", "3000.000"]
    stacks = table("a", "b", "c", **known, stack=[["x.py(1): f", "y.py(2): g"], [], []])
    assert titles(stacks)[-3:] == ["Input Shapes", "Total KFLOPs", "Source Location"]
    assert titles(table("a", input_shapes=["[]"]))[-2:] == ["# of Calls", "Input Shapes"]


def test_row_has_its_stack_below_and_rows_a_separator() -> None:
    stacks = table("a", "b", stack=[[], ["x.py(1): f", "y.py(2): g"]])
    lines = [line.strip() for line in render_table(stacks, TableSize()).splitlines()]
    assert lines[4] == ""
    assert lines[5].endswith("x.py(1): f")
    assert lines[6:8] == ["y.py(2): g", ""]
    first = [line.strip() for line in render_table(stacks, TableSize(row_limit=1)).splitlines()]
    assert first[4] == ""  # none of the rows that are shown has one
    assert first[1].endswith("Source Location")


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        *((0, "0 B"), (1023, "1023 B"), (-1023, "-1023 B"), (1024, "1.00 KB"), (-1024, "-1.00 KB")),
        *((KB**2 - 1, "1024.00 KB"), (KB**2, "1.00 MB"), (KB**3, "1.00 GB")),
        *((-5 * KB**3 // 2, "-2.50 GB"), (3 * KB**4, "3072.00 GB")),
    ],
)
def test_memory_uses_the_largest_filled_unit_also_freed(size: int, shown: str) -> None:
    assert format_memory(size) == shown


@pytest.mark.parametrize(
    ("us", "shown"),
    [
        *((0.0, "0.000us"), (999.999, "999.999us"), (-5_000.0, "-5000.000us")),
        *((1_000.0, "1.000ms"), (999_999.0, "999.999ms"), (1_000_000.0, "1.000s")),
    ],
)
def test_a_time_is_in_the_largest_unit_that_it_fills(us: float, shown: str) -> None:
    assert format_time(us) == shown


def test_a_share_of_nothing_is_no_number() -> None:
    assert [format_share(*of) for of in ((0.0, 0.0), (1.0, 3.0), (3.0, 2.0))] == ["NaN", "33.33%", "150.00%"]


@pytest.mark.parametrize(
    ("flops", "title", "shown"),
    [
        ([999, 5_000_000], "Total FLOPs", ["999.000", "5000000.000"]),
        ([1_000, 5_000_000], "Total KFLOPs", ["1.000", "5000.000"]),
        ([5_000_000, 0], "Total MFLOPs", ["5.000", "--"]),
        ([2 * 10**18, 3 * 10**15], "Total PFLOPs", ["2000.000", "3.000"]),
        ([10**18, 2 * 10**18], "Total PFLOPs", ["1000.000", "2000.000"]),
    ],
)
def test_flops_have_the_unit_of_the_least(flops: list[int], title: str, shown: list[str]) -> None:
    rows = cells(table("a", "b", flops=flops))
    assert [row[title] for row in rows] == shown


def test_without_any_flops_there_is_no_column_for_them() -> None:
    assert not [title for title in cells(table("a", flops=[0]))[0] if "FLOPs" in title]


def test_each_number_stands_below_its_title() -> None:
    (row, asynchronous) = cells(table("a", "b", is_async=[False, True]))
    on_cpu = {"Self CPU %": "50.00%", "Self CPU": "10.000us", "CPU total %": "150.00%"}
    on_cpu |= {"CPU total": "30.000us", "CPU time avg": "15.000us"}
    on_device = {"Self CUDA": "4.000us", "Self CUDA %": "50.00%", "CUDA total": "6.000us"}
    assert row == {"Name": "a", **on_cpu, **on_device, "CUDA time avg": "3.000us", "# of Calls": "2"}
    assert asynchronous == {**row, "Name": "b", "CPU total %": "0"}


@pytest.mark.parametrize(("own", "device", "columns"), [(1, "CUDA", 4), (0, "CUDA", 2), (-1, "CUDA", 2), (1, None, 2)])
def test_device_memory_is_shown_if_something_allocated(own: int, device: str | None, columns: int) -> None:
    sizes = {name: [1, 2] for name in ("cpu_bytes", "self_cpu_bytes", "device_bytes")}
    made = table("a", "b", device=device, **sizes, self_device_bytes=[0, own])
    every = ["CPU Mem", "Self CPU Mem", "CUDA Mem", "Self CUDA Mem"]
    assert [title for title in titles(made) if title.endswith("Mem")] == every[:columns]


@pytest.mark.parametrize(("limit", "shown"), [(-1, 3), (0, 0), (2, 2), (3, 3), (9, 3)])
def test_rows_beyond_the_limit_count_for_the_totals_and_widths(limit: int, shown: int) -> None:
    lines = render_table(table("a", "b", "k" * 20), TableSize(limit)).splitlines()
    assert [line.split()[0] for line in lines[3:-3]] == ["a", "b", "k" * 20][:shown]
    assert lines[0].startswith("-" * 24 + "  -")
    assert lines[-2:] == ["Self CPU time total: 30.000us", "Self CUDA time total: 12.000us"]


def test_stack_frames_are_in_the_last_column_flops_before() -> None:
    stack = [["train.py(3): step", "p/" * 50 + "run.py(9): main"], []]
    lines = render_table(table("a", "b", flops=[1, 1], stack=stack), TableSize()).splitlines()
    place = lines[3].index("train.py")
    assert lines[1].split("# of Calls")[1].split() == ["Total", "FLOPs", "Source", "Location"]
    assert [line[place:].rstrip() for line in lines[3:6]] == [
        "train.py(3): step",
        "..." + ("p/" * 50 + "run.py(9): main")[-72:],
        "",
    ]
    assert [line[:place].strip() for line in lines[4:6]] == ["", ""]
    assert lines[6].split()[0] == "b"


def test_shapes_are_cut_at_the_width_of_their_column() -> None:
    long = "[" + ", ".join(["[128, 128]"] * 9) + "]"
    rows = cells(table("a", "b", input_shapes=[long, "[]"]))
    assert [row["Input Shapes"] for row in rows] == [long[:80], "[]"]


MIB = 1 << 20


def lines_of(trace: TraceBuilder, *, limit: int = 10, width: int = 80, ascii_only: bool = False) -> list[str]:
    """The text, without blanks at the ends of lines."""
    loaded = trace.load()
    view, origin = Analysis(loaded).index(MemoryView), loaded.meta.origin_ns
    how: dict[str, Any] = {"limit": limit, "width": width, "ascii_only": ascii_only}
    text = render_memory(view, ops_by_memory(loaded), origin_ns=origin, **how)
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
        totals = {"allocated": total, "reserved": total + 2 * MIB}
        trace.memory(1_000 * number + 500, size * MIB, address=address, **totals)
    return trace


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_places_beyond_the_limit_are_one_line(limit: int) -> None:
    trace = blocks(8, 4, 2)
    for at, size in ((2_700, MIB), (2_800, MIB)):  # in the last op
        trace.memory(at, size, address=at, allocated=15 * MIB + (at == 2_800) * MIB, reserved=18 * MIB)
    said = lines_of(trace, limit=limit)
    begin = said.index("alive at the peak: 16.0 MiB not freed") + 1
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
    earlier = f"{before}.00 MiB" if before else "0 B"
    assert said[1] == f"1 allocations, 0 frees; {earlier} before, {12 + before}.0 MiB after"


def test_freed_memory_is_not_alive_and_empty_has_no_share() -> None:
    said = lines_of(blocks(8, -8))
    alive = said[said.index("alive at the peak: 8.00 MiB temporary") + 1]
    assert " ".join(alive.split()) == "8.00 MiB 100.0 % 1 x aten::op0"
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


@pytest.mark.parametrize(("times", "said"), [(0, None), (1, "Out of memory: 1 time."), (2, "Out of memory: 2 times.")])
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
            for key in [key for key in event["args"] if key.startswith("Total")]:
                del event["args"][key]
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
