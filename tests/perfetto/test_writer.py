"""The file format itself: numbers, texts from hostile traces, slices that overlap."""

import io
import json
from collections import Counter as Tally
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.perfetto.drawn import drawn, track, written
from tests.perfetto.reader import pb, read
from traceanalyzer.model.overlay import Counter, Slices
from traceanalyzer.render.perfetto import track_events as wire
from traceanalyzer.render.perfetto.chrome import merged, to_chrome_events
from traceanalyzer.render.perfetto.track_events import (
    NAME_LENGTH,
    VALUE_LENGTH,
    lanes,
    shown_name,
    shown_value,
    to_track_events,
)
from traceanalyzer.render.words.escape import JOINED

HOSTILE = st.one_of(
    st.text(st.characters(), max_size=30),
    st.sampled_from(["<script>alert(1)</script>", "aten::\x1b[31mred\u202egnirts\x07\u2028\x9b2J"]),
    st.sampled_from(["\ud800 half of a pair", "\0", '"quoted\\"', "x" * 100_000, ""]),
)
TIMES = st.integers(0, (1 << 62) - 1)


@given(st.lists(st.integers(0, (1 << 63) - 1), max_size=5))
def test_padded_numbers_read_as_themselves(values: list[int]) -> None:
    table = wire.padded(np.array(values, np.int64))
    for value, row in zip(values, table, strict=True):
        packet = pb.TracePacket()
        packet.ParseFromString(wire.varint(8 << 3) + row.tobytes())
        assert packet.timestamp == value


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.text(), st.floats(allow_nan=False), st.integers(0, (1 << 64) - 1))
def test_fields_read_as_themselves(number: int, text: str, real: float, whole: int) -> None:
    annotation, event = pb.DebugAnnotation(), pb.TrackEvent()
    annotation.ParseFromString(wire.number(4, number))
    assert annotation.int_value == number
    annotation.ParseFromString(wire.text(6, text.encode("utf-8", "replace").decode()))
    assert annotation.string_value == text.encode("utf-8", "replace").decode()
    annotation.ParseFromString(wire.double(5, real))
    assert annotation.double_value == real
    event.ParseFromString(wire.fixed64(47, whole))
    assert list(event.flow_ids) == [whole]


@example("", "", JOINED, "")
@given(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
def test_texts_arrive_as_characters(name: str, key: str, value: str, about: str) -> None:
    """In both formats: what moves the cursor or turns the direction of writing is an escape, what is endless is cut."""
    places = (np.array([n]) for n in (1, 2, 0))
    overlay = drawn(Slices("t", *places, [name], [{key: value}], own=[{"own": value}], about=about))
    (found,) = read(written(overlay)).slices["t"]
    assert found.name == shown_name(name)
    expected = {shown_name(key): shown_value(value)} | {"own": shown_value(value)}
    assert found.args == expected
    (event,) = (event for event in map(json.loads, to_chrome_events(overlay)) if event["ph"] == "X")
    assert event["name"] == shown_name(name)
    assert event["args"] == expected
    for text in (found.name, *found.args.values()):
        assert text.replace(JOINED, "").isprintable()
    assert len(found.name) <= 12 * NAME_LENGTH
    assert len(found.args["own"]) <= 12 * VALUE_LENGTH


def test_names_say_what_was_there() -> None:
    assert shown_name("<script>") == "<script>"
    assert shown_name("a\u202eb\0") == r"a\u202eb\x00"
    assert shown_value("\ud800") == r"\ud800"


@given(st.lists(st.tuples(TIMES, st.integers(0, 1000)), max_size=30))
def test_slices_of_one_track_never_overlap(spans: list[tuple[int, int]]) -> None:
    """Whatever overlaps is drawn side by side, and comes back as it was; `read` refuses overlaps."""
    whole = [(start, start + length) for start, length in spans]
    for more in ({}, {"own": [{"n": at} for at in range(len(whole))]}):
        found = read(written(drawn(track(whole, **more)))).slices["track"]
        assert Tally((one.start_ns, one.end_ns) for one in found) == Tally(whole)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=25))
def test_lanes_are_as_few_as_can_be(spans: list[tuple[int, int]]) -> None:
    whole = sorted((start, start + length) for start, length in spans)
    start, end = (np.array([span[side] for span in whole], np.int64) for side in (0, 1))
    lane = lanes(start, end)
    deepest = max((sum(s <= at < e for s, e in whole) for at in range(90)), default=0)
    assert lane.max(initial=-1) + 1 <= max(deepest, 1 if whole else 0) + sum(s == e for s, e in whole)
    for one in set(lane.tolist()):
        own = lane == one
        assert np.all(start[own][1:] >= end[own][:-1])


