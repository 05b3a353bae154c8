"""The tables that torch itself made of the shared traces, and what ours are compared by."""

import gzip
import json
from functools import cache, lru_cache
from typing import Any

import pytest

from tests.support.cached_reports import KEPT, loaded
from tests.support.paths import SHARED
from traceanalyzer.torch_table.key_averages import KeyAverages, key_averages

COLUMNS = {
    "count": "calls",
    "self_cpu_time_total": "self_cpu_ns",
    "cpu_time_total": "cpu_ns",
    "self_device_time_total": "self_device_ns",
    "device_time_total": "device_ns",
    "self_cpu_memory_usage": "self_cpu_bytes",
    "cpu_memory_usage": "cpu_bytes",
    "self_device_memory_usage": "self_device_bytes",
    "device_memory_usage": "device_bytes",
}
_ABSENT = f"no shared traces in {SHARED.name}/: set TRACEANALYZER_TRACES to their folder"

Row = dict[str, Any]


def table_names() -> list[str]:
    """Shared traces with torch's table beside them."""
    files = sorted(SHARED.glob("*/*.table.json.gz"))
    return [f"{file.parent.name}/{file.name.removesuffix('.table.json.gz')}" for file in files]


def each_table(of: list[str] | None = None) -> Any:
    """Parametrises a test over those traces as `name`, or skips it with the reason."""
    names = table_names() if of is None else [name for name in of if name in table_names()]
    absent = [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=_ABSENT))]
    params = [pytest.param(name, id=name, marks=pytest.mark.xdist_group(name)) for name in names]
    return pytest.mark.parametrize("name", params or absent)


@cache
def torch_rows(name: str) -> list[Row]:
    """torch's rows, in its order; times in microseconds."""
    rows: list[Row] = json.loads(gzip.decompress((SHARED / f"{name}.table.json.gz").read_bytes()))
    return rows


@lru_cache(maxsize=KEPT)
def our_averages(name: str) -> KeyAverages:
    """Our table of that trace."""
    return key_averages(loaded(SHARED / f"{name}.json.gz"))


@cache
def our_rows(name: str) -> list[Row]:
    """Ours, in our order."""
    rows: list[Row] = our_averages(name).rows.to_dict("records")
    return rows


def torch_key(row: Row) -> tuple[str, str, bool]:
    """What tells torch's rows apart."""
    return row["key"], row["device_type"].removeprefix("DeviceType."), bool(row["is_user_annotation"])


def our_key(row: Row) -> tuple[str, str, bool]:
    """What tells ours apart."""
    return row["name"], row["device_type"], bool(row["is_user_annotation"])


def differences(theirs: Row, ours: Row) -> dict[str, tuple[float, float]]:
    """Columns that differ: times by 1 ns or more, sizes and counts at all."""
    found = {}
    for column, name in COLUMNS.items():
        wanted = theirs[column] * (1000 if "time" in column else 1)
        if abs(wanted - ours[name]) >= 1:
            found[column] = (wanted, ours[name])
    return found


def wrong_rows(name: str) -> list[str]:
    """One line per row of torch's that ours lacks or has otherwise, or that ours has in excess."""
    ours = {our_key(row): row for row in our_rows(name)}
    wrong = []
    for row in torch_rows(name):
        mine = ours.pop(torch_key(row), None)
        if mine is None:
            wrong.append(f"{name}: {torch_key(row)} is missing")
        elif found := differences(row, mine):
            wrong.append(f"{name}: {torch_key(row)}: {found}")
    return [*wrong, *(f"{name}: {key} is too many" for key in ours)]
