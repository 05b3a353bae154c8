"""Single values as exporters write them, and what becomes of each; one odd event among many."""

from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.read.raw_events import of, op
from tests.support.hypothesis_profiles import examples
from traceanalyzer.model.schema import COUNTERS, CPU, GPU, MEMORY, Storage
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.read.columns import collector
from traceanalyzer.read.columns.quirks import (
    ASCEND_TASK,
    FOLDED,
    as_json,
    as_text,
    coerced,
    destination,
    folded,
    head_of,
    lane_number,
    mended,
    problem_of,
    sampled,
)
from traceanalyzer.read.columns.times import durations_ns, start_ns, starts_from_text

GPU_ARGS = {"device": 0, "stream": 7}


def deep(levels: int) -> Any:
    """A list in a list in a list."""
    made: list[Any] = []
    for _ in range(levels - 1):
        made = [made]
    return made


@pytest.mark.parametrize(
    ("category", "event", "where"),
    [
        (None, 7, ("counted", "unreadable")),
        (None, {"name": "[memory]", "ph": "i"}, ("memory", "cpu_instant_event")),
        ("x", {"name": "[OutOfMemory]", "ph": "M"}, ("memory", "cpu_instant_event")),
        (None, {"ph": "M", "name": "process_name"}, ("counted", "metadata")),
        ("Trace", {"ph": "X"}, ("counted", "window mark")),
        (None, {"ph": "i"}, ("counted", "window mark")),
        (None, {"ph": "I"}, ("counted", "window mark")),
        ("mine", {"ph": "i"}, ("counted", "phase i")),
        ("ac2g", {"ph": "s"}, ("counted", "flow:ac2g")),
        (None, {"ph": "t"}, ("counted", "flow:None")),
        ([1], {"ph": "f"}, ("counted", "flow:[1]")),
        ("power", {"ph": "C"}, ("counters", "power")),
        (3, {"ph": "C"}, ("counters", "3")),
        ("mine", {}, ("counted", "no phase")),
        ("mine", {"ph": ""}, ("counted", "no phase")),
        ("mine", {"ph": "B"}, ("counted", "phase B")),
        ("mine", {"ph": "BE"}, ("counted", "no phase that is known")),
        ("mine", {"ph": 3}, ("counted", "no phase that is known")),
        (None, {"ph": "X", "pid": "CPU functions", "args": GPU_ARGS}, ("cpu", "cpu_op")),
        ("mine", {"ph": "X", "pid": "CPU functions"}, ("cpu", "mine")),
        (None, {"ph": "X", "args": {"Task Type": "AI_CORE"}}, ("gpu", ASCEND_TASK)),
        (None, {"ph": "X", "args": ["Task Type"]}, ("cpu", "None")),
        ("mine", {"ph": "X", "args": GPU_ARGS}, ("gpu", "mine")),
        *(
            ("mine", {"ph": "X", "args": args}, ("cpu", "mine"))
            for args in ({"device": 0}, {"stream": 0}, ["device", "stream"], {"Task Type": "AI_CORE"})
        ),
        ("mine", {"ph": "X"}, ("cpu", "mine")),
    ],
)
def test_where_an_event_without_a_known_category_belongs(category: Any, event: Any, where: tuple[str, str]) -> None:
    assert destination(category, event) == where


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        (1.5, 1_500),
        (-2, -2_000),
        (0, 0),
        ("12.345", 12_345),
        (" 7 ", 7_000),
        (Decimal("1700000000000000.125"), 1_700_000_000_000_000_125),
        ("4.5e15", 4_500_000_000_000_000_000),
        (4.5e15, 4_500_000_000_000_000_000),
        *((value, NULL_INT) for value in ("4.6e15", 4.6e15, -4.6e15, "-4.6e15", "soon", "nan", True, None, [1])),
    ],
)
def test_one_start(value: Any, ns: int) -> None:
    assert start_ns({"ts": value}) == ns


def test_what_is_no_event_or_no_text_has_no_start() -> None:
    assert start_ns([3]) == start_ns({}) == NULL_INT
    text = b'{"ts": 1700000000000000.123}, {"ts": "2"}, 5'
    assert starts_from_text(text) == [1_700_000_000_000_000_123, 2_000, NULL_INT]
    assert starts_from_text(b'{"ts": ') is None
    assert starts_from_text(b"[" * 100_000) is None
    assert starts_from_text(b"") == []


