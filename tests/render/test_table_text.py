"""The table as torch prints it: where names are cut, in which units numbers are, and which columns there are."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest

from traceanalyzer.render.text.table import (
    TableSize,
    format_memory,
    format_share,
    format_time,
    render_table,
    table_markdown,
)
from traceanalyzer.torch_table.printed import PrintedTable

KB = 1024


def table(*names: str, device: str | None = "CUDA", **columns: Any) -> PrintedTable:
    """One row for each name, of two calls, 10 us on the CPU and 4 us on the device."""
    count = len(names)
    rows = {
        "name": list(names),
        "calls": [2] * count,
        "is_async": [False] * count,
        "self_cpu_us": [10.0] * count,
        "cpu_us": [30.0] * count,
        "self_device_us": [4.0] * count,
        "device_us": [6.0] * count,
        **columns,
    }
    frame = pd.DataFrame(rows)
    memory = "cpu_bytes" in columns
    return PrintedTable(frame, device, device is not None, memory, 10.0 * count, 4.0 * count)


def cells(of: PrintedTable, limit: int = -1) -> list[dict[str, str]]:
    """Title -> text for each row, as a page shows the pipe table."""
    lines = [line for line in table_markdown(of, TableSize(limit)).splitlines() if line.startswith("|")]
    parted = [
        [re.sub(r"\\(.)", r"\1", cell).strip() for cell in line.strip("|").split("|")] for line in lines
    ]
    return [dict(zip(parted[0], row, strict=True)) for row in parted[2:]]


@pytest.mark.parametrize(
    ("length", "width", "shown"),
    [
        (51, 55, "k" * 51),
        (52, 55, "k" * 52 + "..."),
        (54, 55, "k" * 52 + "..."),
        (90, 55, "k" * 52 + "..."),
        (9, 12, "k" * 9 + "..."),
        (8, 12, "k" * 8),
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
        (0, "0 B"),
        (1023, "1023 B"),
        (-1023, "-1023 B"),
        (1024, "1.00 KB"),
        (-1024, "-1.00 KB"),
        (KB**2 - 1, "1024.00 KB"),
        (KB**2, "1.00 MB"),
        (KB**3, "1.00 GB"),
        (-5 * KB**3 // 2, "-2.50 GB"),
        (3 * KB**4, "3072.00 GB"),
    ],
)
def test_memory_uses_the_largest_filled_unit_also_freed(size: int, shown: str) -> None:
    assert format_memory(size) == shown


@pytest.mark.parametrize(
    ("us", "shown"),
    [
        (0.0, "0.000us"),
        (999.999, "999.999us"),
        (1_000.0, "1.000ms"),
        (999_999.0, "999.999ms"),
        (1_000_000.0, "1.000s"),
        (-5_000.0, "-5000.000us"),
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
def test_flops_are_in_the_unit_of_the_least_that_is_any(
    flops: list[int], title: str, shown: list[str]
) -> None:
    rows = cells(table("a", "b", flops=flops))
    assert [row[title] for row in rows] == shown


def test_without_any_flops_there_is_no_column_for_them() -> None:
    assert not [title for title in cells(table("a", flops=[0]))[0] if "FLOPs" in title]


def test_each_number_stands_below_its_title() -> None:
    (row, asynchronous) = cells(table("a", "b", is_async=[False, True]))
    assert row == {
        "Name": "a",
        "Self CPU %": "50.00%",
        "Self CPU": "10.000us",
        "CPU total %": "150.00%",
        "CPU total": "30.000us",
        "CPU time avg": "15.000us",
        "Self CUDA": "4.000us",
        "Self CUDA %": "50.00%",
        "CUDA total": "6.000us",
        "CUDA time avg": "3.000us",
        "# of Calls": "2",
    }
    assert asynchronous == {**row, "Name": "b", "CPU total %": "0"}


@pytest.mark.parametrize(
    ("own", "device", "columns"), [(1, "CUDA", 4), (0, "CUDA", 2), (-1, "CUDA", 2), (1, None, 2)]
)
def test_device_memory_is_shown_if_something_allocated(own: int, device: str | None, columns: int) -> None:
    sizes = {name: [1, 2] for name in ("cpu_bytes", "self_cpu_bytes", "device_bytes")}
    made = table("a", "b", device=device, **sizes, self_device_bytes=[0, own])
    assert [title for title in cells(made)[0] if title.endswith("Mem")] == [
        "CPU Mem",
        "Self CPU Mem",
        "CUDA Mem",
        "Self CUDA Mem",
    ][:columns]


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
