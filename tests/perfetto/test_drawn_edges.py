"""Edges of the viewer's files: tracks without slices or with several lanes, details of one slice, clocks that drift."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

from tests.perfetto.reader import pb, read
from tests.perfetto.test_archive import overlay, unpacked
from tests.perfetto.test_bytes import events_of
from tests.perfetto.test_writer import drawn, track, written
from traceanalyzer.model.overlay import Counter, Drift
from traceanalyzer.render.perfetto.address import View, viewer_address
from traceanalyzer.render.perfetto.archive import Member, evened, manifest, write_zip
from traceanalyzer.render.perfetto.chrome import to_chrome_events


def described(content: bytes) -> list[Any]:
    """The descriptors of all tracks but the group's."""
    trace = pb.Trace()
    trace.ParseFromString(content)
    return [one.track_descriptor for one in trace.packet if one.HasField("track_descriptor")][1:]


def test_a_track_without_slices_is_not_drawn() -> None:
    one = drawn(track([], "none"), track([(-5, -3)], "before"), track([(1, 2)], "some"))
    assert [each.name for each in described(written(one))] == ["some"]
    assert [event["args"]["name"] for event in events_of(one) if event["name"] == "thread_name"] == ["some"]


def test_lanes_of_a_track_stand_at_its_place() -> None:
    """Also a counter's, which comes last."""
    counter = Counter("c", np.array([1]), np.array([2.0]), "bytes", about="what it counts")
    wide = track([(1, 9), (2, 3)], "a", about="what it is")
    found = described(written(drawn(wide, track([(1, 2)], "b"), counters=(counter,))))
    assert [(one.name, one.sibling_order_rank, one.description) for one in found] == [
        ("a", 0, "what it is"),
        ("a", 0, "what it is"),
        ("b", 1, ""),
        ("c", 2, "what it counts"),
    ]
    assert found[3].counter.unit_name == "bytes"
    assert len({one.uuid for one in found}) == 4


def test_times_may_have_63_bits() -> None:
    late = (1 << 63) - 2
    (found,) = read(written(drawn(track([(late, late + 1)])))).slices["track"]
    assert (found.start_ns, found.end_ns) == (late, late + 1)


def test_a_flag_is_no_number_and_a_list_is_its_numbers() -> None:
    args = {"yes": True, "no": False, "ids": (4, -5), "mixed": ("a", 1)}
    (found,) = read(written(drawn(track([(1, 2)], own=[args])))).slices["track"]
    assert found.args["yes"] is True
    assert found.args["no"] is False
    assert found.args["ids"] == (4, -5)
    assert json.loads(found.args["mixed"]) == ["a", 1]


def test_json_slices_have_their_fields_and_their_kinds() -> None:
    """Where both say it, what the slice says counts; each lane has its own slices alone."""
    one = track([(1_000, 9_000), (2_000, 3_000)], own=[{"n": 1, "kind": "own"}, {"n": 2}])
    one = replace(one, args=[{"kind": "shared", "flag": True}])
    slices = [event for event in events_of(drawn(one)) if event["ph"] == "X"]
    assert [(event["tid"], event["ts"], event["args"]) for event in slices] == [
        (1, 1.0, {"kind": "own", "flag": True, "n": 1}),
        (2, 2.0, {"kind": "shared", "flag": True, "n": 2}),
    ]
    assert {event["cat"] for event in slices} == {"traceanalyzer"}


def test_slices_of_three_lanes_are_each_drawn_once() -> None:
    one = track([(0, 10), (2, 8), (4, 6), (10, 12)])
    found = [(event["tid"], event["ts"]) for event in events_of(drawn(one)) if event["ph"] == "X"]
    assert found == [(1, 0.0), (1, 0.01), (2, 0.002), (3, 0.004)]


def test_arrow_begins_at_its_first_slice_of_a_later_track() -> None:
    one = drawn(track([(12, 20)], "a", arrows=[[1]]), track([(10, 18)], "b", arrows=[[1]]))
    arrows = [event for event in events_of(one) if event["ph"] in "sf"]
    assert [(event["ph"], event["ts"], event["tid"]) for event in arrows] == [("f", 0.012, 1), ("s", 0.01, 2)]
    assert {(event["bp"], event["name"], event["id"]) for event in arrows} == {("e", "waits", 1)}


