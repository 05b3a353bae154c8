"""How far reported savings were from the truth; written by benchmarks/calibrate_replay.py."""

from __future__ import annotations

PAIRS = 116  # bad and fixed, one thing apart, both measured without the profiler; on none was anything fitted
HELD = 0.793  # share of them that lie within the interval that the others give
GPUS = frozenset({"NVIDIA H200"})  # on which they were measured
# Truth below and above what is said, per sqrt(share x (1 - share)), by what the edits rest on (Forecast.evidence).
RESIDUAL = {
    "measured": (0.139, 0.350),
    "gone": (0.181, 0.594),
    "waits": (0.290, 0.795),
    "loops": (0.663, 0.578),
}
STEPS = 111  # traces whose step without the profiler was measured
STEP_RESIDUAL = 0.101  # share of the step
