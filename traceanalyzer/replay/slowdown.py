"""By how much the profiler slowed the CPU: what it adds per event, so that short stretches suffer and long ones do not.

Of a stretch between two events, the first few microseconds are the profiler's own recording for a part that depends on
what the stretch is: most of a gap between ops (an op's exit and the next one's entry), half of an op's dispatch,
a tenth of a call. With shapes every op costs more, and with stacks every Python call is an event. What goes beyond that
is the program's; all of it in ops that launch nothing, which compute on the CPU or do next to nothing. The numbers were
fitted on programs whose step is known without the profiler (docs/accuracy.md); single programs, even single processes,
differ by 30 %.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, median
from traceanalyzer.model.trace import Trace

_GAP, _OP, _CALL, _HOST_OP = 0, 1, 2, 3
_MOST_NS = np.array([2_600.0, 27_900.0, 6_500.0, 11_200.0])  # of a gap, op, call, op without launch; fitted
_STAYS = np.array([0.105, 0.41, 0.95, 0.41])  # share of it that is the program's; fitted
_BEYOND = np.array([0.05, 0.08, 0.2, 0.0])  # share of what goes beyond that is the profiler's still; fitted
_LONG_CALL_NS = 100_000.0  # what a call takes beyond is the driver's own: staging, a lock; as in late_starts
_SHAPES = np.array([0.0, -0.13, 0.0, -0.13])  # with shapes every op's inputs are written down; fitted
_PYTHON_NS = 770.0  # per Python call with stacks; fitted
_MAX_PYTHON = 0.7  # share of a stretch that recording Python calls may take
_LAUNCH_NS = 5_000.0  # a launch under the profiler, median; H200 host
_LAUNCH_STAYS = -0.19  # where launches are slower, less of all is the program's; per e-fold, fitted
_LAUNCH_LIMITS = (-0.3, 0.6)
_MIN_STAYS = 0.05
_LOW, _HIGH = 0.7, 1.25  # of what the profiler is said to add; with the residual, nine of ten lie between
# Ranks of a job are slower without the profiler than programs alone that look alike under it: the profiler adds so much
# of what it adds to these. An average, no law, whose reason was not measured: fitted on 34 recordings of two ranks in
# ranks/ and ranks2/ (one host, two H200), whose steps came out 9 % too short without it. Single jobs differ.
_OF_RANKS = 0.6
_LOW_OF_RANKS, _HIGH_OF_RANKS = 0.6, 1.65


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Traced over unprofiled CPU time; nine of ten programs lie in the range, all equal where the user pinned it."""

    low: float
    typical: float
    high: float
    basis: str


