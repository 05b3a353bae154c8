"""Small jobs: ranks that compute, then reduce together, each with a clock of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.job.clocks import clocks_of
from traceanalyzer.job.cross_rank_indexes import RankKernels, measured
from traceanalyzer.job.ranks import JobView
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.trace import Job
from traceanalyzer.read.load import load_job

US = 1_000
TRANSFER = 100 * US
REDUCES = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_TNT"


@dataclass
class Recording:
    """How one rank records the job.

    Attributes:
        ahead_ns: its clock less that of the job.
        first: step at which the recording begins.
        marked: whether steps are marked.
        drift_ppm: what the clock gains, from the job's time zero on.
    """

    ahead_ns: int = 0
    first: int = 0
    marked: bool = True
    drift_ppm: float = 0.0


@dataclass
class Reductions:
    """Steps of compute and one all-reduce, which ends on all ranks when the last one has come and data has moved.

    Attributes:
        compute_us: rank -> time of its kernel in each step.
        elements: of the all-reduce of each step; all steps alike where there is one.
        recordings: rank -> how it records; exactly if not given.
    """

    compute_us: Mapping[int, Sequence[int]]
    elements: Sequence[int] = (1 << 20,)
    recordings: Mapping[int, Recording] = field(default_factory=dict)
    group: str = "0"
    seq: bool = False

    def traces(self) -> dict[int, TraceBuilder]:
        """One trace per rank."""
        world = sorted(self.compute_us)
        made = {rank: TraceBuilder(distributedInfo={"rank": rank, "world_size": len(world)}) for rank in world}
        begin = 1_000_000
        for step in range(len(self.compute_us[world[0]])):
            arrived = {rank: begin + self.compute_us[rank][step] * US for rank in world}
            end = max(arrived.values()) + TRANSFER
            for rank, trace in made.items():
                recording = self.recordings.get(rank, Recording())
                if step >= recording.first:
                    self._step(trace, step, begin, arrived[rank], end, recording)
            begin = end + 20 * US
        return made

    def _step(self, trace: TraceBuilder, step: int, begin: int, arrived: int, end: int, recording: Recording) -> None:
        """Launched at its begin: 5 us for each call, and the kernels run without gaps."""
        shift, number = recording.ahead_ns + round(begin * recording.drift_ppm * 1e-6), 2 * step + 1
        at = begin + shift
        if recording.marked:
            trace.step(step, at - 10 * US, 30 * US)
        trace.op("aten::mm", at - 9 * US, 9 * US)
        trace.launched((at - 8 * US, 5 * US), (at, arrived - begin), number, name=GEMM)
        count = self.elements[step % len(self.elements)]
        members = str(sorted(self.compute_us))
        args = {
            "Collective name": "allreduce",
            "In msg nelems": count,
            "Out msg nelems": count,
            "Group size": len(self.compute_us),
            "Process Group Name": self.group,
            "Process Group Ranks": members,
        }
        if self.seq:
            args["Seq"] = step
        trace.op("c10d::allreduce_", at + US, 9 * US)
        trace.op("record_param_comms", at + 2 * US, 7 * US, **args)
        trace.launched((at + 3 * US, 5 * US), (arrived + shift, end - arrived), number + 1, name=REDUCES)


def job_of(made: Reductions, folder: Path) -> Job:
    """The traces as a job is read."""
    paths = [trace.write(folder / f"rank{rank}.json") for rank, trace in made.traces().items()]
    return load_job(*paths)


Starts = list[int]


def rank(starts: Starts, ends: Starts) -> RankKernels:
    """A rank with one kernel, times in us."""
    start, end = np.array(starts, float) * 1_000, np.array(ends, float) * 1_000
    return RankKernels({"k": (start, end - start)}, frozenset())


ENDS = [900, 1_900, 2_900, 3_900, 4_900]
EARLY, LATE = [100, 1_500, 2_200, 3_700, 4_300], [500, 1_100, 2_700, 3_100, 4_800]

TRANSFERS_US = (30, 4_000, 200, 12_000, 60, 2_000) * 4


def job(
    ranks: int,
    more: Mapping[int, float],
    *,
    what: str = "alltoall",
    ahead_us: Sequence[int] = (0,),
    late_us: int = 0,
    transfers_us: Sequence[int] = TRANSFERS_US,
    group: str | None = None,
    first: int = 0,
) -> dict[int, CollectiveRuns]:
    """Exchanges with turns at being last.

    Args:
        more: rank -> by what part of the transfer it leaves later.
        ahead_us: of each rank's clock.
        late_us: by how much the first rank leaves later, whatever is moved.
    """
    count = len(transfers_us)
    transfer = np.array(transfers_us) * US
    begin = np.cumsum(transfer + 5_000 * US)
    number = np.arange(count)
    return {
        first + rank: runs(
            begin - 100 * US * ((number + rank) % ranks),
            begin + (transfer * (1 + more.get(rank, 0.0))).astype(np.int64) + late_us * US * (rank == 0),
            ahead_us[rank % len(ahead_us)] * US,
            what,
            group,
        )
        for rank in range(ranks)
    }


def runs(start: np.ndarray, end: np.ndarray, ahead_ns: int, what: str, group: str | None) -> CollectiveRuns:
    count = len(start)
    unknown = np.full(count, -1, np.int64)
    return CollectiveRuns(
        np.arange(count),
        start + ahead_ns,
        end + ahead_ns,
        np.full(count, what, object),
        np.full(count, group or "", object),
        unknown,
        np.arange(count),
        unknown,
    )


def view_of(runs: Mapping[int, CollectiveRuns]) -> JobView:
    waits, base = measured(runs), dict.fromkeys(runs, 0)
    return JobView(runs, waits, clocks_of(runs, waits, base), base)


def reduced(*, desc: str = "", args: dict[str, Any] | None = None, around: str = "") -> Analysis:
    """An all-reduce of 100 us from 20 us on, and kernels that run beside it until 40 and from 70 to 80 us."""
    trace = TraceBuilder()
    told = {"Collective name": "allreduce", "In msg nelems": 1_000, "Out msg nelems": 1_000, "dtype": "BFloat16"}
    told |= {"Process Group Name": "0", "Process Group Ranks": "[0, 1]"} | (args or {})
    if desc:
        told["Process Group Description"] = desc
    if around:
        trace.op(around, 500, 18_000)
    trace.op("record_param_comms", 2_000, 9_000, **told)
    trace.launched((3_000, 5_000), (20_000, 100_000), 1, name=REDUCES)
    for number, (begin, end) in enumerate(((15_000, 40_000), (70_000, 80_000)), 2):
        trace.launched((10_000 + number * 1_000, 500), (begin, end - begin), number, stream=13)
    trace.copied((16_000, 500), (90_000, 10_000), 9, stream=15)
    return Analysis(trace.load())
