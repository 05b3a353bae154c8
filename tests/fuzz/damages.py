"""How a case is written, and damage to its bytes."""

import gzip
import json
import random
import re
from collections.abc import Callable
from typing import Any

import zstandard

from tests.fuzz.changes import Event

_MARKS = (b'"', b"\\", b"},{", b"},\n  {", b"]", b"[", b"{", b"}", b",")
_BYTES = (*_MARKS, b"\x00", b"\xff", b"\\ud800", b"nan", b"1e999")


def written(rng: random.Random, header: Event, events: list[Any]) -> bytes:
    """The file before it is damaged, in one of the layouts."""
    separators = rng.choice(((",", ":"), (", ", ": ")))
    dump = json.JSONEncoder(separators=separators, ensure_ascii=rng.random() < 0.8).encode
    texts = (rng.choice((",\n  ", ",")) if rng.random() < 0.05 else ",\n").join(map(dump, events))
    fields = [f"{dump(key)}: {dump(value)}" for key, value in header.items()]
    fields.insert(rng.randint(0, len(fields)), f'"traceEvents": [{texts}\n]')
    whole = f"[{texts}]" if rng.random() < 0.1 else "{" + ",\n".join(fields) + "}"
    whole = re.sub(r'"@(object|list) (\d+)@"', unmarked, whole)
    return whole.encode("utf-8", "surrogatepass")


def unmarked(match: re.Match[str]) -> str:
    """The nesting that a mark of `odd` stands for."""
    opening, closing = ('{"a":', "}") if match[1] == "object" else ("[", "]")
    return opening * int(match[2]) + "1" + closing * int(match[2])


def _overwrite(rng: random.Random, data: bytes) -> bytes:
    at, noise = rng.randint(0, len(data)), rng.choice((*_BYTES, rng.randbytes(rng.randint(1, 9))))
    return data[:at] + noise + data[at + len(noise) :]


def _insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(_BYTES) * rng.choice((1, 1, 2, 3000)) + data[at:]


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randint(0, len(data))]


def _move(rng: random.Random, data: bytes) -> bytes:
    low, high, at = sorted(rng.randint(0, len(data)) for _ in range(3))
    return data[:low] + data[high:at] + data[low:high] + data[at:]


DAMAGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (_overwrite, _insert, _cut, _move)


def packed(rng: random.Random, data: bytes) -> bytes:
    """Mostly as it is, else compressed, and then perhaps damaged again."""
    chosen = rng.random()
    if chosen < 0.8:
        return data
    small = gzip.compress(data, 1, mtime=0) if chosen < 0.93 else zstandard.compress(data)
    return rng.choice(DAMAGES)(rng, small) if rng.random() < 0.5 else small
