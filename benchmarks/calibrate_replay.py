"""How far replays are from the truth, into the package: `python -m benchmarks.calibrate_replay TRACES [--write]`.

A saving's residual is how far the truth lies outside the range of the replays over the slowdowns, in units of
sqrt(s (1 - s)); a step's is the same as a share of it. What is stored is the smallest residual that nine of ten new
faults, or programs, stay within (split conformal); how often the interval holds is told leave-one-out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.replay_case import Case
from benchmarks.replay_fixes import FIXES
from benchmarks.replay_truth import at_hand, truth_ms
from traceanalyzer import load
from traceanalyzer.replay import calibration, saving
from traceanalyzer.replay.draft import Draft
from traceanalyzer.replay.run import run

QUANTILE = 0.9
UNKNOWN = frozenset({"amp_scaler", "effnet_nchw"})  # what is fixed there is not what the selector sees
STEP_FOLDERS = ("pairs", "pairs4", "real", "noise", "slowdown")


@dataclass(frozen=True)
class Residual:
    """One pair: what was said, the range over slowdowns, the truth."""

    name: str
    kind: str
    true: float
    said: float
    low: float
    high: float

    @property
    def value(self) -> float:
        """How far outside the range the truth is, in units of sqrt(s (1 - s)) at the range's nearer end."""
        outside = max(self.low - self.true, self.true - self.high) - saving.LEAST
        near = self.low if self.true < self.low else self.high
        return max(outside, 0.0) / max(float(np.sqrt(abs(near) * abs(1 - near))), 1e-3)


def residuals(traces: Path) -> list[Residual]:
    """Of every pair that has a selector."""
    found = []
    for bad in sorted([*traces.glob("pairs/*.bad.json.gz"), *traces.glob("pairs4/*.bad.json.gz")]):
        name = bad.name.split(".")[0]
        if name in UNKNOWN or name not in FIXES:
            continue
        true = 1 - truth_ms(Path(str(bad).replace(".bad.", ".fixed."))) / truth_ms(bad)
        case = Case.of(load(bad))
        edits = FIXES[name](case)
        before, after = Draft(case.program), Draft(case.program)
        for edit in edits:
            edit.apply(after)
        known = case.program.segments.slowed.range
        shares = [1 - run(after, s).ns / run(before, s).ns for s in (known.typical, known.low, known.high)]
        kind = max((edit.kind for edit in edits), default="drop")
        found.append(Residual(f"{bad.parent.name}/{name}", kind, true, shares[0], min(shares), max(shares)))
    return found


def step_residuals(traces: Path) -> list[tuple[str, float, float]]:
    """(trace, signed error of the step, share by which the truth is outside the range over slowdowns).

    Of the traces that the replay was fitted on; of all others tests/rules/test_acceptance.py prints the errors.
    """
    found = []
    for folder in STEP_FOLDERS:
        for path in filter(at_hand, sorted(traces.glob(f"{folder}/*.json.gz"))):
            if "table" in path.name or not Path(str(path).replace(".json.gz", ".meta.json")).exists():
                continue
            true, program = truth_ms(path) * 1e6, Case.of(load(path)).program
            known = program.segments.slowed.range
            typical, slow, quick = (run(Draft(program), s).ns for s in (known.typical, known.low, known.high))
            found.append(
                (
                    f"{folder}/{path.name.split('.json')[0]}",
                    typical / true - 1,
                    max(1 - true / min(quick, slow), true / max(quick, slow) - 1, 0.0),
                )
            )
    return found


def conformal(values: Sequence[float], quantile: float) -> float:
    """The smallest value that a new one stays within with that probability; the largest where there are too few."""
    rank = int(np.ceil((len(values) + 1) * quantile))
    return float(np.sort(values)[min(rank, len(values)) - 1])


def residual_by_kind(found: Sequence[Residual]) -> dict[str, float]:
    """Of a kind's own pairs where there are enough of them for a quantile, else of all."""
    enough = int(np.ceil(QUANTILE / (1 - QUANTILE)))
    by_kind = {}
    for kind in ("drop", "work", "rewrite"):
        own = [r.value for r in found if r.kind == kind]
        by_kind[kind] = conformal(own if len(own) >= enough else [r.value for r in found], QUANTILE)
    return by_kind


def held(found: Sequence[Residual]) -> float:
    """How often the truth was within the interval that the other faults give."""
    inside = 0
    for one in found:
        others = residual_by_kind([r for r in found if r is not one])
        inside += one.value <= others[one.kind]
    return inside / len(found)


def written(found: Sequence[Residual], steps: Sequence[tuple[str, float, float]]) -> str:
    """The text of traceanalyzer/replay/calibration.py."""
    kinds = ", ".join(f'"{kind}": {value:.3f}' for kind, value in residual_by_kind(found).items())
    return f'''"""How far replays were from the truth; benchmarks/calibrate_replay.py writes it and says how."""

from __future__ import annotations

PAIRS = {len(found)}  # bad and fixed, one thing apart, both measured without the profiler
HELD = {held(found):.3f}  # share of them that lie within the interval that the others give
RESIDUAL = {{{kinds}}}  # per sqrt(share x (1 - share)), by kind of edit
STEPS = {len(steps)}  # traces whose step without the profiler was measured
STEP_RESIDUAL = {conformal([outside for _, _, outside in steps], QUANTILE):.3f}  # share of the step
'''


def main() -> None:
    traces = Path(sys.argv[1])
    found, steps = residuals(traces), step_residuals(traces)
    for r in found:
        shares = f"true {r.true:6.1%} said {r.said:6.1%} range {r.low:6.1%} {r.high:6.1%}"
        print(f"{r.name:24} {r.kind:8} {shares} residual {r.value:.3f}")
    errors = np.abs([error for _, error, _ in steps])
    print(
        f"steps: median error {np.median(errors):.1%}, within 20 % {np.mean(errors <= 0.2):.0%} of {len(errors)}"
    )
    text = written(found, steps)
    print(text)
    if "--write" in sys.argv:
        Path(calibration.__file__).write_text(text)


if __name__ == "__main__":
    main()
