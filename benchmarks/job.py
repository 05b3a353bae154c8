"""Makes jobs of many ranks out of recorded ones, with two plants, and says what diagnosing them takes.

usage: python -m benchmarks.job make FOLDER RANK_FILE... [--ranks 512] [--straggler 37] [--slow-group 5] [--plant auto]
       python -m benchmarks.job run FOLDER [--jobs 1 2]

The files are ranks of one recorded job. Every rank made is a copy of one of them with ids of its own and a clock that
is off and drifts. All but the last all-reduce of a step are of groups of eight. The straggler's kernels that compute
take longer, or, where the device has time to spare so that this delays nobody, its host pauses before each step's
first op; one group's link is slow. What follows from that for all others is worked out by `benchmarks/delays.py`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.delays import COLLECTIVE, Delay, Event, Rank, Shifted, shifted
from benchmarks.meetings import paired
from benchmarks.recorded_job import rewritten

_DRIFT_PPM, _OFFSET_US = 20.0, 3_000.0
_GROUP = 8  # ranks
_ALL_REDUCE = "allreduce"
_SHOWN_RANKS = 30  # of a group, as Kineto writes it
_PLANTED = "planted.txt"
_DELAYS = 0.5  # of what the straggler is later by: of less the others would not wait for it; chosen


class Role:
    """What several ranks do alike: the straggler, its group, the group with the slow link, all others.

    Attributes:
        events: the recorded ones, copied.
        rank: their order.
        delay: what is put in.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = [dict(event) for event in events]
        self.rank, self.delay = Rank.of(self.events), Delay()

    @property
    def marks(self) -> list[float]:
        """Where steps begin, in us."""
        return [e["ts"] for e in self.rank.cpu if e["name"].startswith("ProfilerStep")]

    def slow_compute(self, late_us: float) -> None:
        """Let every kernel that computes take longer, all of them by so much a step."""
        computes = [
            index for index, one in enumerate(self.rank.work)
            if one.get("cat") == "kernel" and not COLLECTIVE.search(one["name"])
        ]  # fmt: skip
        total = sum(self.rank.work[index]["dur"] for index in computes) / max(len(self.marks), 1)
        self.delay.slower = {index: self.rank.work[index]["dur"] * late_us / total for index in computes}

    def slow_link(self, factor: float) -> None:
        """Let what moves data within the group take so many times as long: the least that any rank takes."""
        self.delay.link = {
            at: (factor - 1) * (self.rank.work[at]["dur"] - self.rank.spare[at])
            for at in self.rank.meeting if not self.is_of_all(at)
        }  # fmt: skip

    def is_of_all(self, at: int) -> bool:
        """Whether this collective is of all ranks: the last of a step, counted from the recording's end."""
        name, number = self.rank.meeting[at]
        each = sum(other == name for other, _ in self.rank.meeting.values()) // max(len(self.marks), 1)
        return number % max(each, 1) == 0


def roles_of(sources: Sequence[Sequence[Event]], options: argparse.Namespace) -> dict[tuple[str, int], list[Event]]:
    """(role, source) -> its events at their new times."""
    names = ("straggler", "beside", "slow", "other")
    made = {(name, index): Role(events) for name in names for index, events in enumerate(sources)}
    paired({number: one.rank for number, one in enumerate(made.values())})
    for (name, _), one in made.items():
        if name == "slow":
            one.slow_link(options.link)
    for (name, _), one in made.items():
        group = "beside" if name == "straggler" else name
        one.rank.meeting = {
            index: key if one.is_of_all(index) else (f"{group} {key[0]}", key[1])
            for index, key in one.rank.meeting.items()
        }
    straggler, late_us = made["straggler", 0], options.late_ms * 1e3
    before = _last_end(_moved(made))
    straggler.slow_compute(late_us)
    moved, steps = _moved(made), max(len(straggler.marks), 1)
    spare = _last_end(moved) - before < _DELAYS * late_us * steps
    if options.plant == "host" or (spare and options.plant == "auto"):
        straggler.delay.slower = {}
        straggler.delay.pauses = [(mark + 1.0, late_us) for mark in straggler.marks]
        moved = _moved(made)
    what = "its host pauses" if straggler.delay.pauses else "its kernels take longer"
    print(f"straggler: {what} by {late_us:.0f} us a step; others later by {(_last_end(moved) - before) / steps:.0f}")
    for one in made.values():
        _name_groups(one)
    return {key: rewritten(one.events, moved[index]) for index, (key, one) in enumerate(made.items())}


