"""Traces that are not in files of this machine: `s3://`, `gs://` and whatever else fsspec reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from traceanalyzer.model.errors import BadOption, UnreadableTrace
from traceanalyzer.version import install_command

_SCHEME = "://"


def is_url(path: Any) -> bool:
    """Whether fsspec is to read it."""
    return _SCHEME in str(path)


def as_path(path: str | Path) -> Path:
    """A path of this machine, or what is like one of a URL.

    Raises:
        BadOption: what reads URLs is not installed.
    """
    if not is_url(path):
        return Path(path)
    try:
        from upath import UPath
    except ImportError:
        remedy = install_command("cluster")
        raise BadOption("URLs need universal_pathlib", where=str(path), remedy=remedy) from None
    try:
        url_path: Path = UPath(str(path))
    except ValueError as error:  # a scheme that fsspec does not know
        raise BadOption(f"cannot be read: {error}", where=str(path)) from None
    return url_path


@contextmanager
def fetched(url: str | Path) -> Iterator[Path]:
    """A copy of the file on this machine, as long as it is read.

    Raises:
        BadOption: its scheme is unknown.
        UnreadableTrace: it cannot be fetched.
    """
    import shutil
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="traceanalyzer-") as folder:
        try:
            there = as_path(url)
            copy = Path(folder) / there.name
            with there.open("rb") as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target)
        except BadOption:
            raise
        except Exception as error:  # each protocol has classes of its own, and fsspec may lack a package
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            problem = f"cannot be fetched: {reason}"
            raise UnreadableTrace(problem, where=str(url)) from error
        yield copy
