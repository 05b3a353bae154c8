"""The files that a recording becomes: names, refusal to overwrite, bytes."""

from __future__ import annotations

import gzip
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capture.errors import CaptureError
from capture.scrub import Scrubber
from capture.session import Recording


@dataclass(frozen=True, slots=True)
class Output:
    """Where the files go: `folder/name` and an ending each."""

    folder: Path
    name: str
    with_table: bool = True

    @property
    def trace(self) -> Path:
        """The trace, compressed."""
        return self.folder / f"{self.name}.json.gz"

    @property
    def meta(self) -> Path:
        """Versions, arguments and unprofiled step times."""
        return self.folder / f"{self.name}.meta.json"

    @property
    def table(self) -> Path:
        """The printed table of `key_averages()`."""
        return self.folder / f"{self.name}.txt"

    @property
    def rows(self) -> Path:
        """Every row of `key_averages()`, exact, compressed."""
        return self.folder / f"{self.name}.table.json.gz"

    def paths(self) -> list[Path]:
        """All files that will be written."""
        tables = [self.table, self.rows] if self.with_table else []
        return [self.trace, self.meta, *tables]

    def refuse_overwrite(self, force: bool) -> None:
        """An error when a file is there already, before anything has run."""
        if os.sep in self.name or "/" in self.name or self.name.startswith("."):
            raise CaptureError(f"--name {self.name!r} must be a plain file name; folders go to --out")
        if self.folder.exists() and not self.folder.is_dir():
            raise CaptureError(f"--out {self.folder} is not a folder")
        there = [path for path in self.paths() if path.exists()]
        if there and not force:
            raise CaptureError(f"{there[0]} exists; use --force to overwrite, or another --name or --out")

    def write(self, recording: Recording, meta: dict[str, Any]) -> list[Path]:
        """Scrub and write everything; each file appears complete or not at all."""
        scrubber = Scrubber(trace_name=f"{self.name}.json")
        trace = scrubber.trace(recording.trace_text).encode("utf-8", errors="surrogateescape")
        files = {self.trace: compress(trace), self.meta: _json({**meta, "json_bytes": len(trace)})}
        if self.with_table:
            rows = [{**row, "key": scrubber.text(row["key"])} for row in recording.rows]
            files[self.table] = scrubber.text(recording.table_text).encode()
            files[self.rows] = compress(json.dumps(rows).encode())
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for path, data in files.items():
                _replace(path, data)
        except OSError as error:
            raise CaptureError(f"cannot write to {self.folder}: {error.strerror}") from error
        return list(files)


def compress(data: bytes) -> bytes:
    """gzip without name and time, so that the same trace gives the same bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=0) as file:
        file.write(data)
    return buffer.getvalue()


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def _replace(path: Path, data: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(data)
    partial.replace(path)
