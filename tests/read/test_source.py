"""The plain bytes of a file of any kind, from any byte on, and the text of events that is cut out of them."""

import gzip
import io
import os
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard

from tests.support.trace_files import tar
from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.read.text import source as source_module
from traceanalyzer.read.text.event_text import EventText, Failure
from traceanalyzer.read.text.source import BLOCK_BYTES, Source, is_archive, is_trace_name

PLAIN = os.urandom(300_000) + bytes(400_000)
"""Of which the beginning does not pack."""

KINDS = {
    "plain": PLAIN,
    "gzip": gzip.compress(PLAIN),
    "gzip of two": gzip.compress(PLAIN[:350_000]) + gzip.compress(PLAIN[350_000:]) + bytes(512),
    "zstd": zstandard.compress(PLAIN),
    "zstd of two": zstandard.compress(PLAIN[:350_000]) + zstandard.compress(PLAIN[350_000:]),
    "tar": tar(("trace.json", PLAIN)),
    "gzip in tar": tar(("trace.json.gz", gzip.compress(PLAIN))),
}


@pytest.mark.parametrize("start", [0, 1, 8 * 1024, BLOCK_BYTES, 350_001, len(PLAIN) - 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_any_kind_is_read_from_any_byte_on(kind: str, start: int, tmp_path: Path) -> None:
    (path := tmp_path / "file").write_bytes(KINDS[kind])
    source = Source(path)
    assert b"".join(source.blocks(start)) == PLAIN[start:]
    assert source.damage == []
    assert source.size == len(KINDS[kind])
    if not start:
        assert source.consumed == source.size
    assert source.name == str(path)


@pytest.mark.parametrize("kind", ["plain", "gzip", "zstd", "tar"])
def test_beyond_the_end_there_is_nothing(kind: str, tmp_path: Path) -> None:
    (path := tmp_path / "file").write_bytes(KINDS[kind])
    assert b"".join(Source(path).blocks(len(PLAIN) + 10_240)) == b""


@pytest.mark.parametrize("kind", KINDS)
def test_standard_input_is_read_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(KINDS[kind])))
    source = Source("-")
    assert b"".join(source.blocks()) == PLAIN
    assert (source.name, source.size, source.damage) == ("<standard input>", None, [])
    assert Source("-").plain_bytes() is None


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("plain", len(PLAIN)), ("gzip", len(PLAIN)), ("zstd", len(PLAIN)), ("tar", None), ("gzip in tar", None)],
)
def test_how_much_is_in_a_file_is_told_without_reading_it(kind: str, expected: int | None, tmp_path: Path) -> None:
    (path := tmp_path / "file").write_bytes(KINDS[kind])
    assert Source(path).plain_bytes() == expected


