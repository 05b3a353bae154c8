"""What a rank does that its peers do not, or takes longer for: its program beside theirs, step by step.

Ranks of a job run one program, so that what they do has the same names. CPU time is compared by outermost op, or by
what follows a gap; the device's by the sum of what computes. A rank whose host is slower by some part in everything
is not told: under the profiler one of two equal hosts is 10 to 20 % slower.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Rows, distinct, pick
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Trace, codes_at, texts_of
from traceanalyzer.replay.draft import Draft
from traceanalyzer.replay.edits import Kind
from traceanalyzer.replay.program import Program
from traceanalyzer.timeline.device_work import DeviceWork

Floats = NDArray[np.float64]

_MORE_TIMES = (
    3.0  # what the peers take, in as many calls: a thread of equal hosts differs by up to 2.1, 2 H200
)
_MORE_CALLS = 1.5  # times the peers' calls: then it does what they do not
_MORE_NS = 100_000.0  # a step, beyond what the peers take: less is noise of a host; chosen
_MORE_WORK = 1.1  # times the peers' compute: equal work differs by up to 6 % between two H200
_ALIKE = 0.5  # share of a rank's CPU time in what its peers do, too: else it runs another program; chosen
_SAME = 0.8  # of the kernels; ranks choose another kernel for some of equal shapes; chosen
_DROPPED = 0.02  # of its time that is left: then it is not there; chosen
_GAP = "before "
_TALKS = re.compile(
    r"c10d|nccl|rccl|gloo|(?<!before )record_param_comms", re.IGNORECASE
)  # waiting shows there, too


@dataclass(frozen=True, slots=True)
class Hours:
    """What one rank's sampled steps go to, by name.

    Attributes:
        name: of each segment: its outermost op, or `before OP`, or the annotation around a gap.
        row: int64, of each segment the row of `trace.cpu` that its name is of.
        cpu_ns: name -> CPU time in a step, as recorded.
        calls: name -> how many segments of it are in a step.
        compute_ns: of the device in a step.
        kernels: name and grid -> how many of them compute in a step; grids tell how much they compute.
    """

    name: NDArray[np.object_]
    row: Rows
    cpu_ns: Mapping[str, float]
    calls: Mapping[str, float]
    compute_ns: float
    kernels: Mapping[str, float]

    @classmethod
    def of(cls, trace: Trace, work: DeviceWork, program: Program) -> Self:
        """Of the program's segments."""
        names, rows = _names(trace, program)
        steps = len(program.sample) * program.sample.part
        traced = program.segments.cpu_ns
        found, code = np.unique(names.astype(str), return_inverse=True)
        sums = np.bincount(code, weights=traced, minlength=len(found)) / steps
        calls = np.bincount(code, minlength=len(found)) / steps
        computes = ~program.work.communication
        took = float(program.work.dur_ns[computes].sum()) / steps
        by_name = [dict(zip(found.tolist(), values.tolist(), strict=True)) for values in (sums, calls)]
        return cls(names, rows, by_name[0], by_name[1], took, _kernels(trace, work, program, steps))


@dataclass(frozen=True, slots=True)
class Behind:
    """What one rank takes more than its peers; only a job gives it.

    Attributes:
        rank: whose.
        cpu_ns: name -> CPU time a step beyond its peers', largest first.
        peers_ns: name -> what they take.
        compute_ns, peers_compute_ns: of the device in a step, its own and its peers'.
        same_kernels: whether a peer runs the same kernels on the same grids, as often.
        rows: int64, rows of `trace.cpu` in which the CPU time is spent, or which it comes before.
        edit: makes it as its peers.
        waits_ns: what the others wait for it in a recorded step.
    """

    rank: int
    cpu_ns: Mapping[str, float]
    peers_ns: Mapping[str, float]
    compute_ns: float
    peers_compute_ns: float
    same_kernels: bool
    rows: Rows
    edit: AsPeers
    waits_ns: float

    @classmethod
    def build(cls) -> Self:
        """Only a job gives it.

        Raises:
            Unavailable: always.
        """
        raise Unavailable("one rank's trace alone: what the others do not do shows in theirs")

    @property
    def computes_more(self) -> bool:
        """Whether the device's work is more, or slower, than the peers'."""
        return self.compute_ns > _MORE_WORK * self.peers_compute_ns


@dataclass(frozen=True, slots=True, eq=False)
class Left:
    """Share of each segment that stays, float64 (segments,); told from others by identity."""

    share: Floats


