"""Whether a delay that is put into a recorded job is found: `python -m benchmarks.injected TRACES [--job NAME]`

Into every rank of every job of TRACES (the shared ones), one kind of delay after the other, so large that the job's
recorded step grows by the share. The delayed rank and the kind must be the first fault that not all ranks have; in the
job as it was recorded, where it is balanced, no rank may be accused.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from benchmarks.delays import Delay, Rank, Shifted, shifted
from benchmarks.recorded_job import EVENED, LATE, RecordedJob, between, jobs_in, marks_of
from traceanalyzer import Report, diagnose, load_job
from traceanalyzer.model.finding import Status

KINDS = ("compute", "one op", "pause", "input", "link")
SAID = {
    "compute": {("load-imbalance", ""), ("load-imbalance", "slower-kernels"), ("straggler", "more-work")},
    "pause": {("straggler", "host-pause"), ("straggler", "host-work"), ("host-gap", "")},
    "input": {("straggler", "late-input"), ("dataloader-stall", "")},
    "link": {("slow-link", "")},
}
SAID["one op"] = SAID["compute"]
_SLOWEST = 4.0  # times as long: a link that has lost more of its lanes is down; chosen
_TRIES = 24  # halvings of the interval in which the size of a delay is looked for


def delays_of(job: RecordedJob, rank: int, kind: str, size: float) -> dict[int, Delay]:
    """Delays of that size: us of each step, or share of what takes longer."""
    one = job.ranks[rank]
    if kind == "input":
        loads = [e["ts"] + e["dur"] / 2 for e in one.cpu if "DataLoader" in e["name"]]
        return {rank: Delay(pauses=[(index, size) for index in loads])}
    if kind == "pause":
        at_once = 0.3 if marks_of(one.cpu) else 1.0
        return {rank: Delay(pauses=[(index, size) for index in between(one, at_once)])}
    if kind == "link":
        return {other: Delay(link=_slower_link(job, other, size)) for other in (rank, peer_of(job, rank))}
    computes = {
        index: e["dur"] for index, e in enumerate(one.work) if e["cat"] == "kernel" and index not in one.meeting
    }
    if kind == "one op":
        names = {index: one.work[index]["name"] for index in computes}
        by_name: dict[str, float] = {}
        for index, name in names.items():
            by_name[name] = by_name.get(name, 0.0) + computes[index]
        longest = max(by_name, key=lambda name: by_name[name])
        computes = {index: took for index, took in computes.items() if names[index] == longest}
    scale = size / max(sum(computes.values()) / job.steps, 1e-9)
    return {rank: Delay(slower={index: took * scale for index, took in computes.items()})}


def peer_of(job: RecordedJob, rank: int) -> int:
    """The other end of the slow link."""
    return (rank + 1) % len(job.ranks)


def _exchanges(one: Rank) -> dict[int, float]:
    """What each exchange takes to move its data, in us: the least that any rank takes. Of a ring all ranks are late."""
    return {at: one.work[at]["dur"] - one.spare[at] for at in one.meeting if "AllReduce" not in one.work[at]["name"]}


def _slower_link(job: RecordedJob, rank: int, size: float) -> dict[int, float]:
    """Each exchange takes longer by one part of what it takes: what moves much is late by much."""
    took = _exchanges(job.ranks[rank])
    part = min(size * job.steps / max(sum(took.values()), 1e-9), _SLOWEST - 1)
    return {at: us * part for at, us in took.items()}


def delayed(job: RecordedJob, rank: int, kind: str, share: float) -> dict[int, Shifted] | None:
    """The job with a delay that makes its step longer by that share; None where none does."""
    least, most = 0.0, 0.0
    wanted = share * job.step_us
    size = wanted
    moved = None
    for _ in range(_TRIES):
        now = shifted(job.ranks, delays_of(job, rank, kind, size))
        if (grown := job.grown_us(now)) < wanted:
            least = size
            size = (least + most) / 2 if most else size * 2
        else:
            moved, most = now, size
            if grown < 1.1 * wanted:
                break
            size = (least + most) / 2
    return moved


def kinds_of(job: RecordedJob) -> Sequence[str]:
    """Those that can show in it: a link is slow beside others, and where ranks exchange with each other."""
    exchanges = len(job.ranks) > 2 and any(_exchanges(job.ranks[0]))
    return KINDS if exchanges else KINDS[:-1]


def is_found(report: Report, job: RecordedJob, rank: int, kind: str) -> bool:
    """Whether the first fault that not all ranks have is about that rank, and has a finding of that kind.

    What all ranks have may save the job more. A rank that is late as recorded has another reason as well: then one of
    its findings, which all come first.
    """
    asked = {rank, peer_of(job, rank)} if kind == "link" else {rank}
    of_some = [one for one in report.findings if set(one.ranks) != set(job.ranks)]
    own = list(takewhile(lambda one: set(one.ranks) == asked, of_some))
    if rank != LATE.get(job.name) or job.name in EVENED:
        own = [one for one in own if one.fault == own[0].fault]
    return any((one.rule, cause) in SAID[kind] for one in own for cause in (one.cause, ""))


def main() -> None:
    """Print what was not found, and how much was."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", type=Path)
    parser.add_argument("--job", action="append", default=[])
    parser.add_argument("--kind", action="append", default=[])
    parser.add_argument("--share", type=float, action="append", default=[])
    options = parser.parse_args()
    total: dict[str, list[bool]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for job in jobs_in(options.traces, options.job):
            report = diagnose(load_job(job.written(Path(scratch), None)))
            culprits = report.job.culprits if report.job else None
            print(
                f"{job.name}: {len(job.ranks)} ranks, step {job.step_us / 1e3:.1f} ms; accused as recorded: {culprits}",
                flush=True,
            )
            for share in options.share or [0.05]:
                for kind in options.kind or kinds_of(job):
                    for rank in job.ranks:
                        moved = delayed(job, rank, kind, share)
                        if moved is None:
                            print(f"  {kind} on rank {rank}: nothing makes the step longer by {share:.0%}")
                            continue
                        report = diagnose(load_job(job.written(Path(scratch), moved)))
                        hit = is_found(report, job, rank, kind)
                        total.setdefault(kind, []).append(hit)
                        if not hit:
                            told = [(f.rule, f.cause, f.ranks, f.severity.name) for f in report.findings[:2]]
                            broken = {(o.rule, o.why) for o in report.outcomes if o.status is Status.FAILED}
                            print(f"  {kind} on rank {rank}, {share:.0%}: {told}", *broken, flush=True)
            for file in Path(scratch).iterdir():
                file.unlink()
    for kind, hits in total.items():
        print(f"{kind}: {sum(hits)} of {len(hits)} found first")
    every = [hit for hits in total.values() for hit in hits]
    print(f"all: {sum(every)} of {len(every)}, {sum(every) / max(len(every), 1):.1%}")


if __name__ == "__main__":
    main()
