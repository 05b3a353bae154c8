"""Small jobs: ranks that compute, then reduce together, each with a clock of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.trace_builder import TraceBuilder
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
        made = {
            rank: TraceBuilder(distributedInfo={"rank": rank, "world_size": len(world)}) for rank in world
        }
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

    def _step(
        self, trace: TraceBuilder, step: int, begin: int, arrived: int, end: int, recording: Recording
    ) -> None:
        """Launched at its begin: 5 us for each call, and the kernels run without gaps."""
        shift, number = recording.ahead_ns + round(begin * recording.drift_ppm * 1e-6), 2 * step + 1
        at = begin + shift
        if recording.marked:
            trace.step(step, at - 10 * US, 30 * US)
        trace.op("aten::mm", at - 9 * US, 9 * US)
        trace.launch("cudaLaunchKernel", at - 8 * US, 5 * US, number)
        trace.kernel(at, arrived - begin, number, name=GEMM)
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
        trace.launch("cudaLaunchKernel", at + 3 * US, 5 * US, number + 1)
        trace.kernel(arrived + shift, end - arrived, number + 1, name=REDUCES)


def job_of(made: Reductions, folder: Path) -> Job:
    """The traces as a job is read."""
    paths = [trace.write(folder / f"rank{rank}.json") for rank, trace in made.traces().items()]
    return load_job(*paths)
