"""Any trace file as a stream of plain bytes: plain, gzip or zstd, told by its first bytes; or standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from traceanalyzer.errors import UnreadableTrace
from traceanalyzer.trace import Damage

STDIN = "-"
BLOCK_BYTES = (
    256 * 1024
)  # as a window of chunks.py: blocks that stay in the cache parse twice as fast as 8 MB ones
_COMPRESSED_BLOCK_BYTES = 64 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class Source:
    """The plain bytes of one file, block by block.

    Attributes:
        name: what to call the file in messages.
        size: bytes in the file, compressed or not; None for a pipe.
        consumed: bytes of the file read so far, for progress.
        damage: what was wrong with the compression; complete once the blocks are exhausted.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = "<standard input>" if str(path) == STDIN else str(path)
        self.size: int | None = None
        self.consumed = 0
        self.damage: list[Damage] = []
        self._path = path

    def blocks(self) -> Iterator[bytes]:
        """Blocks of about BLOCK_BYTES of plain bytes.

        Raises:
            UnreadableTrace: the file is missing, a folder, not readable or empty.
        """
        with self._open() as file:
            first = file.read(BLOCK_BYTES)
            if not first:
                raise UnreadableTrace("the file is empty", where=self.name, remedy=_RECORD_AGAIN)
            if first.startswith(_GZIP_MAGIC):
                yield from self._decompressed(file, first, _gzip_decompressor)
            elif first.startswith(_ZSTD_MAGIC):
                yield from self._decompressed(file, first, _zstd_decompressor)
            else:
                yield from self._plain(file, first)

    def _open(self) -> IO[bytes]:
        if str(self._path) == STDIN:
            return sys.stdin.buffer
        path = Path(self._path)
        try:
            file = path.open("rb")
            self.size = path.stat().st_size
        except FileNotFoundError:
            raise UnreadableTrace("no such file", where=self.name, remedy="Check the path.") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UnreadableTrace(f"cannot be opened: {reason}", where=self.name) from None
        return file

    def _plain(self, file: IO[bytes], first: bytes) -> Iterator[bytes]:
        block = first
        while block:
            self.consumed += len(block)
            yield block
            block = file.read(BLOCK_BYTES)

    def _decompressed(self, file: IO[bytes], first: bytes, make: Any) -> Iterator[bytes]:
        stream: _Decompressor = make()
        pending = first
        while pending or not stream.eof:
            data = pending or file.read(_COMPRESSED_BLOCK_BYTES)
            self.consumed += 0 if pending is not first and pending else len(data)
            if not data:
                self._cut_short()
                return
            try:
                plain = stream.decompress(data)
            except Exception as error:  # each library has its own class for damaged data
                self._corrupt(error)
                return
            if plain:
                yield plain
            pending = b""
            if stream.eof:
                pending = stream.unused_data or file.read(_COMPRESSED_BLOCK_BYTES)
                if not pending.strip(b"\0"):  # tapes and block devices pad with zeros
                    return
                stream = make()

    def _cut_short(self) -> None:
        message = f"the compressed data end early, at byte {self.consumed:,} of the file"
        self.damage.append(Damage("truncated compression", message, byte_offset=self.consumed))

    def _corrupt(self, error: Exception) -> None:
        message = f"the compressed data are damaged near byte {self.consumed:,} of the file ({error})"
        self.damage.append(Damage("damaged compression", message, byte_offset=self.consumed))


_RECORD_AGAIN = "Record the trace again and let the profiler finish before the process exits."


def _gzip_decompressor() -> _Decompressor:
    from isal import isal_zlib

    stream: _Decompressor = isal_zlib.decompressobj(wbits=31)
    return stream


def _zstd_decompressor() -> _Decompressor:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()