def _moved(made: Mapping[tuple[str, int], Role]) -> dict[int, Shifted]:
    ranks = dict(enumerate(one.rank for one in made.values()))
    return shifted(ranks, dict(enumerate(one.delay for one in made.values())))


def _last_end(moved: Mapping[int, Shifted]) -> float:
    """How much later a rank that has no plant leaves a collective at most, in us."""
    other = moved[len(moved) - 1]
    return max(other.end[at] for at in other.rank.meeting)


def _name_groups(role: Role) -> None:
    """Say of each all-reduce whether it is of all ranks or of a group: of the kernel, and of its op."""
    own = [at for at in sorted(role.rank.meeting) if "AllReduce" in role.rank.work[at]["name"]]
    told = [e for e in role.rank.cpu if e.get("args", {}).get("Collective name") == _ALL_REDUCE]
    for at, op in zip(reversed(own), reversed(told), strict=False):
        of_all = " " not in role.rank.meeting[at][0]
        for event in (role.rank.work[at], op):
            if "Process Group Name" in event["args"] or event is op:
                event["args"] = {**event["args"], "of all": of_all}


def write(options: argparse.Namespace) -> None:
    """One file per rank."""
    options.folder.mkdir(parents=True, exist_ok=True)
    documents = [json.loads(gzip.decompress(source.read_bytes())) for source in options.sources]
    roles = roles_of([document["traceEvents"] for document in documents], options)
    chance = random.Random(0)
    for rank in range(options.ranks):
        group, source = rank // _GROUP, rank % len(documents) if rank != options.straggler else 0
        beside = "beside" if group == options.straggler // _GROUP else "other"
        name = "straggler" if rank == options.straggler else "slow" if group == options.slow_group else beside
        off, drift = chance.uniform(-_OFFSET_US, _OFFSET_US), chance.uniform(-_DRIFT_PPM, _DRIFT_PPM) * 1e-6
        head = {key: value for key, value in documents[source].items() if key != "traceEvents"}
        head["distributedInfo"] = {**head.get("distributedInfo", {}), "rank": rank, "world_size": options.ranks}
        events = list(_own(roles[name, source], rank, options.ranks, off, drift))
        with gzip.open(options.folder / f"rank{rank}.json.gz", "wt", compresslevel=1) as stream:
            stream.write(json.dumps({**head, "traceEvents": events}))
    (options.folder / _PLANTED).write_text(f"{options.straggler} {options.slow_group}\n")


