"""Comparison -> JSON, Parquet and Markdown. docs/compare.md describes every field."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, BinaryIO

import pyarrow as pa

from traceanalyzer.comparison import formatting
from traceanalyzer.comparison.result import Comparison
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.data.encode import INDENTED, signature, to_json, unicode_text, write_parquet
from traceanalyzer.render.words.escape import plain_markdown, to_markdown
from traceanalyzer.version import SCHEMA_VERSION, __version__

_ROWS = 10
_PARTS = 8


def comparison_document(found: Comparison) -> dict[str, Any]:
    """The whole comparison as one mapping; its values may still be dataclasses."""
    head = {"schema_version": SCHEMA_VERSION, "tool": {"name": "traceanalyzer", "version": __version__}}
    return head | {
        field.name: getattr(found, field.name) for field in fields(found) if field.name != "strips"
    }


def comparison_json(found: Comparison) -> bytes:
    """One JSON document, indented by two."""
    return to_json(comparison_document(found), INDENTED)


def write_comparison(found: Comparison, stream: BinaryIO) -> None:
    """The rows as Parquet, zstd; everything else as JSON in the metadata."""
    frame = found.to_frame()
    for name in ("op", "outer", "region", "note"):
        frame[name] = [unicode_text(str(value)) for value in frame[name]]
    rest = {name: value for name, value in comparison_document(found).items() if name != "rows"}
    table = pa.Table.from_pandas(frame, preserve_index=False)
    write_parquet(table, stream, signature(comparison=rest))


def comparison_markdown(found: Comparison) -> str:
    """A comment for a pull request: verdict, waterfall, counters, rows and faults."""
    lines = [f"### traceanalyzer: {found.verdict.word}", "", plain_markdown(found.verdict.headline), ""]
    lines += [f"- {plain_markdown(reason)}" for reason in found.verdict.because]
    lines += [f"\nTo settle it: {found.verdict.settle}."] if found.verdict.settle else []
    text = "\n".join(lines).rstrip() + "\n\n"
    counters = [
        (one.counter, formatting.counter_values(one), ", ".join(one.where))
        for one in formatting.changed(found)
    ]
    if counters:
        text += to_markdown(("per step", "BASE -> NEW", "where"), counters) + "\n"
    text += _waterfall(found)
    rows = [
        (
            formatting.row_name(row),
            str(row.word),
            formatting.row_values(row),
            formatting.signed_ns(row.delta_ns),
        )
        for row in formatting.real(found)[:_ROWS]
    ]
    if rows:
        text += to_markdown(("work", "verdict", "per step", "of the step"), rows) + "\n"
    text += "".join(
        f"- {plain_markdown(formatting.fault_line(one))}\n"
        for one in found.faults
        if one.status != "unchanged"
    )
    return text + "".join(f"\n> {plain_markdown(note)}\n" for note in found.notes)


def _waterfall(found: Comparison) -> str:
    fall = found.waterfall
    if fall is None:
        return ""
    parts = [part for part in fall.parts if part.delta_ns]
    cells = [("BASE", format_ns(fall.base_ns))]
    cells += [(f"{part.group}: {part.name}", formatting.signed_ns(part.delta_ns)) for part in parts[:_PARTS]]
    if parts[_PARTS:]:
        cells.append(
            (
                f"{len(parts) - _PARTS} other parts",
                formatting.signed_ns(sum(part.delta_ns for part in parts[_PARTS:])),
            )
        )
    return to_markdown(("step", "time"), [*cells, ("NEW", format_ns(fall.new_ns))]) + "\n"
