"""Writes docs/accuracy.md: `python -m benchmarks.accuracy TRACES [--write]`; a test says when it is out of date.

Takes some minutes: all that is known of the truth is diagnosed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import diagnoses
from benchmarks.calibrate_replay import Residual, held, residuals, step_residuals

PAGE = Path(__file__).resolve().parent.parent / "docs" / "accuracy.md"
StepError = tuple[str, float, float]

_HEAD = """# How near the truth

Savings and the step without the profiler are replayed from the trace alone. Here they stand beside what was measured:
pairs of programs that differ in one thing, both run without the profiler, and the step of every trace whose step
without the profiler is known (H200, torch 2.11). `pairs`, `pairs4`, `real`, `noise`, `slowdown` and `public` are
folders of a larger collection of traces, `fixtures` this repository's. Written by `python -m benchmarks.accuracy`.

## Savings

What the replay says where the fix is known. The true saving is 1 - fixed/bad of the median steps. The range is that of
the replays over the slowdowns; the interval that is printed is wider by the residuals of
`traceanalyzer/replay/calibration.py`.

| pair | true | said | range |
|---|---|---|---|
"""
_LEFT_OUT = """Left out: pairs4/amp_scaler, where the trace shows nothing of what was put right, and
pairs4/effnet_nchw, on which its edit was fitted.
"""
_METHOD = """
## The step without the profiler

| traces | number | median error | within 20 % |
|---|---|---|---|
"""
_SLOWDOWN = """
What the profiler adds is fitted on these steps (`python -m benchmarks.fit_slowdown`, with `--leave-out` for programs
that a fit has not seen). The same program recorded again differs by up to 20 % where the CPU is the step, and the
step without the profiler itself by as much from process to process: nothing in the trace tells that.

What that carries over to programs that the fit has not seen is little (110 steps; without pairs/recompile.bad, as
compiling takes another time in every process):

| slowdown | median error | within 20 % |
|---|---|---|
| one constant, 1.75 for every short stretch of CPU time | 6.6% | 76% |
| fitted on other programs, in ten parts | 5.8% | 82% |
| fitted on all, as the package has it | 4.5% | 92% |

Tried, and no better for programs that the fit had not seen: a constant per op, call and Python call without a bound; a
factor for the whole program by density of events, by the median launch alone, or by the switches of the profiler.
"""
LIMITS = """
## Known limits

- Explicit synchronisation is a lower bound: under the profiler the CPU is slower, and the wait that exists without it
  hides.
- Long measurements run at lower clocks than a short recording: GPU-bound steps of large GEMMs are said 5 to 15 % too
  short, the savings hardly.
- One rank alone keeps the durations of its collectives as traced, and with them its waiting for slower ranks.
- Contention by another process cannot be told from few steps; power throttling is not modelled.
- A compiled step is an estimate of which only the sign should be trusted.
"""


def page(found: Sequence[Residual], steps: Sequence[StepError], diagnosed: str) -> str:
    """The text of docs/accuracy.md; `diagnosed` is the part that `diagnoses.measured` makes."""
    rows = [f"| {r.name} | {r.true:.1%} | {r.said:.1%} | {r.low:.1%} to {r.high:.1%} |" for r in found]
    errors = [abs(r.said - r.true) * 100 for r in found]
    summary = (
        f"\nMean error {np.mean(errors):.1f} points, median {np.median(errors):.1f}; within the interval that"
        f" the other pairs give: {held(found):.0%} of {len(found)}.\n" + _LEFT_OUT
    )
    return (
        _HEAD + "\n".join(rows) + "\n" + summary + _METHOD + _folders(steps) + _SLOWDOWN + diagnosed + LIMITS
    )


def _folders(steps: Sequence[StepError]) -> str:
    folders = list(dict.fromkeys(name.split("/")[0] for name, _, _ in steps))
    groups = [(folder, [e for name, e, _ in steps if name.startswith(f"{folder}/")]) for folder in folders]
    groups.append(("all", [error for _, error, _ in steps]))
    lines = [
        f"| {name} | {len(errors)} | {np.median(np.abs(errors)):.1%} | {np.mean(np.abs(errors) <= 0.2):.0%} |"
        for name, errors in groups
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    traces = Path(sys.argv[1])
    text = page(residuals(traces), step_residuals(traces), diagnoses.measured(traces))
    if "--write" in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
