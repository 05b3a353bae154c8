"""No command writes over a trace that it reads, not even with --force, and an overlay is the same each time."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.cli.commands import call, refused, written
from tests.job.ranks import Reductions
from traceanalyzer.cli import annotate


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two kernels with 6 ms between them."""
    return written(tmp_path / "trace.json")


def kept(path: Path, *arguments: object) -> None:
    """The command refuses to write there, at once."""
    before = path.read_bytes()
    assert refused(*arguments, "--force").startswith(f"{path}: would overwrite the trace")
    assert path.read_bytes() == before


def test_annotate_and_baseline_keep_each_trace(trace: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other.json")
    absent = tmp_path / "absent.json"
    for given in ([trace], [trace, other], [absent, trace]):
        kept(trace, "annotate", *given, "-o", trace)
    packed = (tmp_path / "kept.parquet").absolute()
    packed.write_bytes(trace.read_bytes())
    for given in ([packed], [absent, packed]):
        kept(packed, "baseline", "save", packed, *given)


def test_collectives_keep_each_rank(tmp_path: Path) -> None:
    ranks = [
        made.write(tmp_path / f"rank{rank}.json")
        for rank, made in Reductions({0: (500,) * 5, 1: (900,) * 5}).traces().items()
    ]
    for path in ranks:
        kept(path, "collectives", *ranks, "-o", path)


@pytest.mark.parametrize("at", range(4))
def test_compare_keeps_each_capture_of_both_sides(at: int, tmp_path: Path) -> None:
    base, new, more_base, more_new = paths = [written(tmp_path / f"{name}.json") for name in "abcd"]
    given = ("compare", base, new, "--base", more_base, "--new", more_new)
    for option in ("--output", "--parquet"):
        kept(paths[at], *given, option, paths[at])


@pytest.mark.parametrize("ending", [".JSON", ".Json.GZ", ".ZIP", ".PFTRACE"])
def test_the_ending_counts_in_upper_case_too(ending: str, trace: Path, tmp_path: Path) -> None:
    result = call("annotate", trace, "-o", tmp_path / f"findings{ending}")
    assert result.exception is None
    content = (tmp_path / f"findings{ending}").read_bytes().lstrip()
    assert content.startswith({".JSON": b"{", ".Json.GZ": b"\x1f\x8b", ".ZIP": b"PK"}.get(ending, b""))


def test_the_packed_file_holds_no_time_and_no_name(trace: Path, tmp_path: Path) -> None:
    """Bytes 4 to 7 of a gzip file are its time, bit 3 of byte 3 says that a name follows."""
    assert call("annotate", trace, "-o", tmp_path / "findings.json.gz").exception is None
    content = (tmp_path / "findings.json.gz").read_bytes()
    assert (content[4:8], content[3] & 8) == (b"\0\0\0\0", 0)


@pytest.mark.parametrize("more", [0, 1])
def test_a_packed_trace_is_as_large_as_its_json(
    more: int, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = trace.stat().st_size
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    assert packed.stat().st_size < size - 1
    monkeypatch.setattr(annotate, "MOST_MERGED_BYTES", size - more)
    given = ("annotate", packed, "-o", tmp_path / "findings.json")
    if more:
        assert "are too much for one file" in refused(*given)
    else:
        assert call(*given).exception is None
