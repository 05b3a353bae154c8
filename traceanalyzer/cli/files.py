"""Output files: checked before the work starts, complete or absent after it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from traceanalyzer.model.errors import BadOption, OutputExists, TraceAnalyzerError


def check_outputs(paths: Sequence[Path], *, inputs: Sequence[Path] = (), force: bool = False) -> None:
    """Refuse now what could not be written later.

    Raises:
        OutputExists: a file is there and `force` is not given.
        BadOption: two outputs are one file, or an output is an input.
        TraceAnalyzerError: the folder is missing or cannot be written to.
    """
    for position, path in enumerate(paths):
        if path.resolve() in [other.resolve() for other in paths[:position]]:
            raise BadOption("two outputs go to one file", where=path, remedy="Give each a name of its own.")
        if path.resolve() in [trace.resolve() for trace in inputs]:
            raise BadOption("would overwrite the trace", where=path, remedy="Choose another name.")
        _check(path, force)


def _check(path: Path, force: bool) -> None:
    if path.is_dir():
        raise TraceAnalyzerError("is a folder", where=path, remedy="Name a file in it.")
    if _is_device(path):
        return
    if path.exists() and not force:
        raise OutputExists("already exists", where=path, remedy="Pass --force to replace it.")
    if not path.resolve().parent.is_dir():
        raise TraceAnalyzerError("its folder does not exist", where=path, remedy="Create the folder first.")
    if not os.access(path.resolve().parent, os.W_OK):
        raise TraceAnalyzerError(
            "its folder cannot be written to", where=path, remedy="Choose another folder."
        )


def _is_device(path: Path) -> bool:
    """Pipes, terminals, /dev/null: there is nothing to replace in them."""
    return path.exists() and not path.is_file()


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content takes the file's place once all of it is there.

    Raises:
        TraceAnalyzerError: the operating system refuses.
    """
    try:
        if _is_device(path):
            with path.open("wb") as stream:
                yield stream
            return
        with _replacing(path.resolve()) as stream:
            yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise TraceAnalyzerError(problem, where=path, remedy="Write it to another place.") from error


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file beside the wanted one, renamed over it at the end and removed on any failure."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("xb") as stream:
            yield stream
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def made(folder: Path) -> Path:
    """The folder, created where it is missing.

    Raises:
        TraceAnalyzerError: the operating system refuses.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot be created: {error.strerror}"
        raise TraceAnalyzerError(problem, where=folder, remedy="Name another folder.") from error
    return folder


def check_folder(folder: Path) -> None:
    """Refuse now where no folder could be made later.

    Raises:
        TraceAnalyzerError: a file has its name.
    """
    if folder.exists() and not folder.is_dir():
        raise TraceAnalyzerError("is a file, not a folder", where=folder, remedy="Name another folder.")
