"""Delays put into recorded jobs, with all that follows from them: what waited for the delayed rank waits longer.

Every event is shifted by as much as what it waited for is late, less the slack that the recording shows. On a rank, the
CPU goes on in order; a synchronisation ends with its work; work starts after its launch, after the work before it on
its stream, and after the other stream's that it waited for. A collective ends on all ranks when the last has come and
the data has moved: who came early has the difference to spare. Nothing of `traceanalyzer` is used.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Event = dict[str, Any]
Meeting = tuple[str, int]
Lateness = Generator[tuple[Meeting, float], float, None]

_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
COLLECTIVE = re.compile(r"nccl(Dev)?Kernel|deep_ep::.*(dispatch|combine)", re.IGNORECASE)
_TALKS = re.compile(r"nccl|c10d|record_param_comms")
_WAITS = re.compile(r"^(cuda|hip)(Device|Stream|Event)Synchronize$|^(cuda|hip)(Free|Memcpy(Async)?)$")
_LAUNCH_US = 5.0  # from launch to start at least; H200
_NEAR_US = 15.0  # work that starts so soon after another stream's end waited for it
_OWN_US = 4.0  # a synchronisation that has nothing to wait for
_GAP_US, _WOKEN_US = 1_000.0, 100.0  # a gap that may be a wait, and how soon after the work it ends
RUNS = ("cpu_op", "cuda_runtime", "cuda_driver")
_BLOCKS_US = 20.0  # a copy's call that takes less does not wait for it


@dataclass
class Rank:
    """One rank's events, and what was found of their order.

    Attributes:
        cpu: complete events of the CPU, by start.
        work: kernels, copies and memsets, by start.
        launch: work -> position in `cpu` of its launch.
        after: work -> what it waits for beside its launch and its stream, with the slack in us.
        meeting: work -> which collective of the job it is.
        spare: work -> how long it waited for the last rank, in us.
        sent: work that only receives -> the work that sent this rank's part of it.
        idle: work that only receives -> how long it waited, and how late the last part could come beside, in us.
        wait: call's position in `cpu` -> the work that it waited for.
        gaps: waits of which the call is not recorded: begin, end, and the work that they end with.
        ends: when work ends, and which it is, in order.
    """

    cpu: list[Event]
    work: list[Event]
    launch: dict[int, int] = field(default_factory=dict)
    after: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    meeting: dict[int, Meeting] = field(default_factory=dict)
    spare: dict[int, float] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)
    idle: dict[int, tuple[float, float]] = field(default_factory=dict)
    wait: dict[int, int] = field(default_factory=dict)
    gaps: list[tuple[float, float, int]] = field(default_factory=list)
    ends: list[tuple[float, int]] = field(default_factory=list)

    @classmethod
    def of(cls, events: Sequence[Event]) -> Rank:
        """Of all events of one file."""
        complete = sorted(
            (e for e in events if e.get("ph") == "X" and "ts" in e), key=lambda e: (e["ts"], -e.get("dur", 0))
        )
        work = [e for e in complete if e.get("cat") in _GPU]
        own = cls([e for e in complete if not str(e.get("cat")).startswith(("gpu_", "kernel"))], work)
        calls = {
            e["args"]["correlation"]: index
            for index, e in enumerate(own.cpu)
            if str(e.get("cat")).startswith("cuda_") and "correlation" in e.get("args", {})
        }
        for index, one in enumerate(work):
            if (call := calls.get(one["args"].get("correlation"))) is not None:
                own.launch[index] = call
        own.ends = sorted((end_of(one), index) for index, one in enumerate(work))
        own._order()
        own._calls_that_wait()
        own._gaps_that_wait()
        return own

    def _order(self) -> None:
        """Which work waits for which, beside its launch."""
        ends = self.ends
        last: dict[Any, int] = {}
        known = sorted((self.cpu[call]["ts"], index) for index, call in self.launch.items())
        computes = [one for one in known if not talks(self.work[one[1]])]
        speaks = [one for one in known if talks(self.work[one[1]])]
        told = self._waits_for_collectives()
        for index, one in enumerate(self.work):
            result = [last[one["args"].get("stream")]] if one["args"].get("stream") in last else []
            launched = self.cpu[self.launch[index]]["ts"] if index in self.launch else None
            if launched is not None and talks(one):
                result += _before(computes, launched)
            elif launched is not None and (waited := _before(told, launched)):
                result += _before(speaks, float(waited[0]))
            place = bisect.bisect_right(ends, (one["ts"] + 1e-3, len(ends))) - 1
            if place >= 0 and one["ts"] - ends[place][0] < _NEAR_US:
                result.append(ends[place][1])
            self.after[index] = [
                (other, max(one["ts"] - end_of(self.work[other]), 0.0))
                for other in result
                if other != index and end_of(self.work[other]) <= one["ts"] + 1.0
            ]
            last[one["args"].get("stream")] = index

    def _waits_for_collectives(self) -> list[tuple[float, float]]:
        """When a stream was told to wait for another outside of a collective's own op: for its result."""
        inside: dict[Any, float] = {}
        result = []
        for one in self.cpu:
            if one.get("cat") == "cpu_op" and _TALKS.search(one["name"]):
                inside[one.get("tid")] = max(inside.get(one.get("tid"), 0.0), end_of(one))
            elif one["name"].endswith("StreamWaitEvent") and one["ts"] >= inside.get(one.get("tid"), 0.0):
                result.append((one["ts"], one["ts"]))
        return result

    def _calls_that_wait(self) -> None:
        own = {call: index for index, call in self.launch.items()}
        ends = self.ends
        for index, call in enumerate(self.cpu):
            if not _WAITS.match(call["name"]):
                continue
            if index in own:  # a copy: its own
                if call["dur"] > _BLOCKS_US and end_of(self.work[own[index]]) <= end_of(call) + 1.0:
                    self.wait[index] = own[index]
                continue
            place = bisect.bisect_right(ends, (end_of(call) + 3.0, len(ends))) - 1
            while place >= 0 and ends[place][0] > call["ts"]:
                one = ends[place][1]
                if one not in self.launch or self.cpu[self.launch[one]]["ts"] < call["ts"]:
                    self.wait[index] = one
                    break
                place -= 1

    def _gaps_that_wait(self) -> None:
        """Long gaps that end just after work which was launched before them; twice or more after work of one name.

        Within an op once is enough: no Python runs there, and the allocator waits for events by calls that the profiler
        does not record.
        """
        busy = [e for e in self.cpu if e.get("cat") in RUNS and not e["name"].endswith("EventQuery")]
        reached, found, inside = busy[0]["ts"] if busy else 0.0, [], []
        for one in busy:
            if (at := self._awaited(reached, one["ts"])) is not None:
                found.append((reached, one["ts"], at))
            reached = max(reached, end_of(one))
        calls = [(e["ts"], end_of(e)) for e in busy if e["cat"] != "cpu_op" and e["dur"] > _GAP_US]
        edges = sorted([e["ts"] for e in busy] + [end_of(e) for e in busy])
        for begin, end in pairwise(edges):
            if (at := self._awaited(begin, end)) is None or (begin, end, at) in found:
                continue
            if not any(start <= begin and end <= stop for start, stop in calls):
                inside.append((begin, end, at))
        often = Counter(self.work[at]["name"] for _, _, at in found)
        self.gaps = [*inside, *(gap for gap in found if often[self.work[gap[2]]["name"]] > 1)]

    def _awaited(self, begin: float, end: float) -> int | None:
        """The work, launched before, that ends with a long gap."""
        place = bisect.bisect_right(self.ends, (end, len(self.ends))) - 1
        if end - begin <= _GAP_US or place < 0 or end - self.ends[place][0] >= _WOKEN_US:
            return None
        at = self.ends[place][1]
        return at if at in self.launch and self.cpu[self.launch[at]]["ts"] < begin else None


