"""Damaged files: what is saved, what is said, and that nothing but our own errors comes out."""

import gzip
import io
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.read.same import assert_same
from tests.read.samples import everything
from tests.support.hypothesis_profiles import examples
from tests.support.trace_builder import TraceBuilder, load_bytes
from traceanalyzer.model.errors import NotATrace, TraceAnalyzerError, UnreadableTrace
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.columns import quirks
from traceanalyzer.read.columns.quirks import problem_of
from traceanalyzer.read.load import load, load_file
from traceanalyzer.read.text import repair
from traceanalyzer.read.text.repair import mended_text

WINDOW = 2_000


def ops(count: int = 40) -> TraceBuilder:
    """A plain trace of `count` operators, op0, op1, ..."""
    trace = TraceBuilder()
    for number in range(count):
        trace.op(f"op{number}", start=number * 10_000 + 5, dur=5_000)
    return trace


@cache
def zipped(count: int) -> bytes:
    """The same as gzip packs it."""
    return gzip.compress(ops(count).to_json(), mtime=0)


def damaged(before: bytes, after: bytes, count: int = 40) -> Trace:
    """A plain trace in which one place differs."""
    content = ops(count).to_json()
    assert content.count(before) == 1
    return load_bytes(content.replace(before, after), batch_bytes=WINDOW)


def kinds(trace: Trace) -> list[str]:
    return [damage.kind for damage in trace.meta.damage]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty"),
        (b" \n\t ", "holds nothing but blanks"),
        (b"hello", "is not JSON"),
        (b'{"a": 1', "is not JSON"),
        (b"\x00\x02\x00garbage", "is neither JSON nor gzip nor zstd"),
        (b"P\xff\x00garbage", "is not JSON: it holds bytes that are no UTF-8 text"),
        (b"\x1f\x8b\x08\x00", "the compressed data end early"),
        (gzip.compress(b"", mtime=0), "holds nothing but blanks"),
        (b'{"traceEvents": [', "nothing readable: the file ends at byte 17"),
        (b'{"traceEvents": [{"ph": "X", "ca', "nothing readable"),
    ],
)
def test_what_cannot_be_read_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(UnreadableTrace) as error:
        load_bytes(content)
    assert problem in error.value.problem
    assert error.value.where is not None
    assert error.value.where.endswith("built.json")


@pytest.mark.parametrize(
    ("content", "problem", "remedy"),
    [
        (b'{"a": 1, "b": 2}', "its top-level keys are a, b", "export_chrome_trace"),
        (b'"text"', "holds no traceEvents", "export_chrome_trace"),
        (b'{"rocprofiler-sdk-tool": [1]}', "rocprofiler-sdk-tool", "rocprofv3"),
        (b'{"schema": "1.1", "nodes": []}', "schema, nodes", "execution trace"),
        (b'{"traceEvents": []}', "the list of events is empty", "Record"),
        (b"[]", "the list of events is empty", "Record"),
        (b"[1, 2, null]", "none of its 3 events", "Expected"),
        (b'[{"ph": "B", "name": "f", "ts": 1}]', "none of its 1 events", "Expected"),
    ],
)
def test_other_json_is_named(content: bytes, problem: str, remedy: str) -> None:
    with pytest.raises(NotATrace) as error:
        load_bytes(content)
    assert problem in error.value.problem
    assert remedy in str(error.value.remedy)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTrace, match="no such file"):
        load(tmp_path / "missing.json")
    with pytest.raises(UnreadableTrace, match=r"no trace of torch\.profiler"):
        load(tmp_path)
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(UnreadableTrace, match="among 1 JSON file"):
        load(tmp_path)
    with pytest.raises(UnreadableTrace, match="cannot be read: is a directory"):
        load_file(tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        (b'"op7"', b'"op\x01"', "op\x01"),
        (b'"op7"', b'"op\n"', "op\n"),
        (b'"op7"', b'"op\xff"', "op\ufffd"),
        (b'"op7"', b'"C:\\models\\op"', "C:\\models\\op"),
        (b'"op7"', b'"a\\\\b\\q"', "a\\b\\q"),
    ],
)
def test_bad_characters_are_mended(before: bytes, after: bytes, name: str) -> None:
    trace = damaged(before, after)
    assert trace.cpu["name"].tolist() == [name if i == 7 else f"op{i}" for i in range(40)]
    assert kinds(trace) == ["mended"]
    assert "40 read" in trace.meta.damage[0].message


