"""Writes docs/accuracy.md: `python -m benchmarks.accuracy TRACES [--write]`; a test says when it is out of date.

Takes some minutes: all that is known of the truth is diagnosed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks import diagnoses, together
from benchmarks.calibrate_replay import left_out, step_residuals
from benchmarks.ledger import ALLOWED, Row, calibrating, fitted, judging, rows, shortened, unfitted

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

How far is a predicted saving from the measured one? This page compares both for pairs of programs that differ in one
thing. Each program ran without the profiler, too, so the true saving is known: 1 - fixed/bad of the median steps. One
finding of the bad program names what was fixed; the saving of its fault is the prediction. GPUs: H200, and H100 for
`round15` to `round21`; torch 2.11. `python -m benchmarks.accuracy` writes this page.

## Savings

"""
_MEANING = """
- **Unseen**: predicted before anybody looked at the program. These pairs set only the shortening of today's
  intervals.
- **Not fitted**: no rule, edit or constant was changed because of the pair before the prediction. Intervals are made
  of these pairs less the unseen ones (`benchmarks/calibrate_replay.py`), grouped by what the fix changes.
- **Fitted**: a rule or edit was written for the pair. These rows show that it does what it was written for.
- **Held**: the true saving lies in the interval, or at most two points outside: repeats of one program differ by
  this.

"""
_LEFT_OUT = (
    "The pairs that give the intervals include {rounds} rounds that were unseen once. If each of these is judged\n"
    "by intervals made without it, {held} of their {count} pairs are held, {width} points wide.\n"
)
_TOGETHER = """
The line `Fix` predicts the step after all fixes. A pair differs in one fault, but most programs have more. So that step
is compared with the measured step of the fixed program, reduced by the share that the fixed program's own report
predicts to save (`python -m benchmarks.together`).
{sentence}.

Every pair, with its prediction and the commit that made it, is in [benchmarks/truth](../benchmarks/truth).

### By rule

Pairs that were not fitted, of rules with at least {least} pairs; errors in points.

"""
_METHOD = """
## The step without the profiler

Error of the predicted step, where the step without the profiler was measured. The folders are parts of a larger
collection of traces.

| traces | number | median error | within 20 % |
|---|---|---|---|
"""
_SLOWDOWN = """
What the profiler adds to CPU times is fitted on these steps and those of fixtures (`python -m
benchmarks.fit_slowdown`). On programs that the fit has not seen, the model is little better than one constant. Measured
when it was fitted, on 110 of the steps above:

| slowdown | median error | within 20 % |
|---|---|---|
| one constant, 1.75 for every short stretch of CPU time | 6.6% | 76% |
| fitted on nine tenths of the programs, for the other tenth | 5.8% | 82% |
| fitted on all programs, as in the package | 4.5% | 92% |

In 60 recordings of `round5` to `round7`, which the CPU or waits limit and nothing was fitted on, the predicted step is
7.5 % off in the median, and 85 % are within 20 %. Part of this error is noise, which a trace does not show: where the
CPU sets the pace, repeated recordings of a program differ by up to 20 %, and so does its step without the profiler from
process to process.
"""
LIMITS = """
## Known limits

- A loop that reads values back waits less under the profiler than without it, because the profiler slows the CPU. The
  saving of removing such waits is predicted too small (`third/decode_sync`).
- A trace does not show that another algorithm would do, so such faults are not found.
- Long runs have lower GPU clocks than a short recording: their large GEMMs take 5 to 15 % longer than predicted.
  Savings hardly change.
- One rank's trace does not show why a collective takes long. Time beyond the quickest collective of the same size
  counts as waiting for launches of the other ranks, if this rank launches for half of the step or more. The replay
  shortens this waiting in proportion to this rank's own launching. Of 80 recordings of one of two ranks, the step is
  off by 6.4 % on average, and 74 lie in the interval.
- If few steps are recorded, another process on the GPU is not recognised.
- Power throttling is not modelled. Where a fix removes idle time of the GPU, its large GEMMs then take 3 to 16 %
  longer: such savings are predicted 7 to 9 points too large (`ranks2/loader`, `ranks/hiccup`).
- Threads of one process run at different speeds: the same calls take 0.3 to 1.5 times as long on the backward thread
  as on the forward thread (56 recordings). Where a fix leaves the CPU to set the pace, its saving is off by as much
  (`ranks/imbalance`, `ranks2/rank0_metrics`).
- The step after compiling is an estimate: trust only whether it is shorter or longer.
"""
_LEAST_PAIRS = 5  # of a rule that has a row; chosen


def page(found: Sequence[Row], steps: Sequence[StepError], diagnosed: str) -> str:
    """The text of docs/accuracy.md; `found` is the ledger, `diagnosed` the part that `diagnoses.measured` makes."""
    groups = {"unseen": judging(found), "not fitted, unseen included": unfitted(found), "fitted": fitted(found)}
    sums = f"{_table('pairs', groups)}\n{shortened(groups['unseen'])}\n{_MEANING}{_rounds(found)}"
    sums += _TOGETHER.format(sentence=together.sentence(together.rows()), least=_LEAST_PAIRS)
    names = sorted({row.rule for row in unfitted(found)})
    of_rule = {f"`{name}`": [row for row in unfitted(found) if row.rule == name] for name in names}
    rules = _table("rule", {name: same for name, same in of_rule.items() if len(same) >= _LEAST_PAIRS})
    return _HEAD + sums + rules + _METHOD + _folders(steps) + _SLOWDOWN + diagnosed + LIMITS


def _table(title: str, groups: Mapping[str, Sequence[Row]]) -> str:
    lines = [
        f"| {title} | number | mean error | median error | within 10 points | interval held | interval width |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, same in groups.items():
        errors, width = (np.abs([row.error for row in same]), np.mean([100 * (row.high - row.low) for row in same]))
        parts = (f"{np.mean(errors <= 10):.0%}", f"{np.mean([row.held for row in same]):.0%}", f"{width:.0f}")
        cells = (name, str(len(same)), f"{errors.mean():.1f}", f"{np.median(errors):.1f}", *parts)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _rounds(found: Sequence[Row]) -> str:
    known = calibrating(found)
    sources = sorted({row.source for row in known} & _UNSEEN)
    judged = [one for source in sources for one in left_out(known, source)]
    held = np.mean([low - ALLOWED <= row.true <= high + ALLOWED for row, low, high in judged])
    width = 100 * np.mean([high - low for _, low, high in judged])
    return _LEFT_OUT.format(rounds=len(sources), count=len(judged), held=f"{held:.0%}", width=f"{width:.0f}")


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
