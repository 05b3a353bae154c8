"""Input made to break a reader: it is read or refused in our own words, in time and memory linear in its bytes."""

import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from tests.read.raw_events import LATE_US, kernel, of, op
from tests.support.trace_builder import load_bytes
from tests.support.trace_selection import some_of
from traceanalyzer.model.errors import NotATrace, TraceAnalyzerError, UnreadableTrace
from traceanalyzer.model.trace import NULL_INT, Trace
from traceanalyzer.read.columns.times import start_ns
from traceanalyzer.read.text import batches
from traceanalyzer.read.text.repair import mended_text

HALF = "a\ud800b\udfff"
OP = json.dumps(op()).encode()


def written(trace: Trace) -> None:
    """All of it can be written out."""
    for name in Trace.FRAMES:
        pa.Table.from_pandas(getattr(trace, name))
    orjson.dumps(trace.meta, option=orjson.OPT_NON_STR_KEYS)


def nested(depth: int) -> bytes:
    return b"[" * depth + b"1" + b"]" * depth


def test_half_characters_become_replacements_everywhere() -> None:
    name = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "ts": 0, "args": {"name": HALF}}
    args = {"Call stack": HALF, HALF: 1, "Input Dims": [HALF], "x": HALF}
    trace = of(op(name=HALF, args=args), op(pid=HALF, cat=HALF), kernel(), name, traceName=HALF, **{HALF: HALF})
    written(trace)
    assert trace.cpu["name"].tolist()[0] == "a\ufffdb\ufffd"
    assert trace.cpu["call_stack"].tolist()[0] == "a\ufffdb\ufffd"
    assert trace.meta.thread_names == {"1/2": "a\ufffdb\ufffd"}
    assert trace.meta.extra["traceName"] == "a\ufffdb\ufffd"


@pytest.mark.no_cover  # the same lines for each
@pytest.mark.parametrize("depth", [65, 253, 254, 255, 1_000, 1_020, 5_000, 100_000])
@pytest.mark.parametrize("place", ["args", "grid", "cat", "name", "ph", "header", "thread"])
def test_deep_nesting(depth: int, place: str) -> None:
    mark = "DEEP"
    changes: dict[str, dict[str, Any]] = {
        "args": {"args": {"x": mark, "device": 0, "stream": 7}},
        "grid": {"args": {"grid": mark, "device": 0, "stream": 7}},
    }
    events = [kernel(**changes.get(place, {place: mark} if place in ("cat", "name", "ph") else {})), op()]
    if place == "thread":
        events.append({"ph": "M", "name": "thread_name", "pid": mark, "tid": 2, "ts": 0, "args": {"name": mark}})
    header = {"deviceProperties": mark, "distributedInfo": mark} if place == "header" else {}
    content = json.dumps({**header, "traceEvents": events}).encode().replace(b'"DEEP"', nested(depth))
    trace = load_bytes(content)
    written(trace)
    assert len(trace.cpu) >= 1
    said = [*trace.meta.anomalies, *trace.meta.counted, *(damage.message for damage in trace.meta.damage)]
    assert said or depth < 255 or place in ("cat", "name", "ph", "thread")


@pytest.mark.parametrize("depth", [500, 1_010])
def test_deep_categories_are_not_compared(depth: int) -> None:
    """Comparing a mapping with itself goes as deep as it is."""
    deep = json.dumps(kernel(cat="DEEP")).encode()
    deep = deep.replace(b'"DEEP"', b'{"a":' * depth + b"1" + b"}" * depth)
    assert len(load_bytes(b"[%b,%b,%b]" % (deep, deep, OP), batch_bytes=2 * len(deep)).cpu) == 1


def test_nesting_does_not_reach_the_stack() -> None:
    """Where a caller allowed more recursion than the stack holds, Python's own JSON reader would end the process."""
    program = "import sys; sys.setrecursionlimit(10**6); from tests.read.test_hostile import *; "
    program += "load_bytes({!r} % nested(10**5))"
    content = b'{"traceEvents": [' + OP + b', {"args": %b}]}'
    done = subprocess.run([sys.executable, "-c", program.format(content)], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("huge", ["1e30", "1" + "0" * 30, f'"{"9" * 5000}"', "18446744073709551615", "-1e300", '"inf"'])
def test_header_numbers_beyond_64_bit_are_unknown(huge: str) -> None:
    header = '{"baseTimeNanoseconds": X, "distributedInfo": {"rank": X, "world_size": X}, "deviceProperties": '
    header += '[{"id": 0, "numSms": X, "totalGlobalMem": X, "computeMajor": X, "computeMinor": 1}], "traceEvents": ['
    trace = load_bytes((header.replace("X", huge) + json.dumps(kernel()) + "]}").encode())
    written(trace)
    assert (trace.meta.base_time_ns, trace.meta.rank, trace.meta.world_size) == (0, None, None)
    assert trace.meta.devices[0].sms is None


@pytest.mark.parametrize("text", ["1e99999999", "-1e99999999", "9" * 5000, "1e999999999999"])
def test_times_of_a_billion_digits(text: str) -> None:
    begun = time.monotonic()
    assert start_ns({"ts": text}) == NULL_INT
    assert of(op(ts=text), op()).meta.counted == {"no timestamp": 1}
    assert time.monotonic() - begun < 2
    assert start_ns({"ts": "1e-99999999"}) == 0


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "1e999", str(2**70)])
def test_numbers_of_any_length_in_events(number: str) -> None:
    content = json.dumps([op(args={"External id": 5}), op(name="a\x01")]).replace("\\u0001", "\x01")
    trace = load_bytes(content.replace('"External id": 5', f'"External id": {number}').encode())
    written(trace)
    assert trace.cpu["external_id"].isna().all()
    assert len(trace.cpu) >= 1