def test_how_much_is_in_a_file_may_be_unknown(tmp_path: Path) -> None:
    streamed = zstandard.ZstdCompressor().compressobj()
    (path := tmp_path / "file").write_bytes(streamed.compress(PLAIN) + streamed.flush())
    assert Source(path).plain_bytes() is None
    assert Source(tmp_path / "none").plain_bytes() is None
    for content in (b"", b"ab", b"{}"):
        path.write_bytes(content)
        assert Source(path).plain_bytes() == len(content)
    path.write_bytes(b"\x28\xb5\x2f\xfd")
    assert Source(path).plain_bytes() is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("none", "no such file\n  Check the path"),
        ("", "cannot be read: is a directory"),
        ("empty", "the file is empty"),
    ],
)
def test_what_has_no_bytes_is_refused(name: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(UnreadableTrace, match=problem):
        list(Source(tmp_path / name).blocks())


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_file_that_ends_early_says_at_which_of_its_bytes(kind: str, tmp_path: Path) -> None:
    packed = KINDS[kind][:200_000]
    (path := tmp_path / "file").write_bytes(packed)
    source = Source(path)
    read = b"".join(source.blocks())
    assert PLAIN.startswith(read)
    assert len(read) > 100_000
    (damage,) = source.damage
    assert damage.kind == "truncated compression"
    assert damage.message == "the compressed data end early, at byte 200,000 of the file"
    assert damage.byte_offset == 200_000


@pytest.mark.parametrize(("field", "what"), [(-8, "data"), (-4, "length")])
@pytest.mark.parametrize("last_of_block", [0, -2, -5, -8])
def test_members_after_a_wrong_checksum_are_read(
    field: int, what: str, last_of_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trailer of eight bytes may lie in two blocks."""
    member = bytearray(gzip.compress(PLAIN[:9_000]))
    monkeypatch.setattr(source_module, "_COMPRESSED_BYTES", len(member) + last_of_block)
    member[field] ^= 1
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(member + bytes(9) + gzip.compress(b"second"))))
    source = Source("-")
    assert b"".join(source.blocks()) == PLAIN[:9_000] + b"second"
    (damage,) = source.damage
    assert damage.kind == "damaged compression"
    assert f"incorrect {what} check" in damage.message


@pytest.mark.parametrize(
    ("name", "may_be"),
    [
        *((name, True) for name in ("trace.json", "a/b/trace.JSON.GZ", "t.json.zst", "._a/trace.json")),
        *((name, False) for name in ("a.json/readme", "._trace.json", "a/._trace.json")),
        *((name, False) for name in ("trace.json.bz2", "trace.jsonl", "json")),
    ],
)
def test_names_of_traces_in_archives(name: str, may_be: bool) -> None:
    assert is_trace_name(name) is may_be


def test_an_archive_is_known_by_its_mark() -> None:
    content = tar(("trace.json", b"{}"))
    assert is_archive(content[:512])
    assert is_archive(content[:262])
    assert not is_archive(content[:261])
    assert not is_archive(b"ustar" + bytes(500))


# -- the text of events ----------------------------------------------------------------------------------

EVENTS = b'{"a": "x"},  {"b": [{}, {}]},  {"c": "},  {"},  {"d": 4}'


def test_separator_is_learnt_from_the_first_two_events() -> None:
    text = EventText(EVENTS)
    assert text.learn_separator() == b"},  {"
    cuts = list(text.likely_cuts())
    assert cuts == [EVENTS.rindex(b',  {"d'), EVENTS.rindex(b',  {"},'), EVENTS.index(b',  {"c')]
    assert [isinstance(text.parse(cut), Failure) for cut in cuts] == [False, True, False]
    assert text.parse(cuts[2]) == [{"a": "x"}, {"b": [{}, {}]}]
    assert text.text() == EVENTS
    assert text.counted_cut() == cuts[0]
    assert all(left > right for left, right in pairwise(cuts))


@pytest.mark.parametrize("text", [b'{"a": 1}', b'{"a": 1}] ', b"", b'{"a": '])
def test_of_one_event_there_is_no_separator_and_no_cut(text: bytes) -> None:
    assert EventText(text).learn_separator() == b""
    assert list(EventText(text).likely_cuts()) == []
    assert EventText(text).counted_cut() is None


def test_the_first_cut_is_at_a_place_or_after_it() -> None:
    text = EventText(b"{},{},{}", separator=b"},{")
    assert [text.first_cut(at) for at in range(7)] == [2, 2, 5, 5, 5, None, None]


def test_dropping_text_moves_the_offset_to_an_event() -> None:
    text = EventText(EVENTS, offset=100)
    text.drop(0)
    assert (text.offset, text.text()) == (100, EVENTS)
    text.drop(EVENTS.index(b",  "))
    assert text.text() == EVENTS[EVENTS.index(b",  ") + 1 :]
    assert text.offset == 100 + EVENTS.index(b",  ") + 1
    assert text.text(2, 12) == EVENTS[EVENTS.index(b",  ") + 1 :][2:12]
    text.extend(b"]")
    assert text.parse() == [{"b": [{}, {}]}, {"c": "},  {"}, {"d": 4}]


@pytest.mark.parametrize(
    ("text", "cut", "failure"),
    [
        (b'{"a": 1}], "x": 2', None, Failure(8, True)),
        (b'{"a": 1}], "x": 2}', 17, Failure(8, True)),
        (b'{"a": 1, ', None, Failure(9, False)),
        ('{"é": 1}], "x": 2'.encode(), None, Failure(9, True)),
    ],
)
def test_why_a_text_does_not_parse_is_told_by_its_bytes(text: bytes, cut: int | None, failure: Failure) -> None:
    made = EventText(text)
    found = made.parse(cut)
    assert isinstance(found, Failure)
    assert found.over is failure.over
    assert abs(found.at - failure.at) <= 1
    assert made.text() == text


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (b'{"a": 1}], "x": [2]}', 8),
        (b'{"a": 1},\n ] ,"x": 2}', 11),
        (b'{"a": [{}]}, {"b": 1}]}', 21),
        (b'{"a": 1}]', 8),
        (b'{"a": 1} ]\n', 9),
        (b'{"a": [{}], 1}', None),
        (b'{"a": 1}', None),
    ],
)
def test_where_the_list_seems_to_end(text: bytes, end: int | None) -> None:
    assert EventText(text).likely_array_end() == end


def test_the_last_bracket_before_an_index_closes_the_list() -> None:
    text = EventText(b'{"a": [1]}], "b": []')
    assert [text.array_end(at) for at in (9, 10, 11, 20)] == [8, 8, 10, 19]