def test_durations_that_cannot_be_are_nothing_and_counted() -> None:
    """The longest is a base period: 7,889,238 s."""
    longest = 7_889_238e6
    us = np.array([0.0, 1.5, longest, np.nextafter(longest, np.inf), -0.001, np.nan, np.inf])
    ns, impossible = durations_ns(us)
    assert ns.tolist() == [0, 1_500, 7_889_238 * 10**9, 0, 0, 0, 0]
    assert impossible == 4


@pytest.mark.parametrize(
    ("event", "frame", "start", "problem"),
    [
        ("x", "cpu", 0, "unreadable"),
        ({"dur": 1}, "cpu", NULL_INT, "no timestamp"),
        ({"dur": 1}, "memory", NULL_INT, "no timestamp"),
        ({"args": {"a": 1}}, "counters", NULL_INT, "no timestamp"),
        ({"args": {"a": 1}}, "counters", 0, None),
        ({"args": {"a": "x"}}, "counters", 0, "no value"),
        ({"ph": "i"}, "memory", 0, None),
        ({"ph": "i", "dur": 1}, "cpu", 0, "phase i"),
        ({"ph": "X", "dur": 1}, "cpu", 0, None),
        ({"dur": "2.5"}, "gpu", 0, None),
        ({"ph": "X"}, "gpu", 0, "no duration"),
        *(({"dur": dur}, "gpu", 0, "no duration") for dur in (None, "long", 10**400)),
    ],
)
def test_why_an_event_is_no_row(event: Any, frame: str, start: int, problem: str | None) -> None:
    assert problem_of(event, frame, start) == problem


@pytest.mark.parametrize(
    ("args", "key"),
    [({"a": 1}, "a"), ({"a": "x", "b": "2.5", "c": 3}, "b"), ({"a": None}, None), ({}, None), (7, ""), (None, None)],
)
def test_the_first_number_of_a_counter_is_its_sample(args: Any, key: str | None) -> None:
    assert sampled({"args": args}) == key


@pytest.mark.parametrize(
    ("storage", "value", "stored"),
    [
        (Storage.INT, 3, 3),
        (Storage.INT, "3", 3),
        (Storage.INT, 3.0, 3),
        *((Storage.INT, value, None) for value in (3.5, "3.5", "0xzz", 2**63, float("inf"), None, [1])),
        (Storage.INT, "0x1f", 31),
        (Storage.INT, 2**63 - 1, 2**63 - 1),
        (Storage.INT, 1 - 2**63, 1 - 2**63),
        (Storage.INT, -(2**63), None),  # which stands for none
        (Storage.FLOAT, 3, 3.0),
        (Storage.FLOAT, "3.5", 3.5),
        (Storage.FLOAT, "0x10", 16.0),
        (Storage.FLOAT, "many", None),
        (Storage.FLOAT, 10**400, None),
        (Storage.TEXT, "a", "a"),
        (Storage.TEXT, [1, "a"], '[1,"a"]'),
        (Storage.TEXT, None, None),
        (Storage.JSON, "a", '"a"'),
        (Storage.JSON, {"a": 1}, '{"a":1}'),
    ],
)
def test_a_value_is_stored_as_its_column_does(storage: Storage, value: Any, stored: Any) -> None:
    result = coerced(storage, value)
    assert (result, type(result)) == (stored, type(stored))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((value, 7) for value in (7, 7.0, "stream 7", "stream  7 ")),
        (-7, -7),
        (2**63 - 1, 2**63 - 1),
        *((value, NULL_INT) for value in (2**63, True, 7.5, 1e300, "9" * 19, "7a", "--7", "", None)),
        ("25738", 25_738),
        ("-3", -3),
        ("9" * 18, int("9" * 18)),
    ],
)
def test_a_lane_is_a_number_or_a_name(value: Any, number: int) -> None:
    assert lane_number(value) == number


def test_values_as_text() -> None:
    assert [as_text(value) for value in ("a", 1, 1.5, None, [1, "b"], {"a": None})] == [
        *("a", "1", "1.5", "None"),
        *('[1,"b"]', '{"a":null}'),
    ]
    assert as_json(deep(300)) == '"nested too deep"'
    assert head_of({"name": ["f"], "pid": 1.5, "ts": 3}) == ('["f"]', 1.5, None)


