"""How far savings and steps were from the truth; written by `python -m benchmarks.calibrate_replay --write`."""

from __future__ import annotations

PAIRS = 0
QUANTILE = 0.9
RESIDUAL = {"drop": 0.12, "work": 0.15, "rewrite": 0.15}
STEP_RESIDUAL = 0.08
