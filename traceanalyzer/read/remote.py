"""Traces that are not in files of this machine: `s3://`, `gs://` and whatever else fsspec reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from traceanalyzer.model.errors import BadOption, TraceAnalyzerError, UnreadableTrace
from traceanalyzer.version import install_command


def is_url(path: Any) -> bool:
    """Whether fsspec is to read it."""
    return "://" in str(path)


def as_path(path: str | Path) -> Path:
    """A path of this machine, or what is like one of a URL.

    Raises BadOption: its scheme is unknown, or what reads URLs of this scheme is not installed.
    """
    if not is_url(path):
        return Path(path)
    try:
        from upath import UPath
    except ImportError:
        remedy = install_command("cluster")
        raise BadOption("URLs need universal_pathlib", where=str(path), remedy=remedy) from None
    try:
        url_path = UPath(str(path))
        _ = url_path.fs  # only now packages of the protocol are imported
    except Exception as error:  # each protocol has classes of its own
        raise BadOption(f"cannot be read: {_reason(error)}", where=str(path)) from None
    return cast(Path, url_path)


@contextmanager
def reached(url: str | Path) -> Iterator[None]:
    """Errors of the URL's protocol become one that names the URL.

    Raises BadOption: as `as_path`; UnreadableTrace: it cannot be fetched.
    """
    try:
        yield
    except TraceAnalyzerError:
        raise
    except Exception as error:  # each protocol has classes of its own, and fsspec may lack a package
        raise UnreadableTrace(f"cannot be fetched: {_reason(error)}", where=str(url)) from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


@contextmanager
def fetched(url: str | Path) -> Iterator[Path]:
    """A copy of the file on this machine, as long as it is read; raises what `as_path` and `reached` raise."""
    import shutil
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="traceanalyzer-") as folder:
        with reached(url):
            there = as_path(url)
            copy = Path(folder) / there.name
            with there.open("rb") as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target)
        yield copy
