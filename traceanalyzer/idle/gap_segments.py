"""Splits gaps: proven spans are cut out, and the rest gets one cause."""

from dataclasses import dataclass

import numpy as np

from traceanalyzer.idle.gaps import Gaps
from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, sums_of

MOST = 0.5  # of a gap: from this share on an activity is most of it; chosen
# A smaller part of a gap stays with the rest: 20 us is twice a launch call under the profiler (4 to 10 us, V100 to
# H200), and below a tenth of a gap a part changes nothing.
REAL_PART_NS = 20_000
REAL_PART = 0.1


@dataclass(frozen=True, slots=True)
class Proof:
    """What the CPU demonstrably did, and which gaps it may explain.

    Attributes:
        rows: int64 of shape (rows,), rows of `trace.cpu` that prove it: the one that covers most of a piece decides it,
            of those around one another the outermost.
        times: where the rows prove it for a part of their time: that part of each, parallel to `rows`, disjoint.
        gaps: bool of shape (gaps,).
        whole: whether all of a gap may be its, not only what lies before the next work's launch call returned.
    """

    spans: intervals.Set
    rows: Rows
    gaps: Mask
    whole: bool = False
    times: intervals.Set | None = None


class Cutter:
    """Takes pieces out of gaps, one cause after the other; what was taken once is not taken again.

    Gaps of several devices overlap in time. So they are laid end to end on an axis of their own, one free nanosecond
    between any two, and cut there.
    """

    def __init__(self, gaps: Gaps) -> None:
        self.gaps = gaps
        self.axis = np.cumsum(gaps.dur_ns + 1) - gaps.dur_ns - 1
        self.taken: intervals.Set = intervals.EMPTY
        returned = np.minimum(np.maximum(gaps.returned_ns, gaps.start_ns), gaps.end_ns)
        self.launch_return = np.where(gaps.call >= 0, returned, gaps.start_ns)

    def take(self, proof: Proof) -> tuple[Rows, Rows, Rows]:
        """(gap, start, end) of the pieces that the proof takes: of each gap at least a tenth, or 20 us in all."""
        limit = self.gaps.end_ns if proof.whole else self.launch_return
        covered = intervals.covered(proof.spans, self.gaps.start_ns, np.maximum(limit, self.gaps.start_ns))
        real = proof.gaps & self._is_real(covered)
        if not real.any():
            return self._on_gaps(intervals.EMPTY)
        gap = np.flatnonzero(real)
        owner, member = intervals.overlaps(proof.spans, self.gaps.start_ns[gap], limit[gap])
        gap = gap[owner]
        shift = self.axis[gap] - self.gaps.start_ns[gap]
        start = np.maximum(proof.spans[0][member], self.gaps.start_ns[gap]) + shift
        end = np.minimum(proof.spans[1][member], limit[gap]) + shift
        return self._on_gaps(self._claim(intervals.union(start, end)))

    def remainder(self) -> tuple[Rows, Rows, Rows]:
        """(gap, start, end) of what nobody has taken."""
        return self._on_gaps(intervals.difference((self.axis, self.axis + self.gaps.dur_ns), self.taken))

    def _claim(self, wanted: intervals.Set) -> intervals.Set:
        """What of the set is still free, where that is a real part of its gap."""
        near = _touching(self.taken, wanted)
        free = intervals.difference(wanted, near) if len(near[0]) else wanted
        gap = np.searchsorted(self.axis, free[0], side="right") - 1
        real = self._is_real(sums_of(gap, free[1] - free[0], len(self.gaps)))[gap]
        free = free[0][real], free[1][real]
        self.taken = intervals.union(*(np.concatenate(edges) for edges in zip(self.taken, free, strict=True)))
        return free

    def _is_real(self, part_ns: Rows) -> Mask:
        return np.asarray((part_ns > 0) & ((part_ns >= REAL_PART_NS) | (part_ns >= REAL_PART * self.gaps.dur_ns)))

    def _on_gaps(self, pieces: intervals.Set) -> tuple[Rows, Rows, Rows]:
        gap = np.searchsorted(self.axis, pieces[0], side="right") - 1
        shift = self.gaps.start_ns[gap] - self.axis[gap]
        return gap, pieces[0] + shift, pieces[1] + shift


def _touching(members: intervals.Set, wanted: intervals.Set) -> intervals.Set:
    """The members that overlap what is wanted, which is not empty."""
    if len(members[0]) == 0:
        return intervals.EMPTY
    low, high = wanted[0][0], wanted[1][-1]
    near = (members[1] > low) & (members[0] < high)
    return members[0][near], members[1][near]