# -- the right list of events ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before",
    [
        b'"meta": {"traceEvents": [1]}, ',
        b'"meta": [{"traceEvents": [{"a": [1, 2]}]}], "x": "}", ',
        rb'"note": "\"traceEvents\": [", ',
        rb'"note": "\\", "b": {"traceEvents": []}, ',
    ],
)
def test_the_outermost_list_is_read(before: bytes) -> None:
    trace = load_bytes(b"{%b%b: [%b]}" % (before, b'"traceEvents"', OP))
    assert len(trace.cpu) == 1
    assert trace.meta.damage == ()
    behind = b", " + before.rstrip(b", ")
    assert len(load_bytes(b'{"traceEvents": [%b]%b}' % (OP, behind)).cpu) == 1


def test_a_list_within_something_else_is_not_the_trace() -> None:
    with pytest.raises(NotATrace, match="its top-level keys are meta"):
        load_bytes(b'{"meta": {"traceEvents": [%b]}}' % OP)


def test_two_lists_are_refused_for_that_reason() -> None:
    with pytest.raises(UnreadableTrace, match="holds two lists of traceEvents"):
        load_bytes(b'{"traceEvents": [%b], "a": 1, "traceEvents": [%b]}' % (OP, OP))


def test_second_trace_is_refused_and_stray_text_reported() -> None:
    with pytest.raises(UnreadableTrace, match="holds two lists of traceEvents"):
        load_bytes(b'{"traceEvents": [%b]}\n{"traceEvents": [%b]}' % (OP, OP))
    trace = load_bytes(b'{"traceEvents": [%b]} {"a": 1}' % OP)
    assert len(trace.cpu) == 1
    assert "stray text after the trace" in trace.meta.damage[0].message


# -- linear in the bytes ---------------------------------------------------------------------------------------


def text_of(name: bytes) -> bytes:
    return OP.replace(b"aten::mm", name)


