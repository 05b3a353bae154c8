"""Writes docs/accuracy.md: `python -m benchmarks.accuracy TRACES [--write]`; a test says when it is out of date.

Takes some minutes: all that is known of the truth is diagnosed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import diagnoses, together
from benchmarks.calibrate_replay import left_out, step_residuals
from benchmarks.ledger import ALLOWED, Row, calibrating, fitted, judging, rows, shortened, summary, unfitted

PAGE = Path(__file__).resolve().parent.parent / "docs" / "accuracy.md"
_UNSEEN = frozenset(
    {
        "round3",
        "round5",
        "round6",
        "round7",
        "round8",
        "round9",
        "round10",
        "round11",
        "round12",
        "round13",
        "round14",
        "round15",
        "round16",
        "round17",
    }
)  # rounds written to be looked at only after
StepError = tuple[str, float, float]

_HEAD = """# Accuracy

Savings and the step without the profiler are replayed from the trace alone. Here they stand beside what was measured:
pairs of programs that differ in one thing, both run without the profiler, and the step of every trace whose step
without the profiler is known (H200; `round15` to `round21` on an H100; torch 2.11). `pairs`, `pairs4`, `third`,
`round1` and so on, `real`, `noise`, `slowdown` and `public` are folders of a larger collection of traces, `fixtures`
this repository's. Written by `python -m benchmarks.accuracy`.

## Savings

The true saving is 1 - fixed/bad of the median steps; the prediction is the saving of the fault whose finding names what
was put right, as reported. A pair is *fitted* from the day on which a rule, an edit or a constant was changed in view
of it; what was predicted before that stays in the ledger (`benchmarks/truth`), with the commit. Intervals are made of
the rows that are not fitted, by what the edits rest on (`benchmarks/calibrate_replay.py`); truth
counts as within the interval up to two points beside it, by which repeats of one program differ.

"""
_NOT_FITTED = """
### Not fitted

Of each program the newest row that nothing was fitted on, with the interval that was reported then.

"""
_FITTED = """
### Fitted

Predictions for pairs that rules and edits were made in view of. They show that they do what they were made for, and
nothing else.

"""
_TOGETHER = """
### All faults fixed

A pair differs in one fault, and its programs mostly have others. The predicted saving of all its fixes is
held against what the pair's fix saved and what the report of the fixed program says of the rest, in `round18` and later
ones, as both were predicted before anybody looked at them (`python -m benchmarks.together`):

"""
_LEFT_OUT = """
### Intervals of a round from all other rounds

What was predicted of each round before anybody looked at it, with the interval that the rows of all others give: of two
choices how to make intervals the narrower one that holds as often here is taken. Those of `round5` come from edits
that are no longer there. The range over slowdowns, which is part of a reported interval, is left out.

| left out | pairs | mean error | median | within 10 points | held | width in points |
|---|---|---|---|---|---|---|
"""
_TABLE = (
    "| pair | rule | bound | true | said | interval | held | commit |\n|---|---|---|---|---|---|---|---|\n"
)
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
factor for the whole program by density of events, by the median launch alone, or by the switches of the profiler. Of
60 recordings of `round5` to `round7` that the CPU or waits limit, on which nothing of this was fitted, the step is
7.5 % off in the median, and 85 % are within 20 %; of the 35 with stacks it is 8.7 % off. Neither the median launch nor
that of `aten::empty` or `aten::view`, nor the slowdown itself, tells these errors better than a constant, each program
left out.
"""
LIMITS = """
## Known limits

- What is copied from a read-back loop costs more without the profiler than the trace shows: the waits that exist there
  hide, since the CPU under the profiler is late (`third/decode_sync`).
- Of an algorithm that computes too much the trace does not tell what would do: such faults are not found.
- Long measurements run at lower clocks than a short recording: large GEMMs are predicted 5 to 15 % too
  short, the savings hardly.
- One rank alone: what its collectives take beyond the quickest of their size is taken for the launching of its peers,
  and shrinks as its own does, where it launches for half of the step or more; else it stays. Of 80 recordings of one
  of two ranks the step deviates by 6.4 % on average (12.3 % with the waiting as recorded), and 74 lie in the interval.
- Contention by another process is not recognised in few steps; power throttling is not modelled. Where a fix takes away
  idle time of the device, its large GEMMs then take 3 to 16 % longer, all other kernels as long as before: savings are
  predicted 7 to 9 points too large (`ranks2/loader`, `ranks/hiccup`).
- Threads of one process run at different speeds by chance: the same calls take 0.3 to 1.5 times as long on the thread
  of the backward pass as on that of the forward pass (56 recordings of `ranks` and `ranks2`). Where a fix leaves the
  CPU to set the pace, its saving is off by as much (`ranks/imbalance`, `ranks2/rank0_metrics`).
- A compiled step is an estimate; trust only its sign.
"""


def page(found: Sequence[Row], steps: Sequence[StepError], diagnosed: str) -> str:
    """The text of docs/accuracy.md; `found` is the ledger, `diagnosed` the part that `diagnoses.measured` makes."""
    new, old = unfitted(found), fitted(found)
    unseen = "Of these the rounds that no interval was made from, measured before anybody looked at them"
    last = f"{unseen}: {summary(judging(found))}. {shortened(judging(found))}"
    sums = f"Not fitted: {summary(new)}.\n\n{last}\n\nFitted: {summary(old)}.\n"
    sums += f"{_TOGETHER}{together.sentence(together.rows())}.\n"
    tables = _LEFT_OUT + _rounds(found) + _NOT_FITTED + _TABLE + _rows(new) + _FITTED + _TABLE + _rows(old)
    return _HEAD + sums + tables + _METHOD + _folders(steps) + _SLOWDOWN + diagnosed + LIMITS


def _rounds(found: Sequence[Row]) -> str:
    known = calibrating(found)
    by_round = {source: left_out(known, source) for source in sorted({row.source for row in known} & _UNSEEN)}
    by_round["all"] = [one for each in by_round.values() for one in each]
    return "".join(f"| {source} | {_judged(each)} |\n" for source, each in by_round.items())


def _judged(found: Sequence[tuple[Row, float, float]]) -> str:
    errors = np.abs([row.error for row, _, _ in found])
    held = np.mean([low - ALLOWED <= row.true <= high + ALLOWED for row, low, high in found])
    width = 100 * np.mean([high - low for _, low, high in found])
    near = np.mean(errors <= 10)
    return f"{len(found)} | {errors.mean():.1f} | {np.median(errors):.1f} | {near:.0%} | {held:.0%} | {width:.0f}"


def _rows(found: Sequence[Row]) -> str:
    return "".join(
        f"| {row.source}/{row.program} | `{row.rule}` | {row.bound} | {row.true:.1%} | {row.said:.1%} | "
        f"{row.low:.0%} to {row.high:.0%} | {'yes' if row.held else 'no'} | {row.commit} |\n"
        for row in found
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
    text = page(rows(), step_residuals(traces), diagnoses.measured(traces))
    if "--write" in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
