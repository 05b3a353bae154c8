"""Tables as data: JSON, CSV and Parquet of one frame, with what must be said beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, BinaryIO

from traceanalyzer.allocator.memory_view import MemoryView
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.text_queries import regex
from traceanalyzer.regions.regions import RegionRates, Regions
from traceanalyzer.render.data.encode import indented_json, json_text, signature, unicode_text, write_parquet
from traceanalyzer.report.facts import Fact
from traceanalyzer.roofline.op_rates import OpWork
from traceanalyzer.version import SCHEMA_VERSION, __version__

_PLAIN = (
    "device allocations frees start_bytes end_bytes peak_bytes peak_ns peak_reserved_bytes"
    " fragmentation_at_peak_bytes fragmentation_most_bytes before_bytes exact"
)
# What a terminal obeys; lines within a cell stay lines, in quotes.
_CONTROL = regex(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def memory_fields(view: MemoryView, ops: pd.DataFrame) -> Mapping[str, Any]:
    """Fields of the JSON document; the curve is in Parquet only."""
    devices = []
    for one in view.devices:
        uses = {"alive_at_peak": one.alive, "not_freed": one.kept, "uses_at_peak": one.uses}
        plain = {name: getattr(one, name) for name in _PLAIN.split()}
        devices.append(plain | {name: records(frame) for name, frame in uses.items()})
    return {"devices": devices, "ops": records(ops), "calls": records(view.calls), "out_of_memory": view.out_of_memory}


def ops_fields(work: OpWork) -> Mapping[str, Any]:
    known = {
        str(device): peaks and {"name": peaks.name, "source": peaks.source} for device, peaks in work.peaks.items()
    }
    frames = {"ops": work.ops, "inputs": work.shapes, "kernels": work.kernels}
    head = {"window_ns": work.window_ns, "steps": work.steps, "peaks": known}
    return head | {name: records(frame) for name, frame in frames.items()}


def facts_fields(facts: Sequence[Fact]) -> Mapping[str, Any]:
    return {"facts": [asdict(fact) for fact in facts]}


def facts_frame(facts: Sequence[Fact]) -> pd.DataFrame:
    rows = [(one.name, one.text, json_text(one.values), json_text(one.event_ids)) for one in facts]
    return pd.DataFrame(rows, columns=["name", "text", "values", "event_ids"]).astype("str")


def regions_frame(regions: Regions, rates: RegionRates | None) -> pd.DataFrame:
    """The frame of regions with flops (per step), tflops and peak_share, null where no operations are known."""
    frame = regions.frame()
    for name in ("flops", "tflops", "peak_share"):
        frame[name] = float("nan") if rates is None else getattr(rates, name)
        frame[name] = frame[name].where(frame["flops"] > 0)
    return frame


def regions_fields(regions: Regions, rates: RegionRates | None) -> Mapping[str, Any]:
    return {
        "steps": round(regions.steps, 3),
        "step_ns": round(regions.step_ns),
        "recorded": not regions.replayed,
        "mfu": rates and rates.mfu,
        "mfu_peaks": rates and {"device": rates.device, "tflops": rates.peaks},
        "regions": records(regions_frame(regions, rates)),
    }


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    plain = rows.astype(object).where(rows.notna(), None) if len(rows) else rows
    return [{str(key): value for key, value in row.items()} for row in plain.to_dict("records")]


def table_json(source: str, content: Mapping[str, Any]) -> bytes:
    head = {"schema_version": SCHEMA_VERSION, "tool_version": __version__, "source": source}
    return indented_json({**head, **content})


def table_csv(rows: pd.DataFrame) -> bytes:
    """A header and one line per row; lists are JSON."""
    shown = rows.copy()
    if "stack" in shown:
        shown["stack"] = [json_text(list(value)) for value in shown["stack"]]
    for name in shown.columns:
        if shown[name].dtype.kind not in "biuf":
            # A spreadsheet computes no cell that begins with an apostrophe.
            formulas = (isinstance(one, str) and one.startswith(("=", "+", "-", "@")) for one in shown[name])
            shown[name] = [f"'{one}" if formula else one for one, formula in zip(shown[name], formulas, strict=True)]
    text = shown.to_csv(index=False, lineterminator="\n")
    return unicode_text(_CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)).encode()


def table_parquet(rows: pd.DataFrame, stream: BinaryIO, source: str, notes: Sequence[str] = ()) -> None:
    """Typed columns, zstd; versions, source and notes in the file's metadata."""
    import pyarrow as pa

    table = pa.Table.from_pandas(rows, preserve_index=False)
    write_parquet(table, stream, signature(source=source, notes=list(notes)), keep=True)
