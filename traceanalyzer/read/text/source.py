"""Any trace file as plain bytes: plain, gzip, zstd, the only trace of a tar archive, or standard input."""

import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import Damage

STDIN = "-"
BLOCK_BYTES = 256 * 1024
BATCH_BYTES = 128 * 1024  # parsed at a time: twice as much takes 12 % longer for ranks of 2 MB on busy cores
_COMPRESSED_BYTES = 8 * 1024  # unpacks to about a block; where zstd's data are damaged, this much is lost
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib's number for a window of 32 kB within gzip's header and checksum
# Bytes of a gzip member's trailer after those that zlib finds wrong: its checksum, or its length.
_LEFT_OF_TRAILER = {"incorrect data check": 4, "incorrect length check": 0}
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_HEADER_BYTES = 18  # at most
_HEADER_BYTES = 512  # of a file in a tar archive, which is the longest


class Source:
    """The plain bytes of one file, block by block.

    Attributes:
        size: bytes in the file, compressed or not; None for a pipe.
        damage: what was wrong with the compression; complete once the blocks are exhausted.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = "<standard input>" if str(path) == STDIN else str(path)
        self.size: int | None = None
        self.consumed = 0
        self.damage: list[Damage] = []
        self._path = path

    def plain_bytes(self) -> int | None:
        """How many plain bytes the file seems to hold, without reading it; None where nothing tells."""
        if not is_regular(self._path):
            return None
        try:
            with open(self._path, "rb") as file:
                first = file.read(_HEADER_BYTES)
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - 4, 0))
                last = file.read(4)
        except (OSError, ValueError):
            return None
        if is_archive(first):
            return None
        if first.startswith(_ZSTD_MAGIC):
            import zstandard

            try:
                known = zstandard.get_frame_parameters(first[:_ZSTD_HEADER_BYTES]).content_size
            except zstandard.ZstdError:
                return None
            return known if known < zstandard.CONTENTSIZE_UNKNOWN else None
        return int.from_bytes(last, "little") if first.startswith(_GZIP_MAGIC) else size

    def blocks(self, start: int = 0) -> Iterator[bytes]:
        """Blocks of about BLOCK_BYTES of plain bytes, from the plain byte `start` on.

        Raises UnreadableTrace: the file is missing, a folder, not readable or empty, or an archive without one trace.
        """
        with self._open() as file:
            first = self._read(file, _COMPRESSED_BYTES)
            if not first:
                remedy = "Record the trace again and let the profiler finish before the process exits."
                raise UnreadableTrace("the file is empty", where=self.name, remedy=remedy)
            if start and not is_archive(first) and not first.startswith((_GZIP_MAGIC, _ZSTD_MAGIC)):
                file.seek(start)
                yield from self._packed(file, self._read(file, BLOCK_BYTES), BLOCK_BYTES)
                return
            blocks = self._plain(file, first)
            head = next(blocks, b"")
            blocks = chain([head], blocks)
            if is_archive(head):
                blocks = only_trace(blocks, self.name, self._member)
            yield from _from(start, blocks)

    def _plain(self, file: IO[bytes], first: bytes) -> Iterator[bytes]:
        """The file without its compression; `first` was read of it."""
        if first.startswith(_GZIP_MAGIC):
            return self._gunzipped(file, first)
        if first.startswith(_ZSTD_MAGIC):
            import zstandard

            return self._unpacked(file, first, lambda: zstandard.ZstdDecompressor().decompressobj())
        return self._packed(file, first, BLOCK_BYTES)

    def _member(self, content: IO[bytes]) -> Iterator[bytes]:
        """A file in the archive without its compression, which can be read but once; damage is noted as the file's."""
        inner = Source(STDIN)
        inner.name, inner.damage = self.name, self.damage
        return inner._plain(content, content.read(_COMPRESSED_BYTES))

    def _open(self) -> AbstractContextManager[IO[bytes]]:
        if str(self._path) == STDIN:
            return nullcontext(sys.stdin.buffer)
        path = Path(self._path)
        try:
            file = path.open("rb")
        except FileNotFoundError:
            raise UnreadableTrace("no such file", where=self.name, remedy="Check the path.") from None
        except OSError as error:
            raise self._unreadable(error) from None
        self.size = path.stat().st_size if path.is_file() else None
        return file

    def _read(self, file: IO[bytes], size: int) -> bytes:
        try:
            block = file.read(size)
        except OSError as error:
            raise self._unreadable(error) from None
        self.consumed += len(block)
        return block

    def _unreadable(self, error: OSError) -> UnreadableTrace:
        return UnreadableTrace(f"cannot be read: {(error.strerror or str(error)).lower()}", where=self.name)

    def _packed(self, file: IO[bytes], first: bytes, size: int) -> Iterator[bytes]:
        block = first
        while block:
            yield block
            block = self._read(file, size)

    def _gunzipped(self, file: IO[bytes], first: bytes) -> Iterator[bytes]:
        """The file decompressed into whole blocks; from the first damage on, or from a pipe, piece by piece."""
        from isal import igzip

        done = 0
        if self._path != STDIN and file.seekable():
            file.seek(0)
            try:
                with igzip.open(file) as stream:
                    while block := stream.read(BLOCK_BYTES):
                        self.consumed = file.tell()
                        done += len(block)
                        yield block
                return
            except Exception:  # each kind of damage has its own class
                self.consumed = file.seek(len(first))
        yield from _from(done, self._unpacked(file, first, lambda: zlib.decompressobj(_GZIP_WINDOW)))

    def _unpacked(self, file: IO[bytes], first: bytes, make: Callable[[], Any]) -> Iterator[bytes]:
        """The file decompressed; it may consist of several members, and devices pad it with zeros."""
        stream: Any = None  # none between members
        for data in self._packed(file, first, _COMPRESSED_BYTES):
            while data := data if stream else data.lstrip(b"\0"):
                stream = stream or make()
                before = stream.copy() if hasattr(stream, "copy") else None
                try:
                    plain = stream.decompress(data)
                except Exception as error:  # each library has its own class for damaged data
                    pieces = list(_up_to_damage(before, data)) if before else []
                    yield from pieces
                    self._note("damaged", f"are damaged near byte {self.consumed:,} of the file ({error})")
                    left = _LEFT_OF_TRAILER.get(str(error).rpartition(": ")[2])
                    if left is None:
                        return
                    # All of this member was unpacked; there is a piece for each byte before the damaged one.
                    data, stream = (data[len(pieces) + 1 :] + self._read(file, left))[left:], None
                    continue
                if plain:
                    yield plain
                data, stream = (stream.unused_data, None) if stream.eof else (b"", stream)
        if stream:
            self._note("truncated", f"end early, at byte {self.consumed:,} of the file")

    def _note(self, what: str, problem: str) -> None:
        if not any(entry.kind.startswith(what) for entry in self.damage):
            message = f"the compressed data {problem}"
            self.damage.append(Damage(f"{what} compression", message, byte_offset=self.consumed))


