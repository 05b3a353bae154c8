"""Comparison -> JSON, Parquet, Markdown and rows of the ledger. docs/compare.md describes every field."""

import csv
import io
from dataclasses import fields
from typing import Any, BinaryIO

import pyarrow as pa

from traceanalyzer.comparison import formatting
from traceanalyzer.comparison.result import Comparison, FaultChange, StepAxis
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.data.encode import indented_json, signature, unicode_text, write_parquet
from traceanalyzer.render.words.escape import plain_markdown, to_markdown
from traceanalyzer.version import SCHEMA_VERSION, __version__

_ROWS = 10
_PARTS = 8
COLUMNS = (
    *("program", "source", "gpu", "rule", "fault", "bound", "kind", "said", "low", "high", "true", "spread"),
    *("stacks", "fitted", "commit"),
)
_EXPLAINED = 0.5  # of the step's difference that is GPU time, for the fix to be one of work; half


def comparison_document(found: Comparison) -> dict[str, Any]:
    head = {"schema_version": SCHEMA_VERSION, "tool": {"name": "traceanalyzer", "version": __version__}}
    return head | {field.name: getattr(found, field.name) for field in fields(found) if field.name != "strips"}


def comparison_json(found: Comparison) -> bytes:
    return indented_json(comparison_document(found))


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
    words, values = formatting.region_words, formatting.region_values
    counters = [(c.counter, formatting.counter_values(c), ", ".join(c.where)) for c in formatting.changed(found)]
    regions = [(words(one), *values(one)) for one in found.regions[:_PARTS]]
    rows = [
        (formatting.row_name(row), str(row.word), formatting.row_values(row), formatting.signed_ns(row.delta_ns))
        for row in formatting.real(found)[:_ROWS]
    ]
    of_region = f"region, {found.regions[0].of} time" if found.regions else ""
    for titles, cells in (
        (("per step", "BASE -> NEW", "where"), counters),
        ((of_region, "BASE", "NEW", "change"), regions),
        (("step", "time"), _waterfall(found)),
        (("work", "verdict", "per step", "of the step"), rows),
    ):
        text += to_markdown(titles, cells) + "\n" if cells else ""
    changed = (one for one in found.faults if one.status != "unchanged")
    text += "".join(f"- {plain_markdown(formatting.fault_line(one))}\n" for one in changed)
    return text + "".join(f"\n> {plain_markdown(note)}\n" for note in found.notes)


def _waterfall(found: Comparison) -> list[tuple[str, str]]:
    fall = found.waterfall
    if fall is None:
        return []
    parts = [part for part in fall.parts if part.delta_ns]
    cells = [("BASE", format_ns(fall.base_ns))]
    cells += [(f"{part.group}: {part.name}", formatting.signed_ns(part.delta_ns)) for part in parts[:_PARTS]]
    if rest := parts[_PARTS:]:
        others_ns = sum(part.delta_ns for part in rest)
        cells.append((f"{len(rest)} other parts", formatting.signed_ns(others_ns)))
    return [*cells, ("NEW", format_ns(fall.new_ns))]


def ledger_rows(found: Comparison, spread: float | None) -> list[dict[str, str]]:
    """One row per fault that alone is gone, as benchmarks/truth/*.csv has them.

    The truth is the step's: where the user has not timed it, it is predicted, and the row is `fitted`, so that it
    calibrates nothing. `spread` is of the timed steps of BASE, longest over shortest less 1.
    """
    step, gone = found.axes.step, (fault for fault in found.faults if fault.got_share is not None)
    measured = [fault for fault in gone if fault.said_share is not None]
    return [] if step is None else [_row(found, step, fault, spread) for fault in measured]


def _row(found: Comparison, step: StepAxis, fault: FaultChange, spread: float | None) -> dict[str, str]:
    device = found.axes.device
    change_ns = step.new_ns - step.base_ns
    on_device = device is not None and change_ns != 0 and device.real_ns / change_ns >= _EXPLAINED
    shares = (fault.said_share, fault.low_share, fault.high_share, fault.got_share)
    said, low, high, true = (f"{share or 0.0:.4f}" for share in shares)
    return {
        "program": found.base.names[0].partition(".")[0],
        "source": "compare",
        "gpu": ", ".join(found.base.gpus),
        "rule": fault.rules[0],
        "fault": fault.title,
        "bound": step.base_bound or "",
        "kind": "work" if on_device else "host",
        "said": said,
        "low": low,
        "high": high,
        "true": true,
        "spread": "" if spread is None else f"{spread:.4f}",
        "stacks": "yes" if "stacks" in found.base.recorded else "no",
        "fitted": "no" if step.measured else "yes",
        "commit": __version__,
    }


def ledger_text(rows: list[dict[str, str]], before: str) -> str:
    """The ledger with the rows added; `before` is what the file holds, nothing for a new one."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    if not before:
        writer.writeheader()
    writer.writerows(rows)
    return before + ("\n" if before and not before.endswith("\n") else "") + stream.getvalue()
