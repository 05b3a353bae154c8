"""The ops of a trace with most GPU time, and their inputs with rates and peaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.roofline.op_rates import OpWork

if TYPE_CHECKING:
    import pandas as pd

MOST_OPS, MOST_INPUTS = 40, 4


@dataclass(frozen=True, slots=True)
class Inputs:
    """One op with inputs of one shape and type: its row in `OpWork.shapes`, and what is shown of it.

    Attributes:
        position: in `OpWork.shapes`, which `ops --format json` calls `inputs`.
        peak_share, limit: of the device's peak (1 is all of it), and which peak; None where not known.
    """

    position: int
    shapes: str
    dtypes: str
    calls: int
    gpu_ns: int
    tflops: float | None
    gbps: float | None
    peak_share: float | None
    limit: str | None
    why: str | None
    peak_tflops: float | None = None
    peak_gbps: float | None = None


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op: GPU time, share of the window, and its inputs with most time; `more` inputs are left out."""

    name: str
    calls: int
    gpu_ns: int
    share: float
    inputs: tuple[Inputs, ...]
    more: int


@dataclass(frozen=True, slots=True)
class OpTable:
    """The ops with most GPU time, the number and time of the others, and where the peaks are from."""

    rows: tuple[OpRow, ...]
    others: int
    others_ns: int
    peaks: tuple[str, ...]


def op_table(analysis: Analysis, most: int) -> OpTable:
    """The ops of the trace, at most `most` of them one by one.

    Raises:
        Unavailable: the trace has no GPU work.
    """
    work = analysis.index(OpWork)
    rest = work.ops.iloc[most:]
    columns = (work.ops[name].head(most).tolist() for name in ("op", "calls", "gpu_ns", "share"))
    rows = tuple(
        OpRow(op, calls, gpu_ns, share, *_inputs(work.shapes, op))
        for op, calls, gpu_ns, share in zip(*columns, strict=True)
    )
    sources = tuple(f"{peaks.name}, {peaks.source}" for _, peaks in sorted(work.peaks.items()) if peaks)
    return OpTable(rows, len(rest), int(rest["gpu_ns"].sum()), tuple(dict.fromkeys(sources)))


def _inputs(shapes: pd.DataFrame, op: str) -> tuple[tuple[Inputs, ...], int]:
    """The inputs of one op with most time, and how many more there are."""
    own = shapes[shapes["op"] == op]
    top = own.head(MOST_INPUTS).astype(object)
    top = top.where(top.notna(), None)
    names = (
        "shapes",
        "dtypes",
        "calls",
        "gpu_ns",
        "tflops",
        "gbps",
        "peak_share",
        "limit",
        "why",
        "peak_tflops",
        "peak_gbps",
    )
    rows = zip(top.index.tolist(), *(top[name].tolist() for name in names), strict=True)
    return tuple(Inputs(*row) for row in rows), max(len(own) - MOST_INPUTS, 0)