@dataclass(frozen=True, slots=True, eq=False)
class AsPeers:
    """CPU time and compute shrink to what the rank's peers take; what they do not do at all goes.

    Attributes:
        left: of the CPU's segments.
        work_left: share of the compute that stays.
    """

    left: Left
    work_left: float

    @property
    def kind(self) -> Kind:
        """Work that others do takes their time; what the CPU does needlessly does not."""
        return "balance" if self.work_left != 1 else "drop"

    def apply(self, draft: Draft) -> None:
        gone = self.left.share <= _DROPPED
        draft.cpu_ns *= np.where(gone, 1.0, self.left.share)
        draft.drop(gone)
        draft.dur_ns[~draft.program.work.communication] *= self.work_left


def behind(hours: Mapping[int, Hours], rank: int, waits_ns: float) -> Behind | None:
    """What the rank takes more than the median of the others; None where it runs another program, or nothing."""
    own, peers = hours[rank], [one for other, one in hours.items() if other != rank]
    usual, calls = (_usual([getattr(peer, what) for peer in peers]) for what in ("cpu_ns", "calls"))
    if sum(ns for name, ns in usual.items() if name in own.cpu_ns) < _ALIKE * sum(usual.values()):
        return None
    more = {
        name: ns - usual.get(name, 0.0)
        for name, ns in own.cpu_ns.items()
        if ns - usual.get(name, 0.0) >= _MORE_NS
        and not _TALKS.search(name)
        and (ns > _MORE_TIMES * usual.get(name, 0.0) or own.calls[name] > _MORE_CALLS * calls.get(name, 0.0))
    }
    compute = float(np.median([peer.compute_ns for peer in peers]))
    shares = {name: usual.get(name, 0.0) / own.cpu_ns[name] for name in more}
    left = np.array([shares.get(name, 1.0) for name in own.name.tolist()])
    work_left = compute / own.compute_ns if own.compute_ns > _MORE_WORK * compute and compute > 0 else 1.0
    if not more and work_left == 1.0:
        return None
    ordered = dict(sorted(more.items(), key=lambda item: -item[1]))
    spent = own.row[(own.name == next(iter(ordered), None)) & (own.row >= 0)]
    edit, same = AsPeers(Left(left), work_left), any(_same(own.kernels, peer.kernels) for peer in peers)
    return Behind(rank, ordered, usual, own.compute_ns, compute, same, distinct(spent), edit, waits_ns)


def _kernels(trace: Trace, work: DeviceWork, program: Program, steps: float) -> dict[str, float]:
    row = work.row[program.work.entry[~program.work.communication]]
    names, grids = (texts_of(trace.gpu, name) for name in ("name", "grid"))
    code, grid = codes_at(trace.gpu, "name", row), codes_at(trace.gpu, "grid", row)
    pairs, count = np.unique(np.stack((code, grid)), axis=1, return_counts=True)
    return {
        f"{names[a]} {grids[b]}": float(times) / steps
        for a, b, times in zip(*pairs.tolist(), count.tolist(), strict=True)
        if a >= 0 and b >= 0
    }


def _same(own: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether most kernels are those of the other, as often."""
    alike = sum(times for name, times in own.items() if other.get(name) == times)
    return alike >= _SAME * sum(own.values()) > 0


def _usual(peers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Median over the peers of each name's value, 0 where one lacks it."""
    return {name: float(np.median([peer.get(name, 0.0) for peer in peers])) for name in set().union(*peers)}


def _names(trace: Trace, program: Program) -> tuple[NDArray[np.object_], Rows]:
    """(what each segment is: the same on all ranks that run one program; the row that it is named by)."""
    texts = np.append(texts_of(trace.cpu, "name"), "")
    top, call, row = program.segments.top_op, program.segments.call, program.timeline.row
    named = np.where(top >= 0, top, call)
    code = codes_at(trace.cpu, "name", named)
    after = _next(named)
    follows = codes_at(trace.cpu, "name", pick(named, after))
    around = texts[codes_at(trace.cpu, "name", np.where(named < 0, row, -1))]
    plain = texts[code].astype(object)
    loads = np.char.startswith(around.astype(str), "enumerate(DataLoader)")
    gaps = np.where(loads, around, _GAP + texts[follows].astype(object))
    return np.asarray(np.where(named >= 0, plain, gaps), object), np.where(
        named >= 0, named, pick(named, after)
    )


def _next(named: Rows) -> Rows:
    """Position of the next segment within an op or call; -1 for none."""
    there = np.where(named >= 0, np.arange(len(named)), len(named))
    following = np.minimum.accumulate(there[::-1])[::-1]
    return np.where(following < len(named), following, -1)


def gap_of(name: str) -> str | None:
    """The op that follows, where the name is a gap's."""
    return name.removeprefix(_GAP) if name.startswith(_GAP) else None


def names_of(keys: Sequence[str], most: int) -> str:
    """The first few, as text."""
    return ", ".join(keys[:most]) + (", ..." if len(keys) > most else "")
