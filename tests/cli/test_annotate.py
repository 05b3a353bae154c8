"""`annotate`: what it writes by the file's ending, and what it refuses."""

import gzip
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import printed, refused
from tests.perfetto.reader import read
from tests.support.trace_files import MS, built
from traceanalyzer.cli import annotate as command


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two kernels with 6 ms between them, compressed."""
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(built().to_json()))
    return path


def events_of(path: Path) -> bytes:
    """The trace's JSON."""
    return gzip.decompress(path.read_bytes())


def test_the_overlay_alone(trace: Path, tmp_path: Path) -> None:
    said = printed("annotate", trace, "-o", tmp_path / "findings.pftrace")
    drawing = read((tmp_path / "findings.pftrace").read_bytes())
    gap = [one for one in drawing.slices["Idle: device 0"] if MS < one.start_ns < 7 * MS]
    assert sum(one.end_ns - one.start_ns for one in gap) == 6 * MS
    assert gap[-1].end_ns == 7 * MS + 20_000
    assert said.startswith(str(tmp_path / "findings.pftrace"))


def test_the_archive_has_the_trace_byte_for_byte(trace: Path, tmp_path: Path) -> None:
    before = trace.read_bytes()
    printed("annotate", trace, "-o", tmp_path / "bundle.zip")
    with zipfile.ZipFile(tmp_path / "bundle.zip") as packed:
        assert packed.read("trace.json") == events_of(trace)
        assert read(packed.read("trace.findings.pftrace")).slices
    assert trace.read_bytes() == before


@pytest.mark.parametrize("layout", ["kineto", "minified", "array"])
def test_one_json_keeps_the_traces_own_events(layout: str, tmp_path: Path) -> None:
    path = built().write(tmp_path / "plain.json", layout)  # type: ignore[arg-type]
    printed("annotate", path, "-o", tmp_path / "merged.json.gz")
    merged = json.loads(gzip.decompress((tmp_path / "merged.json.gz").read_bytes()))
    own = json.loads(path.read_bytes())
    if layout != "array":
        assert {key: value for key, value in merged.items() if key != "traceEvents"} == {
            key: value for key, value in own.items() if key != "traceEvents"
        }
        merged, own = merged["traceEvents"], own["traceEvents"]
    assert merged[-len(own) :] == own
    assert all(event["pid"] == 1_900_000_000 for event in merged[: -len(own)])
    assert {"Idle: device 0"} <= {event["args"].get("name") for event in merged if event["name"] == "thread_name"}


def test_ranks_go_into_one_archive(tmp_path: Path) -> None:
    declared = [{"rank": rank, "world_size": 2} for rank in (1, 0)]
    paths = [built(distributedInfo=one).write(tmp_path / f"r{one['rank']}.json") for one in declared]
    printed("annotate", *paths, "-o", tmp_path / "job.zip")
    with zipfile.ZipFile(tmp_path / "job.zip") as packed:
        assert packed.read("rank1.json") == paths[0].read_bytes()
        assert packed.read("rank0.json") == paths[1].read_bytes()
        assert read(packed.read("rank1.findings.pftrace")).groups == ["traceanalyzer: rank 1"]
    assert ".zip" in refused("annotate", *paths, "-o", tmp_path / "job.pftrace")
    assert not (tmp_path / "job.pftrace").exists()


def test_a_window(trace: Path, tmp_path: Path) -> None:
    printed("annotate", trace, "-o", tmp_path / "part.pftrace", "--window", "0ms:2ms")
    drawing = read((tmp_path / "part.pftrace").read_bytes())
    assert max(one.end_ns for one in drawing.slices["Idle: device 0"]) <= 2 * MS


@pytest.mark.parametrize("name", ["findings", "findings.txt", "json", "findings.pftrace.gz"])
def test_the_ending_says_what_to_write(name: str, trace: Path, tmp_path: Path) -> None:
    assert ".pftrace" in refused("annotate", trace, "-o", tmp_path / name)


