"""What a rank does that its peers do not, or takes longer for: its program beside theirs, step by step.

Ranks of a job run one program, so that what they do has the same names. CPU time is compared by outermost op, or by
what follows a gap; the device's by the sum of what computes. A rank whose host is slower by some part in everything
is not told: under the profiler one of two equal hosts is 10 to 20 % slower.
"""

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Self

import numpy as np

from traceanalyzer.model.analysis import GivenByJob
from traceanalyzer.model.arrays import Floats, Rows, distinct, grouped, median, numbered, pick, starts_of_runs
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, codes_at, texts_of
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.edits import Kind
from traceanalyzer.replay.program import Program
from traceanalyzer.timeline.device_work import DeviceWork

# What the peers take, in as many calls: a thread of equal hosts differs by up to 2.1, 2 H200.
_MORE_TIMES = 3.0
_MORE_CALLS = 1.5  # times the peers' calls: then it does what they do not
_MORE_NS = 100_000.0  # a step, beyond what the peers take: less is noise of a host; chosen
_MORE_WORK = 1.1  # times the peers' compute: equal work differs by up to 6 % between two H200
_ALIKE = 0.5  # share of a rank's CPU time in what its peers do, too: else it runs another program; chosen
_SAME = 0.8  # of the kernels; ranks choose another kernel for some of equal shapes; chosen
_MORE_KERNELS = 0.02  # of the kernels: by which the numbers of ranks with equal work differ at most; chosen
_DROPPED = 0.02  # of its time that is left: then it is not there; chosen
GAP, _LOADS = "before ", "enumerate(DataLoader)"
LATE_SHARE = "late_share"
"""Evidence of a finding: share of the recorded step that the others wait for what the rank takes more."""
# Waiting shows in these, too.
_COMMUNICATION = regex(r"c10d|nccl|rccl|gloo|(?<!before )record_param_comms", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """What one rank's sampled steps go to, by name: all that the comparison of ranks needs of it.

    Attributes:
        cpu_ns: name -> CPU time in a step, as recorded.
        calls: name -> how many segments of it are in a step.
        pause, pause_ns: the longest gap of a step: its name in the first one, its length in the median one.
        kernels: hash of name and grid -> how many of them compute in a step; grids tell how much they compute.
    """

    cpu_ns: Mapping[str, float]
    calls: Mapping[str, float]
    pause: str
    pause_ns: float
    compute_ns: float
    kernels: Mapping[int, float]

    @classmethod
    def of(cls, trace: Trace, work: DeviceWork, program: Program) -> Self:
        names, _ = segment_names(trace, program)
        steps = len(program.sample) * program.sample.part
        traced = program.segments.cpu_ns
        sums = np.bincount(names.code, weights=traced, minlength=len(names.names)) / steps
        calls = np.bincount(names.code, minlength=len(names.names)) / steps
        computes = ~program.work.communication
        took = float(program.work.dur_ns[computes].sum()) / steps
        cpu, counts = (dict(zip(names.names.tolist(), one.tolist(), strict=True)) for one in (sums, calls))
        gaps = longest_gaps(program)
        pause, pause_ns = (names[int(gaps[0])] or "", median(traced[gaps])) if len(gaps) else ("", 0.0)
        return cls(cpu, counts, pause, pause_ns, took, _kernels(trace, work, program, steps))


def longest_gaps(program: Program) -> Rows:
    """The longest segment of each step that is a gap: wherever the host pauses, it is that one."""
    gaps = np.flatnonzero(program.segments.gap & (program.segments.cpu_ns > 0))
    order = gaps[np.lexsort((-program.segments.cpu_ns[gaps], program.timeline.step[gaps]))]
    return order[starts_of_runs(program.timeline.step[order])]


def segment_names(trace: Trace, program: Program) -> tuple[Texts, Rows]:
    """(what each segment is: the same on all ranks that run one program; the row that it is named by).

    Every one of the names occurs, and they are sorted.
    """
    texts = [*texts_of(trace.lanes.cpu, "name").tolist(), ""]  # the last one's number stands for none
    top, call, row = program.segments.top_op, program.segments.call, program.timeline.row
    named = np.where(top >= 0, top, call)
    there = np.where(named >= 0, np.arange(len(named)), len(named))
    following = np.minimum.accumulate(there[::-1])[::-1]
    after = pick(named, np.where(following < len(named), following, -1))
    own, around, follows = (
        codes_at(trace.lanes.cpu, "name", rows) % len(texts) for rows in (named, np.where(named < 0, row, -1), after)
    )
    loads = np.array([text.startswith(_LOADS) for text in texts])[around]
    number, used = numbered(np.where(named >= 0, own, np.where(loads, around, follows + len(texts))))
    every = [*texts, *(GAP + text for text in texts)]
    sorted_names = [every[one] for one in used.tolist()]
    place = {name: at for at, name in enumerate(sorted(set(sorted_names)))}
    code = np.array([place[one] for one in sorted_names], np.int64)[number]
    return Texts(code, np.array(list(place), object)), np.where(named >= 0, named, after)


def gap_of(name: str) -> str | None:
    """The op that follows, where the name is a gap's."""
    return name.removeprefix(GAP) if name.startswith(GAP) else None


def _kernels(trace: Trace, work: DeviceWork, program: Program, steps: float) -> dict[int, float]:
    row = work.row[program.work.entry[~program.work.communication]]
    names, grids = (texts_of(trace.lanes.gpu, name) for name in ("name", "grid"))
    code, grid = codes_at(trace.lanes.gpu, "name", row), codes_at(trace.lanes.gpu, "grid", row)
    number, first = grouped([code, grid])
    pairs = zip(code[first].tolist(), grid[first].tolist(), np.bincount(number).tolist(), strict=True)
    return {
        zlib.crc32(f"{names[a]} {grids[b]}".encode("utf-8", "replace")): float(times) / steps
        for a, b, times in sorted(pairs)
        if a >= 0 and b >= 0
    }


@dataclass(frozen=True, slots=True)
class Excess:
    """What one rank takes more than its peers, in numbers; attributes as of `ExcessOverPeers`."""

    rank: int
    cpu_ns: Mapping[str, float]
    peers_ns: Mapping[str, float]
    compute_ns: float
    peers_compute_ns: float
    same_kernels: bool
    pause: str
    pause_left: float
    waits_ns: float
    step_ns: float

    @property
    def late_share(self) -> float:
        """Share of the step that the others wait for what it takes more."""
        more = sum(self.cpu_ns.values()) + max(self.compute_ns - self.peers_compute_ns, 0.0)
        return late_share(more, self.waits_ns, self.step_ns)

    @property
    def computes_more(self) -> bool:
        """Whether the device's work is more, or slower, than the peers'."""
        return self.compute_ns > _MORE_WORK * self.peers_compute_ns


@dataclass(frozen=True, slots=True)
class ExcessOverPeers(Excess, GivenByJob):
    """What one rank takes more than its peers; only a job gives it.

    Attributes:
        cpu_ns: name -> CPU time a step beyond its peers', largest first.
        peers_ns: name -> what they take.
        compute_ns, peers_compute_ns: of the device in a step, its own and its peers'.
        same_kernels: whether a peer runs the same kernels on the same grids, as often.
        pause: name of each step's longest gap, where it is longer than the peers'; empty where it is not.
        pause_left: share of that gap that is left where it is as its peers'; 1 where it is as long.
        rows: int64, rows of `trace.cpu` in which the CPU time is spent, or which it comes before.
        edit: makes it as its peers.
        waits_ns: what the others wait for it in a recorded step.
    """

    rows: Rows
    edit: "MatchPeers"

    @classmethod
    def of(cls, more: Excess, trace: Trace, program: Program) -> Self:
        names, rows = segment_names(trace, program)
        shares = {name: more.peers_ns[name] / (ns + more.peers_ns[name]) for name, ns in more.cpu_ns.items()}
        shares.pop(more.pause, None)  # only the longest of the gaps that it is named by
        remaining = np.array([shares.get(name, 1.0) for name in names.names.tolist()])[names.code]
        remaining[longest_gaps(program)] *= more.pause_left
        less = more.computes_more and more.peers_compute_ns > 0
        work_left = more.peers_compute_ns / more.compute_ns if less else 1.0
        spent = rows[names.one_of(*islice(more.cpu_ns, 1)) & (rows >= 0)]
        edit = MatchPeers(remaining, work_left)
        plain = {attribute.name: getattr(more, attribute.name) for attribute in fields(Excess)}
        return cls(**plain, rows=distinct(spent), edit=edit)


@dataclass(frozen=True, slots=True, eq=False)
class MatchPeers:
    """CPU time and compute shrink to what the peers take, by `left` and `work_left`; what they do not do goes."""

    left: Floats
    work_left: float

    @property
    def kind(self) -> Kind:
        """Work that others do takes their time; what the CPU does needlessly does not."""
        return "balance" if self.work_left != 1 else "drop"

    def apply(self, edited: EditedProgram) -> None:
        gone = self.left <= _DROPPED
        edited.cpu_ns *= np.where(gone, 1.0, self.left)
        edited.drop(gone)
        edited.dur_ns[~edited.program.work.communication] *= self.work_left


def late_share(more_ns: float, held_ns: float, step_ns: float) -> float:
    """Share of the step that the others wait for what one rank takes more."""
    return min(max(min(more_ns, held_ns), 0.0) / max(step_ns, 1.0), 1.0)


def excess_by_rank(
    breakdowns: Mapping[int, StepBreakdown], waits_ns: Mapping[int, float], step_ns: Mapping[int, float]
) -> dict[int, Excess]:
    """What each rank takes more than the median of the others, without those that run another program, or no more."""
    ranks = list(breakdowns)
    if len(ranks) < 2:
        return {}
    names, cpu_ns, usual_ns = _beside([breakdowns[rank].cpu_ns for rank in ranks])
    same_names, calls, usual_calls = _beside([breakdowns[rank].calls for rank in ranks])
    assert same_names == names
    does = np.array([[name in breakdowns[rank].cpu_ns for name in names] for rank in ranks])
    alike = (usual_ns * does).sum(axis=1) >= _ALIKE * usual_ns.sum(axis=1)
    is_communication = np.array([bool(_COMMUNICATION.search(name)) for name in names])
    longer = (cpu_ns > _MORE_TIMES * usual_ns) | (calls > _MORE_CALLS * usual_calls)
    more = (cpu_ns - usual_ns >= _MORE_NS) & ~is_communication & longer
    compute = np.array([[breakdowns[rank].compute_ns] for rank in ranks])
    peers = _median_of_others(compute)
    slower = (compute > _MORE_WORK * peers) & (peers > 0)
    pause = np.array([[breakdowns[rank].pause_ns] for rank in ranks])
    short = _median_of_others(pause)
    gaps = np.array([gap_of(name) is not None for name in names])
    paused = (pause - short >= _MORE_NS) & (pause > _MORE_TIMES * short)
    paused &= ~(more & gaps).any(axis=1, keepdims=True)
    excess = {}
    for place in np.flatnonzero(alike & (more.any(axis=1) | slower[:, 0] | paused[:, 0])).tolist():
        slower_ops, rank = np.flatnonzero(more[place]), ranks[place]
        beyond = {names[op]: float(cpu_ns[place, op] - usual_ns[place, op]) for op in slower_ops.tolist()}
        usual = {names[op]: float(usual_ns[place, op]) for op in slower_ops.tolist()}
        same = any(_same(breakdowns[rank].kernels, breakdowns[peer].kernels) for peer in ranks if peer != rank)
        both = float(compute[place, 0]), float(peers[place, 0])
        name, share_left = "", 1.0
        if paused[place, 0]:
            name, share_left = breakdowns[rank].pause, float(short[place, 0] / pause[place, 0])
            beyond[name], usual[name] = float(pause[place, 0] - short[place, 0]), float(short[place, 0])
        beyond = dict(sorted(beyond.items(), key=lambda op: -op[1]))
        excess[rank] = Excess(rank, beyond, usual, *both, same, name, share_left, waits_ns[rank], step_ns[rank])
    return excess


def _beside(ranks: Sequence[Mapping[str, float]]) -> tuple[list[str], Floats, Floats]:
    """(all names, float64 (ranks, names) of each rank's values, the same of the median of the others); 0 for none."""
    names = sorted(set().union(*ranks))
    values = np.array([[one.get(name, 0.0) for name in names] for one in ranks]).reshape(len(ranks), -1)
    return names, values, _median_of_others(values)


def _median_of_others(values: Floats) -> Floats:
    """Of each row of (ranks, columns) the median of all other rows, column by column."""
    order = np.argsort(values, axis=0, kind="stable")
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(len(values))[:, None], axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    middles = (len(values) - 2) // 2, (len(values) - 1) // 2
    low, high = (np.take_along_axis(ordered, one + (place <= one), axis=0) for one in middles)
    return np.asarray((low + high) / 2)


def _same(own: Mapping[int, float], other: Mapping[int, float]) -> bool:
    """Whether most kernels are those of the other, as often, and both run as many."""
    alike, count = sum(times for name, times in own.items() if other.get(name) == times), sum(own.values())
    return alike >= _SAME * count > 0 and abs(count - sum(other.values())) <= _MORE_KERNELS * count