def _own(events: Sequence[Event], rank: int, ranks: int, off: float, drift: float) -> Iterator[Event]:
    """With the rank's clock, ids and groups."""
    begin = min(e["ts"] for e in events if "ts" in e)
    group = range(rank // _GROUP * _GROUP, min(rank // _GROUP * _GROUP + _GROUP, ranks))
    for event in events:
        one = dict(event)
        if "ts" in one:
            one["ts"] += off + drift * (one["ts"] - begin)
        if "id" in one:
            one["id"] += rank * 10_000_000
        if args := one.get("args"):
            args = {key: value + rank * 10_000_000 if key == "correlation" else value for key, value in args.items()}
            if (of_all := args.pop("of all", None)) is not None:
                args |= _group("0", range(ranks)) if of_all else _group(f"dp{rank // _GROUP}", group)
            one["args"] = args
        yield one


def _group(name: str, ranks: range) -> dict[str, Any]:
    shown = list(map(str, ranks))
    if len(shown) > _SHOWN_RANKS:
        shown = [*shown[: _SHOWN_RANKS - 1], "...", shown[-1]]
    text = f"[{', '.join(shown)}]"
    return {"Process Group Name": name, "Process Group Ranks": text, "Group size": len(ranks)}


# -- what it takes ---------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> None:
    """Diagnose the job with so many processes each, and print what that took and found."""
    files = sorted(options.folder.glob("*.json.gz"))
    straggler, slow = map(int, (options.folder / _PLANTED).read_text().split())
    print(f"{len(files)} files of {_plain_bytes(files[0]) / 1e6:.1f} MB; load {os.getloadavg()[0]:.1f}")
    outputs = set()
    for jobs in options.jobs:
        took = _measured(["diagnose", str(options.folder), "--format", "json", "--jobs", str(jobs)])
        outputs.add(took["out"])
        report = json.loads(took["out"])
        print(
            f"--jobs {jobs}: {took['wall_s']:.1f} s, {len(files) / took['wall_s']:.1f} files/s; "
            f"CPU {took['cpu_s']:.1f} s, {1e3 * took['cpu_s'] / len(files):.0f} ms a file; "
            f"parent {took['parent_mb']:.0f} MB at most, {took['parent_s']:.1f} s of CPU; "
            f"JSON {len(took['out']) / 1e6:.2f} MB"
        )
        print(f"    {report['job']['verdict']}")
        first = report["findings"][0]
        named = straggler in (first["rank"], *first["ranks"]) and len(first["ranks"]) < len(files) // 2
        print(f"    straggler {straggler}: {'found' if named else 'NOT found'}: {first['rule']}: {first['message']}")
    print(f"the same bytes: {len(outputs) == 1}")
    text = _measured(["diagnose", str(options.folder), "--jobs", str(options.jobs[-1])])["out"].decode()
    rates = json.loads(_measured(["collectives", str(options.folder), "--format", "json"])["out"])["collectives"]
    groups = sorted({rate["group"].split()[0] for rate in rates if rate["slow"]})
    known = "found" if groups == [f"dp{slow}"] else "NOT found"
    print(f"{len(text.splitlines())} lines of text; slow links {groups}: {known}")


def _plain_bytes(file: Path) -> int:
    return len(gzip.decompress(file.read_bytes()))


def _measured(arguments: Sequence[str]) -> dict[str, Any]:
    """Output, wall time, CPU time of all processes and of the parent, and the parent's own largest memory."""
    begun, before = time.perf_counter(), os.times()
    with subprocess.Popen([sys.executable, "-m", "traceanalyzer", *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        out, status, ticks = b"", "", (0, 0)
        while block := process.stdout.read1(1 << 20):
            out += block
            status, ticks = _of(process.pid) or (status, ticks)
        process.wait()
    took, now = time.perf_counter() - begun, os.times()
    cpu_s = now.children_user - before.children_user + now.children_system - before.children_system
    return {
        "out": out,
        "wall_s": took,
        "cpu_s": cpu_s,
        "parent_s": sum(ticks) / os.sysconf("SC_CLK_TCK"),
        "parent_mb": int(status.split("VmHWM:")[1].split()[0]) / 1024 if status else 0,
    }


def _of(pid: int) -> tuple[str, tuple[int, int]] | None:
    """(status, ticks of CPU time) of a process that still runs: as it writes its output it has done all else."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    return (status, (int(stat[11]), int(stat[12]))) if "VmHWM:" in status else None


def main() -> None:
    """Make the job, or diagnose it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("make")
    making.add_argument("folder", type=Path)
    making.add_argument("sources", type=Path, nargs="+")
    making.add_argument("--ranks", type=int, default=512)
    making.add_argument("--straggler", type=int, default=37)
    making.add_argument("--slow-group", type=int, default=5)
    making.add_argument("--late-ms", type=float, default=3.0)
    making.add_argument("--link", type=float, default=3.0, help="times as long as its peers take")
    making.add_argument("--plant", choices=("auto", "gpu", "host"), default="auto")
    making.set_defaults(do=write)
    running = commands.add_parser("run")
    running.add_argument("folder", type=Path)
    running.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    running.set_defaults(do=run)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
