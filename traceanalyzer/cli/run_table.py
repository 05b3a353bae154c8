"""What the commands `table`, `memory` and `ops` do. Imported when one of them runs, not for --help."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pandas as pd

from traceanalyzer.allocator.memory_view import MemoryView
from traceanalyzer.cli.exits import emit
from traceanalyzer.cli.files import check_outputs, written
from traceanalyzer.cli.heap import keep_freed_memory
from traceanalyzer.cli.progress import told_progress
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import BadOption, TraceAnalyzerError, Unavailable
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.load import load
from traceanalyzer.render.data import table as table_data
from traceanalyzer.render.text import memory as memory_text
from traceanalyzer.render.text import ops as ops_text
from traceanalyzer.render.text import table as table_text
from traceanalyzer.render.text.page import FILE_WIDTH, stream_width
from traceanalyzer.render.text.table import Layout
from traceanalyzer.roofline.op_work import OpWork
from traceanalyzer.torch_table.key_averages import KeyAverages, key_averages
from traceanalyzer.torch_table.notes import table_notes

TEXT_ROWS = 100  # as many as torch prints


def run_table(
    trace: Path,
    sort_by: str | None,
    row_limit: int | None,
    group_by_input_shape: bool,
    group_by_stack_n: int,
    python_functions: bool,
    max_name_width: int,
    form: str,
    output: Path | None,
    force: bool,
) -> None:
    _check(trace, form, [output], force)
    loaded = _loaded(trace)
    averages = key_averages(
        loaded,
        by_input_shape=group_by_input_shape,
        by_stack=group_by_stack_n,
        python_functions=python_functions,
    )
    if len(averages.rows) == 0:
        raise TraceAnalyzerError("no events to make a table of", where=loaded.meta.source)
    notes = table_notes(loaded, averages, python_functions=python_functions)
    layout = Layout(_sort(sort_by, averages), row_limit or TEXT_ROWS, max_name_width)
    _write_table(averages, layout, row_limit, form, output, loaded.meta.source, notes)
    for note in notes:
        click.echo(f"note: {note}", err=True)


def _sort(asked: str | None, averages: KeyAverages) -> str | None:
    if asked is None:
        return "device_time_total" if averages.has_device_time else "cpu_time_total"
    return None if asked == "none" else asked


def _write_table(
    averages: KeyAverages,
    layout: Layout,
    row_limit: int | None,
    form: str,
    output: Path | None,
    source: str,
    notes: Sequence[str],
) -> None:
    if form == "text":
        _put(table_text.render_table(averages, layout).encode(), output)
        return
    if form == "markdown":
        _put(table_text.table_markdown(averages, layout).encode(), output)
        return
    rows = table_text.sorted_rows(averages.rows, layout.sort_by).head(row_limit or len(averages.rows))
    totals = {
        "device": averages.device,
        "self_cpu_total_ns": averages.self_cpu_total_ns,
        "self_device_total_ns": averages.self_device_total_ns,
        "notes": list(notes),
    }
    _put_data(rows, {**totals, "rows": table_data.records(rows)}, form, output, source, notes)


def _put_data(
    rows: pd.DataFrame,
    fields: dict[str, Any],
    form: str,
    output: Path | None,
    source: str,
    notes: Sequence[str] = (),
) -> None:
    if form == "parquet" and output is not None:
        with written(output) as stream:
            table_data.write_parquet(rows, stream, source, notes)
        return
    _put(table_data.to_json(source, fields) if form == "json" else table_data.to_csv(rows), output)


def run_memory(
    trace: Path, limit: int, form: str, parquet: Path | None, output: Path | None, force: bool
) -> None:
    _check(trace, form, [output, parquet], force)
    loaded = _loaded(trace)
    with _readable(loaded):
        view = Analysis(loaded).index(MemoryView)
    ops = memory_text.ops_by_memory(key_averages(loaded).rows)
    if parquet is not None:
        with written(parquet) as stream:
            table_data.write_parquet(memory_text.memory_curve(view.devices), stream, loaded.meta.source)
    if form == "json":
        _put(table_data.to_json(loaded.meta.source, memory_text.memory_fields(view, ops)), output)
        return
    start = loaded.meta.origin_ns
    width, plain = _width(output), _plain(output)
    text = memory_text.render_memory(view, ops, origin_ns=start, limit=limit, width=width, ascii_only=plain)
    _put(text.encode(), output)


def run_ops(trace: Path, limit: int, form: str, output: Path | None, force: bool) -> None:
    _check(trace, form, [output], force)
    loaded = _loaded(trace)
    with _readable(loaded):
        work = Analysis(loaded).index(OpWork)
    if form == "text":
        _put(ops_text.render_ops(work, limit=limit, width=_width(output)).encode(), output)
        return
    frame, fields = ops_text.ops_frame(work), dict(ops_text.ops_fields(work))
    _put_data(frame, fields, form, output, loaded.meta.source)


def _check(trace: Path, form: str, outputs: Sequence[Path | None], force: bool) -> None:
    """All that can be refused is refused before reading."""
    if form == "parquet" and outputs[0] is None:
        raise BadOption("Parquet is binary and is not printed", remedy="Name a file with --output FILE.")
    check_outputs([path for path in outputs if path], inputs=[trace], force=force)


def _loaded(path: Path) -> Trace:
    """One trace, or the only one of a folder."""
    keep_freed_memory()
    with told_progress() as progress:
        return load(path, progress=progress)


@contextmanager
def _readable(trace: Trace) -> Iterator[None]:
    """What an index lacks, as an error with its remedy."""
    try:
        yield
    except Unavailable as reason:
        problem, _, remedy = str(reason).partition(": ")
        advice = f"{remedy[:1].upper()}{remedy[1:]}." if remedy else None
        raise TraceAnalyzerError(problem, where=trace.meta.source, remedy=advice) from reason


def _put(content: bytes, output: Path | None) -> None:
    if output is None:
        emit(content)
        return
    with written(output) as stream:
        stream.write(content)


def _width(output: Path | None) -> int:
    return FILE_WIDTH if output else stream_width()


def _plain(output: Path | None) -> bool:
    """Whether the stream cannot show block characters."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    return output is None and encoding.lower().replace("-", "") not in ("utf8", "utf8sig")
