"""What is said of damage, word for word: where it is, how much was lost, and what was mended."""

import gzip
import json

import pytest

from tests.read.raw_events import op
from tests.support.trace_builder import load_bytes
from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.text.repair import Repairs, mended_text, parse_leniently

OP = b'{"ph": "X", "cat": "cpu_op", "name": "%b", "pid": 1, "tid": 2, "ts": 5, "dur": 3}'


WHOLE = OP % b"aten::mm"


ODD = OP % b'a"b'


def told(trace: Trace) -> list[tuple[str, str, int | None]]:
    return [(one.kind, one.message, one.byte_offset) for one in trace.meta.damage]


def test_metadata_before_the_events_that_were_mended_or_skipped() -> None:
    mended = load_bytes(b'{"a": nan, "b": 2, "traceEvents": [%b]}' % WHOLE)
    text = "the metadata before the events are not valid JSON and were mended (18 bytes near byte 0)"
    assert told(mended) == [("metadata", text, 0)]
    assert mended.meta.extra == {"a": None, "b": 2}
    skipped = load_bytes(b'{"a": ["b "c""], "baseTimeNanoseconds": 7, "traceEvents": [%b]}' % WHOLE)
    assert [one[1].partition(" (")[0].rpartition(" ")[2] for one in told(skipped)] == ["skipped"]
    assert (skipped.meta.base_time_ns, skipped.meta.extra) == (7, {})


def test_metadata_after_the_events() -> None:
    before = b'{"traceEvents": [%b]' % WHOLE
    at = len(before)
    for rest, kept, said in (
        (b', "a": 1}', {"a": 1}, None),
        (b', "a": 1} \n', {"a": 1}, None),
        (b', "a": 1', {"a": 1}, f"the file ends within the metadata after the events (8 bytes near byte {at:,})"),
        (b', "a": 1} xyz ', {"a": 1}, f"stray text after the trace (3 bytes near byte {at + 9:,})"),
        (
            b', "a": ["b "c"]}',
            {},
            f"the metadata after the events are not valid JSON and were skipped (16 bytes near byte {at:,})",
        ),
        (b', "a": ', {}, f"the file ends within the metadata after the events (7 bytes near byte {at:,})"),
    ):
        trace = load_bytes(before + rest)
        assert trace.meta.extra == kept, rest
        assert [one[1] for one in told(trace)] == ([] if said is None else [said]), rest


def test_text_after_a_bare_list_is_said_with_its_place() -> None:
    content = b"[%b] \n" % WHOLE
    assert told(load_bytes(content)) == []
    (one,) = told(load_bytes(content + b"xyz"))
    assert one[1] == f"stray text after the trace (3 bytes near byte {len(WHOLE) + 2:,})"


def test_a_mark_before_the_first_byte_moves_nothing() -> None:
    assert told(load_bytes(b'\xef\xbb\xbf \n{"a": 1, "traceEvents": [%b]}' % WHOLE)) == []


@pytest.mark.parametrize(("lost", "said"), [(1, "1 event"), (2, "2 events"), (3, "3 events")])
def test_events_that_are_lost_are_counted_from_the_first_of_them(lost: int, said: str) -> None:
    events = [WHOLE, WHOLE, *[ODD] * lost, WHOLE]
    trace = load_bytes(b"[" + b", ".join(events) + b"]")
    at = 1 + 2 * (len(WHOLE) + 2)
    assert told(trace) == [("unreadable", f"{said} unreadable near byte {at:,}; 3 read", at)]
    assert trace.meta.damage[0].events_lost == lost
    assert trace.cpu["event_id"].tolist() == [0, 1, 2 + lost]


def test_lost_last_event_of_a_closed_list_is_not_truncated() -> None:
    trace = load_bytes(b"[%b, %b]" % (WHOLE, ODD))
    assert [one.kind for one in trace.meta.damage] == ["unreadable"]
    cut = load_bytes(b"[%b,%b" % (WHOLE, WHOLE[:-5]))
    at = len(WHOLE) + 2
    assert told(cut)[0] == ("truncated event", f"the last event, near byte {at:,}, is incomplete", at)
    end = len(WHOLE) * 2 - 3
    assert told(cut)[1][1].startswith(f"the file ends at byte {end:,}, before the list of events is closed")


@pytest.mark.parametrize("rest", [b"", b"\n", b",", b" ,", b",\n", b",\r\n  "])
def test_a_file_that_stops_between_two_events_loses_none(rest: bytes) -> None:
    """Whether before the comma, behind it or on the next line: only the list's end is missing."""
    cut = load_bytes(b'{"traceEvents": [%b,\n%b%b' % (WHOLE, WHOLE, rest))
    end = len(b'{"traceEvents": [,\n') + 2 * len(WHOLE) + len(rest)
    (one,) = cut.meta.damage
    assert (one.kind, one.byte_offset) == ("truncated", end)
    assert one.message.startswith(f"the file ends at byte {end:,}, before the list of events is closed")
    assert cut.cpu["event_id"].tolist() == [0, 1]


@pytest.mark.parametrize("rest", [b"", b"\n", b",", b",\n", b",\r\n  "])
def test_whole_last_event_beside_an_unreadable_one_is_read(rest: bytes) -> None:
    """However the file stops behind it; the first one has a quote too many, so that no brackets can be counted."""
    cut = load_bytes(b"[%b,\n%b,\n%b%b" % (ODD, WHOLE, WHOLE, rest))
    assert told(cut)[0] == ("unreadable", "1 event unreadable near byte 1; 2 read", 1)
    assert [one.kind for one in cut.meta.damage] == ["unreadable", "truncated"]
    assert cut.cpu["event_id"].tolist() == [1, 2]


