"""How near the replay is to the truth: `python -m benchmarks.replay_truth TRACES [healthy] [steps FOLDER ...]`.

healthy: what CUDA graphs or no synchronisation would save of programs that have
nothing to save. steps: the step without the profiler, of every trace in the folders that tells it.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.replay_case import Case
from benchmarks.replay_fixes import graph, item
from traceanalyzer import load
from traceanalyzer.replay.saving import Forecast

HEALTHY = ("pairs/clean_gemm.fixed", "pairs/clean_train.fixed", "pairs/unfused_pointwise.fixed", "noise/gemm.a1")

FIRST_OF_PAIRS4 = frozenset(
    ("amp_scaler", "checkpointing", "effnet_nchw", "float64_leak", "moe_loop", "norm_upcast", "small_h2d")
)
"""Of pairs4/ and third/ those that were at hand when the replay was fitted; the others came later."""


def at_hand(path: Path) -> bool:
    """Whether the replay was fitted with this trace in view, as far as its folder tells."""
    return path.parent.name not in ("pairs4", "third") or path.name.split(".")[0] in FIRST_OF_PAIRS4


def truth_ms(path: Path) -> float:
    """The median step without the profiler, from the file beside the trace."""
    told = json.loads(Path(str(path).replace(".json.gz", ".meta.json")).read_text())["unprofiled_step_ms"]
    return float(statistics.median(told) if isinstance(told, list) else told)


def fixed(bad: Path) -> Path:
    """The other half of a pair."""
    return Path(str(bad).replace(".bad.", ".fixed."))


def forecast(case: Case) -> Forecast:
    """The replays of a case."""
    return Forecast.build(case.trace, case.nesting, case.work, case.steps, case.program)


def healthy(traces: Path) -> None:
    """Savings that are none."""
    for name in HEALTHY:
        case = Case.of(load(traces / f"{name}.json.gz"))
        known = forecast(case)
        said = [known.saving(edits(case)).share for edits in (graph, item)]
        print(f"{name:32} one graph {said[0]:6.1%}, no read-back {said[1]:6.1%}, bound by {known.step.bound}")


def steps(traces: Path, folders: Sequence[str]) -> None:
    """The step without the profiler."""
    errors, held = [], []
    for path in sorted(path for folder in folders for path in traces.glob(f"{folder}/*.json.gz")):
        if "table" in path.name or not Path(str(path).replace(".json.gz", ".meta.json")).exists():
            continue
        said, true = forecast(Case.of(load(path))).step, truth_ms(path) * 1e6
        errors.append(said.unprofiled_ns / true - 1)
        held.append(said.low_ns <= true <= said.high_ns)
        name = f"{path.parent.name}/{path.name.split('.json')[0]}"
        print(
            f"{name:36} {true / 1e6:8.3f} {said.unprofiled_ns / 1e6:8.3f}"
            f" [{said.low_ns / 1e6:8.3f} {said.high_ns / 1e6:8.3f}] ms {errors[-1]:+6.1%} {said.bound}"
        )
    size = np.abs(errors)
    print(
        f"steps: median error {np.median(size):.1%}, within 20 % {np.mean(size <= 0.2):.0%}, held {np.mean(held):.0%}"
    )


def main() -> None:
    traces, words = Path(sys.argv[1]), sys.argv[2:] or ["healthy"]
    if "healthy" in words:
        healthy(traces)
    if "steps" in words:
        steps(traces, words[words.index("steps") + 1 :])


if __name__ == "__main__":
    main()
