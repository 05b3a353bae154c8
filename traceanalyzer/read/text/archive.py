"""The one trace of a tar archive, whose plain bytes come block by block."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterator
from typing import IO, cast

from traceanalyzer.model.errors import UnreadableTrace

# A name that begins with "._" is a file's attributes as macOS packs them.
_TRACE_NAME = re.compile(r"^(?!\._).*\.json(\.gz|\.zst)?$", re.IGNORECASE)
_MARK = slice(257, 262)
_OPENED_BYTES = 64 << 10
_REMEDY = "Pass an archive of one .json, .json.gz or .json.zst; or unpack it and pass the folder."


def is_trace_name(path: str) -> bool:
    """Whether a file of this path may be a trace."""
    return bool(_TRACE_NAME.match(path.rpartition("/")[2]))


def is_archive(first: bytes) -> bool:
    """Whether a file that begins so is a tar archive."""
    return first[_MARK] == b"ustar"


def only_trace(
    blocks: Iterator[bytes], where: str, plain: Callable[[IO[bytes]], Iterator[bytes]]
) -> Iterator[bytes]:
    """The plain bytes of the only trace in an archive.

    Args:
        plain: unpacks the file in the archive.

    Raises:
        UnreadableTrace: it holds no trace, or a second one, or is damaged where files begin.
    """
    found = None
    try:
        with tarfile.open(
            fileobj=cast(IO[bytes], _Pipe(blocks)), mode="r|", bufsize=_OPENED_BYTES
        ) as archive:
            for member in archive:
                if not member.isfile() or not is_trace_name(member.name):
                    continue
                if found is not None:
                    problem = f"is a tar archive of several .json files: {found}, {member.name}"
                    raise UnreadableTrace(problem, where=where, remedy=_REMEDY)
                found = member.name
                content = archive.extractfile(member)
                assert content is not None
                yield from plain(content)
    except (tarfile.TarError, EOFError) as error:
        if found is None:
            problem = f"is a tar archive that cannot be read ({error})"
            raise UnreadableTrace(problem, where=where, remedy="Copy it again.") from None
    if found is None:
        raise UnreadableTrace("is a tar archive without a trace in it", where=where, remedy=_REMEDY)


class _Pipe:
    """Blocks as a file that is read from its beginning to its end."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = b""

    def read(self, size: int) -> bytes:
        """At most so many bytes; none at the end."""
        if not self._rest:
            self._rest = next(self._blocks, b"")
        data, self._rest = self._rest[:size], self._rest[size:]
        return data
