"""How far reported savings were from the truth; written by benchmarks/calibrate_replay.py."""

from __future__ import annotations

PAIRS = 88  # bad and fixed, one thing apart, both measured without the profiler; on none was anything fitted
HELD = 0.807  # share of them that lie within the interval that the others give
GPUS = frozenset({"NVIDIA H200"})  # on which they were measured
# Truth below and above what is said, per sqrt(share x (1 - share)), by what bounds the step and by kind of edit.
RESIDUAL = {
    ("gpu", "work"): (0.143, 0.511),
    ("gpu", "host"): (0.143, 0.462),
    ("other", "work"): (0.181, 0.795),
    ("other", "host"): (0.156, 0.999),
}
STEPS = 111  # traces whose step without the profiler was measured
STEP_RESIDUAL = 0.101  # share of the step
