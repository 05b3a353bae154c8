"""Ops with their kernels as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.short_names import plain_kernel, short_ops
from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.render.data.table import records
from traceanalyzer.render.text.page import as_text
from traceanalyzer.render.words.escape import printable, shortened, to_markdown
from traceanalyzer.roofline.op_rates import OpWork

SHAPES, KERNELS = 5, 4


def render_ops(work: OpWork, *, limit: int = 10, width: int = 100, ascii_only: bool = False) -> str:
    """The ops with the most GPU time: below each its inputs, below these the kernels; in lines of `width`."""
    lines = [*textwrap.wrap(_header(work), width), ""]
    for op in records(work.ops.head(limit)):
        lines += [*_op(work, op, width), ""]
    rest = work.ops.iloc[limit:]
    if len(rest):
        time = format_ns(int(rest["gpu_ns"].sum()))
        lines += [f"other ops ({len(rest)}): {time}, {format_share(float(rest['share'].sum()))}", ""]
    for source in _sources(work):
        lines += textwrap.wrap(source, width, subsequent_indent="  ")
    return as_text(lines, ascii_only=ascii_only)


def ops_markdown(work: OpWork, *, limit: int = 10) -> str:
    """A pipe table of the ops and inputs with the most GPU time, the largest first."""
    titles = ("op", "inputs", "calls", "GPU time", "of the window", "TFLOP/s", "GB/s", "of the peak")
    rows = work.shapes.sort_values("gpu_ns", ascending=False, kind="stable")
    cells = [
        (
            short_ops(row["op"]),
            _inputs(row),
            f"{row['calls']:,}",
            format_ns(row["gpu_ns"]),
            format_share(row["gpu_ns"] / max(work.window_ns, 1)),
            "" if row["tflops"] is None else f"{row['tflops']:.1f}",
            "" if row["gbps"] is None else f"{row['gbps']:,.0f}",
            "" if row["peak_share"] is None else format_share(row["peak_share"]),
        )
        for row in records(rows.head(limit))
    ]
    return to_markdown(titles, cells, [_header(work), *_sources(work)])


def _header(work: OpWork) -> str:
    each = f" of {format_ns(work.window_ns / work.steps)}" if work.steps > 1 else ""
    steps = f", {work.steps} step{'s' * (work.steps > 1)}{each}" if work.steps else ""
    return f"GPU time by op; shares are of the window of {format_ns(work.window_ns)}{steps}"


def _op(work: OpWork, op: Mapping[str, Any], width: int) -> Iterator[str]:
    calls = f"{op['calls']:,} call{'s' * (op['calls'] != 1)}"
    amounts = f"{calls}  {format_ns(op['gpu_ns'])}  {format_share(op['share'])}"
    yield _sides(short_ops(op["op"]), amounts, width)
    shapes = work.shapes[work.shapes["op"] == op["op"]]
    kernels = work.kernels[work.kernels["op"] == op["op"]]
    for row in records(shapes.head(SHAPES)):
        each = f"{row['calls']:,} x {format_ns(row['gpu_ns'] / row['calls'])}"
        yield _sides(f"  {_inputs(row)}", each, width)
        yield from textwrap.wrap(rate_text(row), width, initial_indent=" " * 4, subsequent_indent=" " * 6)
        of_shape = kernels[(kernels["shapes"] == row["shapes"]) & (kernels["dtypes"] == row["dtypes"])]
        yield from _kernels(of_shape, width)
    if len(shapes) > SHAPES:
        yield f"  other inputs ({len(shapes) - SHAPES}): {format_ns(int(shapes['gpu_ns'].iloc[SHAPES:].sum()))}"


def _inputs(row: Mapping[str, Any]) -> str:
    return f"[{row['shapes']}] {row['dtypes']}".rstrip() if row["shapes"] else "shapes not recorded"


def _kernels(kernels: pd.DataFrame, width: int) -> Iterator[str]:
    for row in records(kernels.head(KERNELS)):
        each = f"{row['count']:,} x {format_ns(row['gpu_ns'] / row['count'])}"
        yield _sides(f"    {plain_kernel(row['kernel'])}", each, width)
    if len(kernels) > KERNELS:
        yield f"    and {len(kernels) - KERNELS} more"


def rate_text(row: Mapping[str, Any]) -> str:
    """What was achieved, and its share of the device's peak or why that is not known."""
    rates = [] if row["tflops"] is None else [f"{row['tflops']:.1f} TFLOP/s"]
    rates += [] if row["gbps"] is None else [f"{row['gbps']:,.0f} GB/s"]
    if row["peak_share"] is None:
        return ", ".join([*rates, f"peak n/a: {row['why']}"])
    most = f"{row['peak_tflops']:g} TFLOP/s" if row["limit"] == "compute" else f"{row['peak_gbps']:,.0f} GB/s"
    cached = "; more than memory gives, so some came from the cache" if row["peak_share"] > 1 else ""
    share = f"{format_share(row['peak_share'])} of the {row['limit']} peak of {most}{cached}"
    return ", ".join([*rates, share])


def _sides(left: str, right: str, width: int) -> str:
    room = width - len(right) - 2
    return f"{shortened(printable(left), room):<{room}}  {right}"


def _sources(work: OpWork) -> Iterator[str]:
    for device, peaks in sorted(work.peaks.items()):
        known = f"{peaks.name}, {peaks.source}" if peaks else "not in the table of peaks"
        yield f"Peaks of device {device}: {known}"
