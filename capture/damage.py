"""Damages one recorded trace in every way that a reader must survive: `python -m capture.damage`.

Each function takes the trace and gives the bytes of a file. Nothing is random and nothing
is compressed anew, so the bytes are the same everywhere.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "fixtures"
SOURCE = "hidden-dtod-copy/good.json.gz"
OPERATOR = '"name": "aten::addmm"'
END_OF_EVENT = "\n  },\n"


@dataclass(frozen=True, slots=True)
class Source:
    """The recorded trace, compressed as it lies in the repository, and its text."""

    packed: bytes
    text: str


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to be broken: the file's name, what is wrong with it, and how it is made."""

    file: str
    what: str
    make: Callable[[Source], bytes]


def _empty(_source: Source) -> bytes:
    return b""


def _not_json(_source: Source) -> bytes:
    return b"Thu Jan  1 00:00:00 1970  profiler started\nno trace was written\n"


def _not_a_trace(_source: Source) -> bytes:
    return b'{"name": "step time", "unit": "ms", "values": [3.1, 3.2, 3.1]}\n'


def _two_thirds(source: Source) -> bytes:
    return source.packed[: len(source.packed) * 2 // 3]


def _middle(text: str) -> int:
    """Where an event ends, about halfway through: the offset behind its closing brace."""
    return text.index(END_OF_EVENT, len(text) // 2) + len(END_OF_EVENT) - 2


def _truncated(source: Source) -> bytes:
    text = source.text
    cut = text.index('"name"', _middle(text)) + len('"name": "a')
    return text[:cut].encode()


def _cut_behind_event(source: Source) -> bytes:
    text = source.text
    return text[: _middle(text)].encode()


def _cut_behind_comma(source: Source) -> bytes:
    text = source.text
    return text[: _middle(text) + 1].encode()


def _trailing_comma(source: Source) -> bytes:
    text = source.text
    end = text.rindex("}", 0, text.rindex("]")) + 1
    return (text[:end] + "," + text[end:]).encode()


def _name(new: bytes) -> Callable[[Source], bytes]:
    """The operator's name replaced in its second and third event."""

    def make(source: Source) -> bytes:
        parts = source.text.encode().split(OPERATOR.encode())
        damaged = b'"name": "' + new + b'"'
        joints = [damaged if index in (1, 2) else OPERATOR.encode() for index in range(len(parts) - 1)]
        return b"".join(part + joint for part, joint in zip(parts, [*joints, b""], strict=True))

    return make


def _kernel_value(key: str, values: tuple[str, ...]) -> Callable[[Source], bytes]:
    """One argument of the first kernels replaced, each by the next of the values."""

    def make(source: Source) -> bytes:
        waiting = list(values)
        pattern = re.compile(rf'("{re.escape(key)}": )(-?[0-9.]+)')
        pieces = source.text.split('"cat": "kernel"')
        for index in range(1, len(pieces)):
            if waiting:
                pieces[index] = pattern.sub(rf"\g<1>{waiting.pop(0)}", pieces[index], count=1)
        return '"cat": "kernel"'.join(pieces).encode()

    return make


KINDS = (
    Kind("empty.json", "no bytes at all", _empty),
    Kind("not-json.json", "a log file", _not_json),
    Kind("not-a-trace.json", "valid JSON without `traceEvents`", _not_a_trace),
    Kind("truncated.json", "cut within the name of an event", _truncated),
    Kind("cut-behind-event.json", "cut exactly behind an event's closing brace", _cut_behind_event),
    Kind("cut-behind-comma.json", "cut exactly behind the comma that follows an event", _cut_behind_comma),
    Kind("trailing-comma.json", "a comma behind the last event", _trailing_comma),
    Kind("control-characters.json", "raw newline, tab, escape in two names", _name(b"aten::\n\t\x1baddmm")),
    Kind("invalid-utf8.json", "bytes in two names that are not UTF-8", _name(b"aten::\xff\xfe\xc3addmm")),
    Kind("unescaped-quotes.json", "quotes in two names", _name(b'aten::"addmm" of "x"')),
    Kind("unescaped-backslashes.json", "backslashes in two names", _name(b"C:\\src\\addmm")),
    Kind(
        "not-finite.json",
        "NaN, Infinity, -Infinity and inf as a kernel's occupancy",
        _kernel_value("est. achieved occupancy %", ("NaN", "Infinity", "-Infinity", "inf")),
    ),
    Kind(
        "beyond-64-bit.json",
        "a correlation beyond 64 bits, and one of exactly 2**64",
        _kernel_value("correlation", ("36893488147419103232", "18446744073709551616")),
    ),
    Kind("truncated.json.gz", "the compressed file cut at two thirds", _two_thirds),
)


def damaged(packed: bytes) -> dict[str, bytes]:
    """File name to bytes, from the compressed trace."""
    source = Source(packed, gzip.decompress(packed).decode())
    return {kind.file: kind.make(source) for kind in KINDS}


def write_broken(folder: Path = FOLDER) -> list[Path]:
    """Write `broken/` anew from the recorded trace beside it."""
    target = folder / "broken"
    target.mkdir(exist_ok=True)
    paths = []
    for name, data in damaged((folder / SOURCE).read_bytes()).items():
        (target / name).write_bytes(data)
        paths.append(target / name)
    return paths


if __name__ == "__main__":
    for written in write_broken():
        print(f"wrote {written.relative_to(FOLDER.parent)}")
    sys.exit(0)
