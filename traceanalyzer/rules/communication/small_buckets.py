"""Gradients are reduced in many small buckets."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct, median, starts_of_runs
from traceanalyzer.model.short_names import ENGINE
from traceanalyzer.model.units import format_bytes
from traceanalyzer.replay.edits import Drop, Resize
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, LostTime, Unavailable, Work, rule
from traceanalyzer.timeline.collective_waits import Arrivals, CollectiveWaits, collectives_of
from traceanalyzer.timeline.kernel_families import CONVERSION


class Limits:
    usual_bytes: int = 25 << 20
    """the usual size of a bucket: DistributedDataParallel's default, bucket_cap_mb=25"""
    small_share: float = 0.2
    """buckets are small if their mean size is at most this share of the usual size; DistributedDataParallel's
    first bucket is 1 MB by design"""
    min_times: float = 2.0
    """reported only if there are at least this many times as many buckets as with the default size; fewer
    cost little"""
    min_late_times: int = 4
    """reported only if at least this many all-reduces a step follow the backward pass; fewer are probably not
    a loop over parameters"""
    min_bytes: int = 65_536
    """all-reduces after the backward pass are reported only if they have at least this size on average;
    smaller ones are logged values"""
    gain_share: float = 0.3
    """for the saving: of the transfer time that moves under the backward pass, only this share is gained,
    because compute slows down while NCCL runs; measured with DDP on 2 H200, NVLink"""


# Buckets of 0.5 MB cost 28 % of the step, two H200, torch 2.11.
_REDUCER = r"AccumulateGrad|ddp\.reducer|distributed::reducer"
_REDUCES = r"(?i)all_?reduce"
_CALL, _LEVELS = r"^(c10d::|nccl:)", 3
# Conversions from one all-reduce to the next: of the one's result and of the next one's input.
_BACK_AND_FORTH = 2
_BACKWARD = f"^{ENGINE}"
_BYTES = {"double": 8, "float": 4, "half": 2, "bfloat16": 2, "c10::half": 2, "c10::bfloat16": 2}


@rule(since="0.2", claims=Claims.GENERAL, limits=Limits, causes=("small", "after-backward"))
def small_buckets(calls: Calls, work: Work, waits: CollectiveWaits | None, limits: Limits) -> Iterator[Hits]:
    """Gradients are reduced in too many small parts.

    What it looks for: all-reduces of DistributedDataParallel that are much smaller than the default of 25 MB.
    Or all-reduces that run one by one after the backward pass.
    Why it costs: each all-reduce costs a launch and a synchronisation of all ranks. All-reduces after the
    backward pass cannot overlap with compute.
    Bad: DistributedDataParallel(model, bucket_cap_mb=0.5). Good: 25 MB, or more for large models.
    Bad: `for p in model.parameters(): dist.all_reduce(p.grad)`. Good: DistributedDataParallel, which reduces
    buckets during the backward pass.
    How sure: calls and sizes are recorded. The time of larger buckets is estimated, so confidence is medium.
    When it is wrong: the job has only two or three buckets. Do not make them larger: a single bucket cannot
    overlap with the backward pass.
    Source: PyTorch's DDP notes; measured on two H200 with torch 2.11.
    """
    every = collectives_of(work)
    every = every[(every.step >= 0) & every.op.there]
    arrivals, elements = Arrivals.of(every, waits), every.number_or_ops("in_elements")
    kinds = every.text("comm_dtype").or_else(every.op.text("comm_dtype")).values()
    width = np.array([_BYTES.get(str(kind).lower(), 4) for kind in kinds], np.int64)
    sizes = np.maximum(elements, 0) * width  # 0 if unknown
    if not (sizes > 0).any():
        raise Unavailable("the sizes of its collectives are not recorded")
    by_hook = every.outer_op.name.matches(_REDUCER)
    reduces = every.outer_op.name.matches(_REDUCES) & (sizes > 0)
    late = reduces & ~by_hook & _after_backward(calls, every)
    for cause, chosen in (("small", by_hook & (sizes > 0)), ("after-backward", late)):
        positions = np.flatnonzero(chosen)
        if len(positions):
            positions = positions[np.lexsort((every.launch.start_ns[positions], every.step[positions]))]
            took = arrivals.transfer_ns[positions].astype(np.float64)
            widened = _widened(work, every[positions]) if cause == "after-backward" else calls[:0]
            yield from _bucket_hits(cause, every[positions], sizes[positions], took, widened, limits)


