"""How far replays were from the truth; benchmarks/calibrate_replay.py writes it and says how."""

from __future__ import annotations

PAIRS = 25  # bad and fixed, one thing apart, both measured without the profiler
HELD = 0.920  # share of them that lie within the interval that the others give
RESIDUAL = {"drop": 0.123, "work": 0.158, "rewrite": 0.123}  # per sqrt(share x (1 - share)), by kind of edit
STEPS = 111  # traces whose step without the profiler was measured
STEP_RESIDUAL = 0.101  # share of the step
