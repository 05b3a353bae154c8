"""The program allocates and frees driver memory in every step."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.idle.stalled_calls import standing_out
from traceanalyzer.model.arrays import distinct
from traceanalyzer.model.trace import ints
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, Unavailable, Work, rule
from traceanalyzer.timeline.names import ALLOCATOR
from traceanalyzer.timeline.steps import Steps

_HOST = r"Host"
_ASKS, _MAKES = r"Malloc|MemAlloc|MemCreate", r"^aten::(empty|empty_strided)$"
_GIVES_BACK = r"Free|Release|Unmap|Unregister"
_EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF={expandable_segments}:True"
# In fewer steps the pool of the first steps may still grow; chosen.
_FEW_STEPS = 10
_LATER = "First record later steps, schedule(wait=20, warmup=3): in the first steps the cache may still grow. Then:"
# cause -> (what happens, remedy)
_TEXTS = {
    "emptied": (
        "the cache is emptied between ops, and the next step allocates from the driver again",
        "Remove torch.cuda.empty_cache() from the loop: freed tensors stay in the cache and are reused.",
    ),
    "full": (
        "the cache frees blocks within ops to make room: memory is nearly full or fragmented",
        f"Use less memory (smaller batch, checkpointing), or {_EXPANDABLE} against fragmentation.",
    ),
    "growing": (
        "no cached block fits, and none is freed: sizes change, or the memory in use grows",
        f"Pad inputs to a few sizes, or set {_EXPANDABLE}. Do not keep tensors from step to step (such as losses with "
        "their graph).",
    ),
    "off": (
        "nearly every allocation goes to the driver: PyTorch's caching allocator is off",
        "Unset PYTORCH_NO_CUDA_MEMORY_CACHING, which is for debugging: cached memory needs no call to the driver.",
    ),
    "workspace": (
        "a library allocates its workspace in each call of an op, and frees it",
        "Call this op less often, on batches, or try another library: torch.backends.cuda.preferred_linalg_library().",
    ),
    "pinned": (
        "pinned host memory is allocated in the loop, which blocks the driver for a long time",
        "Pin buffers once and reuse them; let DataLoader(pin_memory=True) do it for batches.",
    ),
}


class Limits:
    min_steps: int = 3
    """the rule needs at least this many steps; fewer steps do not show whether the calls recur"""
    spike_times: float = 5.0
    """first steps are regarded as warm-up if their calls take more than this many times as long as those of
    the median step"""
    off_share: float = 0.5
    """the cache is regarded as disabled (PYTORCH_NO_CUDA_MEMORY_CACHING=1) if at least this share of the allocating ops
    call the driver; with empty_cache() in the loop, the cache still serves most of these ops"""


@rule(since="0.1", claims=Claims.EVENT, limits=Limits, causes=tuple(_TEXTS))
def allocator_thrash(calls: Calls, work: Work, idle: IdleTime, steps: Steps, limits: Limits) -> Iterator[Hits]:
    """Memory is allocated from the driver in every step.

    What it looks for: cudaMalloc, cudaFree, cudaHostAlloc and similar calls in more than half of the steps.
    Why it costs: such a call can take milliseconds, and the CPU launches no work during the call. cudaFree also waits
    for the device. After the first steps of a loop, PyTorch's caching allocator needs no such calls.
    Bad: torch.cuda.empty_cache() in the loop. Good: no empty_cache().
    How sure: the calls are recorded. The cost is the GPU's idle time during the calls. This cost varies
    widely from run to run.
    When it is wrong: the allocator's cache is still growing. A longer recording shows whether the calls stop.
    Source: PyTorch's notes on CUDA semantics, "Memory management".
    """
    allocations = driver_allocations(calls, work)
    if len(allocations) and (not steps.marked or len(steps) < limits.min_steps):
        raise Unavailable(f"memory is allocated, but fewer than {limits.min_steps} steps are marked")
    host = allocations.name.matches(_HOST)
    for group in (allocations[~host], allocations[host]):
        steady = calls_in_steady_steps(group, steps, limits.spike_times)
        if len(steady):
            yield _hits(steady, group, idle, steps, off=_cache_is_off(calls, steady, limits.off_share))


def _cache_is_off(calls: Calls, steady: Calls, least: float) -> bool:
    """Whether nearly every tensor asks the driver, and no cache frees blocks."""
    # A cache that is emptied after each tensor looks alike, but frees between ops, and its blocks are recorded.
    memory = calls.events.trace.lanes.memory
    unrecorded = len(memory) > 0 and not (ints(memory, "device_type") > 0).any()
    if not unrecorded and _cause(steady) != "full":
        return False
    asking = steady[steady.name.matches(_ASKS) & steady.op.there]
    makes = calls[calls.is_op & calls.name.matches(_MAKES) & np.isin(calls.step, asking.step)]
    return bool(np.isin(makes.rows, asking.op.rows).sum() >= least * max(len(makes), 1))


def _hits(steady: Calls, group: Calls, idle: IdleTime, steps: Steps, *, off: bool) -> Hits:
    cause = "off" if off else _cause(steady)
    what, advice = _TEXTS[cause]
    if cause == "growing" and len(steps) < _FEW_STEPS:
        advice = f"{_LATER} {advice}"
    names = steady.name.sums(steady.dur_ns)
    lost = LostTime.idle_within(idle, steady.start_ns, steady.end_ns)
    return Hits(
        occurrences=steady,
        named_by=next(iter(names)),
        cause=cause,
        lost=lost,
        fix=Drop(group.rows),
        message="the CPU asks the driver for memory or gives it back {times_a_step}: {calls:of the calls' time}; "
        + what
        # Launches that come late after a call may lose time, though the GPU works during the call.
        + ("; during these calls the GPU is idle for {total_a_step}" if lost.sums(len(steady)).any() else "")
        + "{at_lines}",
        advice=advice,
        evidence={"calls": names, "called_ns": steady.total_ns, "lines": steady.line.sums(steady.dur_ns)},
    )


def _cause(allocations: Calls) -> str:
    if allocations.name.matches(_HOST).all():
        return "pinned"
    gives_back = allocations.name.matches(_GIVES_BACK)
    freed = allocations[gives_back].op.there
    if len(freed) == 0 or freed.mean() <= 0.5:
        return "emptied" if len(freed) else "growing"
    # PyTorch's cache frees blocks and then asks again; a library frees what it asked for.
    op = allocations.op.rows
    order = np.lexsort((allocations.start_ns, op))
    last = order[np.append(op[order][1:] != op[order][:-1], True)]
    asked_before = np.isin(op[last], op[~gives_back])
    returned = gives_back[last] & asked_before
    return "workspace" if 2 * returned.sum() > len(distinct(op[gives_back])) else "full"


def driver_allocations(calls: Calls, work: Work) -> Calls:
    """Calls that ask the driver for memory or give it back, one after the other, by threads that launch work."""
    # cudaMallocAsync and its kin take from a pool, and stop nobody.
    allocations = calls[calls.is_call & calls.name.matches(ALLOCATOR) & ~calls.name.matches("Async")]
    if len(allocations) == 0:
        return allocations
    allocations = allocations[np.isin(allocations.thread, distinct(work.launch.thread))]
    allocations = allocations[np.lexsort((-allocations.end_ns, allocations.start_ns))]
    # A driver call within a runtime call is none of its own.
    before = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, allocations.end_ns))[:-1]
    return allocations[allocations.start_ns >= before]


def calls_in_steady_steps(allocations: Calls, steps: Steps, spike: float) -> Calls:
    """The calls of steps below `spike` times the median step, and none unless most steps have such calls."""
    allocations = allocations[allocations.step >= 0]
    kind = np.zeros_like(allocations.step)
    leading, alone = standing_out(kind, allocations.step, allocations.dur_ns, len(steps), spike)
    rest = allocations[~leading & ~alone]
    return rest if 2 * len(distinct(rest.step)) > len(steps) else rest[:0]