def test_a_row_is_mended_arg_by_arg() -> None:
    """Blanks are no value and nothing odd; what has no column stays as it is unless it is too deep."""
    anomalies: Counter[str] = Counter()
    args = {
        "correlation": "12",
        "External id": "None",
        "bytes": "many",
        "odd": [1],
        "device": None,
        "deep": deep(65),
        "shallow": deep(64),
    }
    row = mended({"name": "k", "dur": "2.5", "args": args}, GPU, anomalies)
    assert row == {"name": "k", "dur": 2.5, "args": {"correlation": 12, "odd": [1], "shallow": deep(64)}}
    assert anomalies == {"unreadable bytes": 1, "nested too deep: deep": 1}
    assert args["correlation"] == "12"


@pytest.mark.parametrize(("args", "kept"), [(None, {}), ([1], {"args": [1]}), ("x", {"args": "x"}), ({}, {})])
def test_args_that_are_no_object_are_one_arg(args: Any, kept: Any) -> None:
    assert mended({"dur": 1, "args": args}, CPU, Counter()) == {"dur": 1.0, "args": kept}
    assert mended({"args": args}, MEMORY, Counter()) == {"args": kept}


def test_args_are_folded_to_the_same_keys() -> None:
    """What recurs is there or null, what does not recur is there if it is, all else is one arg."""
    row = folded({"name": "k", "args": {"correlation": 3, "stream": 7, "mine": 1, "yours": 2}}, GPU)
    args = dict(row["args"])
    assert args.pop(FOLDED) == {"mine": 1, "yours": 2}
    assert args.pop("correlation") == 3
    assert args["stream"] == 7
    recurring = {key for key, column in GPU.by_raw_key.items() if column.recurs}
    assert set(args) == recurring
    assert {value for key, value in args.items() if key != "stream"} == {None}
    assert row["name"] == "k"


@pytest.mark.parametrize(("more", "others"), [({}, {}), ({"b": 2}, {"b": 2}), ({"b": 2, "c": "x"}, {"b": 2, "c": "x"})])
def test_what_else_a_counter_samples_is_kept(more: dict[str, Any], others: dict[str, Any]) -> None:
    row = mended({"name": "n", "args": {"a": "1.5", **more}}, COUNTERS, Counter())
    assert row["args"] == {"key": "a", "value": 1.5, **({"others": others} if others else {})}


@examples(50)
@given(st.lists(st.sampled_from([3, 3, 3, 3, 3, 3, "5", None, 2**70]), min_size=1, max_size=60))
def test_unusual_values_among_usual_ones_leave_those_alone(values: list[Any]) -> None:
    trace = of(*(op(name=f"op{i}", args={"External id": value}) for i, value in enumerate(values)))
    expected = [None if value == 2**70 or value is None else int(value) for value in values]
    assert [None if found is pd.NA else found for found in trace.cpu["external_id"]] == expected
    assert trace.cpu["name"].tolist() == [f"op{i}" for i in range(len(values))]
    assert trace.meta.anomalies == ({"unreadable External id": values.count(2**70)} if 2**70 in values else {})


def test_only_neighbours_of_an_unusual_value_are_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mending one takes as long as packing a hundred; a root's parent is null once for every thread and recording."""
    seen = []
    monkeypatch.setattr(collector.quirks, "mended", lambda event, *_: seen.append(event) or mended(event, *_))
    many = [op(args={"External id": 5 if i != 700 else None}) for i in range(1_000)]
    assert of(*many).cpu["external_id"].isna().sum() == 1
    assert len(seen) <= 8
    assert many[700] in seen


def test_events_after_one_that_is_no_row_keep_their_ids() -> None:
    """The second has no time, and the last a number that is a text."""
    args = [{"External id": value} for value in (3, 4, 5, "6")]
    trace = of(*(op(name=f"op{i}", args=one, ts=None if i == 1 else 5.0 + i) for i, one in enumerate(args)))
    assert trace.cpu["name"].tolist() == ["op0", "op2", "op3"]
    assert trace.cpu["event_id"].tolist() == [0, 2, 3]
    assert trace.cpu["external_id"].tolist() == [3, 5, 6]
