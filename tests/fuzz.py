"""Breaks traces at random, to find what the analyzer must not do: `python -m tests.fuzz --seconds 30 --seed 1`.

A case is some events of a real trace, changed in their values (odd numbers, nesting, half characters, times at both
ends), in their order, and then in their bytes (cut, overwritten, packed and damaged). It may be refused with one of
our own errors; anything else, a rule that fails, an event that is neither in a frame nor counted, and more than
seconds for a small file, is a find: it is kept in `--keep`, and belongs into tests/fuzz_cases afterwards, where
test_fuzz_cases.py tries it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import zstandard

from tests.conftest import REPOSITORY, SHARED
from traceanalyzer import diagnose
from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.model.finding import Status
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.load import load_file

Event = dict[str, Any]

MAX_SECONDS = 10.0  # for a file of at most a few MB; most take 0.01
_MAX_SOURCE_BYTES = 3 << 20
_MAX_EVENTS = 300
_DIAGNOSED = 0.15  # share of the cases
_FIELDS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "s")
_PHASES = ("X", "M", "C", "i", "s", "f", "B", "E", "", "XX")
_NAMES = (
    "ProfilerStep#3",
    f"ProfilerStep#{2**63}",
    "ProfilerStep#" + "9" * 5000,
    "[memory]",
    "a\x1b[31mb",
    "cudaFree",
)
_BYTES = (
    b'"',
    b"\\",
    b"},{",
    b"},\n  {",
    b"]",
    b"[",
    b"{",
    b"}",
    b",",
    b"\x00",
    b"\xff",
    b"\\ud800",
    b"nan",
    b"1e999",
)


@cache
def sources() -> list[Path]:
    """Traces to break: fixtures, and the shared ones where they are."""
    fixtures = (REPOSITORY / "fixtures").glob("*/*.json*")
    found = [*fixtures, *SHARED.glob("*/*.json.gz")]
    small = [path for path in found if path.stat().st_size < _MAX_SOURCE_BYTES]
    return sorted(
        path for path in small if not path.name.endswith((".meta.json", ".table.json.gz", "findings.json"))
    )


@cache
def content(path: Path) -> tuple[dict[str, Any], list[Event]]:
    """Header and events of a trace; none where it is broken already."""
    data = path.read_bytes()
    try:
        whole = orjson.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (orjson.JSONDecodeError, EOFError):
        return {}, []
    if isinstance(whole, list):
        return {}, whole
    return {key: value for key, value in whole.items() if key != "traceEvents"}, whole.get("traceEvents", [])


def case(seed: int) -> bytes:
    """The file of one case; the same for the same seed."""
    rng = random.Random(seed)
    header, events = content(rng.choice(sources()))
    some = _some(rng, events)
    header = {key: value for key, value in header.items() if rng.random() < 0.9}
    for _ in range(rng.choice((0, 1, 1, 2, 5, 20))):
        rng.choice(_CHANGES)(rng, header, some)
    data = _written(rng, header, _with_others(rng, some) if rng.random() < 0.1 else some)
    for _ in range(rng.choice((0, 0, 0, 1, 1, 3))):
        data = rng.choice(_DAMAGES)(rng, data)
    return _packed(rng, data)


def _some(rng: random.Random, events: list[Event]) -> list[Event]:
    """A stretch of the events, copied, so that launches and their work stay together, and some from elsewhere."""
    size = rng.choice((0, 1, 3, 30, _MAX_EVENTS))
    start = rng.randrange(max(len(events) - size, 1))
    chosen = events[start : start + size] + rng.sample(events, min(size // 4, len(events)))
    return [orjson.loads(orjson.dumps(event)) for event in chosen]


# -- changes of values ---------------------------------------------------------------------------------------


def _odd(rng: random.Random) -> Any:
    return rng.choice(
        (
            lambda: None,
            lambda: rng.choice((True, False, "", "None", " ", "0", "-1", "nan", "1e400", "1e99999999")),
            lambda: rng.choice((2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**70), 10**30, -1)),
            lambda: rng.choice((0.5, -0.0, 1e15, 1e16, 1e300, -9.2e15, 9.2e15, float("nan"), float("inf"))),
            lambda: rng.choice(
                ("\ud800", "a\udfffb", "\x00", "\x1b]0;x\x07", "},{", '"', "\\", "µ\u202e", "x" * 10_000)
            ),
            lambda: _nested(rng.choice((1, 60, 70, 253, 254, 255, 900, 1010)), rng.random() < 0.5),
            lambda: [None, 1.5, "x", {}],
            lambda: {"": 1, "a": {"b": [1]}},
            lambda: rng.choice(("9" * 5000, "stream 7", "GPU 2", "worker")),
        )
    )()


def _nested(depth: int, in_objects: bool) -> Any:
    """A mark that `_written` replaces: Python's own writer stops at its recursion limit."""
    return f"@{'object' if in_objects else 'list'} {depth}@"


