"""Answers about files, stored between runs: a job that is diagnosed again asks only what is missing.

One file per trace beside its parsed columns (read/cache.py), whose name says of which state of the file it is: a record
per answer, told by all questions up to it and by the code that answers. An answer is a pickle of which only data is
read: arrays of numpy and records of this package. The folder and its files are the user's own.
"""

import dataclasses
import hashlib
import io
import logging
import pickle
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from struct import Struct
from typing import Any

from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.private_files import create_private, make_private, open_private
from traceanalyzer.runtime.pool import Pool, Task

_log = logging.getLogger(__name__)
_HEAD = Struct("<32sII")  # which questions, bytes, checksum
_PACKAGE = __name__.partition(".")[0]
# Functions and classes that pickles of numpy arrays and of containers name; none does anything else than make one.
_PLAIN = {
    "builtins": {"bytearray", "complex", "frozenset", "range", "set", "slice"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},  # before numpy 2
    "numpy.core.numeric": {"_frombuffer"},
}


class AnswerCache:
    """A `Pool` that asks another one what is not stored; `place_of` is where a file's answers are, or None."""

    def __init__(self, pool: Pool, place_of: Callable[[Path, str], Path | None]) -> None:
        self._pool, self._place_of = pool, place_of

    def run(self, tasks: Sequence[Task], told: Callable[[Task], None]) -> dict[str, Any]:
        keys = {task.key: hashlib.sha256(_code() + task.questions()).digest() for task in tasks}
        places = {one.key: None if one.once else self._place_of(Path(one.key), ".answers") for one in tasks}
        answers: dict[str, Any] = {}
        for task in tasks:
            answer = _stored(places[task.key], keys[task.key])
            if answer is not None:
                with suppress(Exception):  # no answer, whatever it is: it is asked again
                    answers[task.key] = _Data(io.BytesIO(answer)).load()
            if task.key in answers:
                told(task)
        asked = [task for task in tasks if task.key not in answers]
        given = self._pool.run(asked, told) if asked else {}
        for path, answer in given.items():
            if isinstance(answer, Unavailable) or not isinstance(answer, Exception):
                _keep(places[path], keys[path], _pickled(answer))
        return answers | given

    def close(self) -> None:
        self._pool.close()


def _pickled(answer: Any) -> bytes:
    """What `_Data` reads."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
    # Dask registers a function for every exception, which would stand in the pickle and is no data.
    pickler.dispatch_table = {}
    pickler.dump(answer)
    return stream.getvalue()


class _Data(pickle.Unpickler):
    """Reads pickles that hold nothing but data."""

    def find_class(self, module: str, name: str) -> Any:
        """Raises UnpicklingError: it is neither plain data nor a record of this package."""
        if name in _PLAIN.get(module, ()):
            return super().find_class(module, name)
        if module.partition(".")[0] == _PACKAGE and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module and _is_record(found):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no data")


def _is_record(kind: type) -> bool:
    return (
        dataclasses.is_dataclass(kind)
        or issubclass(kind, Enum | Unavailable)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


@cache
def _code() -> bytes:
    """Which files this program consists of, in which state."""
    home = Path(__file__).parents[1]
    files = sorted([*home.rglob("*.py"), *home.rglob("*.toml")])
    states = [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in files]
    return hashlib.sha256(repr(states).encode()).digest()


def _stored(place: Path | None, key: bytes) -> bytes | None:
    file = open_private(place) if place is not None else None
    if file is None:
        return None
    with file:
        content = file.read()
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
        if not make_private(place.parent):
            return
        if not place.exists():
            for older in place.parent.glob(f"{place.name.split('-')[0]}-*{place.suffix}"):
                older.unlink(missing_ok=True)
        with create_private(place, append=True) as file:
            file.write(_HEAD.pack(key, len(answer), zlib.crc32(answer)) + answer)
    except OSError as error:
        _log.debug("%s is not kept: %s", place, error)
