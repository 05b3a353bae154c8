"""The large files that are measured, made once from real traces: the shared ones, or else the fixtures."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

from benchmarks.make_large import make
from benchmarks.measure import REPOSITORY

DATA = REPOSITORY / "benchmarks" / "data"
SHARED = Path(os.environ.get("TRACEANALYZER_TRACES", REPOSITORY.parent / "shared" / "traces"))
_SOURCES = {
    "plain": (SHARED / "real" / "resnet50.eager.json.gz", "healthy"),
    "stacks": (SHARED / "real" / "llama_decode.eager.json.gz", "healthy"),
}


def source(name: str) -> Path:
    """The real trace that is repeated.

    Raises:
        FileNotFoundError: neither the shared traces nor a fixture is there.
    """
    shared, folder = _SOURCES[name]
    if shared.exists():
        return shared
    fixtures = sorted((REPOSITORY / "fixtures" / folder).glob("*.json.gz"), key=lambda path: path.stat().st_size)
    if not fixtures:
        raise FileNotFoundError("no trace to repeat: set TRACEANALYZER_TRACES")
    return fixtures[-1]


def large(name: str, megabytes: int, layout: str = "kineto") -> Path:
    """The trace `name` repeated to that size."""
    DATA.mkdir(exist_ok=True)
    return make(source(name), DATA / f"{name}-{layout}-{megabytes}.json", megabytes, layout=layout)


def gzipped(path: Path) -> Path:
    """The same file as .json.gz."""
    packed = path.with_suffix(".json.gz")
    if not packed.exists():
        with path.open("rb") as plain, gzip.open(packed, "wb", compresslevel=6) as file:
            shutil.copyfileobj(plain, file, 1 << 20)
    return packed
