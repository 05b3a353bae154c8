"""Recorded jobs into which delays are put: their files, their steps, and instants at which no op runs."""

from __future__ import annotations

import bisect
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.delays import RUNS, Delay, Event, Rank, Shifted, end_of, shifted
from benchmarks.meetings import paired

JOBS = {
    "jobs/torchrec_a2a": "jobs/torchrec_a2a/rank*.json.gz",
    "jobs/torchrec_sleep": "jobs/torchrec_sleep/rank*.json.gz",
    "jobs/lightllm_base": "jobs/lightllm_base/rank*.json.gz",
    "jobs/lightllm_overlap": "jobs/lightllm_overlap/rank*.json.gz",
    **{
        f"ddp/{name}": f"ddp/{name}.rank*.json.gz"
        for name in ("overlap", "exposed", "one_bucket", "fsdp", "straggler_cpu", "straggler_gpu")
    },
}
LATE = {"jobs/torchrec_a2a": 2, "jobs/torchrec_sleep": 2, "ddp/straggler_cpu": 1, "ddp/straggler_gpu": 1}
"""Which rank is late as recorded."""
EVENED = frozenset({"jobs/torchrec_a2a", "jobs/torchrec_sleep"})
"""Jobs from which long pauses are taken before others are put in; in all others a delay comes on top.

Of two causes the one that costs more is rightly first: beside a pause of 1 s, or allocator calls of 100 ms on some of
the ranks, a delay of 5 % never is.
"""

_LOADS = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@dataclass
class RecordedJob:
    """The files of a job as they were recorded."""

    name: str
    documents: Mapping[int, dict[str, Any]]
    ranks: Mapping[int, Rank]
    steps: int
    step_us: float

    @classmethod
    def read(cls, name: str, files: Sequence[Path]) -> RecordedJob:
        """With an input's mark of next to no time at the begin of each step, if the job has none."""
        documents = {rank: json.loads(gzip.decompress(file.read_bytes())) for rank, file in enumerate(files)}
        for document in documents.values():
            document["traceEvents"] += list(_inputs(document["traceEvents"]))
        if name in EVENED:
            _evened(documents, LATE[name])
        ranks = _ranks(documents)
        return cls(name, documents, ranks, len(_begins(ranks[0].cpu)), _step_us(ranks[0]))

    def written(self, folder: Path, moved: Mapping[int, Shifted] | None) -> Path:
        """One file per rank."""
        for rank, document in self.documents.items():
            events = document["traceEvents"] if moved is None else rewritten(document["traceEvents"], moved[rank])
            (folder / f"rank{rank}.json").write_text(json.dumps({**document, "traceEvents": events}))
        return folder

    def grown_us(self, moved: Mapping[int, Shifted]) -> float:
        """By how much a step of the job is longer, at the end of the recording, where queues are as they will be."""
        return max(self._by_step(rank, one) for rank, one in moved.items())

    def _by_step(self, rank: int, moved: Shifted) -> float:
        marks = [one["ts"] for one in marks_of(moved.rank.cpu)]
        if len(marks) < 2:
            return moved.end[-1]
        before = [at for at, call in moved.rank.launch.items() if moved.rank.cpu[call]["ts"] < marks[-1]]
        return moved.end[-1] - moved.end[max(before)]


def _step_us(rank: Rank) -> float:
    """The mean of the device's steps but the first; without marks what the largest graph takes."""
    if marks := marks_of(rank.cpu):
        later = [at for at, call in rank.launch.items() if rank.cpu[call]["ts"] >= marks[min(1, len(marks) - 1)]["ts"]]
        span = max(end_of(rank.work[at]) for at in later) - min(rank.work[at]["ts"] for at in later)
        return span / max(len(marks) - 1, 1)
    by_launch: dict[int, list[int]] = {}
    for at, call in rank.launch.items():
        by_launch.setdefault(call, []).append(at)
    graph = max(by_launch.values(), key=len)
    return max(end_of(rank.work[at]) for at in graph) - min(rank.work[at]["ts"] for at in graph)


_LEAST_US, _MOST_US = 3.0, 1_000.0  # a gap between ops: a longer one may be a wait
_PAUSE_US, _LEFT_US = 4_000.0, 200.0  # a pause that is taken out, and what stays of it
_STALL_US = 1_000.0  # a call of the allocator that is shortened to `_LEFT_US`, on all ranks
_ALLOCATES = frozenset({"cudaMalloc", "cudaFree"})


def _ranks(documents: Mapping[int, dict[str, Any]]) -> dict[int, Rank]:
    ranks = {rank: Rank.of(document["traceEvents"]) for rank, document in documents.items()}
    paired(ranks)
    return ranks


def _evened(documents: Mapping[int, dict[str, Any]], late: int) -> None:
    """Take out what the ranks do not have in common: pauses of the late one, and long calls of the allocator."""
    ranks = _ranks(documents)
    without = {rank: [*(_pauses(one) if rank == late else ()), *_stalls(one)] for rank, one in ranks.items()}
    moved = shifted(ranks, {rank: Delay(pauses=one) for rank, one in without.items()})
    for rank, document in documents.items():
        document["traceEvents"] = rewritten(document["traceEvents"], moved[rank])