def test_nothing_is_overwritten(trace: Path, tmp_path: Path) -> None:
    output = tmp_path / "findings.pftrace"
    output.write_bytes(b"mine")
    assert "--force" in refused("annotate", trace, "-o", output)
    assert output.read_bytes() == b"mine"
    printed("annotate", trace, "-o", output, "--force")
    assert output.read_bytes() != b"mine"
    assert "would overwrite the trace" in refused("annotate", trace, "-o", trace, "--force")


def test_a_trace_within_a_folder_is_not_overwritten(trace: Path, tmp_path: Path) -> None:
    second = built().write(tmp_path / "trace2.json")
    for path in (trace, second):
        before = path.read_bytes()
        assert "would overwrite the trace" in refused("annotate", tmp_path, "-o", path, "--force")
        assert path.read_bytes() == before


def test_how_many_slices_were_drawn_is_said_of_all_ranks(tmp_path: Path) -> None:
    declared = [{"rank": rank, "world_size": 2} for rank in (0, 1)]
    paths = [built(distributedInfo=one).write(tmp_path / f"rank{one['rank']}.json") for one in declared]
    said = printed("annotate", *paths, "-o", tmp_path / "job.zip")
    with zipfile.ZipFile(tmp_path / "job.zip") as packed:
        drawings = [read(packed.read(f"rank{rank}.findings.pftrace")) for rank in (0, 1)]
    counts = [sum(map(len, one.slices.values())) for one in drawings]
    assert min(counts) > max(len(one.slices) for one in drawings)
    assert said.startswith(f"{tmp_path / 'job.zip'}: {sum(counts):,} slices; ")


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("a.PFTRACE", b"\x0a"),
        ("a.perfetto-trace", b"\x0a"),
        ("a.Zip", b"PK\x03\x04"),
        ("a.tar", b"perfetto_manifest.json\0"),
        ("a.json", b"\n{"),
        ("a.JSON.GZ", b"\x1f\x8b\x08\0\0\0\0\0"),  # without the time of day: always the same bytes
    ],
)
def test_each_ending_in_either_case_has_its_format(name: str, begins: bytes, trace: Path, tmp_path: Path) -> None:
    printed("annotate", trace, "-o", tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_large_traces_are_not_merged(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the bytes of the JSON, not by those of the file."""
    size = len(events_of(trace))
    assert trace.stat().st_size < size - 1
    monkeypatch.setattr(command, "MOST_MERGED_BYTES", size)
    printed("annotate", trace, "-o", tmp_path / "fits.json")
    monkeypatch.setattr(command, "MOST_MERGED_BYTES", size - 1)
    assert ".zip" in refused("annotate", trace, "-o", tmp_path / "merged.json")
    assert not (tmp_path / "merged.json").exists()


def test_traces_too_large_for_a_zip(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from traceanalyzer.render.perfetto import archive

    monkeypatch.setattr(archive, "MOST_ZIP_BYTES", 100)
    assert ".tar" in refused("annotate", trace, "-o", tmp_path / "bundle.zip")
    assert [path.name for path in tmp_path.iterdir()] == [trace.name]


def test_a_trace_is_copied_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No block is larger than what is read at a time."""
    from traceanalyzer.render.perfetto import archive

    made = built()
    for at in range(20_000):
        made.op("aten::add", 20 * MS + at * 1_000, 500)
    path = made.write(tmp_path / "long.json")
    sizes: list[int] = []
    evened = archive.evened

    def watched(blocks: Any, drift: Any) -> Iterator[bytes]:
        for block in evened(blocks, drift):
            sizes.append(len(block))
            yield block

    monkeypatch.setattr(archive, "evened", watched)
    printed("annotate", path, "-o", tmp_path / "bundle.zip")
    assert path.stat().st_size > 2_000_000
    assert max(sizes) <= 256 * 1024
