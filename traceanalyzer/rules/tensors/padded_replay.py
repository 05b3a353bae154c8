"""A CUDA graph that was captured for the largest input is replayed for much smaller ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows
from traceanalyzer.model.records import dataclass
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence, kernel_times
from traceanalyzer.rule.hits import clamp_to_floor, reduce_to
from traceanalyzer.tensors.signatures import Signature, signatures_of
from traceanalyzer.timeline.names import GRAPH_LAUNCH


@dataclass(frozen=True, slots=True)
class Limits:
    max_used_share: float = limit(
        0.5,
        "reported only if a replay uses at most this share of its rows; with graphs for powers of two, at "
        "least half of the rows are used",
    )
    min_replays: int = limit(
        3,
        "reported only if there are at least this many such replays; fewer may be the last, incomplete "
        "batch; chosen",
    )
    min_gpu_share: float = limit(0.05, "such replays must take at least this share of GPU time; chosen")
    floor_ns: int = limit(
        2_000,
        "for the saving: kernels of at most this duration do not get faster with fewer rows; H200, torch "
        "2.11",
    )


@rule(since="0.2", claims=Claims.WORK, min_share=0.03, limits=Limits)
def padded_replay(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """CUDA graphs are replayed for far fewer rows than they were captured for.

    What it looks for: a launch of a CUDA graph for N rows, of which at most half are used. Before the launch,
    the first k rows of the input are written. After it, the first k rows of the result are read.
    Why it costs: a graph computes all N rows, whatever they contain.
    Bad: one graph for 4,096 candidates, though requests have 200 to 900 candidates. Good: graphs for a few
    sizes, such as powers of two. Each request replays the smallest graph that fits.
    How sure: launches and slices are recorded. The trace does not show whether a graph captured for fewer
    rows would do less work, so confidence is medium.
    When it is wrong: the N rows are a cache that is being filled, not a padded batch.
    Saving: predicted with a graph for the next power of two.
    Source: "CUDA Graphs" in PyTorch's documentation (shapes are fixed); measured on an H200 with torch 2.11.
    """
    launches = calls[calls.is_call & calls.name.meets(GRAPH_LAUNCH.search)]
    slices = calls[calls.is_top_op & calls.name.one_of("aten::slice")]
    if len(launches) < limits.min_replays or len(slices) == 0:
        return
    launches = launches[np.argsort(launches.start_ns, kind="stable")]
    rows, whole = _rows_sliced(launches, slices)
    padded = (rows > 0) & (rows <= limits.max_used_share * whole)
    if padded.sum() < limits.min_replays:
        return
    needed_share = np.where(padded, 2 ** np.ceil(np.log2(np.maximum(rows, 1))) / np.maximum(whole, 1), 1.0)
    owner = work.launch.index_of_enclosing(launches)
    chosen = (owner >= 0) & padded[owner]
    for pieces, _ in work[chosen].device_shares(limits.min_gpu_share):
        yield _hits(pieces, needed_share[owner[pieces.entries]], rows[padded], whole[padded], limits)


def _hits(pieces: Work, needed_share: Floats, rows: Rows, whole: Rows, limits: Limits) -> Hits:
    return Hits(
        **reduce_to(
            pieces, clamp_to_floor(pieces.dur_ns * np.minimum(needed_share, 1.0), pieces, limits.floor_ns)
        ),
        message="a CUDA graph for {captured} rows is replayed for {fewest} to {most} (median {median}): "
        "{spent} of GPU time in total, mostly for unused rows, in {kernels}",
        advice="Capture graphs for a few sizes, such as powers of two, and replay the smallest that fits.",
        confidence=Confidence.MEDIUM,
        evidence={
            **gpu_time_evidence(pieces),
            "kernels": kernel_times(pieces),
            "captured": int(whole.max()),
            "fewest": int(rows.min()),
            "most": int(rows.max()),
            "median": int(np.median(rows)),
            "replays": len(rows),
            "spent_ns": pieces.total_ns,
        },
    )


def _rows_sliced(launches: Calls, slices: Calls) -> tuple[Rows, Rows]:
    """(k, N) of each launch: the first k of N rows are taken both before and after it; zeros where that is not so."""
    number, signatures = signatures_of(slices.events.trace, slices.rows)
    parts = [_first_rows(op) for op in signatures]
    recorded = np.array([part is not None for part in parts], bool)[number]
    sizes = sorted({part for part in parts if part is not None})
    place = np.array([sizes.index(part) if part is not None else -1 for part in parts], np.int64)[number][
        recorded
    ]
    before = np.searchsorted(launches.start_ns, slices.start_ns[recorded])
    asked = np.intersect1d(before * len(sizes) + place, (before - 1) * len(sizes) + place)
    asked = asked[(asked >= 0) & (asked < len(launches) * len(sizes))]
    rows, whole = np.zeros(len(launches), np.int64), np.zeros(len(launches), np.int64)
    most = np.array(sizes, np.int64).reshape(-1, 2)[asked % max(len(sizes), 1)]
    # The fullest slice of a launch comes last.
    order = np.argsort(most[:, 0] / np.maximum(most[:, 1], 1), kind="stable")
    rows[(asked // max(len(sizes), 1))[order]] = most[order, 0]
    whole[(asked // max(len(sizes), 1))[order]] = most[order, 1]
    return rows, whole


def _first_rows(op: Signature) -> tuple[int, int] | None:
    """(k, N) of `x[:k]` of N rows; None of other slices."""
    try:
        whole = op.shape(0)[0]
        along, start, end, step = (int(op.scalar(i)) if op.scalars[i] else 0 for i in range(1, 5))
    except (LookupError, TypeError, ValueError):
        return None
    return (end, whole) if (along, start, step) == (0, 0, 1) and 0 < end < whole else None
