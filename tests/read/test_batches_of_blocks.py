"""The batches that a source's blocks are cut into."""

import json
from pathlib import Path

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.read.text import batches
from traceanalyzer.read.text.batches import Batches, Style
from traceanalyzer.read.text.source import Source


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