def _from(start: int, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The blocks without the first `start` bytes."""
    for block in blocks:
        if start < len(block):
            yield block[start:]
        start = max(start - len(block), 0)


def _up_to_damage(stream: Any, data: bytes) -> Iterator[bytes]:
    """What the bytes before the damaged one unpack to."""
    with suppress(zlib.error):
        for at in range(len(data)):
            yield stream.decompress(data[at : at + 1])


# A name that begins with "._" is a file's attributes as macOS packs them.
_EXECUTION_TRACE = regex(r"\.et\.json(\.\w+)?$")
_TRACE_NAME = regex(r"^(?!\._).*\.json(\.gz|\.zst)?$", re.IGNORECASE)
_OPENED_BYTES = 64 << 10
_REMEDY = "Pass an archive of one .json, .json.gz or .json.zst; or unpack it and pass the folder."


def is_trace_name(path: str) -> bool:
    """Whether a file of this path may be a trace; execution traces, `NAME.et.json.gz`, are none."""
    name = path.rpartition("/")[2]
    return bool(_TRACE_NAME.match(name)) and not _EXECUTION_TRACE.search(name)


def is_regular(path: str | Path) -> bool:
    """Whether it is a file that can be read twice: no pipe, no device, not standard input."""
    return str(path) != STDIN and Path(path).is_file()


def is_archive(first: bytes) -> bool:
    return first[257:262] == b"ustar"


def only_trace(blocks: Iterator[bytes], where: str, plain: Callable[[IO[bytes]], Iterator[bytes]]) -> Iterator[bytes]:
    """The plain bytes of the only trace in an archive, in which `plain` unpacks a file.

    Raises UnreadableTrace: it holds no trace, or a second one, or is damaged where files begin.
    """
    import tarfile

    trace_name = None
    try:
        pipe = cast(IO[bytes], _Pipe(blocks))
        with tarfile.open(fileobj=pipe, mode="r|", bufsize=_OPENED_BYTES) as archive:
            for member in archive:
                if not member.isfile() or not is_trace_name(member.name):
                    continue
                if trace_name is not None:
                    problem = f"is a tar archive of several .json files: {trace_name}, {member.name}"
                    raise UnreadableTrace(problem, where=where, remedy=_REMEDY)
                trace_name = member.name
                content = archive.extractfile(member)
                assert content is not None
                yield from plain(content)
    except (tarfile.TarError, EOFError) as error:
        if trace_name is None:
            problem = f"is a tar archive that cannot be read ({error})"
            raise UnreadableTrace(problem, where=where, remedy="Copy it again.") from None
    if trace_name is None:
        raise UnreadableTrace("is a tar archive without a trace in it", where=where, remedy=_REMEDY)


class _Pipe:
    """Blocks as a file that is read from its beginning to its end."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = b""

    def read(self, size: int) -> bytes:
        if not self._rest:
            self._rest = next(self._blocks, b"")
        data, self._rest = self._rest[:size], self._rest[size:]
        return data
