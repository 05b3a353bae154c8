"""The archive: originals byte for byte, and a manifest as Perfetto's reference has it."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.perfetto.drawn import BASE, TRACE, member, overlay, unpacked
from tests.perfetto.merging import placed
from tests.perfetto.reader import read
from traceanalyzer.render.perfetto.archive import (
    manifest,
    member_names,
    write_tar,
    write_zip,
)


@pytest.mark.parametrize("form", ["zip", "tar"])
def test_originals_are_byte_for_byte(form: str) -> None:
    files = unpacked([member(overlay())], form)
    assert list(files) == ["perfetto_manifest.json", "trace.json", "trace.findings.pftrace"]
    assert files["trace.json"] == TRACE
    assert [one.start_ns for one in read(files["trace.findings.pftrace"]).slices["track"]] == [1]
    assert json.loads(files["perfetto_manifest.json"]) == manifest([overlay()])


@pytest.mark.parametrize("form", ["zip", "tar"])
def test_the_same_traces_give_the_same_bytes(form: str) -> None:
    write = write_zip if form == "zip" else write_tar
    first, again = io.BytesIO(), io.BytesIO()
    write([member(overlay())], first)
    write([member(overlay())], again)
    assert first.getvalue() == again.getvalue()


def test_zip_keeps_to_what_perfetto_reads() -> None:
    """Its reader refuses flags and versions that it does not know; it looks at local headers alone."""
    stream = io.BytesIO()
    write_zip([member(overlay(source="caf\u00e9 \u202e/b\u00e4d name.json"))], stream)
    with zipfile.ZipFile(stream) as packed:
        for entry in packed.infolist():
            assert entry.extract_version <= 20
            assert entry.flag_bits == 0
            assert entry.compress_type == zipfile.ZIP_DEFLATED
            assert entry.filename.isascii()
            assert entry.compress_size < max(entry.file_size, 300)


def test_ranks_stand_on_the_clock_of_the_earliest() -> None:
    """A later base means that the same times are later; none is moved before zero."""
    later = 7_889_238 * 10**9
    said = manifest([overlay(0, base=BASE + later), overlay(1), overlay(2)])["perfetto_manifest"]
    assert said["trace_time"]["file"] == "rank1.findings.pftrace"
    offsets = {entry["path"]: clocks(entry) for entry in said["files"]}
    reference = {"file": "rank1.findings.pftrace", "clock": "BOOTTIME"}
    assert offsets["rank1.findings.pftrace"] is None
    assert offsets["rank0.findings.pftrace"] == {
        "clock": "BOOTTIME",
        "sync_to": reference,
        "offset_ns": later,
    }
    assert offsets["rank2.findings.pftrace"] == {"clock": "BOOTTIME", "sync_to": reference, "offset_ns": 0}
    own = {"file": "rank0.findings.pftrace", "clock": "BOOTTIME"}
    assert offsets["rank0.json"] == {"sync_to": own, "offset_ns": 0}
    machines = {entry["path"]: entry["machine"]["name"] for entry in said["files"]}
    assert machines["rank0.json"] == machines["rank0.findings.pftrace"] == "rank 0"


def clocks(entry: dict[str, Any]) -> dict[str, Any] | None:
    """How the file's clock is related."""
    found: dict[str, Any] | None = entry.get("clocks")
    return found


@settings(max_examples=30)
@given(
    bases=st.lists(st.integers(0, 2 * 10**18), min_size=1, max_size=12), form=st.sampled_from(["zip", "tar"])
)
def test_perfetto_places_every_file_where_it_was_recorded(bases: list[int], form: str) -> None:
    """As the manifest's reference has it: each trace with its overlay, ranks by their clocks, none before zero."""
    ranks = [None] if len(bases) == 1 else range(len(bases))
    overlays = [overlay(rank, base=base) for rank, base in zip(ranks, bases, strict=True)]
    at = placed(unpacked([member(one, b'{"traceEvents": []}') for one in overlays], form))
    for (trace, drawn), base in zip(member_names(overlays), bases, strict=True):
        assert at[trace] == at[drawn] == base - min(bases)
    assert len(at) == 2 * len(bases)
    assert min(at.values()) == 0


@pytest.mark.parametrize(
    ("source", "stem"),
    [
        ("runs/host_12.1700000000.pt.trace.json.gz", "host_12.1700000000.pt.trace"),
        ("a.json.zst", "a"),
        (".json", "trace"),
        ("<standard input>", "standard_input"),
        ("../\u202e\udce9.json", "trace"),
        ("x" * 300 + ".json", "x" * 60),
    ],
)
def test_names_in_the_archive(source: str, stem: str) -> None:
    """Perfetto passes over names that begin with a dot."""
    assert member_names([overlay(source=source)]) == [(f"{stem}.json", f"{stem}.findings.pftrace")]


def test_one_trace_is_pinned_to_its_overlay() -> None:
    said = manifest([overlay()])["perfetto_manifest"]
    assert said["version"] == 1
    assert said["trace_time"] == {"clock": "BOOTTIME", "file": "trace.findings.pftrace"}
    assert said["files"] == [
        {"path": "trace.findings.pftrace"},
        {
            "path": "trace.json",
            "clocks": {"sync_to": {"file": "trace.findings.pftrace", "clock": "BOOTTIME"}, "offset_ns": 0},
        },
    ]
