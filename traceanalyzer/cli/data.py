"""What the commands of one table share: checks before reading, and rows as JSON, CSV or Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from traceanalyzer.cli.output import check_outputs, put, written
from traceanalyzer.model.errors import BadOption, asked_of
from traceanalyzer.model.interpreter import pd

if TYPE_CHECKING:
    from traceanalyzer.model.trace import Trace

I = TypeVar("I")  # noqa: E741 - the conventional letter for an index


def check(trace: Path, form: str, outputs: Sequence[Path | None], force: bool) -> None:
    """All that can be refused is refused before reading."""
    if form == "parquet" and outputs[0] is None:
        raise BadOption("Parquet is binary and is not printed", remedy="Name a file with --output FILE.")
    check_outputs([path for path in outputs if path], inputs=[trace], force=force)


def opened(trace: Path, form: str, outputs: Sequence[Path | None], force: bool) -> Trace:
    """The trace, read after `check`."""
    from traceanalyzer.cli.loading import load_one

    check(trace, form, outputs, force)
    return load_one(trace)


def index_of(trace: Trace, kind: type[I]) -> I:
    """One index of the trace."""
    from traceanalyzer.model.analysis import Analysis

    with asked_of(trace.meta.source):
        return Analysis(trace).index(kind)


def put_rows(
    rows: pd.DataFrame,
    content: Mapping[str, Any],
    form: str,
    output: Path | None,
    source: str,
    notes: Sequence[str] = (),
) -> None:
    """The rows as CSV or Parquet, or the document's content as JSON."""
    from traceanalyzer.render.data.table import table_csv, table_json, table_parquet

    if form == "parquet" and output is not None:
        with written(output) as stream:
            table_parquet(rows, stream, source, notes)
        return
    put(table_json(source, content) if form == "json" else table_csv(rows), output)
