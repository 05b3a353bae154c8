"""A recording's files: their names, and how they get there, whole and without replacing what is not to be replaced."""

import gzip
import json
import os
import re
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import IO, Any

from .process import counted

EXECUTION_TRACE = ".et.json.gz"
_DESCRIPTION = ".about.json"
_COMPRESSION = 5
_CHUNK = 1 << 20


def ending_of(path: str) -> str:
    """`.json.gz`, `.json`, or nothing."""
    return next((end for end in (".json.gz", ".json") if path.endswith(end)), "")


def path_of_rank(path: str, rank: int, world: int) -> str:
    """`trace.json.gz` of one process; `trace-rank3.json.gz` of rank 3 of several; `{rank}` is replaced, too."""
    if "{rank}" in path:
        return path.replace("{rank}", str(rank))
    if world <= 1:
        return path
    ending = ending_of(path)
    return f"{path.removesuffix(ending)}-rank{rank}{ending}"


def existing_outputs(path: str) -> list[str]:
    """Files that a recording to `path` could be in the way of: its own, those of ranks, processes and tensors."""
    folder, name = os.path.split(os.path.abspath(path))
    ending = ending_of(name)
    stem = re.escape(name.removesuffix(ending)).replace(re.escape("{rank}"), r"\d+")
    pattern = re.compile(rf"{stem}(-rank\d+)?(-\d+)?({re.escape(ending)}|{re.escape(EXECUTION_TRACE)})")
    folders = [folder]
    if "{rank}" in folder:
        above, _, _ = folder.partition("{rank}")
        above = os.path.dirname(above)
        wanted = re.compile(re.escape(folder).replace(re.escape("{rank}"), r"\d+"))
        folders = [place for place, _, _ in os.walk(above) if wanted.fullmatch(place)]
    return sorted(
        os.path.join(place, entry)
        for place in filter(os.path.isdir, folders)
        for entry in os.listdir(place)
        if pattern.fullmatch(entry) and os.path.isfile(os.path.join(place, entry))
    )


@dataclass(frozen=True)
class Recording:
    """What a process recorded, before it has its place.

    Attributes:
        path: where it belongs, with the rank in it.
        cut_off: mark of the step that had not ended; None where all had.
        missing: what lacks, as a sentence; None where it is whole.
    """

    path: str
    raw: str
    metadata: dict[str, Any]
    recorded: int
    rank: int = 0
    world: int = 1
    tensors: str | None = None
    cut_off: str | None = None
    missing: str | None = None
    notes: tuple[str, ...] = ()

    def save(self) -> None:
        """Leave a description beside the raw trace, from which another process can publish it."""
        part = f"{self.raw}{_DESCRIPTION}.part"
        with open(part, "w", encoding="utf-8") as stream:
            json.dump(asdict(self), stream)
        os.replace(part, f"{self.raw}{_DESCRIPTION}")

    def publish(self, key: str, *, force: bool, taken: Collection[str] = ()) -> str:
        """Write the files to their places, and return the trace's path.

        The path gets `-2`, `-3`, ... where it is `taken`, or a file is there that `force` does not replace.

        Raises OSError: a file cannot be written.
        """
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        folder = os.path.dirname(self.raw)
        envelope = {key: self.metadata}
        path = _placed(self.path, folder, lambda stream: self._copy(stream, envelope), force, taken)
        if self.tensors is not None:
            target = path.removesuffix(ending_of(path)) + EXECUTION_TRACE
            with open(self.tensors, "rb") as source:
                _placed(target, folder, lambda stream: shutil.copyfileobj(source, stream, _CHUNK), force, ())
        return path

    def told(self, path: str) -> list[str]:
        """What the user reads once the trace is at that path."""
        missing = [f"{path}: {self.missing}"] if self.missing else []
        return [f"{path}: {counted(self.recorded)} recorded", *self.notes, *missing]

    def discard(self) -> None:
        """Remove the raw files."""
        for part in (self.raw, f"{self.raw}{_DESCRIPTION}", self.tensors):
            if part is not None:
                with suppress(OSError):
                    os.remove(part)

    def _copy(self, target: IO[bytes], envelope: dict[str, Any]) -> None:
        """The trace, with more keys in its envelope. The step that had not ended loses its mark."""
        with open(self.raw, "rb") as source:
            source.seek(source.read(64).index(b"{") + 1)
            target.write(b"{" + json.dumps(envelope)[1:-1].encode() + b",")
            if self.cut_off is None:
                shutil.copyfileobj(source, target, _CHUNK)
                return
            mark, unmarked = f'"{self.cut_off}"'.encode(), b'"ProfilerStep cut off"'
            for line in source:
                target.write(line.replace(mark, unmarked))


def saved_recordings(folder: str) -> dict[str, Recording]:
    """Descriptions of recordings that were left in a folder, by the path of their raw trace."""
    saved = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(_DESCRIPTION):
            with open(os.path.join(folder, name), encoding="utf-8") as stream:
                fields = json.load(stream)
            saved[fields["raw"]] = Recording(**{**fields, "notes": tuple(fields["notes"])})
    return saved


def _placed(path: str, folder: str, write: Callable[[IO[bytes]], object], force: bool, taken: Collection[str]) -> str:
    """The path, or the next that is free, of a file that `write` fills; it is there as a whole or not at all."""
    part = os.path.join(folder, f".{os.path.basename(path)}.{os.getpid()}.part")
    try:
        with _opened(part, path) as stream:
            write(stream)
        ending, number, wanted = ending_of(path), 1, path
        while wanted in taken or not _linked(part, wanted, force):
            number += 1
            wanted = f"{path.removesuffix(ending)}-{number}{ending}"
        return wanted
    finally:
        with suppress(OSError):
            os.remove(part)


def _opened(part: str, path: str) -> Any:
    return gzip.open(part, "wb", compresslevel=_COMPRESSION) if path.endswith(".gz") else open(part, "wb")


def _linked(part: str, path: str, force: bool) -> bool:
    """Whether the file is at its place now; False where another one is."""
    if force:
        os.replace(part, path)
        return True
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        if os.path.lexists(path):
            return False
        os.replace(part, path)
    return True
