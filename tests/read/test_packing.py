"""Rows of one category: parted by their args, packed into buffers, and left out where their times cannot be."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from traceanalyzer.model.schema import COUNTERS, CPU, GPU, Frame
from traceanalyzer.read.columns.corrections import drop_misplaced
from traceanalyzer.read.columns.packing import UNFIT, RowGroup, Rows

SECOND = 10**9


MINUTE, HOUR = 60 * SECOND, 3600 * SECOND


def rows(args: Sequence[Any], starts: Any = None, durations: Any = None) -> Rows:
    """Rows with the ids 10, 11, ... and the heads 20, 21, ..., 5 us each from 1 us on."""
    at = np.arange(len(args))
    return Rows(
        args,
        at + 10,
        (at + 20).astype(np.int32),
        np.asarray(at + 1.0 if starts is None else starts),
        np.asarray(at * 0.0 + 5 if durations is None else durations),
    )


def ids(parts: Any) -> list[list[int]]:
    return [part.ids.tolist() for part in parts]


def test_rows_are_split_by_number_and_names_of_args() -> None:
    args = [{"a": 1}, {"b": 1}, {}, {"a": 2, "b": 2}, {"b": 3}, {"b": 4, "a": 4}]
    assert ids(rows(args).by_size()) == [[12], [10, 11, 14], [13, 15]]
    assert ids(rows(args).by_keys()) == [[10], [11, 14], [12], [13, 15]]
    (part,) = [one for one in rows(args).by_size() if len(one.args) == 2]
    assert part.args == [args[3], args[5]]
    assert (part.heads.tolist(), part.starts.tolist()) == ([23, 25], [4.0, 6.0])


def test_rows_of_one_size_are_not_copied() -> None:
    every = rows([{"a": 1}, {"b": 1}])
    assert next(every.by_size()) is every
    assert ids(rows([{"a": 1}]).by_size()) == [[10]]


@pytest.mark.parametrize("size", [255, 256, 700])
def test_args_may_be_very_many(size: int) -> None:
    many = dict.fromkeys(map(str, range(size)))
    assert ids(rows([many, {"a": 1}, many]).by_size()) == [[11], [10, 12]]


def test_args_that_are_no_object_have_no_keys() -> None:
    with pytest.raises(TypeError):
        list(rows([{"a": 1}, ["a"]]).by_keys())


def group(keys: str, frame: Frame = GPU) -> RowGroup:
    return RowGroup(frame, "kernel", frozenset(keys.split()))


def test_rows_are_packed_into_their_columns() -> None:
    made = group("correlation stream mine yours cbid")
    first = {"correlation": 7, "stream": 3, "mine": [1], "yours": "x", "cbid": 1}
    made.add(rows([first, {**first, "correlation": 8, "cbid": 2}]))
    made.add(rows([{**first, "stream": 4, "mine": None}]))
    assert made.rows == 3
    assert made.array("id").tolist() == [10, 11, 10]
    assert made.array("head").tolist() == [20, 21, 20]
    assert made.array("start").tolist() == [1.0, 2.0, 1.0]
    assert made.array("correlation").tolist() == [7, 8, 7]
    assert made.array("known").tolist() == [0, 0, 1]
    assert made.array("other").tolist() == [0, 0, 1]
    assert made.shared["known"].keys == ("stream",)
    assert [tuple(one) for one in made.shared["known"].values()] == [(3,), (4,)]
    assert [tuple(one) for one in made.shared["other"].values()] == [([1], "x"), (None, "x")]


@pytest.mark.parametrize(
    "odd",
    [
        {"correlation": 7},
        {"correlation": 7, "cbid": 1},
        {"stream": 1, "cbid": 1},
        {"correlation": 1.5, "stream": 1, "cbid": 1},
        {"correlation": 2**63, "stream": 1, "cbid": 1},
        {"correlation": "7", "stream": 1, "cbid": 1},
        {"correlation": 7, "stream": 1},
        {"correlation": 7, "stream": 1, "other": 1},
    ],
)
def test_an_odd_row_keeps_out_all_that_come_with_it(odd: dict[str, Any]) -> None:
    made = group("correlation stream cbid")
    usual = {"correlation": 7, "stream": 3, "cbid": 0}
    made.add(rows([usual]))
    with pytest.raises(UNFIT):
        made.add(rows([usual, odd]))
    assert made.rows == 1
    assert {name: len(made.array(name)) for name in made.buffers} == dict.fromkeys(made.buffers, 1)


@pytest.mark.parametrize("odd", ["", [], None])
def test_rows_without_args_have_empty_ones(odd: Any) -> None:
    made = group("", CPU)
    made.add(rows([{}, {}]))
    with pytest.raises(UNFIT):
        made.add(rows([{}, odd]))
    assert made.rows == 2


@pytest.mark.parametrize("first", ["us", "ns"])
def test_starts_are_exact_from_where_a_text_had_to_be_read(first: str) -> None:
    """Later rows may come as doubles again."""
    late = 1_700_000_000_000_000_123
    kinds = {"us": np.array([1.5, 2.25]), "ns": np.array([late], np.int64)}
    made = group("", CPU)
    for kind in (first, "ns" if first == "us" else "us", "us"):
        made.add(rows([{}] * len(kinds[kind]), kinds[kind], [1.0] * len(kinds[kind])))
    us = [1_500, 2_250]
    assert made.array("start").tolist() == ([*us, late, *us] if first == "us" else [late, *us, *us])
    assert made.finish() == 0
    assert made.array("dur").tolist() == [1_000] * 5


def test_times_are_settled_in_place_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceanalyzer.read.columns.packing._ROWS_AT_ONCE", 2)
    made = group("", CPU)
    made.add(rows([{}] * 5, [0.5, 1.5, 2.5, 3.5, 4.5], [-1.0, 0.25, 1.0, float("nan"), -2.0]))
    assert made.finish() == 3
    assert made.array("start").tolist() == [500, 1_500, 2_500, 3_500, 4_500]
    assert made.array("dur").tolist() == [0, 250, 1_000, 0, 0]


def test_another_part_is_taken_over_and_emptied() -> None:
    parts = [group("correlation"), group("correlation")]
    for number, part in enumerate(parts):
        part.add(rows([{"correlation": number}, {"correlation": number + 5}]))
    parts[1].settle_starts()
    buffers: dict[str, Any] = dict(parts[1].buffers)
    parts[0].absorb(2, buffers)
    assert (parts[0].rows, buffers) == (4, {})
    assert parts[0].array("correlation").tolist() == [0, 5, 1, 6]
    assert parts[0].array("start").tolist() == [1_000, 2_000] * 2


def test_only_recurring_numbers_can_be_unreadable() -> None:
    made = group("stream grid")
    values: list[Any] = ["x", 3, "x", None, "", "None", "7", 2.5]
    made.add(rows([{"stream": value, "grid": "odd"} for value in values]))
    assert sorted(made.unreadable()) == [("stream", 1), ("stream", 2)]
    made.keep(np.array([True, True] + [False] * 6))
    assert list(made.unreadable()) == [("stream", 1)]
    assert list(group("mine").unreadable()) == list(group("grid").unreadable()) == []


def test_rows_that_are_kept_keep_all_their_columns() -> None:
    made = group("correlation stream")
    made.add(rows([{"correlation": at, "stream": at % 2} for at in range(4)]))
    made.keep(np.array([False, True, False, True]))
    assert made.rows == 2
    assert made.array("id").tolist() == [11, 13]
    assert made.array("correlation").tolist() == [1, 3]
    assert made.array("known").tolist() == [1, 1]


def lane(frame: Frame, starts: Sequence[int], dur: int = SECOND) -> tuple[Any, RowGroup]:
    """Rows of one lane at these ns, each of a second."""
    made = group("", frame)
    given = np.array(starts, np.int64)
    if len(given):
        made.add(rows([{}] * len(given), given, np.zeros(len(given))))
    made.finish()
    made.buffers["dur"] = bytearray(np.full(len(given), dur, np.int64).tobytes())
    return (frame.name, "rows", frozenset[str]()), made


def left(groups: Sequence[tuple[Any, RowGroup]], recorded: tuple[int, int] | None) -> tuple[list[int], dict[str, int]]:
    """How many rows stay in each lane, and what is counted."""
    counted = drop_misplaced(dict(groups), recorded)
    return [one.rows for _, one in groups], dict(counted)


BEGIN = 1_000 * HOUR


def test_device_rows_at_time_zero_have_no_device_time() -> None:
    cpu, gpu = lane(CPU, [BEGIN] * 5 + [0]), lane(GPU, [BEGIN, 0, 0, 5])
    kept, counted = left([cpu, gpu], (BEGIN, BEGIN + SECOND))
    assert (kept, counted) == ([5, 1], {"no device time": 2, "outside the recording": 2})


@pytest.mark.parametrize(("elsewhere", "believed"), [(2, True), (3, False)])
def test_what_was_recorded_is_believed_where_most_rows_are_in_it(elsewhere: int, believed: bool) -> None:
    """Else where the bulk of the CPU lane is; of so few rows, all are."""
    cpu = lane(CPU, [BEGIN] * 3 + [BEGIN + HOUR] * elsewhere)
    assert left([cpu], (BEGIN, BEGIN + SECOND))[0] == [3 if believed else 3 + elsewhere]


@pytest.mark.parametrize(("away", "stays"), [(HOUR, 1), (HOUR + 1, 0)])
def test_rows_lie_within_an_hour_of_most_ops(away: int, stays: int) -> None:
    cpu, gpu = lane(CPU, [BEGIN] * 40 + [BEGIN + away]), lane(GPU, [BEGIN - away])
    assert left([cpu, gpu], None)[0] == [40 + stays, stays]


@pytest.mark.parametrize("frames", [(GPU, COUNTERS), (COUNTERS,)])
def test_without_ops_the_bulk_of_another_lane_tells(frames: Sequence[Frame]) -> None:
    groups = [lane(frame, [BEGIN] * 40 + [BEGIN + 2 * HOUR]) for frame in frames]
    assert left([lane(CPU, []), *groups], None)[0] == [0] + [40] * len(frames)
    assert left([lane(CPU, [])], None) == ([0], {})


@pytest.mark.parametrize(
    ("kernels", "spread", "astray", "stays"),
    [
        (20, 0, 0, True),
        (19, 0, 0, False),  # may be outliers
        (40, 0, 2, False),  # 95 % elsewhere
        (41, 0, 2, True),
        (20, 2 * MINUTE + SECOND, 0, True),
        (20, 2 * MINUTE + SECOND + 1, 0, False),  # further apart than the recording is long
    ],
)
def test_a_device_whose_clock_is_wrong_keeps_its_rows(kernels: int, spread: int, astray: int, stays: bool) -> None:
    """Those that lie where they should, or have no time, do not count."""
    there = BEGIN + 100 * HOUR
    starts = [BEGIN] * astray + [there] * (kernels - astray - 3) + [there + spread] * 3
    cpu, gpu = lane(CPU, [*[BEGIN] * 100, 0]), lane(GPU, [*starts, 0, 0])
    kept, _ = left([cpu, gpu], (BEGIN, BEGIN + SECOND))
    assert kept == [100, kernels + 2 if stays else astray]
