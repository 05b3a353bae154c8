"""Hits of GPU work that another op, or another order of ops, would do in less time."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Floats
from traceanalyzer.model.finding import Confidence
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import Hits, clamp_to_floor, reduce_to
from traceanalyzer.rule.views import Work
from traceanalyzer.tensors.flow import Flow, confidence_of

_MIN_GPU_SHARE = 0.05  # such work must take at least this share of GPU time; chosen
_FLOOR_NS = 2_000  # no kernel is predicted to take less than this time; measured on an H200 with torch 2.11


def slow_work(
    work: Work,
    needed_share: Floats,
    *,
    message: str,
    advice: str,
    confidence: Confidence | None = None,
    flow: Flow | None = None,
    named_by: str | None = None,
    cause: str = "",
    evidence: Mapping[str, Any] | None = None,
) -> Iterator[Hits]:
    """One hit per device for all compute and copies that need less than their time, if they take long enough.

    Args:
        needed_share: of its time that each piece needs, float64 (work,); 1 leaves it out, 0 removes it.
        message: may name {gpu} and {where}, and what is in `evidence`.
        confidence: by default that of `confidence_of`.
    """
    slow = work[(needed_share < 1) & work.kind.one_of("compute", "copy_d2d")]
    for pieces, gpu_share in slow.device_shares(_MIN_GPU_SHARE):
        share = needed_share[pieces.entries]
        needed_ns = np.where(share > 0, clamp_to_floor(pieces.dur_ns * share, pieces, _FLOOR_NS), 0.0)
        yield Hits(
            **reduce_to(pieces, needed_ns),
            message=message,
            advice=advice,
            confidence=confidence or confidence_of(flow, pieces.op),
            named_by=named_by,
            cause=cause,
            evidence={**gpu_time_evidence(pieces), "gpu_share": gpu_share, **(evidence or {})},
        )
