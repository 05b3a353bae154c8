"""What stands in the viewer's files, byte for byte: texts, slices that touch, lanes, details, clocks that drift."""

import io
import json
import zipfile
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, parse_qsl

import numpy as np
import pytest

from tests.perfetto.drawn import TRACE, drawn, events_of, in_blocks, overlay, track, unpacked, written
from tests.perfetto.reader import pb, read
from traceanalyzer.model.overlay import Counter, Drift
from traceanalyzer.render.perfetto import archive
from traceanalyzer.render.perfetto import track_events as wire
from traceanalyzer.render.perfetto.archive import TooLarge, View, evened, manifest, viewer_address, write_tar, write_zip
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
    files = unpacked([overlay(rank) for rank in range(2)], "zip")
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
    write_zip([overlay()], io.BytesIO(), in_blocks)
    monkeypatch.setattr(archive, "MOST_ZIP_BYTES", len(TRACE) - 1)
    with pytest.raises(TooLarge):
        write_zip([overlay()], io.BytesIO(), in_blocks)
    write_tar([overlay()], io.BytesIO(), in_blocks)


@pytest.mark.parametrize("sizes", [(3, 2), (2, 3)])
def test_a_trace_that_changes_meanwhile_makes_no_archive(sizes: tuple[int, int]) -> None:
    contents = iter([[b"{} "[:size]] for size in sizes])
    with pytest.raises(OSError, match="changed"):
        write_tar([overlay()], io.BytesIO(), lambda _: iter(next(contents)))


def test_events_after_the_last_stay_where_a_clock_drifts() -> None:
    blocks = [b'[{"ts":1000000}', b", ", b"{}\n", b"]\n"]
    assert b"".join(evened(lambda: blocks, Drift(100.0, 1_000_000_000))) == b'[{"ts":1000000.000}, {}\n]\n'


def parameters(view: View) -> dict[str, str]:
    """Of the viewer's address."""
    return dict(parse_qsl(viewer_address("http://file", view).partition("?")[2]))


def test_note_is_at_the_occurrence_on_the_file_timeline() -> None:
    finding: Any = SimpleNamespace(start_ns=1_000, end_ns=2_000)
    note = {"id": "dev.perfetto.AddNoteAtTimestamp", "args": ["1500", "title"]}
    assert json.loads(parameters(View(finding, "title", (0, 9_000), (), 500))["startupCommands"]) == [note]
    pinned = parameters(View(finding, "title", (0, 9_000), ("a b", "c.d"), 500))["startupCommands"]
    assert json.loads(pinned) == [{"id": "dev.perfetto.PinTracksByRegex", "args": [r"^(a b|c\.d)$"]}, note]


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


@pytest.mark.parametrize(("ppm", "took"), [(100.0, b"9999000.000"), (-100.0, b"10001000.000"), (0.0, b"10000000")])
def test_a_clock_that_is_slow_is_evened_as_one_that_is_fast(ppm: float, took: bytes) -> None:
    """Of ten seconds a millisecond."""
    blocks = [b'[{"dur":10000000}]']
    assert b"".join(evened(lambda: blocks, Drift(ppm, 0))) == b'[{"dur":' + took + b"}]"


def test_a_tape_ends_with_two_empty_blocks() -> None:
    stream = io.BytesIO()
    write_tar([overlay()], stream, in_blocks)
    sizes = map(len, unpacked([overlay()], "tar").values())
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
    assert sorted((one.start_ns, one.end_ns, one.name) for one in found) == [(1, 9, "c"), (2, 3, "b"), (10, 11, "a")]


@pytest.mark.parametrize(("length", "shown"), [(10_000, 10_000), (10_001, 10_000)])
def test_a_text_of_the_details_may_be_longer_than_a_name(length: int, shown: int) -> None:
    (found,) = read(written(drawn(track([(1, 2)], text="n" * 300, own=[{"k" * 300: "v" * length}])))).slices["track"]
    ((key, value),) = found.args.items()
    assert (len(found.name), len(key), len(value)) == (200, 200, shown)


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
    files = unpacked([fast, overlay(1)], form, content)
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
    write_zip([overlay()], stream, partial(in_blocks, content=b"x" * 9_000))
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
def test_an_occurrence_has_room_within_the_trace(
    length: int, within: tuple[int, int], offset: int, bounds: tuple[int, int]
) -> None:
    finding: Any = SimpleNamespace(start_ns=1_000_000, end_ns=1_000_000 + length)
    asked = parameters(View(finding, "title", within, (), offset))
    assert (int(asked["visStart"]), int(asked["visEnd"])) == bounds


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
    assert whole == (b'{"traceEvents":[{"ts":1999900.000,"dur":499.950},{"name":"x}","ts":2999800.500}],"end":1}\n')
    for size in (1, 7, 30):
        blocks = [content[at : at + size] for at in range(0, len(content), size)]
        assert b"".join(evened(partial(iter, blocks), drift)) == whole


def test_each_event_in_json_is_an_object_by_itself() -> None:
    """Who writes them puts what stands between."""
    for event in to_chrome_events(drawn(track([(1, 2)]))):
        assert event[:1] + event[-1:] == b"{}"
        assert isinstance(json.loads(event), dict)
