"""Files of other formats are named, with what to do instead, whatever they are called."""

import bz2
import lzma
import pickle
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.model.overlay import Overlay
from traceanalyzer.read.foreign_files import format_of
from traceanalyzer.read.load import load
from traceanalyzer.render.perfetto.track_events import to_track_events


def parquet(path: Path) -> None:
    pd.DataFrame({"a": [1]}).to_parquet(path)


def feather(path: Path) -> None:
    pd.DataFrame({"a": [1]}).to_feather(path)


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("trace.json", "{}")


def saved(path: Path) -> None:
    """As torch.save lays its archive out."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("snapshot/data.pkl", b"x")


def database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("create table kernels (start)")
    connection.close()


def overlay(path: Path) -> None:
    path.write_bytes(b"".join(to_track_events(Overlay(0, "trace.json", 0, (), ()))))


def content(made: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(made)


MADE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "parquet": (parquet, "is a Parquet table", "export_chrome_trace"),
    "feather": (feather, "is an Arrow or Feather table", "export_chrome_trace"),
    "zip": (zipped, "is a zip archive", "Unpack it"),
    "zip without files": (content(b"PK\x05\x06" + bytes(18)), "is a zip archive", "Unpack it"),
    "zip of several": (content(b"PK\x07\x08" + bytes(18)), "is a zip archive", "Unpack it"),
    "torch.save": (saved, "is a file of torch.save", "export_chrome_trace"),
    "sqlite": (database, "Nsight Systems", "torch.profiler"),
    "pftrace": (overlay, "Perfetto's own format", "export_chrome_trace"),
    "bzip2": (content(bz2.compress(b"{}")), "bzip2", "Unpack it"),
    "xz": (content(lzma.compress(b"{}")), "xz", "Unpack it"),
    "pickle": (content(pickle.dumps({"segments": []})), "is a Python pickle", "memory_viz"),
    "html": (content(b"\n<!doctype html><title>Sign in</title>"), "is HTML or XML", ".json.gz"),
    "xml": (content(b"<?xml version='1.0'?><Error>AccessDenied</Error>"), "is HTML or XML", ".json.gz"),
    "lfs": (content(b"version https://git-lfs.github.com/spec/v1\noid sha256:0"), "Git LFS", "git lfs pull"),
    "utf-16": (content('{"traceEvents": []}'.encode("utf-16")), "UTF-16", "UTF-8"),
    "picture": (content(b"\x89PNG\r\n\x1a\n"), "is a picture", "export_chrome_trace"),
}


@pytest.mark.parametrize("kind", MADE)
def test_another_format_is_named(kind: str, tmp_path: Path) -> None:
    make, problem, remedy = MADE[kind]
    make(path := tmp_path / "trace.json")
    with pytest.raises(UnreadableTrace) as error:
        load(path)
    assert problem in error.value.problem
    assert remedy in str(error.value.remedy)
    assert error.value.where == str(path)


@pytest.mark.parametrize(
    "begin", [b"", b"\n", b"\r\n\t ", b"\xef\xbb\xbf", b"\n\n  \n"], ids=lambda begin: begin.hex() or "none"
)
def test_a_trace_is_taken_for_none_of_them(begin: bytes, tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm\x01", start=5, dur=5_000)
    for text in (trace.to_json(), b"[" + b" " * 300 + b"]", b'{"a": "\x01"}'):
        assert format_of(begin + text) is None
    path = tmp_path / "trace.json"
    path.write_bytes(begin + trace.to_json())
    assert len(load(path).cpu) == 1
