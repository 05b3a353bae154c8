"""Ops and kernels that one rank of a job runs and the others do not."""

from collections.abc import Iterator

from traceanalyzer.job.loads import OtherProgram
from traceanalyzer.rule import Calls, Claims, Hits, Kind, LostTime, Work, rule


class Limits:
    min_names_share: float = 0.01
    """reported only if these ops take at least this share of the time of this rank's ops, or these kernels
    this share of its GPU time; healthy pairs of ranks have the same names; H200"""


@rule(since="0.2", claims=Claims.CATCH_ALL, min_share=0.0, limits=Limits, kind=Kind.FACT)
def other_program(calls: Calls, work: Work, other: OtherProgram, limits: Limits) -> Iterator[Hits]:
    """A rank runs ops or kernels that the other ranks do not run.

    What it looks for: names of ops and kernels that are in this rank's trace, but not in most other ranks' traces.
    Why it matters: the ranks of a job usually run one program. If one rank differs, it may log, check, save or evaluate
    (often rank 0). Or it has inputs of other shapes, other software or another device. The finding only shows where to
    look, so it is always info. The rules `straggler` and `load-imbalance` report the cost.
    Bad: `if rank == 0: metrics(...)` in each step. Good: compute metrics rarely, in another process, or
    divided among all ranks.
    How sure: the names of all ops and kernels are recorded.
    When it is wrong: one rank's recording begins in another phase of the program. Or the compiler has chosen
    other kernels on this rank.
    Source: 48 recordings of two ranks on two H200.
    """
    ops = calls[calls.is_op & calls.name.one_of(*other.names)]
    kernels = work[work.name.one_of(*other.names)]
    of_cpu = int(ops.self_ns.sum()) / max(int(calls[calls.is_op].self_ns.sum()), 1)
    of_gpu = kernels.total_ns / max(work.total_ns, 1)
    if max(of_cpu, of_gpu) < limits.min_names_share:
        return
    noun = "op or kernel" if len(other.names) == 1 else "ops and kernels"
    whose = "the other rank does not run" if other.others == 1 else f"few of the {other.others} others run"
    yield Hits(
        occurrences=ops if len(ops) else kernels,
        lost=LostTime.none(),
        message=f"this rank runs {{different}} {noun} that {whose}: {{names}}; "
        "they take {cpu} of the time of its ops, and {gpu} of its GPU's",
        advice="Check whether this is intended: work only for rank 0, other input shapes, another software version "
        "or device.",
        evidence={
            "different": len(other.names),
            "names": {**ops.name.sums(ops.self_ns), **kernels.name.sums(kernels.dur_ns)},
            "cpu_share": of_cpu,
            "gpu_share": of_gpu,
        },
        info=True,
    )