def test_events_beside_a_damaged_one_are_not_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mending all that is read at a time took 8 times the CPU time of the same file undamaged."""
    mended: list[int] = []
    looked_at: list[str] = []

    def counted(text: bytes) -> str:
        mended.append(len(text))
        return mended_text(text)

    def noted(event: Any, frame: str, start: int) -> str | None:
        looked_at.append(event["name"])
        return problem_of(event, frame, start)

    monkeypatch.setattr(repair, "mended_text", counted)
    monkeypatch.setattr(quirks, "problem_of", noted)
    content = ops(4_000).to_json().replace(b'"ts": 70.005, "dur": 5.0', b'"ts": 70.005, "dur": NaN')
    trace = load_bytes(content.replace(b'"op2000"', b'"op2000\x01"'))
    assert len(trace.cpu) == 3_999
    assert len(mended) == 2
    assert sum(mended) < 500
    assert "op7" in looked_at
    assert len(looked_at) <= 8
    assert trace.meta.damage[0].message.startswith("invalid characters or numbers among 2 events")


def test_a_text_that_holds_separators_stays_whole_beside_damage() -> None:
    content = ops().to_json().replace(b'"op7"', b'"a},{},{b"').replace(b'"op8"', b'"op\x01"')
    trace = load_bytes(content)
    names = trace.cpu["name"].tolist()
    assert names[6:10] == ["op6", "a},{},{b", "op\x01", "op9"]
    assert len(names) == 40


def test_damage_in_many_places_is_told_once() -> None:
    content = ops(200).to_json()
    for number in (3, 4, 90, 190):
        content = content.replace(b'"op%d"' % number, b'"op"%d"' % number)
    trace = load_bytes(content, batch_bytes=WINDOW)
    assert len(trace.cpu) == 196
    (damage,) = trace.meta.damage
    assert damage.events_lost == 4
    assert damage.message.startswith("4 events unreadable near byte ")
    assert damage.message.endswith(" and in 2 more; 196 read")
    assert damage.byte_offset is not None
    assert content[damage.byte_offset :].partition(b'"name": ')[2].startswith(b'"op"3"')


@pytest.mark.no_cover  # the same lines wherever it is cut
@pytest.mark.parametrize("layout", ["kineto", "minified", "array"])
def test_a_cut_file_keeps_its_whole_events(layout: str) -> None:
    whole = ops(40)
    content = whole.to_json(layout)  # type: ignore[arg-type]
    for keep in range(content.index(b"op2") + 300, len(content) - 60, 97):
        trace = load_bytes(content[:keep], batch_bytes=WINDOW)
        names = trace.cpu["name"].tolist()
        assert names == [f"op{i}" for i in range(len(names))]
        assert len(names) >= content[:keep].count(b'"op') - 1
        assert trace.meta.damage or layout == "kineto"
        assert sum(trace.meta.counted.values()) == 0


def test_a_cut_compressed_file_keeps_what_unpacks() -> None:
    for packed in (zipped(20_000), zstandard.compress(gzip.decompress(zipped(20_000)))):
        trace = load_bytes(packed[: len(packed) * 2 // 3])
        assert 10_000 < len(trace.cpu) < 20_000
        assert kinds(trace)[0] == "truncated compression"


def test_a_damaged_gzip_file_keeps_as_much_as_its_pieces_give(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = bytearray(zipped(20_000))
    packed[len(packed) * 3 // 4] ^= 0xFF
    trace = load_bytes(bytes(packed))
    assert 10_000 < len(trace.cpu) < 20_000
    assert any(kind in ("damaged compression", "unreadable") for kind in kinds(trace))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bytes(packed))))
    piped = load("-")  # never in whole blocks
    assert isinstance(piped, Trace)
    assert_same(trace, piped)
    assert trace.meta.damage == piped.meta.damage


@pytest.mark.parametrize(("field", "what"), [(-8, "data"), (-4, "length")])
@pytest.mark.parametrize("count", [40, 20_000])
def test_a_wrong_checksum_costs_no_event(field: int, what: str, count: int) -> None:
    packed = bytearray(zipped(count))
    packed[field] ^= 0xFF
    trace = load_bytes(bytes(packed))
    assert len(trace.cpu) == count
    assert kinds(trace) == ["damaged compression"]
    assert f"incorrect {what} check" in trace.meta.damage[0].message


def test_a_file_of_several_members_is_read_to_the_damage(tmp_path: Path) -> None:
    content = ops().to_json()
    with gzip.open(tmp_path / "named.gz", "wb") as stream:  # its header has a file name
        stream.write(content[:1_000])
    named, rest = (tmp_path / "named.gz").read_bytes(), bytearray(gzip.compress(content[1_000:]))
    assert load_bytes(named + rest + b"\0" * 100).meta.damage == ()
    rest[-8] ^= 1
    trace = load_bytes(named + rest)
    assert len(trace.cpu) == 40
    assert kinds(trace) == ["damaged compression"]


@examples(150)
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"[", b"\x28\xb5\x2f\xfd", b'{"traceEvents": [', b'[{"ph":"X"},', b"\x1f\x8b\x08"]),
)
def test_garbage_raises_nothing_else(content: bytes, prefix: bytes) -> None:
    with suppress(TraceAnalyzerError):
        trace = load_bytes(prefix + content)
        accounted = sum(sum(rows.values()) for rows in trace.meta.rows.values())
        assert accounted + sum(trace.meta.counted.values()) == trace.meta.events


@examples(150)
@given(st.data())
def test_any_bytes_overwritten_lose_little_and_are_told(data: st.DataObject) -> None:
    content = bytearray(everything().to_json())
    start = data.draw(st.integers(content.index(b'"traceEvents"') + 20, len(content) - 40))
    noise = data.draw(st.binary(min_size=1, max_size=8))
    content[start : start + len(noise)] = noise
    trace = load_bytes(bytes(content), batch_bytes=data.draw(st.integers(600, 5_000)))
    accounted = sum(sum(rows.values()) for rows in trace.meta.rows.values())
    assert accounted + sum(trace.meta.counted.values()) == trace.meta.events
    assert trace.meta.events >= len(everything().events) - 6