def _pauses(one: Rank) -> Iterator[tuple[float, float]]:
    """No op or call runs on any thread, but what polls for events."""
    busy = [e for e in one.cpu if e["cat"] in RUNS and e["name"] != "cudaEventQuery"]
    edges = sorted([e["ts"] for e in busy] + [end_of(e) for e in busy])
    calls = [e for e in busy if e["cat"] != "cpu_op" and e["dur"] > _PAUSE_US]
    waits = [(begin, end) for begin, end, _ in one.gaps]
    for begin, end in pairwise(edges):
        inside = any(c["ts"] <= begin and end_of(c) >= end for c in calls)
        if end - begin > _PAUSE_US and not inside and (begin, end) not in waits:
            yield (begin + end) / 2, _LEFT_US - (end - begin)


def _stalls(one: Rank) -> Iterator[tuple[float, float]]:
    for index, call in enumerate(one.cpu):
        if call["name"] in _ALLOCATES and call["dur"] > _STALL_US and index not in one.wait:
            yield call["ts"] + call["dur"] / 2, _LEFT_US - call["dur"]


def marks_of(cpu: Sequence[Event]) -> list[Event]:
    """The steps' marks."""
    return [one for one in cpu if str(one.get("name")).startswith("ProfilerStep") and one["cat"] == "user_annotation"]


def _begins(cpu: Sequence[Event]) -> list[float]:
    """When steps begin; of a job without marks when its first op does."""
    ops = [one for one in cpu if one.get("cat") == "cpu_op"]
    return [one["ts"] for one in marks_of(cpu)] or [ops[0]["ts"]]


def _inputs(events: Sequence[Event]) -> Iterator[Event]:
    cpu = sorted(
        (e for e in events if e.get("ph") == "X" and e.get("cat") in ("cpu_op", "user_annotation")),
        key=lambda e: e["ts"],
    )
    if any("DataLoader" in mark["name"] for mark in cpu):
        return
    marks = marks_of(cpu)
    for at in [mark["ts"] + 0.5 for mark in marks] or [at - 0.5 for at in between(Rank.of(events))]:
        yield {**(marks or cpu)[0], "name": _LOADS, "cat": "user_annotation", "ts": at, "dur": 1.0, "args": {}}


def rewritten(events: Sequence[Event], moved: Shifted) -> list[Event]:
    """The events at their new times; marks and flows move with the event that they are at."""
    work = {id(event): index for index, event in enumerate(moved.rank.work)}
    there: dict[tuple[Any, Any, Any], float] = {}
    for index, event in enumerate(moved.rank.work):
        there[event.get("pid"), event.get("tid"), event["ts"]] = event["ts"] + moved.start[index]
    begins = [event["ts"] for event in moved.rank.work]
    out = []
    for event in events:
        if "ts" not in event or event.get("ph") == "M":
            out.append(event)
            continue
        start, end = event["ts"], end_of(event)
        if (index := work.get(id(event))) is not None:
            start, end = start + moved.start[index], end + moved.end[index]
        elif event.get("cat") == "gpu_user_annotation":
            first = bisect.bisect_left(begins, start - 1e-3)
            last = max(bisect.bisect_right(begins, end) - 1, 0)
            start += moved.start[min(first, len(begins) - 1)]
            end += moved.end[last]
        elif (key := (event.get("pid"), event.get("tid"), event["ts"])) in there and event.get("ph") != "X":
            start = end = there[key]
        else:
            start, end = start + moved.cpu(start), end + moved.cpu(end)
        out.append({**event, "ts": start, **({"dur": max(end - start, 0.0)} if "dur" in event else {})})
    return out


def between(one: Rank, where: float = 0.3) -> list[float]:
    """An instant of every step at which no op or call runs on any thread: about so far into it."""
    busy = [e for e in one.cpu if e.get("cat") in RUNS and not e["name"].endswith("EventQuery")]
    result = []
    for mark in marks_of(one.cpu) or [_before_graph(one.cpu)]:
        wanted, free, until = mark["ts"] + where * mark["dur"], mark["ts"], 0.0
        for e in busy:
            if until > mark["ts"] and _LEAST_US < e["ts"] - until < _MOST_US:
                free = (until + e["ts"]) / 2
            if e["ts"] >= wanted and free > mark["ts"]:
                break
            until = max(until, e["ts"] + e["dur"])
        result.append(free)
    return result


def _before_graph(cpu: Sequence[Event]) -> Event:
    """What stands for the mark of a step that launches a graph: all before the launch."""
    begin = cpu[0]["ts"]
    launch = max((e["ts"] for e in cpu if e["name"].endswith("GraphLaunch")), default=begin)
    return {"ts": begin, "dur": launch - begin}


def jobs_in(folder: Path, names: Sequence[str] = ()) -> Iterator[RecordedJob]:
    """The jobs that are there."""
    for name, pattern in JOBS.items():
        files = sorted(folder.glob(pattern))
        if files and (not names or name in names):
            yield RecordedJob.read(name, files)
