"""How far reported savings were from the truth; written by benchmarks/calibrate_replay.py."""

PAIRS = 255  # bad and fixed, one thing apart, both measured without the profiler; on none was anything fitted
HELD = 0.812  # share of them that lie within the interval that the others give
GPUS = frozenset({"NVIDIA H100 80GB HBM3", "NVIDIA H200"})  # on which they were measured
# Truth below and above what is said, per sqrt(share x (1 - share)), by what the edits rest on (Forecast.evidence).
RESIDUAL = {"measured": (0.235, 0.266), "gone": (0.333, 0.551), "waits": (0.156, 0.600), "loops": (0.408, 0.513)}
# Part of an interval that holds the truth in four of five unseen pairs, by what sets the pace of the step.
INTERVAL_PART = {"gpu": 0.6, "cpu": 1.0, "wait": 0.9}
STEPS = 111  # traces whose step without the profiler was measured
STEP_RESIDUAL = 0.095  # share of the step
