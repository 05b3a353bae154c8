"""Members of a gzip file that come piece by piece, and the batches that a source's blocks are cut into."""

import gzip
import json
from pathlib import Path

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.read.text import batches
from traceanalyzer.read.text.batches import Batches, Style
from traceanalyzer.read.text.source import GzipMember, Source, gzip_header_bytes

CONTENT = b"some text, " * 50


def member(flags: int) -> bytes:
    """Extra field, name, comment and checksum of the header, as the flags say."""
    packed = gzip.compress(CONTENT, mtime=0)
    extra = b"\x03\x00a\0c" if flags & 4 else b""
    names = b"name\0" * bool(flags & 8) + b"comment\0" * bool(flags & 16) + b"\0\0" * bool(flags & 2)
    return packed[:3] + bytes([flags]) + packed[4:10] + extra + names + packed[10:]


@pytest.mark.parametrize("flags", [0, 1, 2, 4, 8, 16, 30])
@pytest.mark.parametrize("size", [1, 3, 9, 11, 1_000])
def test_a_member_is_unpacked_whatever_pieces_it_comes_in(flags: int, size: int) -> None:
    packed, made, plain = member(flags), GzipMember(), b""
    for at in range(0, len(packed), size):
        assert not made.eof
        plain += made.decompress(packed[at : at + size])
    assert (plain, made.eof, made.intact, made.unused_data) == (CONTENT, True, True, b"")


@pytest.mark.parametrize(
    ("field", "intact"), [(None, True), (-8, False), (-5, False), (-4, False), (-1, False)]
)
@pytest.mark.parametrize("cut", [1, 8, 9, 200])
def test_what_follows_a_member_is_kept_and_its_sums_are_compared(
    field: int | None, intact: bool, cut: int
) -> None:
    packed = bytearray(member(0))
    if field is not None:
        packed[field] ^= 1
    made = GzipMember()
    assert made.decompress(bytes(packed[:-cut])) + made.decompress(bytes(packed[-cut:]) + b"next") == CONTENT
    assert (made.eof, made.intact, made.unused_data) == (True, intact, b"next")


def test_size_of_gzip_members_wraps_at_4_gib() -> None:
    made = GzipMember()
    made._size = 1 << 32
    assert made.decompress(member(0)) == CONTENT
    assert made.intact


@pytest.mark.parametrize("flags", [0, 2, 4, 8, 16, 30])
def test_a_header_is_whole_where_its_last_byte_is_there(flags: int) -> None:
    packed = member(flags)
    size = len(packed) - len(gzip.compress(CONTENT, mtime=0)) + 10
    for end in range(size):
        assert gzip_header_bytes(packed[:end]) is None
    for end in range(size, len(packed)):
        assert gzip_header_bytes(packed[:end]) == size


@pytest.mark.parametrize("data", [b"\x1f\x00", b"PK", b"\x00"])
def test_what_is_no_member_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no gzip header"):
        gzip_header_bytes(data)


@pytest.mark.parametrize(("more", "refused"), [(0, False), (1, True)])
def test_a_header_that_never_ends_is_refused(more: int, refused: bool) -> None:
    """A name of more than 128 kB, and the piece of 8 kB that was read last."""
    data = b"\x1f\x8b\x08\x08" + bytes(6)
    data += b"n" * (136 * 1024 - len(data) + more)
    if refused:
        with pytest.raises(ValueError, match="no gzip header"):
            gzip_header_bytes(data)
    else:
        assert gzip_header_bytes(data) is None


# -- batches ---------------------------------------------------------------------------------------------


def reader(content: bytes, tmp_path: Path, batch_bytes: int) -> Batches:
    (path := tmp_path / "t.json").write_bytes(content)
    return Batches(Source(path), batch_bytes)


def events(count: int) -> bytes:
    made = TraceBuilder()
    for at in range(count):
        made.op("aten::mm", at * 10_000, 9_000)
    return made.to_json()


@pytest.mark.parametrize("batch_bytes", [50, 200, 5_000, 1 << 20])
def test_batches_have_about_the_requested_size(batch_bytes: int, tmp_path: Path) -> None:
    read = reader(events(40), tmp_path, batch_bytes)
    seen = 0
    for batch in read.batches():
        assert json.loads(b"[" + read.text_of_batch() + b"]") == batch
        assert len(read.text_of_batch()) <= 2 * batch_bytes + 1_000
        seen += len(batch)
        assert read.events == seen
    assert seen == len(json.loads(events(40))["traceEvents"])
    assert (read.ended, read.damage) == (True, [])


def test_blocks_are_no_larger_than_a_batch(tmp_path: Path) -> None:
    read = reader(b"x" * 1_001, tmp_path, 100)
    assert [len(block) for block in read.blocks()] == [100] * 10 + [1]
    assert [len(block) for block in read.blocks(901)] == [100]


@pytest.mark.parametrize(
    ("content", "style"),
    [
        (b'{"traceEvents": [{"ph": "X"},\n{"ph": "X"}]}', Style("object", b"},\n{")),
        (b'[{"ph": "X"}, {"ph": "X"}]', Style("array", b"}, {")),
        (b'[{"ph": "X"}]', Style("array", b"")),
    ],
)
def test_the_style_is_that_of_the_first_events(content: bytes, style: Style, tmp_path: Path) -> None:
    assert reader(content, tmp_path, 1 << 18).style() == style


@pytest.mark.parametrize("cut", [0, 1])
def test_a_file_without_its_end_says_where_that_is(cut: int, tmp_path: Path) -> None:
    whole = b'{"traceEvents": [{"ph": "X"}, {"ph": "X"}]}'
    read = reader(whole[: len(whole) - 2 * cut], tmp_path, 1 << 18)
    assert sum(len(batch) for batch in read.batches()) == 2
    assert [one.message for one in read.damage] == [
        f"the file ends at byte {len(whole) - 2}, before the list of events is closed"
    ] * cut


@pytest.mark.parametrize(("most", "damaged"), [(2_000, True), (20_000, False)])
def test_too_long_event_is_damage_and_reading_goes_on(
    most: int, damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_MAX_EVENT_BYTES", most)
    long = b'{"ph": "X", "name": "' + b"n" * 10_000 + b'"}'
    read = reader(b'[{"ph": "X"},%b,{"ph": "i"},{"ph": "i"}]' % long, tmp_path, 100)
    found = [event for batch in read.batches() for event in batch]
    assert (found[0], found[-1]) == ({"ph": "X"}, {"ph": "i"})
    assert ({"ph": "X", "name": "n" * 10_000} in found) is not damaged
    assert bool(read.damage) is damaged
