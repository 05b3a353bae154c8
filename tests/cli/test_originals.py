"""Traces as they lie on disk: where their first event begins, and that all of their bytes are there."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from traceanalyzer.cli import overlays
from traceanalyzer.cli.overlays import blocks_of, refuse_standard_input, split_at_events
from traceanalyzer.model.errors import BadOption, UnreadableTrace

EVENT = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2, "pid": 3, "tid": 4}'
EVENTS = b", ".join([EVENT] * 9_000)  # more than two blocks


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("header", [1, 300_000, 900_000])
def test_a_trace_is_split_where_its_first_event_begins(header: int, packed: bool, tmp_path: Path) -> None:
    """Though its header takes several blocks; each byte is in one of the two parts, and once."""
    head = b'{"note": "' + b"x" * header + b'", "traceEvents": ['
    whole = head + EVENTS + b'], "after": 1}'
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(whole, 1) if packed else whole)
    before, rest = split_at_events(str(path))
    assert before == head
    assert b"".join(rest) == whole[len(head) :]
    assert b"".join(blocks_of(str(path))) == whole


def test_a_header_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is longer than any that is written."""
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"note": "' + b"x" * 700_000 + b'", "traceEvents": [' + EVENT + b"]}")
    monkeypatch.setattr(overlays, "_MOST_HEAD_BYTES", 800_000)
    assert split_at_events(str(path))[0].endswith(b'"traceEvents": [')
    monkeypatch.setattr(overlays, "_MOST_HEAD_BYTES", 400_000)
    with pytest.raises(UnreadableTrace, match="has no events that others could be put among"):
        split_at_events(str(path))


def test_what_has_no_events_is_not_split(tmp_path: Path) -> None:
    (path := tmp_path / "trace.json").write_text('{"a": 1}')
    with pytest.raises(UnreadableTrace, match="has no events that others could be put among"):
        split_at_events(str(path))


def test_one_pipe_among_files_is_enough() -> None:
    refuse_standard_input([Path("a.json"), Path("b-.json")])
    with pytest.raises(BadOption, match="can be read only once"):
        refuse_standard_input([Path("a.json"), Path("-")])