@dataclass
class Delay:
    """What is put into one rank.

    Attributes:
        pauses: at which instants the CPU does something else, and for how many us.
        slower: what each kernel takes longer, in us, by its place in `Rank.work`.
        link: what the end of each collective comes later, by its place in `Rank.work`: on this rank alone.
    """

    pauses: Sequence[tuple[float, float]] = ()
    slower: Mapping[int, float] = field(default_factory=dict)
    link: Mapping[int, float] = field(default_factory=dict)


class Shifted:
    """What every event of one rank is late by: filled while its generator runs."""

    def __init__(self, rank: Rank, delay: Delay) -> None:
        self.rank, self.delay = rank, delay
        self.start, self.end = [0.0] * len(rank.work), [0.0] * len(rank.work)
        self.at: list[float] = [float("-inf")]  # the CPU's lateness from each of these instants on
        self.by: list[float] = [0.0]

    def cpu(self, instant: float) -> float:
        """What the CPU is late by."""
        return self.by[bisect.bisect_right(self.at, instant) - 1]

    def run(self) -> Lateness:
        """Through the recording in its order; at a collective's end the others are waited for."""
        rank = self.rank
        ends = {index: end_of(one) for index, one in enumerate(rank.work)}
        points = [(one["ts"] + min(1e-3, one["dur"] / 2), 1, index) for index, one in enumerate(rank.work)]
        points += [(ends[index], 2, index) for index in ends]
        waits = [
            (call["ts"], end_of(call), rank.wait[index]) for index, call in enumerate(rank.cpu) if index in rank.wait
        ]
        waits += rank.gaps
        points += [(max(end, ends[work]), 3, index) for index, (_, end, work) in enumerate(waits)]
        points += [(instant, 0, index) for index, (instant, _) in enumerate(self.delay.pauses)]
        for instant, kind, index in sorted(points):
            if kind == 0:
                self._cpu_is(instant, self.by[-1] + self.delay.pauses[index][1])
            elif kind == 1:
                self.start[index] = self._starts(index)
                # Known now: times are rounded, and what waited for it may be recorded as begun before it ended.
                self.end[index] = self.start[index] + self.delay.slower.get(index, 0.0)
            elif kind == 2 and index in rank.meeting:
                comes = self.end[rank.sent[index]] if index in rank.sent else self.start[index]
                last = yield rank.meeting[index], comes - rank.spare[index]
                if index in rank.sent:
                    waited, idle = rank.idle[index]
                    last = max(self.start[index] - waited, last - idle)
                self.end[index] = last + self.delay.link.get(index, 0.0)
            elif kind == 3:
                self._waited(instant, *waits[index])

    def _starts(self, at: int) -> float:
        late = [(self.end[other], slack) for other, slack in self.rank.after[at]]
        if (call := self.rank.launch.get(at)) is not None:
            launched = self.rank.cpu[call]["ts"]
            slack = max(self.rank.work[at]["ts"] - launched - _LAUNCH_US, 0.0)
            late.append((self.cpu(launched), slack))
        return _latest(late)

    def _waited(self, instant: float, start: float, end: float, work: int) -> None:
        spare = max(end - start - _OWN_US, 0.0)
        slack = max(end - end_of(self.rank.work[work]), 0.0)
        begun = self.cpu(start)
        more = self.by[-1] - begun  # a pause meanwhile, on another thread
        self._cpu_is(instant, _latest([(begun, spare), (self.end[work], slack)]) + more)

    def _cpu_is(self, instant: float, by: float) -> None:
        self.at.append(instant)
        self.by.append(by)


