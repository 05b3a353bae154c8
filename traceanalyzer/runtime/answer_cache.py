"""Answers about files, stored between runs: a job that is diagnosed again asks only what is missing.

One file per trace beside its parsed columns (read/cache.py), whose name says of which state of the file it is: a record
per answer, told by all questions up to it and by the code that answers. An answer is a pickle, as between processes;
the folder is the user's own.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from struct import Struct
from typing import Any

from traceanalyzer.runtime.pool import Pool, Task

_log = logging.getLogger(__name__)
_HEAD = Struct("<32sII")  # which questions, bytes, checksum


class AnswerCache:
    """A `Pool` that asks another one what is not stored.

    Args:
        pool: reads files and answers.
        place_of: (path, suffix) -> where a file's answers are stored; None where they cannot be.
    """

    def __init__(self, pool: Pool, place_of: Callable[[Path, str], Path | None]) -> None:
        self._pool, self._place_of = pool, place_of

    def run(self, tasks: Sequence[Task], told: Callable[[Task], None]) -> dict[str, Any]:
        """As `Pool` has it."""
        keys = {task.key: _key(task) for task in tasks}
        places = {
            task.key: None if task.once else self._place_of(Path(task.key), ".answers") for task in tasks
        }
        answers: dict[str, Any] = {}
        for task in tasks:
            answer = _stored(places[task.key], keys[task.key])
            if answer is not None:
                answers[task.key] = pickle.loads(answer)
                told(task)
        asked = [task for task in tasks if task.key not in answers]
        given = self._pool.run(asked, told) if asked else {}
        for path, answer in given.items():
            if not isinstance(answer, Exception):
                _keep(places[path], keys[path], pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))
        return answers | given

    def close(self) -> None:
        """End the processes."""
        self._pool.close()


def _key(task: Task) -> bytes:
    """Of the questions up to this one, and of the code that answers."""
    return hashlib.sha256(_code() + task.questions()).digest()


@cache
def _code() -> bytes:
    """Which files this program consists of, in which state."""
    home = Path(__file__).parents[1]
    states = [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in sorted(home.rglob("*.py"))]
    return hashlib.sha256(repr(states).encode()).digest()


def _stored(place: Path | None, key: bytes) -> bytes | None:
    try:
        content = place.read_bytes() if place is not None else b""
    except OSError:
        return None
    at = 0
    while at + _HEAD.size <= len(content):
        own, size, checksum = _HEAD.unpack_from(content, at)
        at += _HEAD.size + size
        answer = content[at - size : at]
        if own == key and zlib.crc32(answer) == checksum:
            return answer
    if place is not None and at != len(content):
        place.unlink(missing_ok=True)  # a run ended while it wrote
    return None


def _keep(place: Path | None, key: bytes, answer: bytes) -> None:
    """Behind the others of the file's present state; those of other states go."""
    if place is None:
        return
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not place.exists():
            for older in place.parent.glob(f"{place.name.split('-')[0]}-*{place.suffix}"):
                older.unlink(missing_ok=True)
        with place.open("ab") as file:
            file.write(_HEAD.pack(key, len(answer), zlib.crc32(answer)) + answer)
    except OSError as error:
        _log.debug("%s is not kept: %s", place, error)
