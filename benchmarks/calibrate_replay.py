"""How far replays are from the truth, into the package: `python -m benchmarks.calibrate_replay TRACES [--write]`.

A saving's residual is truth less what was said in units of sqrt(s (1 - s)) of the said share s, of the rows of the
ledger that are not fitted: findings as they were reported. Errors are one-sided, so what is stored is the shortest
interval around what is said that most rows lie within, by what the edit rests on. A step's
residual is the share by which the truth lies outside the range of the replays over the slowdowns (split conformal).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.ledger import ALLOWED, Row, calibrating, judging, rows
from benchmarks.replay_case import Case
from benchmarks.replay_truth import at_hand, truth_ms
from traceanalyzer import load
from traceanalyzer.replay import calibration
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.run import LEAST, PROCESS, run, unknown

QUANTILE = 0.85  # of rows: of a round left out more lie within than with 0.875 without PROCESS, 4 points nearer
STEP_QUANTILE = 0.9
STATED = 0.82  # share of unseen pairs that an interval is to hold; it is stated as four of five
LEAST_SAID = 0.02  # of the step: the unit of what is said to save nothing is nothing
STEP_FOLDERS = ("pairs", "pairs4", "real", "noise", "slowdown")
# What rules' edits rest on (`Forecast.evidence`): many calls become one; nobody waits for the device any more; work
# goes or fuses, and its readers may get slower; all others shorten or drop what was measured.
_OF_LOOPS = ("repeated-calls", "launch-bound")
_OF_WAITS = (
    *("implicit-sync", "exposed-copy", "host-round-trip", "long-device-sync"),
    *("gradient-scaling", "allocator-thrash"),
)
_OF_GONE = (
    *("data-movement", "dense-gradient", "dtype-casts", "hidden-dtod-copy", "strided-copy", "layout-conversion"),
    *("one-hot", "hand-written-attention", "unfused-pointwise"),
)
_BY_RULE = {**dict.fromkeys(_OF_LOOPS, "loops"), **dict.fromkeys(_OF_WAITS, "waits"), **dict.fromkeys(_OF_GONE, "gone")}
GROUPS = ("measured", "gone", "waits", "loops")


def group_of(row: Row) -> str:
    """What the edits of its rule rest on."""
    return _BY_RULE.get(row.rule, "measured")


def scaled(row: Row) -> float:
    """Truth less what was said, beyond what no saving is known better than, in units of sqrt(s (1 - s))."""
    error = row.true - row.said
    beyond = np.sign(error) * max(abs(error) - _unknown(row, error), 0.0)
    return float(beyond / max(float(np.sqrt(abs(row.said) * abs(1 - row.said))), LEAST))


def shortest(found: Sequence[Row]) -> tuple[float, float]:
    """(below, above) of the shortest intervals that hold `QUANTILE` of the rows: shortest as said, at most 1."""
    found = [row for row in found if abs(row.said) >= LEAST_SAID]
    values = np.array([scaled(row) for row in found])
    share = np.array([row.said for row in found])
    unit = np.sqrt(np.abs(share) * np.abs(1 - share))
    wanted = int(np.ceil(len(values) * QUANTILE))
    choices = []
    for below in sorted({0.0, *np.maximum(-values, 0.0).tolist()}, reverse=True):
        above = float(np.sort(np.where(values >= -below, np.maximum(values, 0.0), np.inf))[wanted - 1])
        if np.isinf(above):
            break
        width = np.minimum(share + above * unit, 1.0) - (share - below * unit)
        choices.append((float(width.mean()), below, above))
    _, below, above = min(choices)
    return below, above


def residuals(found: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """(below, above) for what edits rest on."""
    return {group: shortest([row for row in found if group_of(row) == group]) for group in GROUPS}


def interval(row: Row, known: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """(low, high) of what was said, by these residuals; the range over slowdowns apart."""
    unit = float(np.sqrt(abs(row.said) * abs(1 - row.said)))
    below, above = known[group_of(row)]
    return row.said - below * unit - _unknown(row, -1), min(row.said + above * unit + _unknown(row, 1), 1.0)


def _unknown(row: Row, error: float) -> float:
    return unknown(row.said, PROCESS[row.bound] if error > 0 else 0.0)


def left_out(found: Sequence[Row], source: str) -> list[tuple[Row, float, float]]:
    """(row, low, high) of each row of a source, by the residuals of all other sources."""
    known = residuals([row for row in found if row.source != source])
    return [(row, *interval(row, known)) for row in found if row.source == source]


def held(found: Sequence[Row]) -> float:
    """How often the truth is within the interval that the other rows give."""
    inside = 0
    for one in found:
        below, above = residuals([row for row in found if row is not one])[group_of(one)]
        inside += -below <= scaled(one) <= above
    return inside / len(found)


def step_residuals(traces: Path) -> list[tuple[str, float, float]]:
    """(trace, signed error of the step, share by which the truth is outside the range over slowdowns).

    Of the traces that the replay was fitted on; of all others tests/rules/test_acceptance.py prints the errors.
    """
    result = []
    for folder in STEP_FOLDERS:
        for path in filter(at_hand, sorted(traces.glob(f"{folder}/*.json.gz"))):
            if "table" in path.name or not Path(str(path).replace(".json.gz", ".meta.json")).exists():
                continue
            true, program = truth_ms(path) * 1e6, Case.of(load(path)).program
            known = program.segments.slowed.range
            typical, slow, quick = (run(EditedProgram(program), s).ns for s in (known.typical, known.low, known.high))
            result.append(
                (
                    f"{folder}/{path.name.split('.json')[0]}",
                    typical / true - 1,
                    max(1 - true / min(quick, slow), true / max(quick, slow) - 1, 0.0),
                )
            )
    return result


def interval_parts(judged: Sequence[Row]) -> dict[str, float]:
    """By bound, the smallest part of the reported intervals, in tenths, that holds `STATED` of the judged rows.

    Intervals hold more often than the residuals alone, because they also cover the range over slowdowns.
    """
    parts = {}
    for bound in ("gpu", "cpu", "wait"):
        found = [row for row in judged if row.bound == bound]
        enough = [part for part in np.arange(0.3, 1.01, 0.1) if _held_within(found, float(part)) >= STATED]
        parts[bound] = round(float(min(enough, default=1.0)), 1)
    return parts


def _held_within(found: Sequence[Row], part: float) -> float:
    """Share of the rows whose truth lies within this part of their interval."""
    inside = [
        row.said - part * (row.said - row.low) - ALLOWED
        <= row.true
        <= row.said + part * (row.high - row.said) + ALLOWED
        for row in found
    ]
    return float(np.mean(inside))


def conformal(values: Sequence[float], quantile: float) -> float:
    """The smallest value that a new one stays within with that probability; the largest where there are too few."""
    rank = int(np.ceil((len(values) + 1) * quantile))
    return float(np.sort(values)[min(rank, len(values)) - 1])


def written(found: Sequence[Row], steps: Sequence[tuple[str, float, float]], parts: Mapping[str, float]) -> str:
    """The text of traceanalyzer/replay/calibration.py."""
    lines = ", ".join(f'"{group}": ({below:.3f}, {above:.3f})' for group, (below, above) in residuals(found).items())
    gpus = ", ".join(f'"{name}"' for name in sorted({row.gpu for row in found}))
    return f'''"""How far reported savings were from the truth; written by benchmarks/calibrate_replay.py."""

PAIRS = {len(found)}  # bad and fixed, one thing apart, both measured without the profiler; on none was anything fitted
HELD = {held(found):.3f}  # share of them that lie within the interval that the others give
GPUS = frozenset({{{gpus}}})  # on which they were measured
# Truth below and above what is said, per sqrt(share x (1 - share)), by what the edits rest on (Forecast.evidence).
RESIDUAL = {{{lines}}}
# Part of an interval that holds the truth in four of five unseen pairs, by what sets the pace of the step.
INTERVAL_PART = {json.dumps(parts)}
STEPS = {len(steps)}  # traces whose step without the profiler was measured
STEP_RESIDUAL = {conformal([outside for _, _, outside in steps], STEP_QUANTILE):.3f}  # share of the step
'''


def main() -> None:
    every = rows()
    found, steps = calibrating(every), step_residuals(Path(sys.argv[1]))
    errors = np.abs([error for _, error, _ in steps])
    print(f"steps: median error {np.median(errors):.1%}, within 20 % {np.mean(errors <= 0.2):.0%} of {len(errors)}")
    text = written(found, steps, interval_parts(judging(every)))
    print(text)
    if "--write" in sys.argv:
        Path(calibration.__file__).write_text(text)


if __name__ == "__main__":
    main()
