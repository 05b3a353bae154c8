"""What of a trace's table cannot be exact, and why, in one sentence each; docs/table.md says more."""

from __future__ import annotations

from collections.abc import Iterator

from traceanalyzer.model.trace import Trace
from traceanalyzer.torch_table.key_averages import KeyAverages

_OLD_IDS = ("torch 1.8 to 1.11", "torch 1.12 to 2.0", "torch 2.1 to 2.3", "torch 2.4 to 2.7")


def table_notes(trace: Trace, averages: KeyAverages, *, python_functions: bool = False) -> tuple[str, ...]:
    """Sentences for the user, none where the table is exact."""
    return tuple(_notes(trace, averages, python_functions))


def _notes(trace: Trace, averages: KeyAverages, python_functions: bool) -> Iterator[str]:
    meta = trace.meta
    asynchronous = int(averages.rows["is_async"].sum())
    if asynchronous:
        yield (
            f"rows of communication ({asynchronous}) are taken to be asynchronous by their names, since the trace does"
            " not say it: their own time is 0, and they take nothing from the time of what is around them"
        )
    python = sum(meta.rows.get("python", {}).values())
    if python and not python_functions:
        yield (
            f"{python:,} python_function rows are left out; torch 2.12 and 2.13 list them:"
            " pass --python-functions to compare with those"
        )
    if not meta.capabilities.get("nanoseconds", True):
        yield "times are whole microseconds, as until torch 2.3: sums and nesting are only as exact as that"
    if meta.damage:
        yield "the file is damaged: " + "; ".join(damage.message for damage in meta.damage)
    if meta.dialect.startswith(_OLD_IDS):
        yield f"recorded with {meta.dialect}: checked against tables of torch 2.11 and 2.13 only"
    if {"cuda_sync", "xpu_sync"} & set(meta.rows.get("gpu", {})):
        yield "synchronisation records count as time on the device, as in torch's own table"
    if meta.window_ns is None:
        yield "the file does not say when the recording began: the last digit of a rounded number may differ"
    if meta.capabilities.get("flops", False) and not meta.capabilities.get("shapes", False):
        yield "FLOPs need shapes, which were not recorded"