def _bucket_hits(
    cause: str, collectives: Work, sizes: Rows, took: Floats, widened: Calls, limits: Limits
) -> Iterator[Hits]:
    steps, as_made = len(distinct(collectives.step)), sizes // (2 if len(widened) else 1)
    bucket, surplus = larger_buckets(collectives.step, as_made, limits.usual_bytes)
    count, needed = len(collectives) / steps, (len(collectives) - surplus.sum()) / steps
    late = cause == "after-backward"
    if late and (count < limits.min_late_times or sizes.sum() < limits.min_bytes * len(collectives)):
        return
    if not late and (sizes.mean() >= limits.small_share * limits.usual_bytes or count < limits.min_times * needed):
        return
    rest = joined_ns(sizes, as_made, took, bucket) * (1 - limits.gain_share * late)
    gone, needless = collectives if late else collectives[surplus], _calls_of(collectives[surplus])
    total, sent = (format_bytes(round(each.sum() / steps)) for each in (as_made, sizes))
    how = f"converted to a wider type ({sent}) and " if len(widened) else ""
    what = (
        f"after the backward pass, {total} of gradients are {how}reduced one by one, in"
        if late
        else f"DistributedDataParallel reduces {total} in"
    )
    yield Hits(
        occurrences=gone,
        cause=cause,
        lost=LostTime.none(),
        fix=(Resize(collectives[~surplus].entries, rest), Drop(widened.joined((needless, widened)).rows)),
        confidence=Confidence.MEDIUM,
        message=f"{what} {count:.0f} all-reduces a step; DistributedDataParallel's default, "
        f"bucket_cap_mb={limits.usual_bytes >> 20}, would make {needed:.0f} bucket{'s' if needed > 1 else ''} "
        "of them (a bucket holds whole gradients, however large)",
        advice="Let DistributedDataParallel reduce them: in buckets, during the backward pass"
        + (", in their own type." if len(widened) else ".")
        if late
        else "Set bucket_cap_mb to its default of 25 MB, or larger: fewer collectives, launches and copies.",
        evidence={"calls": round(count), "needed": round(needed), "mean_bytes": round(float(sizes.mean()))},
    )


def _calls_of(collectives: Work) -> Calls:
    """The calls of torch.distributed, whose rows have the collectives' parameters."""
    op = collectives.op
    for _ in range(_LEVELS):
        around = op.parent
        inner = around.name.matches(_CALL)
        op = Calls(op.events, np.where(inner, around.rows, op.rows))
    return op.distinct()


def _widened(work: Work, late: Work) -> Calls:
    """The ops that convert gradients before the reduction and back, if most gradients are converted."""
    converts = work[work.name.matches(CONVERSION) & work.op.there]
    converts = converts[np.argsort(converts.launch.start_ns, kind="stable")]
    launched = late.launch.start_ns
    before = np.searchsorted(converts.launch.start_ns, launched)
    between = np.diff(before)[np.diff(late.step) == 0]  # one back and one forth
    if len(between) == 0 or median(between) < _BACK_AND_FORTH or before[0] == 0:
        return converts.launch[:0]
    return converts[before - 1].outer_op.distinct()


def _after_backward(calls: Calls, every: Work) -> Mask:
    """True for each collective that is launched outside of backward, after another one of its step."""
    nodes = calls[calls.name.matches(_BACKWARD) & (calls.step >= 0)]
    end_ns = np.full(max(int(every.step.max()), int(nodes.step.max(initial=-1))) + 1, -1)
    np.maximum.at(end_ns, nodes.step, nodes.end_ns)
    return np.asarray((end_ns[every.step] >= 0) & (every.launch.start_ns >= end_ns[every.step]))


def larger_buckets(step: Rows, sizes: Rows, cap: int) -> tuple[Rows, Mask]:
    """(larger bucket of each collective, False for the last collective of a bucket), in order of launch."""
    fresh = starts_of_runs(step)
    total = np.cumsum(sizes)
    before = (total - sizes)[np.maximum.accumulate(np.where(fresh, np.arange(len(step)), 0))]
    part = (total - sizes - before) // cap
    first = fresh | (np.diff(part, prepend=-1) != 0)
    bucket = np.cumsum(first) - 1
    return bucket, np.append(bucket[1:] == bucket[:-1], False)


def joined_ns(sizes: Rows, as_made: Rows, took: Floats, bucket: Rows) -> Floats:
    """Time of each larger bucket in ns: one latency, and the time of its bytes."""
    a_byte = 0.0
    if np.ptp(sizes) > 0:
        a_byte = max(float(np.polyfit(sizes.astype(np.float64), took, 1)[0]), 0.0)
    latency = max(median(took - a_byte * sizes), 0.0)
    bucket_ns = np.bincount(bucket, weights=as_made.astype(np.float64))
    return np.asarray(latency + a_byte * bucket_ns, np.float64)
