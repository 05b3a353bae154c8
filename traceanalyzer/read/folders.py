"""Which files of a folder are the traces of one job: as torch, HTA, TorchTitan and Megatron lay them out."""

from __future__ import annotations

import re
from pathlib import Path

from traceanalyzer.read.text.archive import is_trace_name

_RANK_NAME = re.compile(r"(?:^|[^a-z0-9])rank[-_ .=]?(\d+)(?!\d)", re.IGNORECASE)
_DEPTH = 3  # folders below the one that was named: `traces/iteration_10/rank0/trace.json`


def traces_in(folder: Path) -> tuple[list[Path], list[Path]]:
    """(files that may be traces of one job, in order; files of other iterations, which are left out).

    Those of the folder itself; where it has none, those of its folders: one file in each is a rank's own folder,
    several are an iteration's, of which the last is taken.
    """
    own = _files(folder)
    if own:
        return own, []
    groups = [files for below in _folders(folder, _DEPTH) if (files := _files(below))]
    if all(len(files) == 1 for files in groups):
        return [files[0] for files in groups], []
    return groups[-1] if groups else [], [path for files in groups[:-1] for path in files]


def rank_of_name(source: str) -> int | None:
    """The rank that a file's path names, `rank-3.json` or `rank3/trace.json`; None where it names none."""
    path = Path(source)
    for part in (path.name, path.parent.name):
        found = _RANK_NAME.findall(part)
        if found:
            return int(found[-1])
    return None


def by_number(path: Path) -> list[str | int]:
    """Files in order: rank10 after rank9, which is the order of ranks that none declares."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]


def _files(folder: Path) -> list[Path]:
    return sorted((p for p in folder.iterdir() if p.is_file() and is_trace_name(p.name)), key=by_number)


def _folders(folder: Path, depth: int) -> list[Path]:
    """All folders below, each before what is in it."""
    found = []
    for below in sorted((p for p in folder.iterdir() if p.is_dir()), key=by_number):
        found += [below, *(_folders(below, depth - 1) if depth > 1 else ())]
    return found