def _unmarked(match: re.Match[str]) -> str:
    opening, closing = ('{"a":', "}") if match[1] == "object" else ("[", "]")
    return opening * int(match[2]) + "1" + closing * int(match[2])


def _change_field(rng: random.Random, header: Event, events: list[Event]) -> None:
    if events:
        rng.choice(events)[rng.choice(_FIELDS)] = _odd(rng)


def _drop_field(rng: random.Random, header: Event, events: list[Event]) -> None:
    for event in rng.sample(events, min(len(events), rng.choice((1, 10, 1000)))):
        event.pop(rng.choice(_FIELDS), None)


def _change_arg(rng: random.Random, header: Event, events: list[Event]) -> None:
    with_args = [event for event in events if isinstance(event.get("args"), dict)]
    if with_args:
        args = rng.choice(with_args)["args"]
        args[rng.choice([*map(str, args), "new", "\ud800", ""])] = _odd(rng)


def _change_header(rng: random.Random, header: Event, events: list[Event]) -> None:
    keys = [*header, "traceEvents2", "meta", "distributedInfo", "deviceProperties", "baseTimeNanoseconds"]
    header[rng.choice(keys)] = rng.choice((_odd(rng), {"rank": _odd(rng)}, [{"id": 0, "numSms": _odd(rng)}]))


def _change_times(rng: random.Random, header: Event, events: list[Event]) -> None:
    factor, shift = rng.choice((2, -1, 0, 1e-3, 1e3, 1)), rng.choice((0, 1e6, -1e6, 1e15, -1e15))
    for event in rng.sample(events, min(len(events), rng.choice((1, 5, 1000)))):
        for key in ("ts", "dur"):
            if isinstance(event.get(key), int | float):
                event[key] = event[key] * factor + (shift if key == "ts" else 0)


def _rename(rng: random.Random, header: Event, events: list[Event]) -> None:
    if events:
        event = rng.choice(events)
        event[rng.choice(("name", "ph", "cat"))] = rng.choice(
            (*_NAMES, *_PHASES, *(str(e.get("cat")) for e in events[:9]))
        )


def _swap_fields(rng: random.Random, header: Event, events: list[Event]) -> None:
    if events:
        one, other, key = rng.choice(events), rng.choice(events), rng.choice(_FIELDS)
        one[key], other[key] = other.get(key), one.get(key)


def _repeat(rng: random.Random, header: Event, events: list[Event]) -> None:
    if events:
        events += [dict(rng.choice(events)) for _ in range(rng.choice((1, 50)))]


def _shuffle(rng: random.Random, header: Event, events: list[Event]) -> None:
    rng.shuffle(events)


def _with_others(rng: random.Random, events: list[Event]) -> list[Any]:
    """The events, and among them what is none."""
    others = [(rng.randint(0, len(events)), _odd(rng)) for _ in range(rng.choice((1, 3)))]
    return [*events[: others[0][0]], *(value for _, value in others), *events[others[0][0] :]]


_CHANGES: tuple[Callable[[random.Random, Event, list[Event]], None], ...] = (
    *[_change_field] * 3,
    *[_change_arg] * 3,
    *[_change_times] * 2,
    *(_drop_field, _change_header, _rename, _swap_fields, _repeat, _shuffle),
)