@dataclass(frozen=True, slots=True)
class Slowed:
    """Per segment what the profiler adds; arrays float64 of shape (segments,).

    Attributes:
        most_ns: how much of a stretch may be recording.
        program_share: share of that which is the program's.
        tail_overhead: share of what goes beyond it that is the profiler's: colder caches.
        tail_ns: up to which it is.
        python_overhead: share of the whole stretch that is recording: Python calls with stacks.
        total_ns, added_ns: of all segments, traced, and what of that the profiler is said to have added.
        of_rank: whether the process is one of several that talk to each other.
    """

    most_ns: Floats
    program_share: Floats
    tail_overhead: Floats
    tail_ns: Floats
    python_overhead: Floats
    total_ns: float
    added_ns: float
    of_rank: bool = False

    @classmethod
    def of(
        cls,
        trace: Trace,
        cpu_ns: Floats,
        gap: Mask,
        call: Mask,
        launch: Mask,
        host_op: Mask,
        steady: Mask,
        python_calls: Floats,
        of_rank: bool = False,
    ) -> Self:
        """For segments that are gaps, calls (some of them launches), or else within ops; float64 and bool (segments,).

        `host_op` launch nothing: they compute on the CPU, or do next to nothing; the profiler does not slow the
        `steady` ones; `python_calls` are those recorded within each, 0 without stacks.
        """
        kind = np.select([gap, call, host_op], [_GAP, _CALL, _HOST_OP], _OP)
        program_share = _STAYS + _SHAPES * bool(trace.meta.capabilities.get("shapes")) + slow_launches(cpu_ns[launch])
        program_share = np.maximum(program_share, _MIN_STAYS)[kind]
        most = np.where(steady, 0.0, _MOST_NS[kind])
        python = python_calls * _PYTHON_NS / np.maximum(cpu_ns, 1.0)
        # In ops where it is nearly all, as where anomaly mode keeps the stack; else what is fitted of ops covers it.
        counts = gap | ((kind == _OP) & (python >= _MAX_PYTHON))
        python_overhead = np.where(counts, np.minimum(python, _MAX_PYTHON), 0.0)
        tail_overhead, python_overhead = (np.where(steady, 0.0, one) for one in (_BEYOND[kind], python_overhead))
        tail_ns = np.where(kind == _CALL, _LONG_CALL_NS, np.inf)
        per_segment = most, program_share, tail_overhead, tail_ns, python_overhead
        slowed = cls(*per_segment, float(cpu_ns.sum()), 0.0, of_rank)
        left = remaining_ns(cpu_ns, slowed.added(cpu_ns), 1.0)
        return replace(slowed, added_ns=float((cpu_ns - left).sum()))

    def slower(self, times: float) -> Self:
        """Of segments that take so many times as long, for the same reasons."""
        total_ns, added_ns = self.total_ns * times, self.added_ns * times
        return replace(self, most_ns=self.most_ns * times, total_ns=total_ns, added_ns=added_ns)

    def added(self, cpu_ns: Floats) -> Floats:
        """What the profiler is said to have added to segments of these durations; float64 of shape (segments,)."""
        python_ns = cpu_ns * self.python_overhead
        own_ns = cpu_ns - python_ns
        short = np.minimum(own_ns, self.most_ns)
        tail_ns = np.minimum(own_ns - short, self.tail_ns)
        added = short * (1 - self.program_share) + self.tail_overhead * tail_ns + python_ns
        return added * (_OF_RANKS if self.of_rank else 1.0)

    def unprofiled(self, cpu_ns: Floats, added_ns: Floats, slowdown: float) -> Floats:
        """What segments of these durations, to which so much was `added`, take without the profiler; (segments,)."""
        return remaining_ns(cpu_ns, added_ns, self.strength(slowdown))

    def strength(self, slowdown: float) -> float:
        """What the profiler added at that slowdown, over what it is said to have added."""
        return (1 - 1 / slowdown) * self.total_ns / self.added_ns if self.added_ns else 1.0

    def slowdown(self, strength: float) -> float:
        """The slowdown at which the profiler added so many times what it is said to have added."""
        return self.total_ns / max(self.total_ns - strength * self.added_ns, _MIN_STAYS * self.total_ns, 1e-9)

    @property
    def typical(self) -> float:
        """The program's slowdown as the trace tells it."""
        return self.slowdown(1.0)

    @property
    def range(self) -> Slowdown:
        """The slowdown to expect, from the trace alone."""
        basis = "estimated from the number, kind and length of the CPU's events"
        low, high = (_LOW_OF_RANKS, _HIGH_OF_RANKS) if self.of_rank else (_LOW, _HIGH)
        return Slowdown(self.slowdown(low), self.typical, self.slowdown(high), basis)


def remaining_ns(cpu_ns: Floats, added_ns: Floats, strength: float) -> Floats:
    """What is left of the durations when so many times what the profiler added is taken off."""
    return np.maximum(cpu_ns - strength * added_ns, _MIN_STAYS * cpu_ns)


def slow_launches(launch_ns: Floats) -> float:
    if len(launch_ns) < 20:  # too few for a median
        return 0.0
    return float(_LAUNCH_STAYS * np.clip(np.log(max(median(launch_ns), 1.0) / _LAUNCH_NS), *_LAUNCH_LIMITS))
