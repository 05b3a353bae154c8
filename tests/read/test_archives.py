"""Tar archives: the only trace in one is read, and others are refused with the reason."""

import gzip
from pathlib import Path

import pytest
import zstandard

from tests.support.paths import REPOSITORY
from tests.support.trace_files import tar
from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.read.load import load, load_file

PACKED = (REPOSITORY / "fixtures" / "launch-bound" / "bad.json.gz").read_bytes()
PLAIN = gzip.decompress(PACKED)


@pytest.mark.parametrize(
    "content",
    [
        tar(("run/trace.json", PLAIN)),
        tar(("README", b"text"), ("trace.json.gz", PACKED), ("._trace.json.gz", b"attributes"), mode="w:gz"),
        zstandard.compress(tar(("trace.json.zst", zstandard.compress(PLAIN)))),
        tar(("x" * 300 + ".json", PLAIN)),
    ],
    ids=["plain", "gzip in gzip", "zstd in zstd", "long name"],
)
@pytest.mark.parametrize("batch_bytes", [1_000, 1 << 18])
def test_the_only_trace_of_an_archive_is_read(content: bytes, batch_bytes: int, tmp_path: Path) -> None:
    (path := tmp_path / "trace.tar").write_bytes(content)
    (alone := tmp_path / "trace.json").write_bytes(PLAIN)
    trace = load_file(path, batch_bytes=batch_bytes)
    assert trace.cpu.equals(load(alone).cpu)
    assert not trace.meta.damage


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (tar(("a.json", PLAIN), ("b.json.gz", PACKED)), "several .json files: a.json, b.json.gz"),
        (tar(("a.txt", PLAIN)), "without a trace in it"),
        (tar(("a.json", PLAIN))[:512], "holds nothing but blanks"),
        (tar(("a.json", b"")), "holds nothing but blanks"),
        (tar(("a.txt", PLAIN))[:1000] + b"x" * 5000, "tar archive"),
    ],
)
def test_other_archives_are_refused(content: bytes, problem: str, tmp_path: Path) -> None:
    (path := tmp_path / "trace.tar").write_bytes(content)
    with pytest.raises(UnreadableTrace, match=problem):
        load(path)


@pytest.mark.parametrize("content", [tar(("a.json", PLAIN)), tar(("a.json.gz", PACKED))])
def test_what_a_cut_archive_holds_is_read_and_said(content: bytes, tmp_path: Path) -> None:
    (path := tmp_path / "trace.tar").write_bytes(content[: len(content) // 2])
    trace = load(path)
    assert len(trace.cpu)
    assert any("truncated" in damage.kind for damage in trace.meta.damage)