def test_what_is_before_time_zero_is_left_out() -> None:
    counter = Counter("c", np.array([-1, 4]), np.array([1.0, 2.0]), "bytes")
    overlay = drawn(track([(-5, 3), (7, 9)]), counters=(counter,))
    drawing = read(written(overlay))
    assert [(one.start_ns, one.end_ns) for one in drawing.slices["track"]] == [(7, 9)]
    assert drawing.counters["c"] == [(4, 2.0)]
    events = [*map(json.loads, to_chrome_events(overlay))]
    assert [event["ts"] for event in events if event["ph"] in "XC"] == [0.007, 0.004]


def test_kinds_of_details() -> None:
    kept = {"flag": True, "count": -3, "share": 0.25, "ids": (4, 5), "none": ()}
    args = kept | {"huge": 1 << 70, "odd": float("nan")}
    (found,) = read(written(drawn(track([(1, 2)], own=[args])))).slices["track"]
    assert found.args == kept | {"huge": str(1 << 70), "odd": "nan"}


def test_ids_of_a_job_do_not_meet() -> None:
    """Tracks and arrows of two overlays that are opened together."""
    overlay = drawn(track([(1, 2), (3, 4)], arrows=[[0], [0]]))
    ids: list[set[int]] = []
    for position in range(2):
        trace = pb.Trace()
        trace.ParseFromString(b"".join(to_track_events(overlay, position)))
        events = [packet.track_event for packet in trace.packet]
        described = [packet for packet in trace.packet if packet.HasField("track_descriptor")]
        tracks = {packet.track_descriptor.uuid for packet in described}
        ids.append(tracks | {arrow for event in events for arrow in event.flow_ids})
    assert not ids[0] & ids[1]


@given(st.lists(st.tuples(TIMES, st.integers(0, 5)), max_size=20))
def test_json_slices_do_not_overlap_as_doubles(spans: list[tuple[int, int]]) -> None:
    """Perfetto up to v56 multiplies doubles of microseconds, and drops what overlaps then."""
    whole = [(start, start + length) for start, length in spans]
    events = [*map(json.loads, to_chrome_events(drawn(track(whole))))]
    by_thread: dict[int, list[tuple[int, int]]] = {}
    for event in events:
        if event["ph"] == "X":
            start, length = int(event["ts"] * 1000.0), int(event["dur"] * 1000.0)
            by_thread.setdefault(event["tid"], []).append((start, start + length))
    for rows in by_thread.values():
        rows.sort()
        assert all(first[1] <= second[0] or first == second for first, second in pairwise(rows))


def test_json_arrows_go_from_the_earlier_to_the_later() -> None:
    overlay = drawn(
        track([(10, 20)], "a", arrows=[[1]]),
        track([(12, 18)], "b", arrows=[[1, 2]]),
        track([(12, 30)], "c", arrows=[[2]]),
    )
    arrows = [event for event in map(json.loads, to_chrome_events(overlay)) if event["ph"] in "sf"]
    ends = [(event["id"], event["ph"], event["ts"]) for event in arrows]
    assert ends == [(1, "s", 0.010), (1, "f", 0.012), (2, "s", 0.012), (2, "f", 0.012)]


@pytest.mark.parametrize(
    ("head", "rest"),
    [
        (b'{"traceEvents": [', [b'\n {"ph":"X"}', b"]}"]),
        (b"[", [b" ", b"  ", b"]"]),
        (b"[", [b'{"ph":"X"},', b'{"ph":"M"}]']),
        (b"[", [b""]),
    ],
)
@pytest.mark.parametrize("events", [[], [b'{"a":1}'], [b'{"a":1}', b'{"a":2}']])
def test_events_are_put_before_the_others(head: bytes, rest: list[bytes], events: list[bytes]) -> None:
    whole = b"".join(merged(head, events, rest))
    assert whole.startswith(head)
    assert whole.endswith(b"".join(rest))
    if b"]" in b"".join(rest):
        found = json.loads(whole)
        found = found["traceEvents"] if isinstance(found, dict) else found
        assert found == [json.loads(event) for event in events] + before(head, rest)


def before(head: bytes, rest: list[bytes]) -> list[object]:
    """The trace's own events."""
    found = json.load(io.BytesIO(head + b"".join(rest)))
    return found["traceEvents"] if isinstance(found, dict) else found  # type: ignore[no-any-return]