def many(template: bytes, size: int) -> bytes:
    return b",".join(template.replace(b"%d", b"%d" % number) for number in range(size // len(template)))


CASES: dict[str, Callable[[int], bytes]] = {
    "separators in one string": lambda n: b"[%b,%b,%b]" % (OP, text_of(b"},{" * (n // 3)), OP),
    "separators in many strings": lambda n: b"[%b,%b]" % (OP, b",".join([text_of(b"},{" * 30_000)] * (n // 90_000))),
    "execution trace": lambda n: b'{"schema": "1.1", "nodes": [%b{}]}' % (b'{"id": 1, "name": "mm"},' * (n // 24)),
    "blanks": lambda n: b" " * n,
    "blanks after the key": lambda n: b'{"traceEvents"%b: [%b]}' % (b" " * n, OP),
    "blanks after events": lambda n: b"[%b" % ((OP + b" " * 100_000) * (n // 100_000)),
    "inner lists": lambda n: b'{"a": [%b1], "traceEvents": [%b]}' % (b'{"traceEvents":[]},' * (n // 19), OP),
    "open brackets": lambda n: b"[" * n,
    "quotes": lambda n: b"[" + b'"' * n,
    "backslashes": lambda n: b"[%b" % text_of(b"\\" * n),
    "half an event": lambda n: b"[%b,%b" % (OP, text_of(b"a" * n)[:-60]),
    "keys of their own": lambda n: b"[%b]" % many(OP[:-1] + b', "args": {"key%d": 1}}', n),
    "categories of their own": lambda n: b"[%b,%b]" % (OP, many(OP.replace(b"cpu_op", b"category%d"), n)),
    "numbers that are none": lambda n: b'[%b, "args": {"x": [%bnan]}}]' % (OP[:-1], b"nan," * (n // 4)),
    "half characters": lambda n: b"[%b]" % text_of(b"\\ud800" * (n // 6)),
}


@pytest.mark.no_cover  # tracing is what would be measured
@pytest.mark.parametrize("name", some_of([*CASES]))
def test_time_is_linear_in_the_bytes(name: str) -> None:
    """Four times the bytes must take far less than sixteen times the time; seconds for megabytes in any case."""
    spent = []
    for size in (1_000_000, 4_000_000):
        content = CASES[name](size)
        begun = time.monotonic()
        with suppress(TraceAnalyzerError):
            load_bytes(content)
        spent.append(time.monotonic() - begun)
    assert spent[1] < max(9 * spent[0], 1.5), spent
    assert spent[1] < 20, spent


def test_many_keys_and_categories_lose_nothing() -> None:
    events = [op(args={f"key{i}": i, "External id": i}, ts=LATE_US) for i in range(3_000)]
    trace = of(*events, *[op(cat=f"category{i}") for i in range(300)])
    args = [json.loads(text) for text in trace.cpu["other_args"].tolist()[:3_000]]
    assert args == [{f"key{i}": i} for i in range(3_000)]
    assert trace.cpu["external_id"].tolist()[:3_000] == list(range(3_000))
    assert len(trace.meta.unknown_categories) == 201
    assert 1_000 < len(trace.meta.other_args) < 3_000  # after so many kinds of rows their args are one
    assert trace.meta.unknown_categories["another category"] == 100
    assert json.loads(trace.cpu["other_args"].tolist()[-1]) == {"cat": "category299"}


@pytest.mark.no_cover
def test_distinct_shapes_take_memory_of_their_text() -> None:
    """As objects of Python they take fifteen times that: never all of them at once."""
    inputs = [[[number, size] for size in range(120)] for number in range(2_000)]
    events = [orjson.dumps(op(args={"Input Dims": [dims]})) for dims in inputs]
    content = b"[%b]" % b",\n".join(events)
    load_bytes(events[0].join((b"[", b"]")))  # what is imported is not of the trace
    tracemalloc.start()
    try:
        trace = load_bytes(content, batch_bytes=50_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(trace.cpu["input_dims"].cat.categories) == 2_000
    assert peak < 4 * len(content), f"{peak / len(content):.1f} times the file"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_the_header_is_searched_in_memory_that_fits(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    path.write_bytes(CASES["execution trace"](40_000_000))
    program = f"""
import re
from pathlib import Path
from traceanalyzer.read.load import load_file
try:
    load_file({str(path)!r})
except Exception as error:
    print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1], error)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "holds no traceEvents; its top-level keys are schema, nodes" in said
    assert int(said.split()[0]) * 1024 < 100e6 + 5 * 40e6


@pytest.fixture
def small_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is longer than 4 kB is no event."""
    monkeypatch.setattr(batches, "_MAX_EVENT_BYTES", 4_000)


@pytest.mark.usefixtures("small_events")
@pytest.mark.parametrize(
    "filler",
    [b'{"name": "' + b"x" * 90_000, b"[" + b"1," * 45_000, b'{"a": "\\' * 9_000],
    ids=["text", "numbers", "backslashes"],
)
def test_text_too_long_for_an_event_is_lost_in_pieces(filler: bytes) -> None:
    trace = load_bytes(b"[%b,%b" % (OP, filler), batch_bytes=1_000)
    assert len(trace.cpu) == 1
    assert 1 <= trace.meta.counted["unreadable"] <= 90_000 / 4_000 + 1
    assert [entry.kind for entry in trace.meta.damage][-1] == "truncated"


@pytest.mark.usefixtures("small_events")
def test_quotes_that_are_lost_cost_no_other_event() -> None:
    """A quote that is not closed turns texts inside out, so that no bracket is counted after it."""
    content = b"[%b]" % b",\n".join([OP, OP.replace(b'"aten::mm"', b'"aten::mm'), *[OP] * 200])
    trace = load_bytes(content, batch_bytes=1_000)
    assert len(trace.cpu) >= 199
    assert trace.meta.damage


@pytest.mark.usefixtures("small_events")
@pytest.mark.parametrize("between", [b"", b"]"])
def test_blanks_without_end_cost_no_event(between: bytes) -> None:
    trace = load_bytes(b'{"traceEvents": [%b%b%b' % (OP, between, b" " * 90_000), batch_bytes=1_000)
    assert len(trace.cpu) == 1
    assert not trace.meta.counted


@pytest.mark.usefixtures("small_events")
def test_blanks_before_the_first_event_are_passed_over() -> None:
    trace = load_bytes(b'{"traceEvents": [%b%b]}' % (b" " * 90_000, OP), batch_bytes=1_000)
    assert (len(trace.cpu), trace.meta.damage) == (1, ())


def test_mending_takes_memory_of_the_text() -> None:
    """An unclosed text of 8 MB: a regular expression that keeps state for each character took 600 MB."""
    tracemalloc.start()
    mended_text(b'{"name": "' + b"x" * (8 << 20))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_its_mark_is_called_so(encoding: str) -> None:
    with pytest.raises(UnreadableTrace, match="is text in UTF-16"):
        load_bytes(f"\n[{OP.decode()}]".encode(encoding))


def test_durations_that_are_all_negative_are_refused() -> None:
    with pytest.raises(UnreadableTrace, match="all 2 durations are negative or longer than any recording"):
        of(op(dur=-1), kernel(dur=-5))


def test_some_negative_durations_are_damage() -> None:
    (damage,) = of(op(dur=-1), kernel()).meta.damage
    assert damage.message == "1 of 2 events have a negative or impossible duration, which was taken as 0"
