"""Which files are the traces of one job, and of which iteration, as torch, HTA, TorchTitan and Megatron name them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.model.text_queries import regex
from traceanalyzer.read.remote import as_path, is_url, reached
from traceanalyzer.read.text.source import STDIN, Source, is_regular, is_trace_name

_RANK_NAME = regex(r"(?:^|[^a-z0-9])rank[-_ .=]?(\d+)(?!\d)", re.IGNORECASE)
_ITERATION_NAME = regex(r"(?:^|[^a-z0-9])(?:iteration|iter|step)s?[-_ .=]?(\d+)(?!\d)", re.IGNORECASE)
_DECLARED = regex(rb'"distributedInfo"\s*:\s*\{[^\[{]*?"rank"\s*:\s*(\d{1,18})\b')
_GLOB = regex(r"[*?\[]")
_DEPTH = 4  # folders below the one that was named: `job/traces/iteration_10/rank0/trace.json`


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one job.

    Attributes:
        files: those that are read as its ranks, in order; of several iterations the last of those with most files.
        folder: file -> the folder that it was found in; files that were named are not in it.
        iterations: name -> files of that iteration, in order; empty where there is but one.
        empty: folders without any file that may be a trace.
    """

    files: tuple[Path, ...]
    folder: Mapping[Path, Path] = field(default_factory=dict)
    iterations: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    empty: tuple[Path, ...] = ()

    @property
    def is_job(self) -> bool:
        """Whether it is of a folder or of several files; one file may hold several ranks all the same."""
        return len(self.files) > 1 or bool(self.folder or self.empty)


def layout_of(paths: Sequence[str | Path]) -> Layout:
    """The files of the job that files, folders and patterns, such as `traces/*/rank*.json`, stand for.

    Of a folder those in it; where it has none, those of the folders below. Several files of one rank are iterations
    where their paths differ in numbers alone.
    """
    expanded = [entry for path in paths for entry in _expanded(path)]
    contents = {path: traces for path in expanded if (traces := _contents(path)) is not None}
    folder = {file: path for path, files in contents.items() for file in files}
    files = tuple(file for path in expanded for file in contents.get(path, (path,)))
    iterations = _iterations(files) if len(files) > 1 and STDIN not in map(str, files) else {}
    chosen = max(reversed(iterations.values()), key=len) if iterations else files
    return Layout(chosen, folder, iterations, tuple(path for path, files in contents.items() if not files))


def rank_of_name(source: str) -> int | None:
    """The rank that a file's path names, `rank-3.json` or `rank3/trace.json`; None where it names none."""
    path = Path(source)
    return _number(_RANK_NAME, (path.name, path.parent.name))


def any_rank(source: str) -> str:
    """The pattern of the files of all ranks beside it, `ddp.rank*.json`; the path itself where its name has no rank."""
    path = Path(source)
    matches = list(_RANK_NAME.finditer(path.name))
    if not matches:
        return source
    begin, end = matches[-1].span(1)  # the last one is the rank
    return str(path.with_name(f"{path.name[:begin]}*{path.name[end:]}"))


def iteration_of_name(source: str) -> int | None:
    """The iteration that a file's path names, `iteration_10/rank0.json`; None where it names none."""
    return _number(_ITERATION_NAME, reversed(Path(source).parts[-_DEPTH - 1 :]))


def _number(pattern: re.Pattern[str], parts: Iterable[str]) -> int | None:
    return next((int(numbers[-1]) for part in parts if (numbers := pattern.findall(part))), None)