# -- bytes -----------------------------------------------------------------------------------------------------


def _written(rng: random.Random, header: Event, events: list[Any]) -> bytes:
    separators = rng.choice(((",", ":"), (", ", ": ")))
    dump = json.JSONEncoder(separators=separators, ensure_ascii=rng.random() < 0.8).encode
    texts = (rng.choice((",\n  ", ",")) if rng.random() < 0.05 else ",\n").join(map(dump, events))
    fields = [f"{dump(key)}: {dump(value)}" for key, value in header.items()]
    fields.insert(rng.randint(0, len(fields)), f'"traceEvents": [{texts}\n]')
    whole = f"[{texts}]" if rng.random() < 0.1 else "{" + ",\n".join(fields) + "}"
    whole = re.sub(r'"@(object|list) (\d+)@"', _unmarked, whole)
    return whole.encode("utf-8", "surrogatepass")


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


_DAMAGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (_overwrite, _insert, _cut, _move)


def _packed(rng: random.Random, data: bytes) -> bytes:
    chosen = rng.random()
    if chosen < 0.8:
        return data
    packed = gzip.compress(data, 1, mtime=0) if chosen < 0.93 else zstandard.compress(data)
    return rng.choice(_DAMAGES)(rng, packed) if rng.random() < 0.5 else packed


# -- what is checked ---------------------------------------------------------------------------------------


def check(path: Path, *, batch_bytes: int, diagnosed: bool) -> None:
    """
    Raises:
        Exception: anything that is no refusal in our own words is a find.
    """
    begun = time.process_time()  # not of the clock: the machine may be busy
    try:
        trace = load_file(path, jobs=1, batch_bytes=batch_bytes)
    except TraceAnalyzerError as error:
        str(error).encode()
    else:
        _check_frames(trace)
        if diagnosed:
            _check_report(trace)
    spent = time.process_time() - begun
    assert spent < MAX_SECONDS, f"{spent:.1f} s for {path.stat().st_size:,} bytes"


def _check_frames(trace: Trace) -> None:
    """Every event is in a frame or counted, and all can be written."""
    rows = {name: getattr(trace, name) for name in Trace.FRAMES}
    in_frames = sum(sum(by_category.values()) for by_category in trace.meta.rows.values())
    assert in_frames == sum(map(len, rows.values())), "rows of frames and of meta differ"
    assert in_frames + sum(trace.meta.counted.values()) == trace.meta.events, "events are missing"
    for frame in rows.values():
        assert pa.Table.from_pandas(frame, preserve_index=False).num_rows == len(frame)
    orjson.dumps(trace.meta, option=orjson.OPT_NON_STR_KEYS)


def _check_report(trace: Trace) -> None:
    try:
        report = diagnose(trace)
    except TraceAnalyzerError:
        return
    failed = [f"{one.rule}: {one.why}" for one in report.outcomes if one.status is Status.FAILED]
    assert not failed, failed


def run(seconds: float, seed: int, keep: Path) -> int:
    """Try cases until the time is over; how many were finds."""
    end, finds = time.monotonic() + seconds, 0
    with tempfile.TemporaryDirectory() as folder:
        for number in count(seed):
            if time.monotonic() > end:
                break
            path = Path(folder, "case.json")
            path.write_bytes(case(number))
            rng = random.Random(-number)
            batch_bytes, diagnosed = rng.choice((1_000, 10_000, 1 << 18)), rng.random() < _DIAGNOSED
            try:
                check(path, batch_bytes=batch_bytes, diagnosed=diagnosed)
            except Exception:
                finds += 1
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{number}.case").write_bytes(path.read_bytes())
                print(f"seed {number}:", traceback.format_exc(limit=-4), file=sys.stderr)
    print(f"{number - seed:,} cases, {finds} finds")
    return finds


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1, help="first case; each has its own, one higher")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-finds"), help="folder for the files of finds")
    options = parser.parse_args()
    sys.exit(1 if run(options.seconds, options.seed, options.keep) else 0)


if __name__ == "__main__":
    main()
