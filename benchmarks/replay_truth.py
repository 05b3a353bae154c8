"""How near the replay is to the truth: savings over pairs, and the step without the profiler over all traces.

usage: python -m benchmarks.replay_truth TRACES [pairs|steps]
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import numpy as np

from benchmarks.replay_fixes import FIXES, Case
from traceanalyzer import load
from traceanalyzer.replay.run import replay


def truth_ms(path: Path) -> float:
    """The median step without the profiler, from the file beside the trace."""
    told = json.loads(Path(str(path).replace(".json.gz", ".meta.json")).read_text())["unprofiled_step_ms"]
    return float(statistics.median(told) if isinstance(told, list) else told)


def pairs(traces: Path) -> None:
    """Said against true saving of every pair that a selector knows."""
    errors = []
    print(f"{'pair':24} {'true':>7} {'said':>7} {'range':>16} {'err':>6}  step ms true, said")
    for bad in sorted([*traces.glob("pairs/*.bad.json.gz"), *traces.glob("pairs4/*.bad.json.gz")]):
        name = bad.name.split(".")[0]
        if name not in FIXES:
            continue
        true = 1 - truth_ms(Path(str(bad).replace(".bad.", ".fixed."))) / truth_ms(bad)
        case = Case.of(load(bad))
        edits = FIXES[name](case)
        said = []
        known = case.program.slowed.range
        for s in (known.typical, known.low, known.high):
            base, fixed = replay(case.program, (), s), replay(case.program, edits, s)
            said.append(1 - fixed.ns / base.ns)
        if "pairs4" not in str(bad):
            errors.append(abs(said[0] - true) * 100)
        base = replay(case.program)
        fixed = replay(case.program, edits)
        print(
            f"{bad.parent.name + '/' + name:24} {true:7.1%} {said[0]:7.1%} {min(said):7.1%} {max(said):7.1%} {(said[0] - true) * 100:+6.1f}  {truth_ms(bad):.3f} {base.ns / 1e6:.3f} {base.bound} -> {truth_ms(Path(str(bad).replace('.bad.', '.fixed.'))):.3f} {fixed.ns / 1e6:.3f} {fixed.bound}"
        )
    print(f"pairs: mean {np.mean(errors):.1f}, median {np.median(errors):.1f} points over {len(errors)}")


if __name__ == "__main__":
    pairs(Path(sys.argv[1]))
