"""What traces declare of threads, processes and their own span; starts of a batch; and columns as they are stored."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from traceanalyzer.model.lanes import NULL_INT32, Narrow, Table
from traceanalyzer.model.schema import Storage
from traceanalyzer.model.trace import NULL_INT
from traceanalyzer.read.columns.collector import (
    FATES,
    Declared,
    Events,
    args_of,
    durations_of,
    fates_of,
    starts_ns,
    starts_of,
)
from traceanalyzer.read.columns.frames import categorical, first_of, looked_up, narrowed, stored

SPAN = {"cat": "Trace", "name": "PyTorch Profiler (0)", "dur": 3.0}


def declared(*events: dict[str, Any]) -> Declared:
    made = Declared()
    for event in events:
        made.add(event, 1_000)
    return made


def process(pid: Any, **args: Any) -> dict[str, Any]:
    (key,) = args
    return {"name": {"name": "process_name", "labels": "process_labels"}[key], "pid": pid, "args": args}


@pytest.mark.parametrize(
    ("events", "pid", "device"),
    [
        *(([], pid, device) for pid, device in ((0, 0), (63, 63), ("7", 7), ("GPU 12", 12))),
        *(([], pid, None) for pid in (64, -1, "GPU 12345", "stream")),
        ([process(0, labels="CPU")], 0, None),
        ([process(0, name="CPU")], 0, 0),
        ([process(500, labels="GPU 3")], 500, 3),
        ([process(500, name="GPU 3")], 500, 3),
        ([process("500", name="GPU 3")], 500, 3),
        ([process(500, labels="GPU 3"), process(500, name="GPU 4")], 500, 3),
        ([process(500, labels="GPU 3"), process(500, labels="GPU 4")], 500, 4),
        ([process(500, labels="GPU 3"), process(501, labels="GPU 4")], 500, 3),
        ([process(5, labels="GPU 15 of node")], 5, 15),
        ([process(4321, labels="GPU 1023")], 4321, 1023),
        ([process(5, labels="a GPU 15")], 5, 5),
        ([process(5, labels="GPU 15x")], 5, 5),
        ([process("GPU 2", labels="GPU 3")], "GPU 2", 3),
    ],
)
def test_process_is_a_device_by_label_name_or_number(
    events: list[dict[str, Any]], pid: Any, device: int | None
) -> None:
    assert declared(*events).device_of(pid) == device


def test_a_processs_name_goes_before_labels_in_one_event() -> None:
    both = {"name": "process_name", "pid": 1, "args": {"name": "GPU 2", "labels": "GPU 3"}}
    assert declared(both).processes == {"1": {"process_name": "GPU 2"}}
    assert declared({**both, "args": {"name": "", "labels": "b"}}).processes == {"1": {"process_name": "b"}}
    assert declared({**both, "args": ["GPU 2"]}).processes == {}


def test_threads_have_the_name_that_was_declared_last() -> None:
    named = [{"name": "thread_name", "pid": 1, "tid": 2, "args": {"name": name}} for name in ("a", " b ")]
    assert declared(*named, {**named[0], "tid": "x"}).threads == {"1/2": "b", "1/x": "a"}
    assert declared({**named[0], "args": {}}, {**named[0], "tid": 3, "args": 5}).threads == {"1/2": ""}


@pytest.mark.parametrize(
    ("changes", "start", "window"),
    [
        ({}, 1_000, (1_000, 4_000)),
        ({"dur": "2"}, 1_000, (1_000, 3_000)),
        *(({"name": name}, 1_000, None) for name in ("PyTorch Something", None)),
        *(({"dur": dur}, 1_000, None) for dur in (-1, 1e300, None, "long")),
        ({}, NULL_INT, None),
    ],
)
def test_the_span_that_was_recorded(changes: dict[str, Any], start: int, window: Any) -> None:
    made = Declared()
    made.add({**SPAN, **changes}, start)
    assert made.window_ns == window


def test_first_declared_span_and_later_parts_are_joined() -> None:
    first = declared(SPAN, process(1, name="a"), process(1, labels="b"))
    first.add({**SPAN, "dur": 9.0}, 2_000)
    first.threads = {"1/1": "old", "1/2": "kept"}
    later = declared({**SPAN, "dur": 5.0}, process(1, name="c"), process(2, name="d"))
    later.threads = {"1/1": "new"}
    first.update(later)
    assert first.window_ns == (1_000, 4_000)
    assert first.threads == {"1/1": "new", "1/2": "kept"}
    assert first.processes == {"1": {"process_name": "c", "process_labels": "b"}, "2": {"process_name": "d"}}
    (empty := Declared()).update(later)
    assert empty.window_ns == (1_000, 6_000)


# -- starts, args and durations --------------------------------------------------------------------------

LATE = 1_700_000_000_000_000


def refused() -> bytes:
    raise AssertionError("the text is not needed")


@pytest.mark.parametrize(
    ("ts", "text", "starts"),
    [
        ([1.5, 2], refused, [1.5, 2.0]),
        ([2.0**43, 0.5], refused, [2.0**43, 0.5]),
        ([LATE, LATE + 1], refused, [LATE * 1_000, LATE * 1_000 + 1_000]),  # whole microseconds
        ([float(LATE) + 0.25], lambda: b'{"ts": 1700000000000000.123}', [LATE * 1_000 + 123]),
        ([float(LATE) + 0.25], lambda: b'{"ts": ', [LATE * 1_000 + 250]),  # damaged
        ([float(LATE) + 0.25], lambda: b'{"ts": 1}, {"ts": 2}', [LATE * 1_000 + 250]),  # others
        ([1.5, "2.5"], refused, [1_500, 2_500]),
        *(([1.5, odd], refused, [1_500, NULL_INT]) for odd in (None, float("nan"), 4.6e15, -4.6e15)),
        ([], refused, []),
    ],
)
def test_starts_are_doubles_for_as_long_as_these_are_exact(
    ts: list[Any], text: Callable[[], bytes], starts: list[Any]
) -> None:
    found = starts_of([{"ts": one} for one in ts], text)
    assert found.tolist() == starts
    assert found.dtype == (np.float64 if ts in ([], [1.5, 2], [2.0**43, 0.5]) else np.int64)
    assert starts_ns(found).dtype == np.int64
    if ts == [1.5, 2]:
        assert starts_ns(found).tolist() == [1_500, 2_000]


def test_an_event_without_args_has_empty_ones() -> None:
    assert args_of([{"args": {"a": 1}}, {"args": {}}]) == [{"a": 1}, {}]
    assert args_of([{"args": {"a": 1}}, {}, {"args": None}]) == [{"a": 1}, {}, {}]


@pytest.mark.parametrize(("frame", "us"), [("cpu", 2.5), ("gpu", 2.5), ("memory", 0.0), ("counters", 0.0)])
def test_instants_have_no_duration(frame: str, us: float) -> None:
    assert durations_of(frame, [{"dur": 2.5}] * 2).tolist() == [us] * 2


@pytest.mark.parametrize(
    ("batch", "fates"),
    [
        (["kernel"] * 3, [("gpu", "kernel")] * 3),
        (["kernel", "ac2g", "kernel"], [("gpu", "kernel"), ("counted", "flow:ac2g"), ("gpu", "kernel")]),
        (["async_gpu", "fwdbwd"], [("counted", "flow:async_gpu"), ("counted", "flow:fwdbwd")]),
        (["kernel", None, [1]], [("gpu", "kernel"), ("", ""), ("", "")]),
        (["mine"], [("", "")]),
        ([], []),
    ],
)
def test_what_becomes_of_each_event_of_a_batch(batch: list[Any], fates: list[Any]) -> None:
    events = [{"cat": category} for category in batch]
    assert [FATES[code] for code in fates_of(events)] == fates
    assert [FATES[code] for code in fates_of([*events, {}, 7])] == [*fates, ("", ""), ("", "")]


def test_some_events_of_a_batch_keep_their_ids_and_starts() -> None:
    batch = list("abcde")
    some = Events(batch, 100, np.array([1, 2, 4]), np.array([10, 20, 40]))
    assert (list(some.all), some.ids.tolist()) == (["b", "c", "e"], [101, 102, 104])
    one = some.take(np.array([2, 0]))
    assert (list(one.all), one.ids.tolist(), one.starts.tolist()) == (["e", "b"], [104, 101], [40, 10])
    assert Events(batch, 0, np.arange(5), np.arange(5)).all is batch


# -- columns ---------------------------------------------------------------------------------------------

LARGE = 2**31 - 1


@pytest.mark.parametrize(
    ("numbers", "narrow"),
    [
        ([0, LARGE], True),
        ([0, LARGE + 1], False),
        ([-LARGE, NULL_INT], True),
        ([NULL_INT32, 0], False),  # which stands for none in 32 bits
        ([NULL_INT], True),
        ([], True),
    ],
)
def test_numbers_are_kept_in_32_bits_where_all_fit(numbers: list[int], narrow: bool) -> None:
    kept: Any = stored(np.array(numbers, np.int64))
    assert isinstance(kept, Narrow) is narrow
    assert (kept.wide() if narrow else kept).tolist() == numbers


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 32_768, 32_769])
def test_codes_are_as_narrow_as_their_number_allows(size: int) -> None:
    codes = narrowed(np.array([-1, max(size - 1, 0)], np.int32), size)
    assert codes.tolist() == [-1, max(size - 1, 0)]
    assert codes.dtype.itemsize == (1 if size < 128 else 2 if size < 32_768 else 4)


def test_values_are_looked_up_and_code_minus_one_is_none() -> None:
    codes = np.array([1, -1, 0, 2], np.int8)
    assert looked_up(codes, [5, None, 7], Storage.INT).wide().tolist() == [NULL_INT, NULL_INT, 5, 7]
    own = Table(np.array([0, 1]), np.array([NULL_INT, 4]))
    assert first_of(own, Table(np.array([0, 0]), np.array([9]))).tolist() == [9, 4]
    assert first_of(None, own).tolist() == [NULL_INT, 4]


def test_only_texts_that_occur_are_kept_and_sorted() -> None:
    made = categorical(np.array([2, -1, 0, 3, 2, 4], np.int32), ["b", "unused", "a", None, "b"])
    assert made.texts.tolist() == ["a", "b"]
    assert made.codes.tolist() == [0, -1, 1, -1, 0, 1]