def _by_number(name: object) -> list[str | int]:
    """The key that sorts rank10 after rank9, which is the order of ranks that none declares."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(name))]


def _expanded(path: str | Path) -> list[Path]:
    """The path, or what a pattern stands for that no shell has expanded."""
    plain = as_path(path)
    first = _GLOB.search(str(plain))
    if first is None or is_url(path) or plain.exists():
        return [plain]
    root = next(parent for parent in plain.parents if not _GLOB.search(str(parent)))
    return sorted(root.glob(str(plain.relative_to(root))), key=_by_number) or [plain]


def _contents(path: Path) -> list[Path] | None:
    """Files of a folder, and where it has none, of the folders below; None where it is none."""
    with reached(path) if is_url(path) else nullcontext():
        if str(path) == STDIN or not path.is_dir():
            return None
        return _files(path) or [file for below in _folders(path, _DEPTH) for file in _files(below)]


def _files(folder: Path) -> list[Path]:
    return sorted((p for p in folder.iterdir() if p.is_file() and is_trace_name(p.name)), key=_by_number)


def _folders(folder: Path, depth: int) -> list[Path]:
    """All folders below, each before what is in it."""
    folders = []
    for below in sorted((p for p in folder.iterdir() if p.is_dir()), key=_by_number):
        folders += [below, *(_folders(below, depth - 1) if depth > 1 else ())]
    return folders


def _iterations(files: Sequence[Path]) -> dict[str, tuple[Path, ...]]:
    """Name -> files of that iteration; empty where nothing tells several."""
    numbers = [iteration_of_name(str(file)) for file in files]
    if None not in numbers and len(set(numbers)) > 1:
        return _grouped(files, numbers)
    named = [(file, rank_of_name(str(file))) for file in files]
    ranks = [declared_rank(file) if rank is None else rank for file, rank in named]
    declared = [rank for rank in ranks if rank is not None]
    if len(declared) == len(files):
        once = len(set(declared)) == len(declared)
        return {} if once else _by_folder(files, declared) or _by_order(files, declared)
    return _by_folder(files, [(position, rank) for position, rank in enumerate(ranks)])


def _by_folder(files: Sequence[Path], ranks: Sequence[object]) -> dict[str, tuple[Path, ...]]:
    """Folders are iterations whose names differ in numbers alone, if each holds several files or those of one rank."""
    folders = [file.parent.parts for file in files]
    differing = (depth for depth, parts in enumerate(zip(*folders, strict=False)) if len({*parts}) > 1)
    same = next(differing, len(folders[0]))
    names = ["/".join(folder[same:]) for folder in folders]
    groups = _grouped(files, names)
    repeated = len(set(zip(names, ranks, strict=True))) < len(files)
    if repeated or len(groups) < 2 or len({_shape(name) for name in names}) > 1:
        return {}
    distinct_ranks = len(set(ranks)) == len(ranks) and min(map(len, groups.values())) == 1
    return {} if distinct_ranks else groups


def _by_order(files: Sequence[Path], ranks: Sequence[int]) -> dict[str, tuple[Path, ...]]:
    """The first recording of each rank, the second, and so on: as a profiler's schedule repeats them."""
    shapes = {(rank, _shape(str(file))) for file, rank in zip(files, ranks, strict=True)}
    if len(shapes) > len(set(ranks)):
        return {}
    so_far: Counter[int] = Counter()
    number = [0] * len(files)
    for position in sorted(range(len(files)), key=lambda position: _by_number(files[position])):
        so_far[ranks[position]] += 1
        number[position] = so_far[ranks[position]]
    return _grouped(files, number)


def _grouped(files: Sequence[Path], keys: Sequence[object]) -> dict[str, tuple[Path, ...]]:
    groups: dict[object, list[Path]] = {}
    for file, key in zip(files, keys, strict=True):
        groups.setdefault(key, []).append(file)
    return {str(key): tuple(groups[key]) for key in sorted(groups, key=_by_number)}


def _shape(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def declared_rank(file: Path) -> int | None:
    """The rank that the first block of a trace declares; None where it declares none, or cannot be read."""
    if is_url(file) or not is_regular(file):
        return None
    try:
        match = _DECLARED.search(next(Source(file).blocks(), b""))
    except (OSError, ValueError, EOFError, TraceAnalyzerError):
        return None
    return int(match[1]) if match else None