@pytest.mark.parametrize("form", ["zip", "tar"])
def test_a_clock_that_drifts_is_evened_in_the_archive_s_trace(form: str) -> None:
    """It gains 100 us a second from the beginning on; the other rank's file stays as it is."""
    content = b'[{"ts":2000000,"dur":10000000}]'
    fast = replace(overlay(0), drift=Drift(100.0, 0))
    members = [Member(one, partial(iter, [content])) for one in (fast, overlay(1))]
    files = unpacked(members, form)
    assert files["rank0.json"] == b'[{"ts":1999800.000,"dur":9999000.000}]'
    assert files["rank1.json"] == content


def test_of_clocks_that_were_set_alike_the_first_is_the_timeline() -> None:
    said = manifest([overlay(5), overlay(3)])["perfetto_manifest"]
    assert said["trace_time"]["file"] == "rank5.findings.pftrace"
    assert [("clocks" in entry, entry["path"]) for entry in said["files"]] == [
        (False, "rank5.findings.pftrace"),
        (True, "rank5.json"),
        (True, "rank3.findings.pftrace"),
        (True, "rank3.json"),
    ]


def test_files_of_a_zip_are_dated_alike_and_packed() -> None:
    stream = io.BytesIO()
    write_zip([Member(overlay(), partial(iter, [b"x" * 9_000]))], stream)
    with zipfile.ZipFile(stream) as packed:
        assert {entry.date_time for entry in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert packed.getinfo("trace.json").compress_size < 200


FINDING: Any = SimpleNamespace(start_ns=1_000_000, end_ns=1_030_000)


@pytest.mark.parametrize(
    ("length", "within", "offset", "bounds"),
    [
        (30_000, (0, 9_000_000), 0, (940_000, 1_090_000)),  # twice its length on each side
        (30_000, (950_000, 9_000_000), 0, (950_000, 1_090_000)),
        (30_000, (0, 1_040_000), 0, (940_000, 1_040_000)),
        (30_000, (0, 9_000_000), 7, (940_007, 1_090_007)),
        (30_000, (950_000, 1_040_000), -500, (949_500, 1_039_500)),
        (10_000, (0, 9_000_000), 0, (980_000, 1_030_000)),
        (9_000, (0, 9_000_000), 0, (980_000, 1_029_000)),  # 20 us at least
    ],
)
def test_an_occurrence_is_shown_with_room_within_the_trace(
    length: int, within: tuple[int, int], offset: int, bounds: tuple[int, int]
) -> None:
    finding: Any = SimpleNamespace(start_ns=1_000_000, end_ns=1_000_000 + length)
    assert View(finding, "title", within, (), offset).bounds_ns == bounds


def test_address_leads_to_the_occurrence_on_the_timeline() -> None:
    view = View(FINDING, "a\u202eb", (0, 9_000_000), ("Findings: high",), 500)
    address = viewer_address("http://127.0.0.1:9001/a b&c.zip", view, "https://viewer.example/")
    begin, _, given = address.partition("#!/?")
    assert begin == "https://viewer.example/"
    asked = {name: value for name, (value,) in parse_qs(given, strict_parsing=True).items()}
    assert json.loads(asked.pop("startupCommands")) == [
        {"id": "dev.perfetto.PinTracksByRegex", "args": ["^(Findings: high)$"]},
        {"id": "dev.perfetto.AddNoteAtTimestamp", "args": ["1000500", r"a\u202eb"]},
    ]
    assert asked == {
        "url": "http://127.0.0.1:9001/a b&c.zip",
        "visStart": "940500",
        "visEnd": "1090500",
        "ts": "1000500",
        "dur": "30000",
    }
    assert viewer_address("http://x/a.zip") == "https://ui.perfetto.dev/#!/?url=http%3A%2F%2Fx%2Fa.zip"


def test_times_split_over_blocks_are_evened_as_one() -> None:
    """Nothing is lost, nor seen twice."""
    content = b'{"traceEvents":[{"ts":2000000,"dur":500},{"name":"x}","ts":3000000.5}],"end":1}\n'
    drift = Drift(100.0, 1_000_000_000)
    whole = b"".join(evened(lambda: [content], drift))
    assert whole == (
        b'{"traceEvents":[{"ts":1999900.000,"dur":499.950},{"name":"x}","ts":2999800.500}],"end":1}\n'
    )
    for size in (1, 7, 30):
        blocks = [content[at : at + size] for at in range(0, len(content), size)]
        assert b"".join(evened(partial(iter, blocks), drift)) == whole


def test_each_event_in_json_is_an_object_by_itself() -> None:
    """Who writes them puts what stands between."""
    for event in to_chrome_events(drawn(track([(1, 2)]))):
        assert event[:1] + event[-1:] == b"{}"
        assert isinstance(json.loads(event), dict)
