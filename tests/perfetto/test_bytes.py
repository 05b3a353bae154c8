"""What stands in the files, byte for byte: numbers of texts, ends of slices that touch, what a tape may hold."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.perfetto.reader import pb, read
from tests.perfetto.test_archive import TRACE, member, overlay, unpacked
from tests.perfetto.test_writer import drawn, track, written
from traceanalyzer.model.overlay import Counter, Drift, Overlay
from traceanalyzer.render.perfetto import archive, wire
from traceanalyzer.render.perfetto.address import View
from traceanalyzer.render.perfetto.archive import Member, evened, write_tar, write_zip
from traceanalyzer.render.perfetto.chrome import to_chrome_events
from traceanalyzer.render.perfetto.track_events import Interned, in_time


def test_texts_are_numbered_from_one_and_written_once() -> None:
    """Of each kind apart; 0 stands for none."""
    texts = Interned()
    assert [texts.name("a"), texts.key("a"), texts.name("a"), texts.name("b")] == [1, 2, 1, 3]
    assert texts.news().count(b"a") == 2
    assert texts.news() == b""
    assert texts.value("a") == 4
    assert texts.news().count(b"a") == 1


def test_half_a_pair_is_written_as_an_escape() -> None:
    assert wire.text(2, "a\ud800") == b"\x12\x07a\\ud800"


def events_of(one: Overlay) -> list[dict[str, Any]]:
    return [*map(json.loads, to_chrome_events(one))]


@pytest.mark.parametrize(
    ("spans", "lengths"),
    [
        ([(1_000, 2_000), (2_000, 3_500)], [0.998, 1.5]),
        ([(1_000, 1_001), (1_001, 2_000)], [0.0, 0.999]),
        ([(1_000, 2_000), (2_002, 3_000)], [1.0, 0.998]),
    ],
)
def test_json_slice_ends_just_before_the_next(spans: list[tuple[int, int]], lengths: list[float]) -> None:
    slices = [event for event in events_of(drawn(track(spans))) if event["ph"] == "X"]
    assert [event["dur"] for event in slices] == lengths


def test_json_has_processes_lanes_and_samples_from_zero() -> None:
    counter = Counter("c", np.array([0, 5, 6]), np.array([1.0, np.nan, 2.0]), "bytes")
    events = events_of(drawn(track([(0, 20), (10, 30)], "a"), track([(1, 2)], "b"), counters=(counter,)))
    meta = [(event["name"], event["tid"], event["args"]) for event in events if event["ph"] == "M"]
    assert meta == [
        ("process_name", 0, {"name": "traceanalyzer"}),
        ("process_sort_index", 0, {"sort_index": -1_000}),
        *(
            (f"thread_{what}", thread, {what: value})
            for thread, name in ((1, "a"), (2, "a"), (3, "b"))
            for what, value in (("name", name), ("sort_index", thread))
        ),
    ]
    samples = [(event["ts"], event["args"]) for event in events if event["ph"] == "C"]
    assert samples == [(0.0, {"bytes": 1.0}), (0.006, {"bytes": 2.0})]


def test_slices_with_arrows_have_them_others_stay_ordered() -> None:
    found = read(written(drawn(track([(1, 2), (3, 4)], arrows=[[7], []])))).slices["track"]
    assert [len(one.arrows) for one in found] == [1, 0]
    plain = track([(1, 2), (3, 4), (5, 6)])
    plain.kind[:] = [1, 0, 1]
    plain = type(plain)(plain.name, plain.start_ns, plain.end_ns, plain.kind, ["x", "longer"], [{}, {"n": 5}])
    found = read(written(drawn(plain))).slices["track"]
    assert [(one.start_ns, one.name, one.args) for one in found] == [
        (1, "longer", {"n": 5}),
        (3, "x", {}),
        (5, "longer", {"n": 5}),
    ]


def test_each_overlay_of_an_archive_is_a_sequence_of_its_own() -> None:
    files = unpacked([member(overlay(rank)) for rank in range(2)], "zip")
    sequences = []
    for rank in range(2):
        trace = pb.Trace()
        trace.ParseFromString(files[f"rank{rank}.findings.pftrace"])
        sequences.append({packet.trusted_packet_sequence_id for packet in trace.packet})
    assert list(map(len, sequences)) == [1, 1]
    assert sequences[0] != sequences[1]


def test_a_track_stands_at_its_place_and_says_what_it_is_about() -> None:
    trace = pb.Trace()
    one = track([(1, 2)], "a", about="what it is")
    trace.ParseFromString(written(drawn(one, track([(1, 2)], "b"))))
    described = [packet.track_descriptor for packet in trace.packet if packet.HasField("track_descriptor")]
    assert [(one.name, one.sibling_order_rank) for one in described[1:]] == [("a", 0), ("b", 1)]
    assert [one.description for one in described[1:]] == ["what it is", ""]
    assert described[0].child_ordering == 3


def test_a_trace_of_just_the_most_bytes_fits_into_a_zip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_ZIP_BYTES", len(TRACE))
    write_zip([member(overlay())], io.BytesIO())


def test_a_trace_that_shrinks_meanwhile_makes_no_archive() -> None:
    contents = iter([[b"{} "], [b"{}"]])
    with pytest.raises(OSError, match="changed"):
        write_tar([Member(overlay(), lambda: iter(next(contents)))], io.BytesIO())


def test_events_after_the_last_stay_where_a_clock_drifts() -> None:
    blocks = [b'[{"ts":1000000}', b", ", b"{}\n", b"]\n"]
    assert b"".join(evened(lambda: blocks, Drift(100.0, 1_000_000_000))) == b'[{"ts":1000000.000}, {}\n]\n'


def test_note_is_at_the_occurrence_on_the_file_timeline() -> None:
    finding: Any = SimpleNamespace(start_ns=1_000, end_ns=2_000)
    note = {"id": "dev.perfetto.AddNoteAtTimestamp", "args": ["1500", "title"]}
    assert View(finding, "title", (0, 9_000), (), 500).commands() == [note]
    pinned = View(finding, "title", (0, 9_000), ("a b", "c.d"), 500).commands()
    assert pinned == [{"id": "dev.perfetto.PinTracksByRegex", "args": [r"^(a b|c\.d)$"]}, note]


def test_numbers_of_64_bit_are_numbers_and_larger_ones_texts() -> None:
    most = 1 << 63
    args = {"most": most - 1, "more": most, "least": -most, "less": -most - 1}
    (found,) = read(written(drawn(track([(1, 2)], own=[args])))).slices["track"]
    assert found.args == {**args, "more": "9223372036854775808", "less": "-9223372036854775809"}


@pytest.mark.parametrize(("rank", "name"), [(None, ""), (0, ": rank 0"), (3, ": rank 3")])
def test_the_group_of_a_ranks_tracks_is_called_by_it(rank: int | None, name: str) -> None:
    assert read(written(overlay(rank))).groups == [f"traceanalyzer{name}"]
    assert events_of(overlay(rank))[0]["args"] == {"name": f"traceanalyzer{name}"}


def test_samples_that_are_no_number_are_left_out() -> None:
    values = np.array([1.0, np.nan, np.inf, 2.0])
    counter = Counter("c", np.array([0, 5, 6, 7]), values, "bytes")
    assert read(written(drawn(counters=(counter,)))).counters["c"] == [(0, 1.0), (7, 2.0)]


@pytest.mark.parametrize(
    ("ppm", "took"), [(100.0, b"9999000.000"), (-100.0, b"10001000.000"), (0.0, b"10000000")]
)
def test_a_clock_that_is_slow_is_evened_as_one_that_is_fast(ppm: float, took: bytes) -> None:
    """Of ten seconds a millisecond."""
    blocks = [b'[{"dur":10000000}]']
    assert b"".join(evened(lambda: blocks, Drift(ppm, 0))) == b'[{"dur":' + took + b"}]"


def test_a_tape_ends_with_two_empty_blocks() -> None:
    stream = io.BytesIO()
    write_tar([member(overlay())], stream)
    sizes = map(len, unpacked([member(overlay())], "tar").values())
    assert len(stream.getvalue()) == sum(512 + -(-size // 512) * 512 for size in sizes) + 1_024
    assert stream.getvalue()[-1_024:] == bytes(1_024)


def test_slices_are_in_time_by_start_and_then_by_end() -> None:
    assert in_time(track([(5, 6), (0, 10), (-1, 2), (1, 2), (0, 5)])).tolist() == [4, 1, 3, 0]


def test_slice_kinds_missing_in_a_lane_do_not_rename_others() -> None:
    """Kind 1 overlaps the others: it has a lane of its own."""
    spans = [(1, 9), (2, 3), (10, 11)]
    plain = track(spans)
    plain.kind[:] = [2, 1, 0]
    plain = type(plain)(plain.name, plain.start_ns, plain.end_ns, plain.kind, ["a", "b", "c"], [{}] * 3)
    found = read(written(drawn(plain))).slices["track"]
    assert sorted((one.start_ns, one.end_ns, one.name) for one in found) == [
        (1, 9, "c"),
        (2, 3, "b"),
        (10, 11, "a"),
    ]


@pytest.mark.parametrize(("length", "shown"), [(10_000, 10_000), (10_001, 10_000)])
def test_a_text_of_the_details_may_be_longer_than_a_name(length: int, shown: int) -> None:
    (found,) = read(written(drawn(track([(1, 2)], text="n" * 300, own=[{"k" * 300: "v" * length}])))).slices[
        "track"
    ]
    ((key, value),) = found.args.items()
    assert (len(found.name), len(key), len(value)) == (200, 200, shown)
