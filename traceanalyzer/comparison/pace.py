"""The pace of the host: how long the calls and ops that both recordings make took, and the step at one pace.

Two recordings of one program differ by 8 % in the median, because a host is busy, or its clock lower, in one of
them. What both do alike tells that apart from what the program does differently: over 180 pairs of recordings of six
programs (traces of CPU-bound programs, H200 host) nine of ten steps are then within 14 %, instead of 42 %.
"""

from __future__ import annotations

import math
import re

import numpy as np

from traceanalyzer.comparison.snapshot import Snapshot, StepTime

_WAITING = re.compile(
    r"Synchronize|Malloc|Free|HostAlloc|Memcpy|ProfilerStep#"
)  # how long these take is the device's
_ALIKE = math.log(2.5)  # what changed more is another program; chosen
_SHORT_NS = 1_000.0  # added to both: ops of some ns differ by multiples of themselves
_LEAST_SHARE = 0.15  # of the CPU time, to tell the host's pace by; chosen


def host_pace(base: Snapshot, new: Snapshot) -> float:
    """How long what both do took in `new`, as a multiple of `base`; 1 where too little is the same, or hosts differ."""
    if base.gpus != new.gpus or base.versions.get("torch") != new.versions.get("torch"):
        return 1.0
    both = base.tables["host"].merge(new.tables["host"], on=["name", "part"], suffixes=("_base", "_new"))
    both = both[~np.array([bool(_WAITING.search(name)) for name in both["name"]], bool)]
    first, second = (both[f"mean_ns_{side}"].to_numpy(np.float64) for side in ("base", "new"))
    alike = np.abs(np.log((second + _SHORT_NS) / (first + _SHORT_NS))) <= _ALIKE
    count = both[["count_base", "count_new"]].min(axis=1).to_numpy(np.float64)[alike]
    sums = float((first[alike] * count).sum()), float((second[alike] * count).sum())
    totals = [
        float((one.tables["host"]["count"] * one.tables["host"]["mean_ns"]).sum()) for one in (base, new)
    ]
    if min(sums) <= 0 or sums[0] < _LEAST_SHARE * totals[0] or sums[1] < _LEAST_SHARE * totals[1]:
        return 1.0
    return sums[1] / sums[0]


def at_pace(step: StepTime, factor: float) -> int:
    """The step if the CPU were so many times as quick as it was, in ns."""
    if not step.paces or factor == 1.0:
        return step.ns
    paces = np.log([pace for pace, _ in step.paces])
    times = np.log([max(ns, 1.0) for _, ns in step.paces])
    change = np.interp([math.log(factor), 0.0], paces, times)
    return round(step.ns * math.exp(change[0] - change[1]))