def test_mended_events_are_counted_and_their_places_told() -> None:
    repairs = Repairs()
    for at in (7, 1_234, 9_000):
        assert len(repairs.mend(b"%b, %b" % (WHOLE, OP % b"a\x01"), at)) == 2
    (one,) = repairs.damage(6)
    at = 7 + len(WHOLE) + len(", ")
    said = f"invalid characters or numbers among 3 events near byte {at} and in 2 more were mended; 6 read"
    assert (one.message, one.events_lost, one.byte_offset) == (said, 0, at)


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        (b'{"a": -nan}', {"a": None}),
        (b'{"a": [+Infinity, NAN, -inf ]}', {"a": [None, None, None]}),
        (b'{"a": "nan", "b": "info, nano"}', {"a": "nan", "b": "info, nano"}),
        (b'{"a": "x: inf,", "b": nan}', {"a": "x: inf,", "b": None}),
        (rb'{"a": "x\": inf,", "b": nan}', {"a": 'x": inf,', "b": None}),
        (rb'{"a": "C:\Users\\n"}', {"a": "C:\\Users\\n"}),
        (rb'{"a": "\ud83d x"}', {"a": "\ufffd x"}),
        (rb'{"a": "\ud83d\ude00"}', {"a": "\U0001f600"}),
        (b'{"a": "b\tc\x01"}', {"a": "b\tc\x01"}),
        (b'{"a": "\xff"}', {"a": "\ufffd"}),
        (b'{"a": %d}' % (10**18 - 1), {"a": 10**18 - 1}),
        (b'{"a": %d}' % 10**18, {"a": 1e18}),
    ],
)
def test_what_mended_text_says(text: bytes, mended: object) -> None:
    found = parse_leniently(mended_text(text))
    assert found == mended
    assert json.dumps(found) == json.dumps(mended)


@pytest.mark.parametrize("batch_bytes", [64, 1 << 18])
def test_events_are_found_whatever_stands_between_them(batch_bytes: int) -> None:
    for separator in (b",", b" ,\n", b"\n,\t  ", b" " * 50 + b","):
        for odd in (b"aten::mm", b"},{", rb"}\\\",{", "µ},{µ".encode()):
            events = [WHOLE, OP % odd, WHOLE, OP % odd, WHOLE]
            trace = load_bytes(b"[" + separator.join(events) + b"]", batch_bytes=batch_bytes)
            assert len(trace.cpu) == 5, (separator, odd)
            assert told(trace) == []


def test_other_formats_are_known_by_marks_of_any_length() -> None:
    for begins, name in (
        (b"\xfe\xff\0{", "text in UTF-16"),
        (b"\xff\xfe{\0", "text in UTF-16"),
        (b"\x80\x05\x95", "a Python pickle"),
        (b"\x80\x02}q", "a Python pickle"),
        (b"PK\x05\x06", "a zip archive"),
        (b"PK\x07\x08", "a zip archive"),
        (b"\xef\xbb\xbf \n<html", "HTML or XML"),
        (b"7z\xbc\xaf\x27\x1c", "an archive of 7-Zip or RAR"),
        (b"Rar!\x1a\x07", "an archive of 7-Zip or RAR"),
        (b"\x04\x22\x4d\x18", "compressed with lz4"),
        (b"FEA1", "an Arrow or Feather table"),
        (b"\xff\xd8\xff", "a picture"),
        (b"GIF89a", "a picture"),
        (b"%PDF-1.7", "a PDF document"),
        (b"\x7fELF", "a program or a library"),
    ):
        with pytest.raises(UnreadableTrace, match=f"is {name}"):
            load_bytes(begins + b" and more")
        with pytest.raises(UnreadableTrace, match=f"is {name}"):
            load_bytes(gzip.compress(begins + b" and more"))


def test_a_quote_that_is_not_escaped_costs_its_own_event_alone() -> None:
    repairs = Repairs()
    told = repairs.mend(b'{"a": nan}, {"b": "x"y"}, {"c": -inf}, {"d": "e"}', 0)
    assert told == [{"a": None}, None, {"c": None}, {"d": "e"}]
    assert Repairs().mend(b'{"name": "a},{b"},{"name": }', 0) == [{"name": "a},{b"}, None]


@pytest.mark.parametrize(
    ("metadata", "became", "base"),
    [
        (b'"path": "C:\\models", "baseTimeNanoseconds": 5', "mended", 5),
        (b'"path": NaN, "baseTimeNanoseconds": 5', "mended", 5),
        (b'"path": @@, "baseTimeNanoseconds": 5', "skipped", 5),
        (b'"path": @@', "skipped", 0),
    ],
)
def test_malformed_metadata_is_mended_or_skipped(metadata: bytes, became: str, base: int) -> None:
    """The time that all others count from is found in any case."""
    events = b'"traceEvents": [' + json.dumps(op()).encode() + b"]"
    for content, where in ((b"{%b, %b}" % (events, metadata), "after"), (b"{%b, %b}" % (metadata, events), "before")):
        trace = load_bytes(content)
        (damage,) = trace.meta.damage
        assert f"the metadata {where} the events are not valid JSON and were {became}" in damage.message
        assert trace.meta.base_time_ns == base