def shifted(ranks: Mapping[int, Rank], delays: Mapping[int, Delay]) -> dict[int, Shifted]:
    """Every rank's events, as late as the delays make them."""
    made = {rank: Shifted(one, delays.get(rank, Delay())) for rank, one in ranks.items()}
    going = {rank: one.run() for rank, one in made.items()}
    expected = Counter(key for one in ranks.values() for key in one.meeting.values())
    come: dict[Meeting, dict[int, float]] = {}
    ready: list[tuple[int, float | None]] = [(rank, None) for rank in ranks]
    while ready or come:
        if not ready:  # ends that overlap and were recorded in another order
            ready = _all_of(come.pop(next(iter(come))))
        rank, answer = ready.pop()
        try:
            key, late = next(going[rank]) if answer is None else going[rank].send(answer)
        except StopIteration:
            continue
        come.setdefault(key, {})[rank] = late
        if len(come[key]) == expected[key]:
            ready += _all_of(come.pop(key))
    return made


def _all_of(come: Mapping[int, float]) -> list[tuple[int, float | None]]:
    return [(rank, max(come.values())) for rank in come]


def _latest(late: Sequence[tuple[float, float]]) -> float:
    """How late what it waits for makes it, less the slack; the least slack is taken for none."""
    least = min((slack for _, slack in late), default=0.0)
    return max((by - slack + least for by, slack in late), default=0.0)


def talks(one: Event) -> bool:
    """Whether it is a kernel that communicates."""
    return one.get("cat") == "kernel" and COLLECTIVE.search(one["name"]) is not None


def end_of(one: Event) -> float:
    """When it ends, in us."""
    return float(one["ts"] + one.get("dur", 0.0))


def _before(known: Sequence[tuple[float, Any]], instant: float) -> list[Any]:
    place = bisect.bisect_left(known, (instant,)) - 1
    return [known[place][1]] if place >= 0 else []
